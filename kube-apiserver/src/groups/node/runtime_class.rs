//! RuntimeClass.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use machinery::names::name_is_dns_label;
use machinery::names::object_meta::validate_labels;
use serde_json::{Value, json};

use crate::errors::Errors;
use crate::groups::core::pod_spec::{Claims, resources, tolerations};
use crate::groups::node_labels;
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::ANY_FINALIZER,
    create_on_update: true,
    unconditional_update: false,
    default: |object| object.fill("handler", ""),
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable(&FieldPath::ROOT, "handler", object, old);
    },
    warnings: |object, _| {
        let labels = object.entries("scheduling.nodeSelector");
        let texts = labels.filter_map(|(label, _)| node_labels::deprecated(label));
        texts
            .map(|text| format!("scheduling.nodeSelector: {text}"))
            .collect()
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let handler = object.text("handler");
    let path = FieldPath::new("handler");
    if errors.need(&path, handler) {
        errors.text(&path, handler, name_is_dns_label(handler, false));
    }
    if object.has("overhead") {
        let overhead = json!({"limits": object.dig("overhead.podFixed")});
        resources(errors, &FieldPath::new("overhead"), &overhead, &Claims::default());
    }
    let path = FieldPath::new("scheduling");
    if let Some(labels) = object.object_at("scheduling.nodeSelector") {
        for error in validate_labels(labels, &path.child("nodeSelector")) {
            errors.push(error);
        }
    }
    let path = path.child("tolerations");
    let list = object.list("scheduling.tolerations");
    tolerations(errors, &path, list);
    let mut seen = Seen::default();
    for (index, toleration) in list.iter().enumerate() {
        if seen.again(["key", "operator", "value", "effect"].map(|key| toleration.text(key))) {
            errors.duplicate(&path.index(index), toleration.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("runtimeclasses.node.k8s.io").create(&object, expected);
    }

    #[test]
    fn classes_are_validated() {
        check(json!({"handler": "runc"}), &[]);
        check(json!({"handler": ""}), &["handler: Required value"]);
        check(
            json!({"handler": "runc", "overhead": {"podFixed": {"cpu": "-1"}}}),
            &["overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
        );
        let toleration = json!({"key": "a", "operator": "Exists"});
        check(
            json!({"handler": "runc", "scheduling": {"tolerations": [toleration, {"key": "a", "operator": "Exists", "effect": "Never"}]}}),
            &[
                r#"scheduling.tolerations[1].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ],
        );
    }

    #[test]
    fn tolerations_of_a_class_differ() {
        let toleration = json!({"key": "a", "operator": "Exists"});
        let class = json!({"handler": "runc", "scheduling": {"tolerations": [toleration, toleration]}});
        let errors = kind("runtimeclasses.node.k8s.io").errors(&class);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("scheduling.tolerations[1]: Duplicate value: "),
            "{errors:?}"
        );
    }

    #[test]
    fn a_handler_stays() {
        kind("runtimeclasses.node.k8s.io").update(
            &json!({"handler": "runc"}),
            &json!({"handler": "kata"}),
            &[r#"handler: Invalid value: "kata": field is immutable"#],
        );
    }

    #[test]
    fn changes_are_validated() {
        kind("runtimeclasses.node.k8s.io").update(
            &json!({"handler": "h"}),
            &json!({"scheduling": {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]}}),
            &[
                r#"scheduling.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt""#,
            ],
        );
    }
}
