//! Labels of nodes that have other names now: the warnings about whatever selects by them. Mirrors `pkg/api/node/util.go`.

use machinery::FieldPath;
use machinery::names::label_value;
use serde_json::Value;

use crate::json::Json;

const DEPRECATED: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

/// What is to be said about a label.
pub(super) fn deprecated(label: &str) -> Option<&'static str> {
    DEPRECATED
        .iter()
        .find(|(name, _)| *name == label)
        .map(|(_, text)| *text)
}

/// Adds the warnings about the expressions of a term at `path`. With `values`, also about values that no label has.
pub(super) fn term(out: &mut Vec<String>, path: &FieldPath<'_>, term: &Value, values: bool) {
    let list = path.child("matchExpressions");
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let at = list.index(index);
        let key = expression.text("key");
        if let Some(text) = deprecated(key) {
            out.push(format!("{}: {key} is {text}", at.child("key")));
        }
        let at = at.child("values");
        for (index, value) in expression.strings("values").enumerate().filter(|_| values) {
            let at = at.index(index);
            out.extend(
                label_value(value)
                    .iter()
                    .map(|text| format!("{at}: {value} is invalid, {text}")),
            );
        }
    }
}

/// The warnings about a label selector of nodes.
pub(super) fn selector(path: &FieldPath<'_>, selector: &Value) -> Vec<String> {
    let mut out = Vec::new();
    term(&mut out, path, selector, false);
    let labels = path.child("matchLabels");
    for (label, _) in selector.entries("matchLabels") {
        out.extend(deprecated(label).map(|text| format!("{}: {text}", labels.child(label))));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_by_old_labels_are_warned_of() {
        let old = json!({"matchLabels": {"node-role.kubernetes.io/master": ""},
            "matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "In", "values": ["_"]}]});
        assert_eq!(
            selector(&FieldPath::new("s"), &old),
            [
                "s.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "s.matchLabels.node-role.kubernetes.io/master: use \"node-role.kubernetes.io/control-plane\" instead",
            ]
        );
        let mut out = Vec::new();
        term(&mut out, &FieldPath::new("t"), &old, true);
        assert_eq!(out.len(), 2);
        assert!(
            out[1].starts_with("t.matchExpressions[0].values[0]: _ is invalid, a valid label must be"),
            "{out:?}"
        );
    }
}
