//! Names of signers. Mirrors upstream's `ValidateSignerName`.

use machinery::FieldPath;
use machinery::go::quote;
use machinery::names::{dns1123_label, dns1123_subdomain};

use crate::errors::Errors;

const DOMAIN_MAX: usize = 253;
/// A domain, a slash, and a label, a dot and a subdomain.
const NAME_MAX: usize = DOMAIN_MAX + 1 + 253 + 63 + 1;

/// Checks a name of the form `example.com/signer-name`.
pub(super) fn validate(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if !errors.need(path, name) {
        return;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts[..] else {
        let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, text);
    };
    if domain.len() > DOMAIN_MAX {
        errors.too_long(path, DOMAIN_MAX);
    }
    labels(errors, path, domain, dns1123_label);
    if !domain.contains('.') {
        let text = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, text);
    }
    labels(errors, path, rest, dns1123_subdomain);
    if name.len() > NAME_MAX {
        errors.too_long(path, NAME_MAX);
    }
}

/// Checks what dots separate, up to the first that is wrong.
fn labels(errors: &mut Errors, path: &FieldPath<'_>, part: &str, check: fn(&str) -> Vec<String>) {
    let wrong = part.split('.').map(|label| (label, check(label)));
    if let Some((label, texts)) = wrong.into_iter().find(|(_, texts)| !texts.is_empty()) {
        for text in texts {
            errors.invalid(path, part, format!("validating label {}: {text}", quote(label)));
        }
    }
}
