//! Where a pod may run: affinity, tolerations, spread, gates, resource claims.

use std::collections::HashMap;

use machinery::names::object_meta::validate_label_name;
use machinery::names::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::label;
use super::resources::Claims;
use crate::errors::{Errors, Ratchet};
use crate::json::Json;
use crate::unique::Seen;

/// A `schedulingGroup`: it names a PodGroup.
pub(super) fn group(errors: &mut Errors, path: &FieldPath<'_>, group: &Value) {
    let (path, name) = (path.child("podGroupName"), group.text("podGroupName"));
    match group.has("podGroupName") {
        true => errors.text(&path, name, dns1123_subdomain(name)),
        false => errors.invalid(&path, Value::Null, "must specify one of: `podGroupName`"),
    }
}

/// Checks the pod's resource claims and gives their names.
pub(super) fn resource_claims<'a>(errors: &mut Errors, path: &FieldPath<'_>, spec: &'a Value) -> Claims<'a> {
    let mut claims = Claims::default();
    for (index, claim) in spec.list("resourceClaims").iter().enumerate() {
        let path = path.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !claims.add(name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            label(errors, &path.child("name"), name);
        }
        let keys = ["resourceClaimName", "resourceClaimTemplateName"];
        let text = match keys.iter().filter(|key| claim.has(key)).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !text.is_empty() {
            let [of, of_template] = keys.map(|key| claim.dig(key));
            let name = Value::from(name);
            let shown = format!(
                r#"{{"Name":{name},"ResourceClaimName":{of},"ResourceClaimTemplateName":{of_template}}}"#
            );
            errors.shown(FieldError::invalid(&path, &Value::Null, text), shown);
        }
        for key in keys {
            if let Some(text) = claim.dig(key).as_str() {
                errors.text(&path.child(key), text, dns1123_subdomain(text));
            }
        }
    }
    claims
}

pub(super) fn gates(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let readiness = path.child("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let kind = gate.text("conditionType");
        errors.text(
            &readiness.index(index).child("conditionType"),
            kind,
            qualified_name(kind),
        );
    }
    let scheduling = path.child("schedulingGates");
    let mut seen = Seen::default();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        errors.text(&scheduling.index(index), name, qualified_name(name));
        if seen.again(name) {
            errors.duplicate(&scheduling.index(index), name);
        }
    }
}

/// Checks tolerations.
pub(crate) fn tolerations(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    for (index, toleration) in list.iter().enumerate() {
        let path = path.index(index);
        let key = toleration.text("key");
        let operator = toleration.text("operator");
        let effect = toleration.text("effect");
        let value = toleration.text("value");
        if !key.is_empty() {
            add_all(errors, validate_label_name(key, &path.child("key")));
        } else if operator != "Exists" {
            errors.invalid(
                &path.child("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            errors.invalid(
                &path.child("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let texts = label_value(value);
                if !texts.is_empty() {
                    errors.invalid(&path.child("operator"), value, texts.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(
                        &path.child("operator"),
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            // Upstream's comparison of taints is off.
            "Lt" | "Gt" => errors.unsupported(
                &path.child("operator"),
                operator,
                &["Equal", "Exists", "Lt", "Gt"],
            ),
            other => errors.unsupported(&path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(errors, &path.child("effect"), effect);
        }
    }
}

/// Checks the effect of a taint or toleration.
pub(crate) fn taint_effect(errors: &mut Errors, path: &FieldPath<'_>, effect: &str) {
    errors.one_of(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}

fn add_all(errors: &mut Errors, found: Vec<FieldError>) {
    for error in found {
        errors.push(error);
    }
}

pub(super) fn affinity(errors: &mut Errors, path: &FieldPath<'_>, affinity: &Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = affinity.dig("nodeAffinity");
    let at = path.child("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(errors, &at.child(REQUIRED), node.dig(REQUIRED));
    }
    let preferred = at.child(PREFERRED);
    for (index, term) in node.list(PREFERRED).iter().enumerate() {
        let at = preferred.index(index);
        weight(errors, &at, term);
        node_selector_term(errors, &at.child("preference"), term.dig("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pod = affinity.dig(kind);
        let at = path.child(kind);
        let required = at.child(REQUIRED);
        for (index, term) in pod.list(REQUIRED).iter().enumerate() {
            pod_term(errors, &required.index(index), term);
        }
        let preferred = at.child(PREFERRED);
        for (index, term) in pod.list(PREFERRED).iter().enumerate() {
            let at = preferred.index(index);
            weight(errors, &at, term);
            pod_term(errors, &at.child("podAffinityTerm"), term.dig("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut Errors, path: &FieldPath<'_>, term: &Value) {
    let weight = term.int("weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn pod_term(errors: &mut Errors, path: &FieldPath<'_>, term: &Value) {
    for key in ["labelSelector", "namespaceSelector"] {
        errors.selector(&path.child(key), term.dig(key), Some(Ratchet::AffinityValues));
    }
    for name in term.strings("namespaces") {
        errors.text(&path.child("namespace"), name, dns1123_label(name));
    }
    label_keys(errors, path, term);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    add_all(errors, validate_label_name(key, &path.child("topologyKey")));
}

fn label_keys(errors: &mut Errors, path: &FieldPath<'_>, term: &Value) {
    for kind in ["matchLabelKeys", "mismatchLabelKeys"] {
        let at = path.child(kind);
        if term.list(kind).is_empty() {
            continue;
        }
        if !term.has("labelSelector") {
            errors.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in term.strings(kind).enumerate() {
            add_all(errors, validate_label_name(key, &at.index(index)));
        }
    }
    selected_twice(errors, path, term);
    let at = path.child("matchLabelKeys");
    let others: Seen<&str> = term.strings("mismatchLabelKeys").collect();
    for (index, key) in term.strings("matchLabelKeys").enumerate() {
        if others.has(key) {
            errors.invalid(
                &at.index(index),
                key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
}

/// A key of `matchLabelKeys` is one of the pod's selector by itself: the selector of a pod has it already when it is checked.
fn selected_twice(errors: &mut Errors, path: &FieldPath<'_>, term: &Value) {
    let keys = term.strings("matchLabelKeys").enumerate();
    let keys: HashMap<&str, usize> = keys.map(|(index, key)| (key, index)).collect();
    let selector = term.dig("labelSelector");
    let mut seen: Seen<&str> = selector.entries("matchLabels").map(|(key, _)| key).collect();
    for expression in selector.list("matchExpressions") {
        let key = expression.text("key");
        if seen.again(key)
            && let Some(index) = keys.get(key)
        {
            errors.invalid(
                &path.index(*index),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
    }
}

/// Checks a node selector: at least one term.
pub(crate) fn node_selector(errors: &mut Errors, path: &FieldPath<'_>, selector: &Value) {
    let terms = selector.list("nodeSelectorTerms");
    let at = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&at, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(errors, &at.index(index), term, true);
    }
}

/// Checks one term of a node selector. Those that are preferred are only warned of values that no label has.
fn node_selector_term(errors: &mut Errors, path: &FieldPath<'_>, term: &Value, check_values: bool) {
    let expressions = path.child("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        let at = expressions.index(index);
        let values = requirement.list("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => errors.required(
                &at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                &at.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.len() != 1 => errors.required(
                &at.child("values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
        }
        let key = requirement.text("key");
        add_all(errors, validate_label_name(key, &at.child("key")));
        let at = at.child("values");
        if check_values {
            errors.ratcheted(Ratchet::NodeValues, |errors| {
                for (index, value) in requirement.strings("values").enumerate() {
                    errors.text(&at.index(index), value, label_value(value));
                }
            });
        }
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        let at = fields.index(index);
        match requirement.text("operator") {
            "In" | "NotIn" if requirement.list("values").len() != 1 => errors.required(
                &at.child("values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
        }
        match requirement.text("key") {
            "metadata.name" => {
                let at = at.child("values");
                for (index, value) in requirement.strings("values").enumerate() {
                    errors.text(&at.index(index), value, dns1123_subdomain(value));
                }
            }
            other => errors.invalid(&at.child("key"), other, "not a valid field selector key"),
        }
    }
}

pub(super) fn spread(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    // Upstream reports a pair at every constraint that has its like behind it.
    let mut behind = Seen::default();
    let mut repeated: Vec<bool> = list
        .iter()
        .rev()
        .map(|one| behind.again((one.text("topologyKey"), one.text("whenUnsatisfiable"))))
        .collect();
    repeated.reverse();
    for ((index, constraint), repeated) in list.iter().enumerate().zip(repeated) {
        let at = path.index(index);
        let skew = constraint.int("maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(&at.child("maxSkew"), skew, "must be greater than zero");
        }
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        let action = constraint.text("whenUnsatisfiable");
        errors.one_of(
            &at.child("whenUnsatisfiable"),
            action,
            &["DoNotSchedule", "ScheduleAnyway"],
        );
        if repeated {
            errors.duplicate(
                &at.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            );
        }
        if let Some(min) = constraint.int("minDomains") {
            let at = at.child("minDomains");
            if min <= 0 {
                errors.invalid(&at, min, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                errors.invalid(
                    &at,
                    min,
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                );
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if constraint.has(key) {
                errors.one_of(&at.child(key), constraint.text(key), &["Honor", "Ignore"]);
            }
        }
        label_keys(errors, &at, constraint);
        errors.ratcheted(Ratchet::SpreadSelectors, |errors| {
            errors.selector(&at.child("labelSelector"), constraint.dig("labelSelector"), None);
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_pod as check;

    #[test]
    fn tolerations() {
        let one = |toleration: Value| json!({"tolerations": [toleration]});
        check(
            &one(json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"})),
            &[],
        );
        check(&one(json!({"operator": "Exists"})), &[]);
        check(
            &one(json!({"operator": "Equal"})),
            &[
                r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
            ],
        );
        check(
            &one(json!({"key": "a", "operator": "Exists", "value": "b"})),
            &[
                r#"spec.tolerations[0].operator: Invalid value: "b": value must be empty when `operator` is 'Exists'"#,
            ],
        );
        check(
            &one(json!({"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5})),
            &[
                r#"spec.tolerations[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
            ],
        );
        check(
            &one(json!({"key": "a", "operator": "Exists", "effect": "Never"})),
            &[
                r#"spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ],
        );
    }

    #[test]
    fn gates_and_claims() {
        check(
            &json!({"schedulingGates": [{"name": "a"}, {"name": "example.com/b"}]}),
            &[],
        );
        check(
            &json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}),
            &[r#"spec.schedulingGates[1]: Duplicate value: "a""#],
        );
        check(
            &json!({"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}),
            &[],
        );
        check(
            &json!({"resourceClaims": [{"name": "a", "resourceClaimName": "c"}, {"name": "a", "resourceClaimName": "c"}]}),
            &[r#"spec.resourceClaims[1].name: Duplicate value: "a""#],
        );
    }

    #[test]
    fn affinity_of_nodes() {
        let affinity = |requirement: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}})
        };
        const AT: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
        let refused =
            |requirement: Value, error: &str| check(&affinity(requirement), &[&format!("{AT}.{error}")]);
        check(
            &affinity(json!({"key": "a", "operator": "In", "values": ["b"]})),
            &[],
        );
        refused(
            json!({"key": "a", "operator": "In"}),
            "values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        );
        refused(
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        );
        refused(
            json!({"key": "a", "operator": "Gt", "values": ["1", "2"]}),
            "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
        );
        refused(
            json!({"key": "a", "operator": "Near"}),
            r#"operator: Invalid value: "Near": not a valid selector operator"#,
        );
    }

    #[test]
    fn affinity_of_pods() {
        let term = |weight: i64, key: &str| {
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": weight, "podAffinityTerm": {"topologyKey": key}}]}}})
        };
        const AT: &str = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
        check(&term(1, "zone"), &[]);
        check(&term(100, "zone"), &[]);
        for weight in [0, 101] {
            let error = format!("{AT}.weight: Invalid value: {weight}: must be in the range 1-100");
            check(&term(weight, "zone"), &[&error]);
        }
    }

    #[test]
    fn spread() {
        let constraint = |over: Value| {
            let mut one = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}});
            for (key, value) in over.as_object().into_iter().flatten() {
                one[key] = value.clone();
            }
            one
        };
        let of = |all: &[Value]| json!({"topologySpreadConstraints": all});
        check(&of(&[constraint(json!({"minDomains": 1}))]), &[]);
        check(
            &of(&[constraint(json!({"maxSkew": 0, "minDomains": 0}))]),
            &[
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
            ],
        );
        check(
            &of(&[constraint(
                json!({"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1}),
            )]),
            &[
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            ],
        );
        check(
            &of(&[constraint(json!({})), constraint(json!({}))]),
            &[
                r#"spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}""#,
            ],
        );
    }
}
