//! PodCertificateRequest: a kubelet asks a signer for a certificate of a pod.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::registry::strategy::SelectableField;
use machinery::names::dns1123_subdomain;
use machinery::names::object_meta::validate_user_annotations;
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::public_key::{Fault, PublicKey};
use super::{request, signer};
use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};
use crate::rules::{Resets, Rules, StatusMeta};

mod issued;

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    resets: Some(Resets {
        main: &[],
        status: &["spec"],
    }),
    default: |object| object.ensure("spec").fill("maxExpirationSeconds", DAY),
    validate,
    validate_update: |errors, object, old| {
        if !same(object.dig("spec"), old.dig("spec")) {
            let error = FieldError::invalid(&FieldPath::new("spec"), &Value::Null, IMMUTABLE);
            errors.shown(error, shown(object.dig("spec")));
        }
    },
    validate_status: |errors, object, old| issued::validate(errors, object, old),
    fields: || {
        let fields = ["spec.signerName", "spec.podName", "spec.nodeName"];
        fields.into_iter().map(SelectableField::path).collect()
    },
    ..Rules::PLAIN
};

/// Seconds of a day, the longest for which the signers of Kubernetes may be asked.
const DAY: i64 = 24 * 60 * 60;
/// The shortest and the longest certificates that other signers may be asked for.
const SHORTEST: i64 = 60 * 60;
const LONGEST: i64 = 91 * DAY;
/// How long a uid may be.
const UID_BYTES: usize = 128;
/// How long a key, a proof and a request may be. Upstream's.
const KEY_BYTES: usize = 10 * 1024;

/// How long a certificate of a signer may be asked for.
pub(crate) fn longest(signer: &str) -> i64 {
    let host = signer.split_once('/').map_or(signer, |(host, _)| host);
    match host == "kubernetes.io" || host.ends_with(".kubernetes.io") {
        true => DAY,
        false => LONGEST,
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
    let signer = spec.text("signerName");
    signer::validate(errors, &path.child("signerName"), signer);
    if let Some(annotations) = spec.object_at("unverifiedUserAnnotations") {
        for error in validate_user_annotations(annotations, &path.child("unverifiedUserAnnotations")) {
            errors.push(error);
        }
    }
    for (name, uid) in [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ] {
        let text = spec.text(name);
        errors.text(&path.child(name), text, dns1123_subdomain(text));
        match spec.text(uid).len() {
            0 => errors.invalid(&path.child(uid), "", "must not be empty"),
            1..=UID_BYTES => {}
            _ => errors.too_long(&path.child(uid), UID_BYTES),
        }
    }
    let at = path.child("maxExpirationSeconds");
    let Some(seconds) = spec.int("maxExpirationSeconds") else {
        return errors.required(&at, "must be set");
    };
    let longest = longest(signer);
    if !(SHORTEST..=longest).contains(&seconds) {
        let text = format!("must be in the range [{SHORTEST}, {longest}]");
        errors.invalid(&at, seconds, text);
    }
    let given =
        ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"].map(|key| !spec.text(key).is_empty());
    match given {
        [true, false, false] => stub_request(errors, &path.child("stubPKCS10Request"), spec),
        [false, true, true] => public_key(errors, &path, spec),
        _ => omitted(
            errors,
            &path,
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    }
}

/// An error that shows no value.
fn omitted(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    let mut error = FieldError::invalid(path, &Value::Null, text);
    error.value = None;
    errors.push(error);
}

fn fault(errors: &mut Errors, path: &FieldPath<'_>, (value, text): Fault) {
    match value {
        Some(value) => errors.invalid(path, value, text),
        None => omitted(errors, path, text),
    }
}

fn bytes(spec: &Value, key: &str) -> Vec<u8> {
    STANDARD.decode(spec.text(key)).unwrap_or_default()
}

const BAD_REQUEST: &str = "must be a valid PKCS#10 CSR";
const BAD_KEY: &str = "must be a valid PKIX-serialized public key";

/// A request whose content is not looked at: it shows that who asks has the key.
fn stub_request(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let bytes = bytes(spec, "stubPKCS10Request");
    if bytes.len() > KEY_BYTES {
        return errors.too_long(path, KEY_BYTES);
    }
    let Ok(([], request)) = X509CertificationRequest::from_der(&bytes) else {
        return omitted(errors, path, BAD_REQUEST);
    };
    let Some(key) = PublicKey::of(&request.certification_request_info.subject_pki, true) else {
        return omitted(errors, path, BAD_REQUEST);
    };
    if let Some(why) = key.fault("elliptic public keys must use curve P256, P384, or P521") {
        return fault(errors, path, why);
    }
    if request::verified(&request).is_err() {
        omitted(errors, path, "invalid signature");
    }
}

/// A key and its signature of the pod's uid, as kubelets sent them before there were stub requests.
fn public_key(errors: &mut Errors, spec_path: &FieldPath<'_>, spec: &Value) {
    let path = spec_path.child("pkixPublicKey");
    let key = bytes(spec, "pkixPublicKey");
    if key.len() > KEY_BYTES {
        return errors.too_long(&path, KEY_BYTES);
    }
    let (proof_path, proof) = (
        spec_path.child("proofOfPossession"),
        bytes(spec, "proofOfPossession"),
    );
    if proof.len() > KEY_BYTES {
        return errors.too_long(&proof_path, KEY_BYTES);
    }
    let info = SubjectPublicKeyInfo::from_der(&key);
    let parsed = match &info {
        Ok(([], info)) => PublicKey::of(info, false),
        _ => None,
    };
    let Some(parsed) = parsed else {
        return errors.invalid(&path, spec.text("pkixPublicKey"), BAD_KEY);
    };
    match parsed.fault("elliptic public keys must use curve P256 or P384") {
        Some((None, text)) => errors.invalid(&path, spec.text("pkixPublicKey"), text),
        Some(why) => fault(errors, &path, why),
        None if !parsed.verifies(spec.text("podUID").as_bytes(), &proof) => {
            omitted(
                errors,
                &proof_path,
                "could not verify proof-of-possession signature",
            );
        }
        None => {}
    }
}

/// A specification as upstream prints it: a struct with the names of its fields in Go.
fn shown(spec: &Value) -> String {
    let text = |key: &str| json!(spec.text(key));
    let or_null = |key: &str| match spec.has(key) {
        true => spec.dig(key).clone(),
        false => Value::Null,
    };
    format!(
        r#"{{"SignerName":{},"PodName":{},"PodUID":{},"ServiceAccountName":{},"ServiceAccountUID":{},"NodeName":{},"NodeUID":{},"MaxExpirationSeconds":{},"PKIXPublicKey":{},"ProofOfPossession":{},"StubPKCS10Request":{},"UnverifiedUserAnnotations":{}}}"#,
        text("signerName"),
        text("podName"),
        text("podUID"),
        text("serviceAccountName"),
        text("serviceAccountUID"),
        text("nodeName"),
        text("nodeUID"),
        or_null("maxExpirationSeconds"),
        or_null("pkixPublicKey"),
        or_null("proofOfPossession"),
        or_null("stubPKCS10Request"),
        or_null("unverifiedUserAnnotations"),
    )
}

#[cfg(test)]
mod tests;
