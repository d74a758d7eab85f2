//! ResourceSlice: devices of a driver on some nodes. Of a device, its name and its nodes are validated.

use machinery::names::{dns1123_label, dns1123_subdomain, name_is_dns_subdomain};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::core::pod_spec::{csi_driver, node_selector};
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    returns_deleted: true,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        let path = FieldPath::new("spec");
        let (spec, before) = (object.dig("spec"), old.dig("spec"));
        errors.immutable(&path.child("pool"), "name", spec.dig("pool"), before.dig("pool"));
        errors.immutable(&path, "driver", spec, before);
        errors.immutable(&path, "nodeName", spec, before);
    },
    ..Rules::PLAIN
};

const POOL_NAME_BYTES: usize = 253;
const DEVICES: usize = 128;
/// The most devices where some have taints, consume counters or have attributes that are lists.
const DEVICES_WITH_MORE: usize = 64;
const ONE_OF: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    csi_driver(errors, &path.child("driver"), spec.text("driver"));
    pool(errors, &path.child("pool"), spec.dig("pool"));
    nodes(errors, &path, spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(errors, &path.child("devices"), spec);
}

fn pool(errors: &mut Errors, path: &FieldPath<'_>, pool: &Value) {
    let (at, name) = (path.child("name"), pool.text("name"));
    if errors.need(&at, name) {
        if name.len() > POOL_NAME_BYTES {
            errors.too_long(&at, POOL_NAME_BYTES);
        }
        for part in name.split('/') {
            errors.text(&at, part, dns1123_subdomain(part));
        }
    }
    let slices = pool.int("resourceSliceCount").unwrap_or_default();
    if slices <= 0 {
        errors.invalid(
            &path.child("resourceSliceCount"),
            slices,
            "must be greater than zero",
        );
    }
    let generation = pool.int("generation").unwrap_or_default();
    if generation < 0 {
        let text = "must be greater than or equal to zero";
        errors.invalid(&path.child("generation"), generation, text);
    }
}

/// Where the devices are is said in one way.
fn nodes(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let mut set = Vec::new();
    if let Some(name) = spec.dig("nodeName").as_str() {
        let at = path.child("nodeName");
        if name.is_empty() {
            errors.invalid(&at, name, "must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            errors.text(&at, name, name_is_dns_subdomain(name, false));
        }
    }
    if spec.has("nodeSelector") {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        node_selector(errors, &at, spec.dig("nodeSelector"));
        let terms = spec.dig("nodeSelector.nodeSelectorTerms");
        if terms.as_array().map_or(0, Vec::len) != 1 {
            let at = at.child("nodeSelectorTerms");
            errors.invalid_value(&at, terms, "must have exactly one node selector term");
        }
    }
    for (key, name) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec.dig(key).as_bool() {
            Some(true) => set.push(name),
            Some(false) => errors.invalid(&path.child(key), false, "must be either unset or set to true"),
            None => {}
        }
    }
    match set.len() {
        0 => errors.required(path, ONE_OF),
        1 => {}
        _ => {
            let text = format!("{ONE_OF}, but multiple fields are set");
            errors.invalid(path, format!("{{{}}}", set.join(", ")), text);
        }
    }
}

fn devices(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let devices = spec.list("devices");
    let has_more = |device: &Value| {
        let mut attributes = device.entries("attributes");
        let lists = ["bools", "ints", "strings", "versions"];
        !device.list("taints").is_empty()
            || !device.list("consumesCounters").is_empty()
            || attributes.any(|(_, attribute)| lists.iter().any(|key| attribute.get(key).is_some()))
    };
    let most = match devices.iter().any(has_more) {
        true => DEVICES_WITH_MORE,
        false => DEVICES,
    };
    if devices.len() > most {
        return errors.push(FieldError::too_many(path, devices.len(), most));
    }
    let each = spec.flag("perDeviceNodeSelection");
    for (index, device) in devices.iter().enumerate() {
        let at = path.index(index);
        let name = device.text("name");
        errors.text(&at.child("name"), name, dns1123_label(name));
        let anywhere = ["nodeName", "nodeSelector", "allNodes"]
            .iter()
            .any(|key| device.has(key));
        if each && !anywhere {
            let text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.required(&at, text);
        } else if !each && anywhere {
            let text = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(&at, Value::Null, text);
        }
    }
    let mut seen = Seen::default();
    for (index, device) in devices.iter().enumerate() {
        if seen.again(device.text("name")) {
            errors.duplicate(&path.index(index), device.text("name"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n"}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("resourceslices.resource.k8s.io").create(&with(spec), expected);
    }

    #[test]
    fn slices_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"driver": "", "pool": {"name": "", "generation": -1, "resourceSliceCount": 0}}),
            &[
                "spec.driver: Required value",
                "spec.pool.name: Required value",
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            ],
        );
        check(
            json!({"nodeName": null}),
            &[
                "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
            ],
        );
        check(
            json!({"allNodes": true}),
            &[
                r#"spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"#,
            ],
        );
    }

    #[test]
    fn devices_have_names_of_their_own() {
        check(
            json!({"devices": [{"name": "a"}, {"name": "a"}, {"name": "b", "allNodes": true}]}),
            &[
                "spec.devices[2]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
                r#"spec.devices[1]: Duplicate value: "a""#,
            ],
        );
        let many = |count: usize, taints: Value| -> Value {
            (0..count)
                .map(|n| json!({"name": format!("d{n}"), "taints": taints}))
                .collect()
        };
        check(json!({"devices": many(128, json!([]))}), &[]);
        check(
            json!({"devices": many(129, json!([]))}),
            &["spec.devices: Too many: 129: must have at most 128 items"],
        );
        let taints = json!([{"key": "k", "effect": "NoSchedule"}]);
        check(
            json!({"devices": many(65, taints)}),
            &["spec.devices: Too many: 65: must have at most 64 items"],
        );
    }

    #[test]
    fn a_slice_stays_where_it_is() {
        kind("resourceslices.resource.k8s.io").update(
            &with(json!({})),
            &json!({"spec": {"driver": "e.example.com", "nodeName": "m"}}),
            &[
                r#"spec.driver: Invalid value: "e.example.com": field is immutable"#,
                r#"spec.nodeName: Invalid value: "m": field is immutable"#,
            ],
        );
    }
}
