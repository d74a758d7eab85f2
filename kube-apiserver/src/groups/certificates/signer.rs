//! Names of signers. Mirrors upstream's `ValidateSignerName`.

use machinery::FieldPath;
use machinery::go::quote;
use machinery::names::{dns1123_label, dns1123_subdomain};

use crate::errors::Errors;

const DOMAIN_MAX: usize = 253;
/// A domain, a slash, and a label, a dot and a subdomain.
const NAME_MAX: usize = DOMAIN_MAX + 1 + 253 + 63 + 1;

/// Checks a name of the form `example.com/signer-name`.
pub(crate) fn validate(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let path = FieldPath::new("signerName");
        check_errors(|errors| validate(errors, &path, name), expected);
    }

    #[test]
    fn signers_have_a_domain_and_a_path() {
        let form = |name: &str| {
            format!(
                "signerName: Invalid value: {name:?}: must be a fully qualified domain and path of the form 'example.com/signer-name'"
            )
        };
        check("example.com/a", &[]);
        check("example.com/a.b", &[]);
        check("", &["signerName: Required value"]);
        for name in ["a", "example.com/a/b"] {
            check(name, &[&form(name)]);
        }
        let flat = "signerName: Invalid value: \"example\": should be a domain with at least two segments separated by dots";
        check("example/a", &[flat]);
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(61));
        check(&format!("{longest}/a"), &[]);
        check(
            &format!("{longest}a/a"),
            &["signerName: Too long: may not be more than 253 bytes"],
        );
        let rest = format!("{0}.{1}", "b".repeat(253), "b".repeat(63));
        check(&format!("{longest}/{rest}"), &[]);
        check(
            &format!("{longest}/{rest}.b"),
            &["signerName: Too long: may not be more than 571 bytes"],
        );
    }
}
