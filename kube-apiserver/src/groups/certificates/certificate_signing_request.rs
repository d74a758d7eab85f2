//! CertificateSigningRequest.

use generic_server::registry::strategy::SelectableField;
use machinery::FieldPath;
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    status: true,
    create_on_update: false,
    prepare_create: |ctx, object| {
        // Who asks is what the server knows, not what the client says.
        let user = ctx.authorized.user();
        let spec = object.ensure("spec");
        for key in ["username", "uid", "groups", "extra"] {
            spec.take_key(key);
        }
        spec.put("username", user.name.as_str());
        if !user.uid.is_empty() {
            spec.put("uid", user.uid.as_str());
        }
        if !user.groups.is_empty() {
            spec.put("groups", json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.put("extra", json!(user.extra));
        }
    },
    prepare_update: |_, object, old| object.copy_key("spec", old),
    validate,
    fields: || vec![SelectableField::path("spec.signerName")],
    ..Rules::PLAIN
};

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn validate(faults: &mut Faults, object: &Value) {
    use base64::Engine as _;
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let request = spec.text("request");
    let pem = base64::engine::general_purpose::STANDARD.decode(request);
    let pem = String::from_utf8(pem.unwrap_or_default()).unwrap_or_default();
    if !pem.contains("-----BEGIN CERTIFICATE REQUEST-----")
        && !pem.contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
    {
        faults.invalid(
            &path.child("request"),
            request,
            "PEM block type must be CERTIFICATE REQUEST",
        );
    }
    let usages: Vec<&str> = spec.strings("usages").collect();
    let at = path.child("usages");
    if usages.is_empty() {
        faults.required(&at, "");
    }
    for (index, usage) in usages.iter().enumerate() {
        faults.one_of(&at.index(index), usage, USAGES);
    }
    for (index, usage) in usages.iter().enumerate() {
        if usages[..index].contains(usage) {
            faults.duplicate(&at.index(index), *usage);
        }
    }
    let (at, signer) = (path.child("signerName"), spec.text("signerName"));
    if signer == "kubernetes.io/legacy-unknown" {
        faults.invalid(
            &at,
            signer,
            "the legacy signerName is not allowed via this API version",
        );
    } else if signer.is_empty() {
        faults.required(&at, "");
    } else {
        let good = signer.split_once('/').is_some_and(|(domain, rest)| {
            domain.contains('.')
                && machinery::names::dns1123_subdomain(domain).is_empty()
                && machinery::names::dns1123_subdomain(rest).is_empty()
        });
        if !good {
            faults.invalid(
                &at,
                signer,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            );
        }
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < 600) {
        faults.invalid(
            &path.child("expirationSeconds"),
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
}
