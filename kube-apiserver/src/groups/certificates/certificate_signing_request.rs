//! CertificateSigningRequest.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::registry::strategy::SelectableField;
use machinery::FieldPath;
use machinery::go;
use machinery::time::Timestamp;
use serde_json::{Value, json};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::pem;
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::{Resets, Rules};
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    status: true,
    create_on_update: false,
    prepare_create: |ctx, object| {
        // The requester is the authenticated user, regardless of the body.
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
    prepare_status: |object, old| {
        keep_verdicts(object, old);
        stamp_conditions(object, old);
    },
    validate_status: |errors, object, old| {
        validate_conditions(errors, object, old);
        if !same(object.dig("status.certificate"), old.dig("status.certificate")) {
            validate_certificate(errors, object.text("status.certificate"));
        }
        keeps_conditions(errors, object, old);
        for verdict in VERDICTS {
            let path = FieldPath::new("status");
            let (now, before) = (of_type(object, verdict), of_type(old, verdict));
            if now.len() > before.len() {
                let text = format!("updates may not add a condition of type \"{verdict}\"");
                errors.forbidden(&path.child("conditions"), text);
            }
        }
        let set = !old.text("status.certificate").is_empty();
        if set && !same(object.dig("status.certificate"), old.dig("status.certificate")) {
            let path = FieldPath::new("status");
            let text = "updates may not modify existing certificate content";
            errors.forbidden(&path.child("certificate"), text);
        }
    },
    name: |_, _| Vec::new(),
    resets: Some(Resets {
        main: &["spec", "status"],
        status: &["spec", "status.conditions"],
    }),
    fields: || vec![SelectableField::path("spec.signerName")],
    ..Rules::PLAIN
};

/// Conditions that only `approval` writes.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];

fn of_type<'v>(object: &'v Value, kind: &str) -> Vec<&'v Value> {
    let conditions = object.list("status.conditions").iter();
    conditions.filter(|c| c.text("type") == kind).collect()
}

/// A status write that has as many verdicts as there were keeps them as they were.
fn keep_verdicts(object: &mut Value, old: &Value) {
    for verdict in VERDICTS {
        let kept: Vec<Value> = of_type(old, verdict).into_iter().cloned().collect();
        if kept.len() != of_type(object, verdict).len() {
            continue;
        }
        let own = object.list_mut("status.conditions").iter_mut();
        for (condition, kept) in own.filter(|c| c.text("type") == verdict).zip(kept) {
            *condition = kept;
        }
    }
}

/// Fills in the times of conditions; one of the same type and status as before keeps when it became so.
pub(super) fn stamp_conditions(object: &mut Value, old: &Value) {
    let now = Timestamp::now().to_rfc3339();
    let mut since: HashMap<(&str, &str), &str> = HashMap::new();
    for before in old.list("status.conditions") {
        let at = before.text("lastTransitionTime");
        if !at.is_empty() {
            since
                .entry((before.text("type"), before.text("status")))
                .or_insert(at);
        }
    }
    for condition in object.list_mut("status.conditions") {
        condition.fill_text("lastUpdateTime", &now);
        let before = since.get(&(condition.text("type"), condition.text("status")));
        condition.fill_text("lastTransitionTime", before.copied().unwrap_or(&now));
    }
}

/// An update may keep the faults of the stored object.
pub(super) fn validate_conditions(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status");
    let path = path.child("conditions");
    let mut had = Seen::default();
    let mut had_twice = false;
    for condition in old.list("status.conditions") {
        had_twice |= had.again(condition.text("type"));
    }
    let had_both = VERDICTS.iter().all(|verdict| had.has(*verdict));
    let had_empty = had.has("");
    let mut seen = Seen::default();
    for (index, condition) in object.list("status.conditions").iter().enumerate() {
        let at = path.index(index);
        let kind = condition.text("type");
        if kind.is_empty() && !had_empty {
            errors.required(&at.child("type"), "");
        }
        let allowed: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        errors.required_one_of(&at.child("status"), condition.text("status"), allowed);
        let other = VERDICTS.iter().find(|v| VERDICTS.contains(&kind) && **v != kind);
        if !had_both && other.is_some_and(|other| seen.has(*other)) {
            let text = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(&path, kind, text);
        }
        if seen.again(kind) && !had_twice {
            errors.duplicate(&at.child("type"), kind);
        }
    }
}

/// Verdicts and failures are never taken back.
pub(super) fn keeps_conditions(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status");
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(object, kind).len() < of_type(old, kind).len() {
            let text = format!("updates may not remove a condition of type \"{kind}\"");
            errors.forbidden(&path.child("conditions"), text);
        }
    }
}

/// A certificate is PEM, of certificates alone.
fn validate_certificate(errors: &mut Errors, field: &str) {
    if field.is_empty() {
        return;
    }
    let pem = STANDARD.decode(field).unwrap_or_default();
    let why = match certificates(&String::from_utf8_lossy(&pem)) {
        Ok(0) => "must contain at least one CERTIFICATE PEM block".to_string(),
        Ok(_) => return,
        Err(why) => why,
    };
    let path = FieldPath::new("status");
    errors.invalid(&path.child("certificate"), "<certificate data>", why);
}

/// Counts the certificates of a PEM text.
fn certificates(text: &str) -> Result<usize, String> {
    let (mut count, mut rest) = (0, text);
    while let Some((block, next)) = pem::first(rest) {
        if block.kind != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {}",
                go::quote(block.kind)
            ));
        }
        if block.headers {
            return Err("no PEM block headers are permitted".into());
        }
        let mut der = block.bytes.as_slice();
        if der.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        // A block may hold several, one behind the other.
        while !der.is_empty() {
            let parsed = X509Certificate::from_der(der);
            (der, _) = parsed.map_err(|_| "x509: malformed certificate".to_string())?;
        }
        count += 1;
        rest = next;
    }
    Ok(count)
}

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

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let request = spec.text("request");
    if let Err(why) = super::request::parse(request) {
        errors.invalid(&path.child("request"), request, why);
    }
    let usages: Vec<&str> = spec.strings("usages").collect();
    let at = path.child("usages");
    if usages.is_empty() {
        errors.required(&at, "");
    }
    for (index, usage) in usages.iter().enumerate() {
        errors.one_of(&at.index(index), usage, USAGES);
    }
    let mut seen = Seen::default();
    for (index, usage) in usages.iter().enumerate() {
        if seen.again(*usage) {
            errors.duplicate(&at.index(index), *usage);
        }
    }
    let (at, signer) = (path.child("signerName"), spec.text("signerName"));
    if signer == "kubernetes.io/legacy-unknown" {
        errors.invalid(
            &at,
            signer,
            "the legacy signerName is not allowed via this API version",
        );
    } else {
        super::signer::validate(errors, &at, signer);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < 600) {
        errors.invalid(
            &path.child("expirationSeconds"),
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    fn with(spec: Value) -> Value {
        let key = rcgen::KeyPair::generate().unwrap();
        let request = rcgen::CertificateParams::new(Vec::new())
            .unwrap()
            .serialize_request(&key)
            .unwrap();
        let request = STANDARD.encode(request.pem().unwrap());
        let base =
            json!({"spec": {"request": request, "signerName": "example.com/s", "usages": ["client auth"]}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("certificatesigningrequests.certificates.k8s.io").create(&with(spec), expected);
    }

    #[test]
    fn requests_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"usages": [], "signerName": "", "expirationSeconds": 599}),
            &[
                "spec.usages: Required value",
                "spec.signerName: Required value",
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
            ],
        );
        check(
            json!({"signerName": "kubernetes.io/legacy-unknown", "usages": ["client auth", "client auth"]}),
            &[
                r#"spec.usages[1]: Duplicate value: "client auth""#,
                r#"spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version"#,
            ],
        );
    }

    #[test]
    fn verdicts_are_given_through_approval() {
        let requests = kind("certificatesigningrequests.certificates.k8s.io");
        let verdict = |kinds: &[&str]| {
            let conditions: Vec<Value> = kinds
                .iter()
                .map(|kind| json!({"type": kind, "status": "True"}))
                .collect();
            json!({"status": {"conditions": conditions}})
        };
        requests.update_of("approval", &with(json!({})), &verdict(&["Approved"]), &[]);
        requests.update_of(
            "approval",
            &with(json!({})),
            &verdict(&["Approved", "Denied"]),
            &[r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#],
        );
        requests.update_of(
            "status",
            &with(json!({})),
            &verdict(&["Approved"]),
            &[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#],
        );
    }
}
