//! The status of a PodCertificateRequest: issued with a certificate that fits the request, denied or failed, and from then on the same.

use machinery::FieldPath;
use machinery::names::conditions::validate_conditions;
use machinery::time::Timestamp;
use serde_json::{Value, json};
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::super::pem;
use super::super::public_key::PublicKey;
use super::{BAD_KEY, BAD_REQUEST, bytes, omitted};
use crate::errors::Errors;
use crate::json::{Json, same};

/// The conditions of which a request has one, in the end.
const FINAL: [&str; 3] = ["Issued", "Denied", "Failed"];
/// How long a chain may be. Upstream's.
const CHAIN_BYTES: usize = 100 * 1024;
/// How far the begin of a certificate may be from this server's time, and its renewal from both of its ends, in seconds.
const SKEW: i64 = 5 * 60;
const MARGIN: i64 = 10 * 60;
const HOUR: i64 = 60 * 60;
const NANOS: i64 = 1_000_000_000;

fn is(object: &Value, kind: &str) -> bool {
    let mut conditions = object.list("status.conditions").iter();
    conditions.any(|c| c.text("type") == kind && c.text("status") == "True")
}

pub(super) fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status");
    let before = errors.len();
    conditions(errors, &path, object.list("status.conditions"));
    if errors.len() > before {
        return;
    }
    let (status, old_status) = (object.dig("status"), old.dig("status"));
    if FINAL.iter().any(|kind| is(old, kind)) {
        if !same(status, old_status) {
            let text = "immutable after PodCertificateRequest is issued, denied, or failed";
            omitted(errors, &path, text);
        }
    } else if is(object, "Denied") || is(object, "Failed") {
        let of_certificate = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
        if of_certificate.iter().any(|key| status.has(key)) {
            let text =
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            omitted(errors, &path, text);
        }
    } else if is(object, "Issued") {
        certificate(errors, &path, object, old);
    } else if !same(status, old_status) {
        let text = r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#;
        omitted(errors, &path, text);
    }
}

fn conditions(errors: &mut Errors, path: &FieldPath<'_>, conditions: &[Value]) {
    let mut known = 0;
    for (index, condition) in conditions.iter().enumerate() {
        // Upstream's path has a dot before the index.
        let list = path.child("conditions");
        let index = format!("[{index}]");
        let at = list.child(&index);
        let kind = condition.text("type");
        if !FINAL.contains(&kind) {
            errors.unsupported(&at.child("type"), kind, &FINAL);
            continue;
        }
        known += 1;
        if known > 1 {
            let text = r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#;
            errors.invalid(&at.child("type"), kind, text);
        }
        errors.one_of(&at.child("status"), condition.text("status"), &["True"]);
    }
    for error in validate_conditions(conditions, &path.child("conditions")) {
        errors.push(error);
    }
}

/// The chain, its first certificate, and what the status says of it.
fn certificate(errors: &mut Errors, path: &FieldPath<'_>, object: &Value, old: &Value) {
    let at = path.child("certificateChain");
    let chain = object.text("status.certificateChain");
    if chain.len() > CHAIN_BYTES {
        return errors.too_long(&at, CHAIN_BYTES);
    }
    let Some((block, rest)) = pem::first(chain) else {
        return errors.invalid(
            &at,
            chain,
            "issued certificate chain must contain at least one certificate",
        );
    };
    if block.kind != "CERTIFICATE" {
        let text = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return errors.invalid(&at, chain, text);
    }
    let Ok(([], leaf)) = X509Certificate::from_der(&block.bytes) else {
        return errors.invalid(&at, chain, "leaf certificate does not parse as valid X.509");
    };
    names(errors, &at, &leaf);
    match is_of_requested_key(&leaf, old.dig("spec")) {
        Err((key, text)) => return omitted(errors, &FieldPath::new("spec").child(key), text),
        Ok(false) => {
            let text = "leaf certificate was not issued to the requested public key";
            return errors.invalid(&at, chain, text);
        }
        Ok(true) => {}
    }
    if !times(errors, path, object, &leaf) {
        return;
    }
    intermediates(errors, &at, chain, rest);
}

/// Names without which nobody could be reached.
fn names(errors: &mut Errors, at: &FieldPath<'_>, leaf: &X509Certificate<'_>) {
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return;
    };
    let all = &names.value.general_names;
    for name in all.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    }) {
        if name.is_empty() {
            errors.invalid(at, name, "leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            errors.invalid(at, name, "leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            let text = "leaf certificate's DNSName should not start or end with '.'";
            errors.invalid(at, name, text);
        }
    }
    for address in all.iter().filter_map(|name| match name {
        GeneralName::RFC822Name(address) => Some(*address),
        _ => None,
    }) {
        if !is_address(address) {
            let text = "leaf certificate should not contain invalid EmailAddress";
            errors.invalid(at, address, text);
        }
    }
}

/// Whether a text is an address of mail, as they are in certificates: without a name, quotes and comments.
fn is_address(text: &str) -> bool {
    let atom = |text: &str, more: &[u8]| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || more.contains(&b);
        text.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(fits))
    };
    let symbols = b"!#$%&'*+-/=?^_`{|}~";
    text.rsplit_once('@')
        .is_some_and(|(local, domain)| atom(local, symbols) && atom(domain, symbols))
}

/// Whether a certificate is of the key that was asked about.
///
/// # Errors
/// The field of a key that cannot be read any more, and why.
fn is_of_requested_key(
    leaf: &X509Certificate<'_>,
    spec: &Value,
) -> Result<bool, (&'static str, &'static str)> {
    let issued = PublicKey::of(leaf.public_key(), true);
    let stub = bytes(spec, "stubPKCS10Request");
    if !stub.is_empty() {
        let unreadable = ("stubPKCS10Request", BAD_REQUEST);
        let (_, request) = X509CertificationRequest::from_der(&stub).map_err(|_| unreadable)?;
        let wanted = PublicKey::of(&request.certification_request_info.subject_pki, true);
        return Ok(wanted.is_some() && wanted == issued);
    }
    let key = bytes(spec, "pkixPublicKey");
    let unreadable = ("pkixPublicKey", BAD_KEY);
    let (_, info) = SubjectPublicKeyInfo::from_der(&key).map_err(|_| unreadable)?;
    let wanted = PublicKey::of(&info, false).ok_or(unreadable)?;
    Ok(issued == Some(wanted))
}

/// The times of the status are those of the certificate, and in their bounds.
fn times(errors: &mut Errors, path: &FieldPath<'_>, object: &Value, leaf: &X509Certificate<'_>) -> bool {
    let time = |key: &str| Timestamp::parse_rfc3339(object.dig("status").text(key));
    let [begins, ends, renews] = [time("notBefore"), time("notAfter"), time("beginRefreshAt")];
    let before = errors.len();
    for (key, text, given) in [
        (
            "notBefore",
            "must be present and consistent with the issued certificate",
            begins,
        ),
        (
            "notAfter",
            "must be present and consistent with the issued certificate",
            ends,
        ),
        (
            "beginRefreshAt",
            "must be present and in the range [notbefore+10min, notafter-10min]",
            renews,
        ),
    ] {
        if given.is_none() {
            errors.required(&path.child(key), text);
        }
    }
    let (Some(begins), Some(ends), Some(renews)) = (begins, ends, renews) else {
        return errors.len() == before;
    };
    let (begins, ends, renews) = (begins.unix(), ends.unix(), renews.unix());
    let validity = leaf.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let mut wrong = |key: &str, text: &str| {
        let shown = object.dig("status").text(key);
        errors.invalid(&path.child(key), shown, text);
        false
    };
    if begins != from {
        return wrong(
            "notBefore",
            "must be set to the NotBefore time encoded in the leaf certificate",
        );
    }
    if begins.abs_diff(Timestamp::now().unix()) >= SKEW.unsigned_abs() {
        return wrong(
            "notBefore",
            "must be set to within 5 minutes of kube-apiserver's current time",
        );
    }
    if ends != to {
        return wrong(
            "notAfter",
            "must be set to the NotAfter time encoded in the leaf certificate",
        );
    }
    let lifetime = to.saturating_sub(from);
    let most = object.int("spec.maxExpirationSeconds").unwrap_or_default();
    let fault = match lifetime {
        short if short < HOUR => Some("leaf certificate lifetime must be >= 1 hour".to_owned()),
        long if long > most => Some(format!(
            "leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"
        )),
        _ => None,
    };
    if let Some(text) = fault {
        let nanos = json!(lifetime.saturating_mul(NANOS));
        errors.invalid_value(&path.child("certificateChain"), &nanos, text);
        return false;
    }
    if renews < begins.saturating_add(MARGIN) {
        return wrong(
            "beginRefreshAt",
            "must be at least 10 minutes after status.notBefore",
        );
    }
    if renews > ends.saturating_sub(MARGIN) {
        return wrong(
            "beginRefreshAt",
            "must be at least 10 minutes before status.notAfter",
        );
    }
    true
}

/// What follows the first certificate: certificates, too. Whether one signed the other is not looked at, as upstream.
fn intermediates(errors: &mut Errors, at: &FieldPath<'_>, chain: &str, mut rest: &str) {
    while let Some((block, next)) = pem::first(rest) {
        if block.kind != "CERTIFICATE" {
            // Upstream's spelling.
            let text = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return errors.invalid(at, chain, text);
        }
        if !matches!(X509Certificate::from_der(&block.bytes), Ok(([], _))) {
            let text = "intermediate certificate does not parse as valid X.509";
            return errors.invalid(at, chain, text);
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests;
