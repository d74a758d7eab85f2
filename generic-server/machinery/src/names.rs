//! The formats of names, keys and values: upstream's format checks with their exact messages.
//!
//! Every check takes the text and gives the list of what is wrong with it (empty when nothing is), so that callers attach
//! paths. The matchers are written by hand and allocate only for errors: they run on every write. Mirrors
//! `k8s.io/apimachinery/pkg/util/validation` and `.../api/validate/content`; checks of whole `metadata` are in
//! [`object_meta`], of conditions in [`conditions`], of addresses in [`ip`], of request options in [`options`].

pub mod conditions;
pub mod ip;
pub mod object_meta;
pub mod options;

pub use conditions::validate_conditions;
pub use object_meta::{validate_object_meta, validate_object_meta_update};

use crate::{FieldError, FieldPath};

/// Checks a name; the flag says that it is a prefix which more will be appended to (`generateName`).
pub type NameFn = fn(&str, bool) -> Vec<String>;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Longest DNS-1123 and DNS-1035 label.
pub const LABEL_MAX: usize = 63;
/// Longest DNS-1123 subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

/// `must be no more than N characters`.
pub fn max_len_error(length: usize) -> String {
    format!("must be no more than {length} characters")
}

fn max_bytes_error(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

/// `must be between LO and HI, inclusive`.
pub fn inclusive_range_error(lo: i64, hi: i64) -> String {
    format!("must be between {lo} and {hi}, inclusive")
}

/// The text for a value that misses a regular expression, with examples.
pub fn regex_error(text: &str, fmt: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{fmt}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{text} (e.g. {}regex used for validation is '{fmt}')",
        examples.join(" or ")
    )
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// `first(middle*last)?` over bytes.
fn spans(
    value: &[u8],
    first: impl Fn(u8) -> bool,
    middle: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
) -> bool {
    match value {
        [] => false,
        [only] => first(*only),
        [head, mid @ .., tail] => first(*head) && last(*tail) && mid.iter().all(|b| middle(*b)),
    }
}

pub(crate) fn is_dns1123_label(value: &[u8]) -> bool {
    spans(value, lower_alnum, |b| lower_alnum(b) || b == b'-', lower_alnum)
}

pub(crate) fn is_dns1123_subdomain(value: &str) -> bool {
    value.as_bytes().split(|b| *b == b'.').all(is_dns1123_label)
}

fn is_qualified_part(value: &str) -> bool {
    let ends = |b: u8| b.is_ascii_alphanumeric();
    spans(
        value.as_bytes(),
        ends,
        |b| ends(b) || matches!(b, b'-' | b'_' | b'.'),
        ends,
    )
}

/// A DNS-1123 label: `my-name`.
pub fn dns1123_label(value: &str) -> Vec<String> {
    label_with(value, max_len_error)
}

/// [`dns1123_label`] in the words of declarative validation (format `k8s-short-name`).
pub fn short_name(value: &str) -> Vec<String> {
    label_with(value, max_bytes_error)
}

fn label_with(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_dns1123_label(value.as_bytes()) {
        errors.push(if is_dns1123_subdomain(value) {
            "must not contain dots".into()
        } else {
            regex_error(LABEL_TEXT, LABEL_FMT, &["my-name", "123-abc"])
        });
    }
    errors
}

/// A DNS-1123 subdomain: `example.com`.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_with(value, max_len_error)
}

/// [`dns1123_subdomain`] in the words of declarative validation (format `k8s-long-name`) and of label keys.
pub fn long_name(value: &str) -> Vec<String> {
    subdomain_with(value, max_bytes_error)
}

fn subdomain_with(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !is_dns1123_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN_FMT, &["example.com"]));
    }
    errors
}

/// A DNS-1123 subdomain that may hold upper case (driver names).
pub fn dns1123_subdomain_caseless(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(max_bytes_error(SUBDOMAIN_MAX));
    }
    if !is_dns1123_subdomain(&value.to_ascii_lowercase()) {
        let text = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_error(text, SUBDOMAIN_FMT, &["Example.com"]));
    }
    errors
}

/// A DNS-1123 subdomain whose labels may hold `_` (DNS search domains).
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    let label = |part: &[u8]| {
        let part = part.strip_prefix(b"_").unwrap_or(part);
        spans(
            part,
            lower_alnum,
            |b| lower_alnum(b) || matches!(b, b'-' | b'_'),
            lower_alnum,
        )
    };
    if !value.as_bytes().split(|b| *b == b'.').all(label) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
        let fmt = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        errors.push(regex_error(text, fmt, &["example.com"]));
    }
    errors
}

/// A DNS-1035 label: starts with a letter.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(max_len_error(LABEL_MAX));
    }
    let matches = spans(
        value.as_bytes(),
        |b| b.is_ascii_lowercase(),
        |b| lower_alnum(b) || b == b'-',
        lower_alnum,
    );
    if !matches {
        let text = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        errors.push(regex_error(
            text,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A wildcard subdomain: `*.example.com`.
pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        let text = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        errors.push(regex_error(
            text,
            &format!("\\*\\.{SUBDOMAIN_FMT}"),
            &["*.example.com"],
        ));
    }
    errors
}

/// A label key, annotation key (lowered) or finalizer: `[prefix/]name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let regex = || regex_error(QUALIFIED_TEXT, QUALIFIED_FMT, &["MyName", "my.name", "123-abc"]);
    let mut parts = value.split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if third.is_some() {
        errors.push(format!(
            "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            regex()
        ));
        return errors;
    }
    let name = match second {
        None => first,
        Some(name) => {
            if first.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                errors.extend(
                    long_name(first)
                        .into_iter()
                        .map(|text| format!("prefix part {text}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", max_bytes_error(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        errors.push(format!("name part {}", regex()));
    }
    errors
}

/// A label key.
pub fn label_key(value: &str) -> Vec<String> {
    qualified_name(value)
}

/// A label value; may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(max_bytes_error(LABEL_MAX));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        let text = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_error(
            text,
            &format!("({QUALIFIED_FMT})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

fn directory_prefix(value: &str) -> Option<String> {
    let text = match value {
        "." => "must not be '.'",
        ".." => "must not be '..'",
        _ if value.starts_with("..") => "must not start with '..'",
        _ => return None,
    };
    Some(text.into())
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(max_len_error(SUBDOMAIN_MAX));
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if value.is_empty() || !value.bytes().all(fits) {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(
            text,
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(directory_prefix(value));
    errors
}

/// The name of an environment variable, as servers since 1.34 take it: printable ASCII without `=`.
pub fn env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".into());
    }
    if !value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .into(),
        );
    }
    errors
}

/// The name of an environment variable by the older, strict rule.
pub fn env_var_name_strict(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let head = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'.' | b'_');
    let fits = match value.as_bytes() {
        [] => false,
        [first, rest @ ..] => head(*first) && rest.iter().all(|b| head(*b) || b.is_ascii_digit()),
    };
    if !fits {
        let text = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit";
        errors.push(regex_error(
            text,
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    errors.extend(directory_prefix(value));
    errors
}

/// An IANA service name: the name of a port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(max_len_error(15));
    }
    if value.is_empty() || !value.bytes().all(|b| lower_alnum(b) || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

/// A port number, 1 to 65535.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A number within bounds, both included.
pub fn in_range(value: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&value) {
        Vec::new()
    } else {
        vec![inclusive_range_error(min, max)]
    }
}

/// A Unix user or group id.
pub fn unix_id(value: i64) -> Vec<String> {
    in_range(value, 0, i64::from(i32::MAX))
}

/// `93%`.
pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    let text = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(text, "[0-9]+%", &["1%", "93%"])]
}

/// The name of an HTTP header.
pub fn http_header_name(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A C identifier.
pub fn c_identifier(value: &str) -> Vec<String> {
    let fits = match value.as_bytes() {
        [] => false,
        [first, rest @ ..] => {
            (first.is_ascii_alphabetic() || *first == b'_')
                && rest.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        }
    };
    if fits {
        return Vec::new();
    }
    let text = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    vec![regex_error(
        text,
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// A decimal integer in canonical form, without bounds.
pub fn decimal_integer(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["must be non-empty".into()];
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    let canonical = value == "0"
        || (matches!(digits.as_bytes().first(), Some(b'1'..=b'9'))
            && digits.bytes().all(|b| b.is_ascii_digit()));
    if canonical {
        Vec::new()
    } else {
        vec!["must be a valid decimal integer in canonical form".into()]
    }
}

/// A name that can stand in a URL path. Neither emptiness nor length are checked.
pub fn path_segment_name(value: &str) -> Vec<String> {
    match value {
        "." => vec!["may not be '.'".into()],
        ".." => vec!["may not be '..'".into()],
        _ => path_segment_prefix(value),
    }
}

/// A prefix of a name that can stand in a URL path.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|bad| value.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// The reason of a condition: `MinimumReplicasAvailable`. The length is not checked.
pub fn condition_reason(value: &str) -> Vec<String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = spans(
        value.as_bytes(),
        |b| b.is_ascii_alphabetic(),
        |b| inner(b) || matches!(b, b',' | b':'),
        inner,
    );
    if fits {
        return Vec::new();
    }
    let text = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    vec![regex_error(
        text,
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &[
            "my_name",
            "MY_NAME",
            "MyName",
            "ReasonA,ReasonB",
            "ReasonA:ReasonB",
        ],
    )]
}

/// A fully qualified name: a subdomain of at least three labels.
pub fn fully_qualified_name(path: &FieldPath<'_>, name: &str) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return Some(FieldError::invalid_str(path, name, errors.join(",")));
    }
    if name.split('.').count() < 3 {
        let text = "should be a domain with at least three segments separated by dots";
        return Some(FieldError::invalid_str(path, name, text));
    }
    None
}

/// A fully qualified domain name: at least two labels, perhaps with a final dot.
pub fn fully_qualified_domain_name(path: &FieldPath<'_>, name: &str) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return Some(FieldError::invalid_str(path, name, errors.join(",")));
    }
    if name.split('.').count() < 2 {
        let text = "should be a domain with at least two segments separated by dots";
        return Some(FieldError::invalid_str(path, name, text));
    }
    name.split('.').find_map(|label| {
        let errors = dns1123_label(label);
        (!errors.is_empty()).then(|| FieldError::invalid_str(path, label, errors.join(",")))
    })
}

/// A path below a domain: `acme.io/foo`.
pub fn domain_prefixed_path(path: &FieldPath<'_>, value: &str) -> Vec<FieldError> {
    if value.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let (host, rest) = match value.split_once('/') {
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => (host, rest),
        _ => {
            let text = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![FieldError::invalid_str(path, value, text)];
        }
    };
    let mut errors: Vec<FieldError> = dns1123_subdomain(host)
        .into_iter()
        .map(|text| FieldError::invalid_str(path, host, text))
        .collect();
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(fits) {
        let text = regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid_str(path, rest, text));
    }
    errors
}

/// A key below a domain: `acme.io/foo`, as a qualified name whose prefix is not optional.
pub fn domain_prefixed_key(path: &FieldPath<'_>, key: &str) -> Vec<FieldError> {
    if key.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let errors = qualified_name(key);
    if !errors.is_empty() {
        return errors
            .into_iter()
            .map(|text| FieldError::invalid_str(path, key, text))
            .collect();
    }
    if !key.contains('/') {
        let text = "must be a domain-prefixed key (such as \"acme.io/foo\")";
        return vec![FieldError::invalid_str(path, key, text)];
    }
    Vec::new()
}

/// Makes the last two characters of a generateName harmless, as upstream does, before it is checked as a name.
fn mask_trailing_dash(name: &str) -> String {
    match name.char_indices().rev().nth(1) {
        Some((second_last, _)) if name.ends_with('-') => format!("{}a", &name[..second_last]),
        _ => name.to_owned(),
    }
}

/// [`NameFn`] for DNS subdomains, the rule of most kinds.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        dns1123_subdomain(&mask_trailing_dash(name))
    } else {
        dns1123_subdomain(name)
    }
}

/// [`NameFn`] for DNS-1123 labels (namespaces).
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        dns1123_label(&mask_trailing_dash(name))
    } else {
        dns1123_label(name)
    }
}

/// [`NameFn`] for DNS-1035 labels (services).
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        dns1035_label(&mask_trailing_dash(name))
    } else {
        dns1035_label(name)
    }
}

/// [`NameFn`] for any segment of a URL path (RBAC kinds).
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        path_segment_prefix(name)
    } else {
        path_segment_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(f: fn(&str) -> Vec<String>, value: &str, expected: &[&str]) {
        let got = f(value);
        assert_eq!(got.len(), expected.len(), "{value:?}: {got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.starts_with(expected), "{value:?}: {got} / {expected}");
        }
    }

    #[test]
    fn labels_and_subdomains() {
        let regex = "a lowercase RFC 1123 label must consist";
        for good in ["a", "a-b", "1", "a--b9", &"a".repeat(63)] {
            check(dns1123_label, good, &[]);
        }
        for bad in ["", "-", "a-", "-a", "A", "a_b", "ä"] {
            check(dns1123_label, bad, &[regex]);
        }
        check(dns1123_label, "a.b", &["must not contain dots"]);
        check(
            dns1123_label,
            &"a".repeat(64),
            &["must be no more than 63 characters"],
        );
        assert_eq!(
            dns1123_label("A")[0],
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        );
        for good in ["a", "a.b", "1-2.x"] {
            check(dns1123_subdomain, good, &[]);
        }
        for bad in ["", ".", "a..b", "a.", ".a", "A.b", "a.-b"] {
            check(
                dns1123_subdomain,
                bad,
                &["a lowercase RFC 1123 subdomain must consist"],
            );
        }
        check(dns1123_subdomain_with_underscore, "_a.b_c", &[]);
        check(dns1123_subdomain_with_underscore, "a_", &["a lowercase"]);
        check(dns1123_subdomain_caseless, "A.com", &[]);
        check(dns1035_label, "a-1", &[]);
        check(dns1035_label, "1-a", &["a DNS-1035 label"]);
        check(wildcard_dns1123_subdomain, "*.a.b", &[]);
        for bad in ["*", "*.", "*a.b", "*.*.b"] {
            check(wildcard_dns1123_subdomain, bad, &["a wildcard DNS-1123"]);
        }
    }

    #[test]
    fn keys_and_values() {
        for good in ["a", "A.b_c-1", "example.com/X", "1/1"] {
            check(qualified_name, good, &[]);
        }
        check(qualified_name, "a/b/c", &["a valid label key must consist"]);
        check(qualified_name, "/x", &["prefix part must be non-empty"]);
        check(qualified_name, "A/x", &["prefix part a lowercase RFC 1123"]);
        check(
            qualified_name,
            "a/",
            &["name part must be non-empty", "name part must consist"],
        );
        check(
            qualified_name,
            &"a".repeat(64),
            &["name part must be no more than 63 bytes"],
        );
        check(label_value, "", &[]);
        check(label_value, "a.b", &[]);
        check(
            label_value,
            &"-".repeat(64),
            &["must be no more than 63 bytes", "a valid label must be"],
        );
        check(config_map_key, "a.b", &[]);
        check(config_map_key, "..x", &["must not start with '..'"]);
        check(config_map_key, ".", &["must not be '.'"]);
        check(config_map_key, "a/b", &["a valid config key"]);
        check(env_var_name, "1 a!", &[]);
        check(env_var_name, "a=b", &["a valid environment variable name"]);
        check(env_var_name, "", &["environment variable name must be non-empty"]);
        check(env_var_name_strict, "1a", &["a valid environment variable name"]);
        check(port_name, "http-2", &[]);
        check(
            port_name,
            "-1-",
            &["must contain at least one letter", "must not begin or end"],
        );
        check(port_name, "", &["must contain only", "must contain at least one"]);
        check(http_header_name, "X-Y", &[]);
        check(http_header_name, "X_Y", &["a valid HTTP header"]);
        check(percent, "10%", &[]);
        check(percent, "%", &["a valid percent string"]);
        check(
            path_segment_name,
            "a/b%",
            &["may not contain '/'", "may not contain '%'"],
        );
        check(path_segment_name, "..", &["may not be '..'"]);
        check(condition_reason, "A:b_", &[]);
        check(condition_reason, "A:", &["a condition reason"]);
        check(decimal_integer, "-0", &["must be a valid decimal"]);
        check(decimal_integer, "-10", &[]);
    }

    #[test]
    fn prefixes_may_end_in_a_dash() {
        assert!(name_is_dns_subdomain("ab-", true).is_empty());
        assert!(!name_is_dns_subdomain("ab-", false).is_empty());
        assert!(!name_is_dns_label("-", true).is_empty());
        assert!(
            name_is_dns_label("Ä-", true).is_empty(),
            "the mask takes two characters"
        );
    }

    #[test]
    fn names_with_paths() {
        let path = FieldPath::new("spec");
        let text = |e: Option<FieldError>| e.map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(text(fully_qualified_name(&path, "a.b.c")), "");
        assert_eq!(
            text(fully_qualified_name(&path, "a.b")),
            "spec: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots"
        );
        assert_eq!(text(fully_qualified_domain_name(&path, "a.b.")), "");
        assert!(domain_prefixed_path(&path, "a.io/x(1)").is_empty());
        assert_eq!(domain_prefixed_path(&path, "a.io/x y").len(), 1);
        assert_eq!(domain_prefixed_key(&path, "x").len(), 1);
    }
}
