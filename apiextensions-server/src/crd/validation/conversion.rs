//! Validation of `spec.conversion`.

use std::collections::HashSet;

use base64::Engine;
use machinery::names::{dns1035_label, dns1123_subdomain};
use machinery::{FieldError, FieldPath};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;

use super::{Options, one_of};
use crate::crd::internal::Spec;
use crate::props::Props;

/// `ConversionReview` versions that the server speaks.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const URL_FORM: &str = "; desired format: https://host[/path]";

fn webhook(conversion: Option<&Value>) -> Option<Props<'_>> {
    Props::new(conversion?).schema("webhook")
}

/// Whether the stored conversion names a version that the server speaks (or none at all).
pub(super) fn has_recognized_review_version(conversion: Option<&Value>) -> bool {
    let Some(webhook) = webhook(conversion) else {
        return true;
    };
    let mut versions = webhook.strings("conversionReviewVersions").peekable();
    versions.peek().is_none() || versions.any(|v| REVIEW_VERSIONS.contains(&v))
}

/// Whether the stored conversion has a CA bundle that does not parse.
pub(super) fn has_invalid_ca_bundle(conversion: Option<&Value>) -> bool {
    webhook(conversion)
        .and_then(|w| w.schema("clientConfig"))
        .map(|c| c.text("caBundle"))
        .is_some_and(|bundle| !bundle.is_empty() && !is_ca_bundle(bundle))
}

/// Whether base64 text holds at least one PEM certificate and nothing broken.
fn is_ca_bundle(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .is_ok_and(|pem| {
            let mut found = CertificateDer::pem_slice_iter(&pem).peekable();
            found.peek().is_some() && found.all(|c| c.is_ok())
        })
}

pub(super) fn validate(spec: &Spec<'_>, options: &Options<'_>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(conversion) = spec.conversion.map(Props::new) else {
        return errors;
    };
    let strategy = conversion.text("strategy");
    let at_strategy = path.child("strategy");
    if strategy != "None" && spec.preserve_unknown_fields {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid_str(&at_strategy, strategy, detail));
    }
    errors.extend(one_of(&at_strategy, strategy, &["None", "Webhook"]));
    // The unversioned type has the client configuration and the versions right here, and paths name those.
    let at_client = path.child("webhookClientConfig");
    let at_versions = path.child("conversionReviewVersions");
    let webhook = conversion.schema("webhook");
    let client = webhook.and_then(|w| w.schema("clientConfig"));
    let versions: Vec<&str> = webhook
        .map(|w| w.strings("conversionReviewVersions").collect())
        .unwrap_or_default();
    if strategy == "Webhook" {
        match client {
            None => {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(&at_client, detail));
            }
            Some(client) => client_config(client, options, &at_client, &mut errors),
        }
        review_versions(
            &versions,
            options.require_recognized_review_version,
            &at_versions,
            &mut errors,
        );
    } else {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(FieldError::forbidden(&at_client, detail));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(&at_versions, detail));
        }
    }
    errors
}

fn client_config(
    client: Props<'_>,
    options: &Options<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let url = client.get("url").and_then(Value::as_str);
    match (url, client.schema("service")) {
        (Some(url), None) => webhook_url(url, &path.child("url"), errors),
        (None, Some(service)) => webhook_service(service, &path.child("service"), errors),
        (Some(_), Some(_)) | (None, None) => {
            errors.push(FieldError::required(
                path,
                "exactly one of url or service is required",
            ));
        }
    }
    let bundle = client.text("caBundle");
    if !bundle.is_empty() && !options.allow_invalid_ca_bundle && !is_ca_bundle(bundle) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(FieldError::invalid_str(&path.child("caBundle"), bundle, detail));
    }
}

fn review_versions(
    versions: &[&str],
    require_recognized: bool,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        if !seen.insert(*version) {
            errors.push(FieldError::invalid_str(&at, version, "duplicate version"));
            continue;
        }
        let faults = dns1035_label(version);
        errors.extend(
            faults
                .into_iter()
                .map(|f| FieldError::invalid_str(&at, version, f)),
        );
    }
    if require_recognized && !versions.iter().any(|v| REVIEW_VERSIONS.contains(v)) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        let shown = Value::from(versions.to_vec());
        errors.push(FieldError::invalid(path, &shown, detail));
    }
}

fn webhook_url(url: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut invalid = |value: &str, detail: &str| {
        errors.push(FieldError::invalid_str(path, value, detail));
    };
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, after) = rest.split_once("://").unwrap_or(("", rest));
    let authority = match scheme {
        "" => "",
        _ => after.split('/').next().unwrap_or_default(),
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        invalid(
            scheme,
            &format!("'https' is the only allowed URL scheme{URL_FORM}"),
        );
    }
    if host.is_empty() {
        invalid(host, &format!("host must be specified{URL_FORM}"));
    }
    if let Some(user) = user {
        invalid(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL");
    }
}

fn webhook_service(service: Props<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    // Upstream hands the two over in the wrong order, so the fields' names are swapped in its errors.
    for (key, shown) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(key).is_empty() {
            errors.push(FieldError::required(&path.child(shown), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(
            &path.child("port"),
            &Value::from(port),
            detail,
        ));
    }
    let at = path.child("path");
    let Some(text) = service.get("path").and_then(Value::as_str) else {
        return;
    };
    let mut invalid = |detail: String| errors.push(FieldError::invalid_str(&at, text, detail));
    match text {
        "" | "/" => return,
        "//" => return invalid("segment[0] may not be empty".into()),
        _ => {}
    }
    if !text.starts_with('/') {
        invalid("must start with a '/'".into());
    }
    // The first byte is removed unconditionally, as upstream does.
    let mut chars = text.chars();
    chars.next();
    let rest = chars.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (i, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for fault in dns1123_subdomain(step) {
            invalid(format!("segment[{i}]: {fault}"));
        }
    }
}
