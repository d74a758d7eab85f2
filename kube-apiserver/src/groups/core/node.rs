//! Node. Kubelets register with their status.

use generic_server::registry::strategy::{FieldValue, SelectableField};
use machinery::names::ip::{cidr_warnings, parse_cidr_sloppy, validate_cidr_legacy};
use machinery::names::label_value;
use machinery::names::object_meta::validate_label_name;
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

use super::pod_spec::taint_effect;
use super::resource_names::quantity_value;
use crate::errors::Errors;
use crate::json::Json;
use crate::quantity::round_lists;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    status: true,
    created_with_status: true,
    default,
    prepare_create: |_, object| {
        object.ensure("spec").take_key("configSource");
        if let Some(status) = object.dig_mut("status") {
            status.take_key("config");
        }
    },
    prepare_update: |_, object, old| {
        if !old.has("spec.configSource") {
            object.ensure("spec").take_key("configSource");
        }
    },
    prepare_status: |object, old| {
        if let Some(status) = object.dig_mut("status").filter(|_| !old.has("status.config")) {
            status.take_key("config");
        }
    },
    validate: |errors, object| {
        avoided_pods(errors, object);
        taints(errors, object);
        resources(errors, object);
        networks(errors, object);
        declared_features(errors, object);
    },
    validate_update: |errors, object, old| {
        // Upstream validates annotations and taints of an update twice: here, and in `update`.
        avoided_pods(errors, object);
        taints(errors, object);
        networks(errors, object);
        update(errors, object, old);
    },
    validate_status: |errors, object, old| update(errors, object, old),
    warnings: |object, _| warnings(object),
    fields: || {
        vec![SelectableField {
            name: "spec.unschedulable".into(),
            value: FieldValue::Compute(|node| node.flag("spec.unschedulable").to_string()),
        }]
    },
    ..Rules::PLAIN
};

/// The annotation by which a node asks that pods of some controllers be kept away.
const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

fn avoided_pods(errors: &mut Errors, object: &Value) {
    let annotation = meta::annotations(object).and_then(|all| all.get(AVOID_PODS));
    let text = annotation.and_then(Value::as_str).unwrap_or_default();
    if text.is_empty() {
        return;
    }
    let annotations = FieldPath::new("metadata.annotations");
    let unreadable = match machinery::codec::json::value(text.as_bytes()) {
        Ok(Value::Null) => return,
        Ok(avoided) if avoided.is_object() => {
            let entries = avoided.dig("preferAvoidPods");
            match entries {
                Value::Null => return,
                Value::Array(entries) => {
                    return avoided_entries(errors, &annotations.child(AVOID_PODS), entries);
                }
                _ => {}
            }
            "json: cannot unmarshal into Go struct field AvoidPods.preferAvoidPods of type []v1.PreferAvoidPodsEntry".into()
        }
        Ok(_) => "json: cannot unmarshal into Go value of type v1.AvoidPods".into(),
        Err(error) => error.to_string(),
    };
    errors.invalid(&annotations.child("AvoidPods"), AVOID_PODS, unreadable);
}

fn avoided_entries(errors: &mut Errors, path: &FieldPath<'_>, entries: &[Value]) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("PodSignature");
        let controller = entry.dig("podSignature.podController");
        if controller.is_null() {
            errors.required(&path, "");
        } else if !controller.flag("controller") {
            let path = path.child("PodController");
            errors.invalid_value(
                &path.child("Controller"),
                &false.into(),
                "must point to a controller",
            );
        }
        if errors.is_full() {
            return;
        }
    }
}

/// Fields that upstream's type always writes, and what can be allocated where only the capacity is said.
fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    // The single range is the first of the list; where they differ, it is believed.
    let (one, first) = (
        spec.text("podCIDR").to_owned(),
        spec.strings("podCIDRs").next().map(str::to_owned),
    );
    if !one.is_empty() && first.as_ref() != Some(&one) {
        spec.put("podCIDRs", vec![one]);
    } else if let Some(first) = first {
        spec.put("podCIDR", first);
    }
    round_lists(object, &["status.capacity", "status.allocatable"]);
    let status = object.ensure("status");
    if status.has("capacity") && !status.has("allocatable") {
        let capacity = status.dig("capacity").clone();
        status.put("allocatable", capacity);
    }
    status
        .ensure("daemonEndpoints")
        .ensure("kubeletEndpoint")
        .fill("Port", 0);
    let info = status.ensure("nodeInfo");
    for key in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        info.fill(key, "");
    }
}

fn taints(errors: &mut Errors, object: &Value) {
    // Upstream looks for them under metadata.
    let path = FieldPath::new("metadata.taints");
    let taints = object.list("spec.taints");
    let mut seen = Seen::default();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        for error in validate_label_name(key, &path.child("key")) {
            errors.push(error);
        }
        let texts = label_value(value);
        if !texts.is_empty() {
            errors.invalid(&path.child("value"), value, texts.join(";"));
        }
        match effect {
            "" => errors.required(&path.child("effect"), ""),
            effect => taint_effect(errors, &path.child("effect"), effect),
        }
        if seen.again((key, effect)) {
            let mut error = FieldError::duplicate(&path, taint);
            error.detail = "taints must be unique by key and effect pair".into();
            errors.push(error);
        }
    }
}

fn resources(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("status");
    for key in ["capacity", "allocatable"] {
        let path = path.child(key);
        for (name, amount) in object.dig("status").entries(key) {
            // Upstream's path ends in the name of a resource; one without a name leaves empty brackets.
            let at = match name {
                "" => path.key(""),
                name => path.child(name),
            };
            quantity_value(errors, &at, name, amount);
        }
    }
}

fn networks(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec.podCIDRs");
    let list: Vec<&str> = object.strings("spec.podCIDRs").collect();
    for (index, cidr) in list.iter().enumerate() {
        for error in validate_cidr_legacy(&path.index(index), cidr, |_| false) {
            errors.push(error);
        }
    }
    if list.len() < 2 {
        return;
    }
    let broken = list.iter().position(|cidr| parse_cidr_sloppy(cidr).is_none());
    if let Some(index) = broken {
        let text = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {})",
            list[index]
        );
        errors.push(FieldError::internal(&path, text));
    }
    let families = list.iter().filter_map(|cidr| parse_cidr_sloppy(cidr));
    let fours = families.filter(|cidr| cidr.ip.is_ipv4()).count();
    if broken.is_some() || fours == 0 || fours == list.len() || list.len() > 2 {
        let text = "may specify no more than one CIDR for each IP family";
        errors.invalid_value(&path, object.dig("spec.podCIDRs"), text);
    }
}

/// The longest name of a feature.
const FEATURE_BYTES: usize = 253;

/// Names of features stand in order; each begins with an upper-case letter and may have parts.
fn declared_features(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("status.declaredFeatures");
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let mut before: Option<&str> = None;
    for (index, name) in object.strings("status.declaredFeatures").enumerate() {
        let at = path.index(index);
        match before {
            Some(last) if last == name => errors.duplicate(&at, name),
            Some(last) if last > name => errors.invalid(&at, name, "list must be sorted alphabetically"),
            _ => {}
        }
        before = Some(name);
        if name.len() > FEATURE_BYTES {
            let text =
                format!("invalid feature name {name:?}: must be no more than {FEATURE_BYTES} characters");
            errors.invalid(&at, name, text);
        } else if !name.starts_with(|c: char| c.is_ascii_uppercase()) || !name.split('/').all(plain) {
            let text = format!(
                "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(&at, name, text);
        }
    }
}

fn update(errors: &mut Errors, object: &Value, old: &Value) {
    avoided_pods(errors, object);
    resources(errors, object);
    declared_features(errors, object);
    let path = FieldPath::new("status.addresses");
    let addresses = object.list("status.addresses");
    let mut seen = Seen::default();
    for (index, address) in addresses.iter().enumerate() {
        if seen.again((address.text("type"), address.text("address"))) {
            errors.duplicate(&path.index(index), address.clone());
        }
    }
    let path = FieldPath::new("spec");
    let (spec, before) = (object.dig("spec"), old.dig("spec"));
    if !before.list("podCIDRs").is_empty() && before.dig("podCIDRs") != spec.dig("podCIDRs") {
        let text = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&path.child("podCIDRs"), text);
    }
    let provider = before.text("providerID");
    if !provider.is_empty() && provider != spec.text("providerID") {
        let text = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.child("providerID"), text);
    }
    taints(errors, object);
    if spec.text("externalID") != before.text("externalID") {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
}

fn warnings(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if object.has("spec.configSource") {
        found.push("spec.configSource: the feature is removed".to_string());
    }
    if !object.text("spec.externalID").is_empty() {
        let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        found.push(text.to_string());
    }
    let path = FieldPath::new("spec.podCIDRs");
    for (index, cidr) in object.strings("spec.podCIDRs").enumerate() {
        found.extend(cidr_warnings(&path.index(index), cidr));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn taints_are_unique_and_addresses_too() {
        let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}});
        let found = Errors::collect(|errors| (RULES.validate)(errors, &node));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field, "metadata.taints[1]");
        let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
        let node = json!({"status": {"addresses": [address, address]}});
        let found = Errors::collect(|errors| (RULES.validate_status)(errors, &node, &json!({})));
        assert_eq!(found[0].field, "status.addresses[1]");
    }

    #[test]
    fn avoided_pods_are_those_of_controllers() {
        #[track_caller]
        fn check(annotation: &str, expected: &[&str]) {
            let object = json!({"metadata": {"annotations": {AVOID_PODS: annotation}}});
            crate::groups::check::kind("nodes").create(&object, expected);
        }
        check("", &[]);
        check("null", &[]);
        check(r#"{"preferAvoidPods": null}"#, &[]);
        let controlled = r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":true}}}]}"#;
        check(controlled, &[]);
        check(
            "x",
            &[
                r#"metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": invalid character 'x' looking for beginning of value"#,
            ],
        );
        check(
            r#"{"preferAvoidPods":[{"podSignature":{}},{"podSignature":{"podController":{"controller":false}}}]}"#,
            &[
                "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value",
                "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[1].PodSignature.PodController.Controller: Invalid value: false: must point to a controller",
            ],
        );
        let object = json!({"metadata": {"annotations": {AVOID_PODS: r#"{"preferAvoidPods":5}"#}}});
        assert_eq!(crate::groups::check::kind("nodes").errors(&object).len(), 1);
    }

    #[test]
    fn networks_are_one_of_each_family() {
        let of = |cidrs: Value| json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
        let nodes = crate::groups::check::kind("nodes");
        nodes.create(&of(json!(["10.1.0.0/24", "fd00::/64"])), &[]);
        nodes.create(
            &of(json!(["10.1.0.0/24", "10.2.0.0/24"])),
            &[r#"spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.2.0.0/24"]: may specify no more than one CIDR for each IP family"#],
        );
        nodes.create(
            &of(json!(["10.1.0.0/24", "x"])),
            &[
                r#"spec.podCIDRs[1]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)",
                r#"spec.podCIDRs: Invalid value: ["10.1.0.0/24","x"]: may specify no more than one CIDR for each IP family"#,
            ],
        );
    }

    #[test]
    fn declared_features_are_in_order() {
        let features = |names: Value| json!({"status": {"declaredFeatures": names}});
        let nodes = crate::groups::check::kind("nodes");
        nodes.create(&features(json!(["A", "B/c"])), &[]);
        nodes.create(
            &features(json!(["B", "A", "A"])),
            &[
                r#"status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically"#,
                r#"status.declaredFeatures[2]: Duplicate value: "A""#,
            ],
        );
        let errors = nodes.errors(&features(json!(["a"])));
        assert!(
            errors[0].starts_with("status.declaredFeatures[0]: Invalid value"),
            "{errors:?}"
        );
    }
}
