//! Groups that belong to the Kubernetes community need an approval annotation (`pkg/apihelpers`).

use machinery::go;
use machinery::meta;
use serde_json::Value;

/// The annotation that says where the API was approved, or why it was not.
pub(crate) const ANNOTATION: &str = "api-approved.kubernetes.io";
const PROPOSAL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The value of the annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Neither a URL nor a reason.
    Invalid,
    /// A URL.
    Approved,
    /// It begins with `unapproved`.
    Bypassed,
    /// It is not there.
    Missing,
}

/// Whether a group is the community's.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The annotation's value, empty when absent.
pub(crate) fn annotation(crd: &Value) -> &str {
    meta::annotations(crd)
        .and_then(|a| a.get(ANNOTATION))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The state, and the reason in upstream's words.
pub(crate) fn state(crd: &Value) -> (Approval, String) {
    let text = annotation(crd);
    let must = format!(
        "protected groups must have approval annotation {}",
        go::quote(ANNOTATION)
    );
    if text.is_empty() {
        return (Approval::Missing, format!("{must}, {PROPOSAL}"));
    }
    if text.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: {}", go::quote(text)));
    }
    let has_host = text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        scheme_ok && !host.is_empty() && !text.contains(|c: char| c.is_ascii_control() || c == ' ')
    });
    if has_host {
        return (Approval::Approved, format!("approved in {text}"));
    }
    let why = format!("{must} with either a URL or a reason starting with \"unapproved\", {PROPOSAL}");
    (Approval::Invalid, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states() {
        let check = |text: &str, expected: Approval| {
            let crd = json!({"metadata": {"annotations": {ANNOTATION: text}}});
            assert_eq!(state(&crd).0, expected, "{text}");
        };
        check("", Approval::Missing);
        check("unapproved, for now", Approval::Bypassed);
        check("https://github.com/x/pull/1", Approval::Approved);
        check("whatever", Approval::Invalid);
        check("https://", Approval::Invalid);
        assert!(is_protected("k8s.io") && is_protected("a.kubernetes.io"));
        assert!(!is_protected("xk8s.io") && !is_protected("example.com"));
    }
}
