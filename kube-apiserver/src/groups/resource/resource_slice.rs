//! ResourceSlice: devices of a driver on some nodes.

use std::collections::HashMap;

use generic_server::registry::strategy::{MetadataRules, SelectableField};
use machinery::names::{dns1123_label, name_is_dns_subdomain};
use machinery::{FieldError, FieldPath, go};
use serde_json::Value;

use super::device::{attribute_name, binding_conditions, fits, pool_name, taint, unique};
use crate::errors::Errors;
use crate::groups::core::pod_spec::{csi_driver, node_selector};
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::first_by;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    generation: &["spec"],
    returns_deleted: true,
    fields: || ["spec.nodeName", "spec.driver"].map(SelectableField::path).into(),
    unknown_field: Some(|kind, field| {
        format!(
            "field label not supported for {}/{}, Kind={}: {field}",
            kind.group, kind.version, kind.kind
        )
    }),
    default,
    drop_disabled: |_, object, _| drop_disabled(object),
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: |errors, object, old| {
        validate(errors, object, old);
        let path = FieldPath::new("spec");
        let (spec, before) = (object.dig("spec"), old.dig("spec"));
        errors.immutable(&path.child("pool"), "name", spec.dig("pool"), before.dig("pool"));
        errors.immutable(&path, "driver", spec, before);
        errors.immutable(&path, "nodeName", spec, before);
    },
    warnings: |object, _| {
        let driver = object.text("spec.driver");
        let odd = driver.to_lowercase() != driver;
        let text = || {
            format!(
                "spec.driver: driver names should be lowercase; {} contains uppercase characters",
                go::quote(driver)
            )
        };
        odd.then(text).into_iter().collect()
    },
    ..Rules::PLAIN
};

/// The most sets of counters.
const COUNTER_SETS: usize = 8;
/// The most counters of a set, and of what a device consumes of one.
const COUNTERS: usize = 32;
/// The most sets that a device consumes of.
const CONSUMED_SETS: usize = 2;
/// The most attributes and capacities of a device.
const ATTRIBUTES: usize = 32;
/// The most values of a device's attributes.
const ATTRIBUTE_VALUES: usize = 48;
const ATTRIBUTE_BYTES: usize = 64;
const TAINTS: usize = 16;
/// The kinds of lists that attributes may be.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const DEVICES: usize = 128;
/// The most devices where some have taints, consume counters or have attributes that are lists.
const DEVICES_WITH_MORE: usize = 64;
const ONE_OF: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

/// When a taint was added is known to the second.
fn default(object: &mut Value) {
    for device in object
        .dig_mut("spec")
        .into_iter()
        .flat_map(|spec| spec.list_mut("devices"))
    {
        for taint in device.list_mut("taints") {
            if !taint.has("timeAdded") {
                taint.put("timeAdded", generic_server::write::now());
            }
        }
    }
}

/// Fields of features that are off: attributes that are lists, and the resources of nodes that devices stand for.
fn drop_disabled(object: &mut Value) {
    for device in object
        .dig_mut("spec")
        .into_iter()
        .flat_map(|spec| spec.list_mut("devices"))
    {
        device.take_key("nodeAllocatableResourceMappings");
        let attributes = device.dig_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flat_map(|map| map.values_mut()) {
            for key in LISTS {
                attribute.take_key(key);
            }
        }
    }
}

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    csi_driver(errors, &path.child("driver"), spec.text("driver"));
    pool(errors, &path.child("pool"), spec.dig("pool"));
    nodes(errors, &path, spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(errors, &path.child("devices"), spec, old.dig("spec"));
    let at = path.child("sharedCounters");
    let sets = spec.list("sharedCounters");
    if fits(errors, &at, sets.len(), COUNTER_SETS) {
        for (index, set) in sets.iter().enumerate() {
            counters(errors, &at.index(index), set, "name");
        }
        unique(errors, &at, sets.iter().map(|set| set.text("name")));
    }
}

/// A set of counters, or what is consumed of one. `key`: where its name is.
fn counters(errors: &mut Errors, path: &FieldPath<'_>, set: &Value, key: &str) {
    let name = set.text(key);
    if errors.need(&path.child(key), name) {
        errors.text(&path.child(key), name, dns1123_label(name));
    }
    let at = path.child("counters");
    let count = set.entries("counters").count();
    if count == 0 {
        return errors.required(&at, "");
    }
    if fits(errors, &at, count, COUNTERS) {
        for (name, _) in set.entries("counters") {
            errors.text(&at, name, dns1123_label(name));
        }
    }
}

fn pool(errors: &mut Errors, path: &FieldPath<'_>, pool: &Value) {
    pool_name(errors, &path.child("name"), pool.text("name"));
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

fn devices(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, old: &Value) {
    let devices = spec.list("devices");
    let has_more = |device: &Value| {
        let mut attributes = device.entries("attributes");
        !device.list("taints").is_empty()
            || !device.list("consumesCounters").is_empty()
            || attributes.any(|(_, attribute)| LISTS.iter().any(|key| attribute.get(key).is_some()))
    };
    let most = match devices.iter().any(has_more) {
        true => DEVICES_WITH_MORE,
        false => DEVICES,
    };
    if devices.len() > most {
        return errors.push(FieldError::too_many(path, devices.len(), most));
    }
    let before = first_by(old.list("devices"), "name");
    for (index, device) in devices.iter().enumerate() {
        let at = path.index(index);
        let name = device.text("name");
        errors.text(&at.child("name"), name, dns1123_label(name));
        attributes(errors, &at, device);
        capacities(errors, &at.child("capacity"), device);
        taints(errors, &at.child("taints"), device, &before);
        consumed(
            errors,
            &at.child("consumesCounters"),
            device.list("consumesCounters"),
        );
        nodes_of_device(errors, &at, device, spec.flag("perDeviceNodeSelection"));
        binding_conditions(errors, &at, device);
    }
    unique(errors, path, devices.iter().map(|device| device.text("name")));
}

fn taints(errors: &mut Errors, path: &FieldPath<'_>, device: &Value, before: &HashMap<&str, &Value>) {
    let list = device.list("taints");
    let old = before.get(device.text("name"));
    // Taints that were there before stay as they are.
    let known = old.is_some_and(|old| same(old.dig("taints"), device.dig("taints")));
    if known || !fits(errors, path, list.len(), TAINTS) {
        return;
    }
    for (index, item) in list.iter().enumerate() {
        taint(errors, &path.index(index), item, true);
    }
}

fn consumed(errors: &mut Errors, path: &FieldPath<'_>, sets: &[Value]) {
    if fits(errors, path, sets.len(), CONSUMED_SETS) {
        for (index, set) in sets.iter().enumerate() {
            counters(errors, &path.index(index), set, "counterSet");
        }
        unique(errors, path, sets.iter().map(|set| set.text("counterSet")));
    }
}

fn nodes_of_device(errors: &mut Errors, path: &FieldPath<'_>, device: &Value, each: bool) {
    if !each {
        if ["nodeName", "nodeSelector", "allNodes"]
            .iter()
            .any(|key| device.has(key))
        {
            let text = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, Value::Null, text);
        }
        return;
    }
    let mut set = Vec::new();
    if let Some(name) = device.dig("nodeName").as_str() {
        let at = path.child("nodeName");
        if name.is_empty() {
            errors.invalid(&at, name, "must not be empty");
        } else {
            set.push("`nodeName`");
            errors.text(&at, name, name_is_dns_subdomain(name, false));
        }
    }
    if device.has("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(errors, &path.child("nodeSelector"), device.dig("nodeSelector"));
    }
    match device.dig("allNodes").as_bool() {
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.invalid(
            &path.child("allNodes"),
            false,
            "must be either unset or set to true",
        ),
        None => {}
    }
    let text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => errors.required(path, text),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", set.join(", ")), text),
    }
}

fn attributes(errors: &mut Errors, path: &FieldPath<'_>, device: &Value) {
    let named = device.entries("attributes").count() + device.entries("capacity").count();
    if named > ATTRIBUTES {
        let text = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES}");
        errors.invalid(path, named, text);
    }
    let values = |attribute: &Value| {
        LISTS
            .iter()
            .map(|key| attribute.list(key).len())
            .sum::<usize>()
            .max(1)
    };
    let count: usize = device
        .entries("attributes")
        .map(|(_, attribute)| values(attribute))
        .sum();
    if count > ATTRIBUTE_VALUES {
        let text = format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES}");
        errors.invalid(path, count, text);
    }
    let at = path.child("attributes");
    for (name, value) in device.entries("attributes") {
        attribute_name(errors, &at, name);
        attribute(errors, &at.key(&shortened(name)), value);
    }
}

/// A name as paths show it: a longer one than any may be loses its middle.
fn shortened(name: &str) -> std::borrow::Cow<'_, str> {
    // A domain, a slash and an identifier.
    const MOST: usize = 63 + 1 + 32;
    if name.len() <= MOST {
        return name.into();
    }
    let kept = MOST - 3;
    let (front, back) = (kept.div_ceil(2), name.len() - kept / 2);
    let bytes = name.as_bytes();
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}...{}", part(&bytes[..front]), part(&bytes[back..])).into()
}

fn attribute(errors: &mut Errors, path: &FieldPath<'_>, attribute: &Value) {
    if let Some(text) = attribute.dig("string").as_str() {
        attribute_text(errors, &path.child("string"), text);
    }
    if let Some(version) = attribute.dig("version").as_str() {
        attribute_version(errors, &path.child("version"), version);
    }
    let keys = ["int", "bool", "string", "version"];
    match keys.iter().filter(|key| attribute.has(key)).count() {
        1 => {}
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        _ => errors.invalid_value(path, attribute, "exactly one value must be specified"),
    }
}

fn attribute_text(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    if text.len() > ATTRIBUTE_BYTES {
        errors.too_long(path, ATTRIBUTE_BYTES);
    }
}

fn attribute_version(errors: &mut Errors, path: &FieldPath<'_>, version: &str) {
    if kube_cel::Semver::parse(version).is_err() {
        let text = "must be a string compatible with semver.org spec 2.0.0";
        errors.invalid(path, version, text);
    }
    attribute_text(errors, path, version);
}

fn capacities(errors: &mut Errors, path: &FieldPath<'_>, device: &Value) {
    let shared = device.flag("allowMultipleAllocations");
    for (name, capacity) in device.entries("capacity") {
        attribute_name(errors, path, name);
        if !capacity.has("requestPolicy") {
            continue;
        }
        let name = shortened(name);
        let at = path.key(&name);
        let at = at.child("requestPolicy");
        match shared {
            true => super::request_policy::validate(errors, &at, capacity),
            false => errors.forbidden(&at, "allowMultipleAllocations must be true"),
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

    #[test]
    fn devices_are_validated() {
        let device = |device: Value, expected: &[&str]| {
            let mut whole = json!({"name": "a"});
            for (key, value) in device.as_object().into_iter().flatten() {
                whole[key] = value.clone();
            }
            check(json!({"devices": [whole]}), expected);
        };
        device(
            json!({"attributes": {"a": {"int": 1}, "e.com/b": {"version": "1.2.3"}}, "capacity": {"m": {"value": "1Gi"}}}),
            &[],
        );
        device(
            json!({"attributes": {"-": {"int": 1}}}),
            &[
                r#"spec.devices[0].attributes: Invalid value: "-": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"#,
            ],
        );
        device(
            json!({"attributes": {"a": {}, "b": {"version": "1"}, "c": {"string": "x".repeat(65)}}}),
            &[
                r#"spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified"#,
                r#"spec.devices[0].attributes[b].version: Invalid value: "1": must be a string compatible with semver.org spec 2.0.0"#,
                "spec.devices[0].attributes[c].string: Too long: may not be more than 64 bytes",
            ],
        );
        device(
            json!({"consumesCounters": [{"counterSet": "", "counters": {}}, {"counterSet": "s", "counters": {"c": {"value": "1"}}}]}),
            &[
                "spec.devices[0].consumesCounters[0].counterSet: Required value",
                "spec.devices[0].consumesCounters[0].counters: Required value",
            ],
        );
        device(
            json!({"taints": [{"key": "k"}], "capacity": {"m": {"value": "1", "requestPolicy": {}}}}),
            &[
                "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
                "spec.devices[0].taints[0].effect: Required value",
            ],
        );
        check(
            json!({"sharedCounters": [{"name": "A", "counters": {}}]}),
            &[
                r#"spec.sharedCounters[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
                "spec.sharedCounters[0].counters: Required value",
            ],
        );
    }
}
