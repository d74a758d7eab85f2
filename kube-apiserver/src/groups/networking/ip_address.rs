//! IPAddress: the name is the address.

use machinery::FieldPath;
use machinery::names::ip::validate_ip;
use machinery::names::{dns1123_subdomain, path_segment_name};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    name,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable(
            &FieldPath::new("spec"),
            "parentRef",
            object.dig("spec"),
            old.dig("spec"),
        );
    },
    ..Rules::PLAIN
};

fn name(name: &str, _prefix: bool) -> Vec<String> {
    validate_ip(&FieldPath::ROOT, name)
        .into_iter()
        .map(|error| error.detail.to_string())
        .collect()
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let path = path.child("parentRef");
    if !object.has("spec.parentRef") {
        return errors.required(&path, "");
    }
    let parent = object.dig("spec.parentRef");
    let group = parent.text("group");
    if !group.is_empty() {
        errors.text(&path.child("group"), group, dns1123_subdomain(group));
    }
    for (key, needed) in [("resource", true), ("name", true), ("namespace", false)] {
        let text = parent.text(key);
        if needed {
            errors.need(&path.child(key), text);
        }
        if !text.is_empty() {
            errors.text(&path.child(key), text, path_segment_name(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(name: &str, spec: Value, expected: &[&str]) {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        kind("ipaddresses.networking.k8s.io").create(&object, expected);
    }

    #[test]
    fn addresses_have_a_parent() {
        let parent = json!({"parentRef": {"resource": "services", "namespace": "ns", "name": "s"}});
        check("10.0.0.1", parent.clone(), &[]);
        check("10.0.0.1", json!({}), &["spec.parentRef: Required value"]);
        check(
            "10.0.0.1",
            json!({"parentRef": {"name": "s"}}),
            &["spec.parentRef.resource: Required value"],
        );
        let object = json!({"metadata": {"name": "10.0.0.1"}, "spec": parent});
        let errors = kind("ipaddresses.networking.k8s.io")
            .updated("", &object, &json!({"spec": {"parentRef": {"name": "t"}}}))
            .unwrap_err();
        assert!(
            errors[0].starts_with("spec.parentRef: Invalid value: ")
                && errors[0].ends_with(": field is immutable"),
            "{errors:?}"
        );
    }
}
