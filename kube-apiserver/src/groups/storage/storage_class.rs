//! StorageClass.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use machinery::FieldPath;
use machinery::names::{label_key, qualified_name};
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::node_labels;
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    default: |object| {
        object.fill("reclaimPolicy", "Delete");
        object.fill("volumeBindingMode", "Immediate");
    },
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errors.immutable_at(key, object, old);
        }
    },
    warnings: |object, _| warnings(object),
    ..Rules::PLAIN
};

fn warnings(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let topologies = FieldPath::new("allowedTopologies");
    for (index, topology) in object.list("allowedTopologies").iter().enumerate() {
        let at = topologies.index(index);
        let at = at.child("matchLabelExpressions");
        for (index, expression) in topology.list("matchLabelExpressions").iter().enumerate() {
            let text = node_labels::deprecated(expression.text("key"));
            out.extend(text.map(|text| format!("{}: {text}", at.index(index).child("key"))));
        }
    }
    out
}

fn validate(errors: &mut Errors, object: &Value) {
    provisioner(errors, &FieldPath::new("provisioner"), object.text("provisioner"));
    parameters(errors, &FieldPath::new("parameters"), object);
    let policy = object.text("reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&FieldPath::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    errors.one_of(
        &FieldPath::new("volumeBindingMode"),
        object.text("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
    topologies(errors, object);
}

/// The name of a driver or provisioner.
pub(super) fn provisioner(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if errors.need(path, name) {
        let lower = name.to_lowercase();
        errors.text(path, &lower, qualified_name(&lower));
    }
}

/// The most parameters that a class may have.
const PARAMETERS: usize = 512;
/// The most bytes of its parameters together.
const PARAMETER_BYTES: usize = 256 * 1024;

/// The `parameters` of a class.
pub(super) fn parameters(errors: &mut Errors, path: &FieldPath<'_>, class: &Value) {
    if class.entries("parameters").count() > PARAMETERS {
        return errors.too_long(path, PARAMETERS);
    }
    let mut bytes = 0;
    for (key, value) in class.entries("parameters") {
        if key.is_empty() {
            errors.invalid(path, key, "field can not be empty.");
        }
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > PARAMETER_BYTES {
        errors.too_long(path, PARAMETER_BYTES);
    }
}

fn topologies(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("allowedTopologies");
    // Upstream begins with a term that wants nothing, so that every other such term repeats it.
    let mut terms = HashSet::from([BTreeMap::new()]);
    for (index, term) in object.list("allowedTopologies").iter().enumerate() {
        let at = path.index(index);
        let at = at.child("matchLabelExpressions");
        let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (index, expression) in term.list("matchLabelExpressions").iter().enumerate() {
            let at = at.index(index);
            let key = expression.text("key");
            topology(errors, &at, expression);
            if wanted.contains_key(key) {
                errors.duplicate(&at.child("key"), key);
            }
            wanted.insert(key, expression.strings("values").collect());
        }
        if !terms.insert(wanted) {
            errors.duplicate(&at, "");
        }
    }
}

fn topology(errors: &mut Errors, path: &FieldPath<'_>, expression: &Value) {
    if expression.list("values").is_empty() {
        errors.required(&path.child("values"), "");
    }
    let mut seen = Seen::default();
    for (index, value) in expression.strings("values").enumerate() {
        if seen.again(value) {
            errors.duplicate(&path.child("values").index(index), value);
        }
    }
    let key = expression.text("key");
    errors.text(&path.child("key"), key, label_key(key));
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("storageclasses.storage.k8s.io").create(&object, expected);
    }

    #[test]
    fn classes_are_validated() {
        check(json!({"provisioner": "kubernetes.io/no-provisioner"}), &[]);
        check(json!({"provisioner": ""}), &["provisioner: Required value"]);
        check(
            json!({"provisioner": "p", "reclaimPolicy": "Recycle", "volumeBindingMode": "Later"}),
            &[
                r#"reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain""#,
                r#"volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer""#,
            ],
        );
        let many: Map<String, Value> = (0..=512).map(|n| (n.to_string(), "x".into())).collect();
        check(
            json!({"provisioner": "p", "parameters": many}),
            &["parameters: Too long: may not be more than 512 bytes"],
        );
        let term = |values: &[&str]| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
        check(
            json!({"provisioner": "p", "allowedTopologies": [term(&["a", "b"]), term(&["b", "a"]), term(&[]), term(&["c", "c"])]}),
            &[
                r#"allowedTopologies[1].matchLabelExpressions: Duplicate value: """#,
                "allowedTopologies[2].matchLabelExpressions[0].values: Required value",
                r#"allowedTopologies[3].matchLabelExpressions[0].values[1]: Duplicate value: "c""#,
            ],
        );
    }

    #[test]
    fn how_volumes_are_made_stays() {
        let classes = kind("storageclasses.storage.k8s.io");
        let old = json!({"provisioner": "p"});
        classes.defaults(
            &old,
            &json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        );
        classes.update(
            &old,
            &json!({"parameters": {"a": "b"}, "provisioner": "q", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"}),
            &[
                r#"parameters: Invalid value: {"a":"b"}: field is immutable"#,
                r#"provisioner: Invalid value: "q": field is immutable"#,
                r#"reclaimPolicy: Invalid value: "Retain": field is immutable"#,
                r#"volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable"#,
            ],
        );
        classes.update(
            &old,
            &json!({"allowVolumeExpansion": true, "parameters": {}}),
            &[],
        );
    }
}
