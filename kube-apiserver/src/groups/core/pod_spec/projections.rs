//! Sources of projected volumes whose features are off by default: bundles of trust, and certificates of the pod.

use machinery::names::object_meta::validate_user_annotations;
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::paths::local_non_reserved_path;
use crate::errors::Errors;
use crate::groups::certificates::{cluster_trust_bundle, pod_certificate_request, signer};
use crate::json::Json;

/// A bundle by its name, or those of a signer. Gives the path of its file.
pub(super) fn trust_bundle<'v>(errors: &mut Errors, path: &FieldPath<'_>, source: &'v Value) -> &'v str {
    match (source.has("name"), source.has("signerName")) {
        (true, true) => {
            let text = "only one of name and signerName may be used";
            errors.shown(FieldError::invalid(path, &Value::Null, text), shown(source));
        }
        (true, false) => bundle_of_name(errors, path, source),
        (false, true) => {
            let (at, name) = (path.child("signerName"), source.text("signerName"));
            if name.is_empty() {
                errors.required(&at, "must be a valid signer name");
            }
            signer::validate(errors, &at, name);
            if source.has("labelSelector") {
                let at = path.child("labelSelector");
                let selector = source.dig("labelSelector");
                errors.selector(&at, selector, None);
            }
        }
        (false, false) => errors.required(path, "either name or signerName must be specified"),
    }
    let (at, file) = (path.child("path"), source.text("path"));
    errors.need(&at, file);
    local_non_reserved_path(errors, &at, file);
    file
}

/// A source as upstream prints it: a struct with the names of its fields in Go.
fn shown(source: &Value) -> String {
    format!(
        r#"{{"Name":{},"SignerName":{},"LabelSelector":{},"Optional":{},"Path":{}}}"#,
        source.dig("name"),
        source.dig("signerName"),
        source.dig("labelSelector"),
        source.dig("optional"),
        json!(source.text("path"))
    )
}

fn bundle_of_name(errors: &mut Errors, path: &FieldPath<'_>, source: &Value) {
    let (at, name) = (path.child("name"), source.text("name"));
    if name.is_empty() {
        errors.required(&at, "must be a valid object name");
    }
    // Its signer is what is before the last colon.
    let signer = name.rsplit_once(':').map(|(signer, _)| signer.replace(':', "/"));
    for text in cluster_trust_bundle::name(name, &signer.unwrap_or_default()) {
        let text = format!("not a valid clustertrustbundlename: {text}");
        errors.invalid(&at, name, text);
    }
    if source.has("labelSelector") {
        let text = "labelSelector must be unset if name is specified";
        errors.invalid_value(&path.child("labelSelector"), source.dig("labelSelector"), text);
    }
}

/// The kinds of keys of certificates of pods.
const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
/// The shortest certificates, in seconds.
const SHORTEST: i64 = 3600;

/// A certificate of the pod. Gives the paths of its files.
pub(super) fn pod_certificate<'v>(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    source: &'v Value,
) -> Vec<&'v str> {
    let name = source.text("signerName");
    signer::validate(errors, &path.child("signerName"), name);
    if let Some(annotations) = source.object_at("userAnnotations") {
        for error in validate_user_annotations(annotations, &path.child("userAnnotations")) {
            errors.push(error);
        }
    }
    errors.one_of(&path.child("keyType"), source.text("keyType"), &KEY_TYPES);
    if let Some(seconds) = source.int("maxExpirationSeconds") {
        let at = path.child("maxExpirationSeconds");
        let longest = pod_certificate_request::longest(name);
        if seconds < SHORTEST {
            let text = format!("if provided, maxExpirationSeconds must be >= {SHORTEST}");
            errors.invalid(&at, seconds, text);
        }
        if seconds > longest {
            let text = format!("if provided, maxExpirationSeconds must be <= {longest}");
            errors.invalid(&at, seconds, text);
        }
    }
    let mut files = Vec::new();
    for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = source.text(key);
        if !file.is_empty() {
            local_non_reserved_path(errors, &path.child(key), file);
            files.push(file);
        }
    }
    if files.is_empty() {
        let text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, text);
    }
    files
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_pod;

    #[track_caller]
    fn check(sources: Value, expected: &[&str]) {
        let at = "spec.volumes[0].projected";
        let expected: Vec<String> = expected.iter().map(|text| format!("{at}{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        check_pod(&json!({"volumes": volumes}), &expected);
    }

    #[test]
    fn bundles_are_of_a_name_or_a_signer() {
        check(
            json!([{"clusterTrustBundle": {"name": "a", "path": "x"}},
                {"clusterTrustBundle": {"signerName": "a.b/c", "labelSelector": {}, "path": "y"}},
                {"clusterTrustBundle": {"name": "a.b:c:d", "path": "z"}}]),
            &[],
        );
        let at = ".sources[0].clusterTrustBundle";
        check(
            json!([{"clusterTrustBundle": {"path": "../x"}}]),
            &[
                &format!("{at}: Required value: either name or signerName must be specified"),
                &format!(r#"{at}.path: Invalid value: "../x": must not contain '..'"#),
            ],
        );
        check(
            json!([{"clusterTrustBundle": {"name": "a", "signerName": "a.b/c", "path": "x"}}]),
            &[&format!(
                r#"{at}: Invalid value: {{"Name":"a","SignerName":"a.b/c","LabelSelector":null,"Optional":null,"Path":"x"}}: only one of name and signerName may be used"#
            )],
        );
        check(
            json!([{"clusterTrustBundle": {"name": "a", "labelSelector": {}}}]),
            &[
                &format!(
                    "{at}.labelSelector: Invalid value: {{}}: labelSelector must be unset if name is specified"
                ),
                &format!("{at}.path: Required value"),
            ],
        );
    }

    #[test]
    fn certificates_have_a_key_and_files() {
        let certificate = |more: Value| {
            let mut source =
                json!({"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "x"});
            for (key, value) in more.as_object().unwrap() {
                source[key] = value.clone();
            }
            json!([{"podCertificate": source}])
        };
        let at = ".sources[0].podCertificate";
        check(certificate(json!({"maxExpirationSeconds": 91 * 86_400})), &[]);
        check(
            certificate(json!({"keyType": "DSA", "maxExpirationSeconds": 3599})),
            &[
                &format!(
                    r#"{at}.keyType: Unsupported value: "DSA": supported values: "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519""#
                ),
                &format!(
                    "{at}.maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600"
                ),
            ],
        );
        check(
            certificate(json!({"signerName": "kubernetes.io/c", "maxExpirationSeconds": 86_401})),
            &[&format!(
                "{at}.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400"
            )],
        );
        check(
            certificate(json!({"credentialBundlePath": "", "userAnnotations": {"a": "b"}})),
            &[
                &format!(
                    r#"{at}.userAnnotations: Invalid value: "a": must be a domain-prefixed key (such as "acme.io/foo")"#
                ),
                &format!(
                    "{at}: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
                ),
            ],
        );
        check(
            certificate(json!({"keyPath": "x"})),
            &[r#": Invalid value: "x": conflicting duplicate paths"#],
        );
    }
}
