//! ResourceClaimTemplate.

use machinery::FieldPath;
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::core::pod_spec::template_metadata;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    default: |object| {
        if let Some(spec) = object.dig_mut("spec.spec") {
            super::resource_claim::default_spec(spec);
        }
    },
    expression_faults: Some(super::selectors::of_template),
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable_at("spec", object, old);
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    template_metadata(errors, &path.child("metadata"), object.dig("spec.metadata"));
    super::resource_claim::validate_spec(errors, &path.child("spec"), object.dig("spec.spec"));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    fn template(requests: Value) -> Value {
        json!({"spec": {"spec": {"devices": {"requests": requests}}}})
    }

    #[test]
    fn templates_are_judged_as_claims() {
        let templates = kind("resourceclaimtemplates.resource.k8s.io");
        let gpu = json!({"name": "gpu", "exactly": {"deviceClassName": "c"}});
        templates.create(&template(json!([gpu])), &[]);
        templates.defaults(
            &template(json!([gpu])),
            &template(json!([{"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}])),
        );
        templates.create(
            &template(json!([{"name": "gpu"}])),
            &["spec.spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
        );
        templates.create(
            &template(json!([gpu, gpu])),
            &[r#"spec.spec.devices.requests[1]: Duplicate value: "gpu""#],
        );
    }

    #[test]
    fn templates_do_not_change() {
        let templates = kind("resourceclaimtemplates.resource.k8s.io");
        let of = |class: &str| template(json!([{"name": "gpu", "exactly": {"deviceClassName": class}}]));
        templates.update(&of("a"), &of("a"), &[]);
        let change = of("b");
        let errors = templates.updated("", &of("a"), &change).unwrap_err();
        assert!(errors[0].ends_with("field is immutable"), "{errors:?}");
    }
}
