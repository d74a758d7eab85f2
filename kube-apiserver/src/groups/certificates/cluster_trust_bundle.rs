//! ClusterTrustBundle: certificates of authorities for everybody in the cluster, of a signer or of nobody.
//!
//! v1beta1 is stored; v1alpha1 differs in its name alone.

use std::collections::BTreeMap;

use generic_server::ApiError;
use generic_server::registry::strategy::SelectableField;
use generic_server::resource::Converter;
use machinery::FieldPath;
use machinery::names::dns1123_subdomain;
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{pem, signer};
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::Rules;

/// How long a bundle may be. Upstream's `MaxTrustBundleSize`.
const MOST_BYTES: usize = 1024 * 1024;
/// Errors do not show bundles.
const OMITTED: &str = "<value omitted>";

pub(crate) static RULES: Rules = Rules {
    // Names depend on the signer: they are checked with the object.
    name: |_, _| Vec::new(),
    unconditional_update: false,
    validate: |errors, object| {
        validate_names(errors, object);
        validate_bundle(errors, object.text("spec.trustBundle"));
    },
    validate_update: |errors, object, old| {
        validate_names(errors, object);
        // What was stored stays valid, whatever readers of certificates make of it by then.
        if !same(object.dig("spec.trustBundle"), old.dig("spec.trustBundle")) {
            validate_bundle(errors, object.text("spec.trustBundle"));
        }
        let path = FieldPath::new("spec");
        errors.immutable(&path, "signerName", object.dig("spec"), old.dig("spec"));
    },
    fields: || vec![SelectableField::path("spec.signerName")],
    ..Rules::PLAIN
};

fn validate_names(errors: &mut Errors, object: &Value) {
    let (path, signer_name) = (FieldPath::new("metadata"), object.text("spec.signerName"));
    let generated = object.text("metadata.generateName");
    if !generated.is_empty() {
        // A generated name ends in a dash, and its suffix is not known yet.
        let completed = match generated.strip_suffix('-') {
            Some(rest) if generated.len() > 1 => format!("{rest}a"),
            _ => generated.to_string(),
        };
        let texts = name(&completed, signer_name);
        errors.text(&path.child("generateName"), generated, texts);
    }
    let own = object.text("metadata.name");
    errors.text(&path.child("name"), own, name(own, signer_name));
    if !signer_name.is_empty() {
        let path = FieldPath::new("spec");
        signer::validate(errors, &path.child("signerName"), signer_name);
    }
}

/// What is wrong with a name of a bundle of this signer.
pub(crate) fn name(name: &str, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        return match name.contains(':') {
            true => vec!["ClusterTrustBundle without signer name must not have \":\" in its name".into()],
            false => dns1123_subdomain(name),
        };
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => dns1123_subdomain(rest),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
    }
}

/// A bundle is PEM, of different certificates of authorities alone.
fn validate_bundle(errors: &mut Errors, text: &str) {
    let path = FieldPath::new("spec");
    let path = path.child("trustBundle");
    if text.len() > MOST_BYTES {
        return errors.too_long(&path, MOST_BYTES);
    }
    let before = errors.len();
    // The places of each certificate.
    let mut anchors: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    let (mut rest, mut index) = (text, 0usize);
    while let Some((block, next)) = pem::first(rest) {
        match fault(&block) {
            Some(why) => errors.invalid(&path, OMITTED, format!("entry {index} {why}")),
            None => anchors.entry(block.bytes).or_default().push(index),
        }
        (rest, index) = (next, index + 1);
    }
    if errors.len() > before {
        return;
    }
    if anchors.is_empty() {
        errors.invalid(&path, OMITTED, "at least one trust anchor must be provided");
    }
    let mut twice: Vec<Vec<usize>> = anchors.into_values().filter(|places| places.len() > 1).collect();
    twice.sort_unstable();
    for places in twice {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        let text = format!("duplicate trust anchor (indices [{}])", places.join(" "));
        errors.invalid(&path, OMITTED, text);
    }
}

/// Why a block is no certificate of an authority.
fn fault(block: &pem::Block<'_>) -> Option<String> {
    if block.kind != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.kind));
    }
    if block.headers {
        return Some("has PEM block headers".into());
    }
    let certificate = match X509Certificate::from_der(&block.bytes) {
        Ok(([], certificate)) => certificate,
        _ => return Some("does not parse as X.509".into()),
    };
    match certificate.basic_constraints() {
        Ok(Some(constraints)) if constraints.value.ca => None,
        Ok(_) => Some("does not have the CA bit set".into()),
        Err(_) => Some("does not parse as X.509".into()),
    }
}

/// Reads and writes v1alpha1.
#[derive(Debug)]
pub(super) struct V1Alpha1;

impl Converter for V1Alpha1 {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "certificates.k8s.io/v1alpha1");
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "certificates.k8s.io/v1beta1");
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::{Value, json};

    use crate::groups::check::{Kind, kind};

    fn bundles() -> Kind {
        kind("clustertrustbundles.certificates.k8s.io")
    }

    fn certificate(is_ca: IsCa) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = is_ca;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn authority() -> String {
        certificate(IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn bundle(name: &str, signer: &str, pem: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}})
    }

    #[test]
    fn bundles_hold_different_certificates_of_authorities() {
        #[track_caller]
        fn check(pem: &str, expected: &[&str]) {
            let expected: Vec<String> = expected
                .iter()
                .map(|text| format!("spec.trustBundle: Invalid value: \"<value omitted>\": {text}"))
                .collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            bundles().create(&bundle("one", "", pem), &expected);
        }
        let (one, two) = (authority(), authority());
        check(&format!("text\n{one}text\n{two}"), &[]);
        check("", &["at least one trust anchor must be provided"]);
        check("nothing", &["at least one trust anchor must be provided"]);
        check(
            &format!("{one}{two}{one}"),
            &["duplicate trust anchor (indices [0 2])"],
        );
        let leaf = certificate(IsCa::NoCa);
        let key = KeyPair::generate().unwrap().serialize_pem();
        let headers = one.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nA: b\n\n");
        let headers = headers.replacen(
            "-----END CERTIFICATE-----\nA: b\n\n",
            "-----END CERTIFICATE-----\n",
            1,
        );
        let odd = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        check(
            &format!("{one}{leaf}{key}\n{headers}{odd}{one}"),
            &[
                "entry 1 does not have the CA bit set",
                "entry 2 has bad block type: PRIVATE KEY",
                "entry 3 has PEM block headers",
                "entry 4 does not parse as X.509",
            ],
        );
        let long = "a".repeat(super::MOST_BYTES + 1);
        bundles().create(
            &bundle("one", "", &long),
            &["spec.trustBundle: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn names_begin_with_the_signer() {
        let pem = authority();
        let check = |name: &str, signer: &str, expected: &[&str]| {
            bundles().create(&bundle(name, signer, &pem), expected);
        };
        check("one", "", &[]);
        check("example.com:s:one", "example.com/s", &[]);
        check(
            "a:b",
            "",
            &[
                r#"metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name"#,
            ],
        );
        check(
            "one",
            "example.com/s",
            &[
                r#"metadata.name: Invalid value: "one": ClusterTrustBundle for signerName example.com/s must be named with prefix example.com:s:"#,
            ],
        );
        check(
            "s:one",
            "s",
            &[
                r#"spec.signerName: Invalid value: "s": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
            ],
        );
        check(
            "com:s:one",
            "com/s",
            &[
                r#"spec.signerName: Invalid value: "com": should be a domain with at least two segments separated by dots"#,
            ],
        );
        let found = bundles().errors(&bundle("a.B:c_d:one", "a.B/c_d", &pem));
        let starts = |at: usize, text: &str| found.get(at).is_some_and(|found| found.starts_with(text));
        assert!(
            starts(
                0,
                r#"spec.signerName: Invalid value: "a.B": validating label "B": a lowercase RFC 1123 label"#
            ),
            "{found:?}"
        );
        assert!(
            starts(
                1,
                r#"spec.signerName: Invalid value: "c_d": validating label "c_d": a lowercase RFC 1123 subdomain"#
            ),
            "{found:?}"
        );
    }

    #[test]
    fn the_signer_stays_and_what_is_stored_is_not_read_again() {
        let object = bundle("example.com:s:one", "example.com/s", &authority());
        bundles().update(&object, &json!({"metadata": {"labels": {"a": "b"}}}), &[]);
        bundles().update(
            &object,
            &json!({"spec": {"trustBundle": ""}}),
            &[r#"spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided"#],
        );
        let found = bundles().updated("", &object, &json!({"spec": {"signerName": "example.com/t"}}));
        let found = found.unwrap_err();
        assert!(
            found.contains(
                &r#"spec.signerName: Invalid value: "example.com/t": field is immutable"#.to_string()
            ),
            "{found:?}"
        );
    }
}
