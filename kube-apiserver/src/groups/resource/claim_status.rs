//! The status of a ResourceClaim: what was allocated, for whom, and the state of the devices.

use std::collections::HashSet;

use machinery::FieldPath;
use machinery::names::ip::validate_interface_address;
use machinery::names::{dns1123_label, validate_conditions};
use serde_json::Value;

use super::device::{binding_conditions, configuration, fits, pool_name, raw, uid, unique};
use super::requests::{CONFIGURATIONS, Requests};
use super::selectors::REQUESTS;
use crate::errors::Errors;
use crate::groups::core::pod_spec::{csi_driver, node_selector};
use crate::json::{Json, same};

/// The most that a claim may be reserved for.
const CONSUMERS: usize = 256;
/// The most allocated devices.
pub(super) const RESULTS: usize = 32;
/// The most conditions of a device.
const CONDITIONS: usize = 8;
/// The most addresses of a device.
const ADDRESSES: usize = 16;
const INTERFACE_BYTES: usize = 256;
const HARDWARE_ADDRESS_BYTES: usize = 128;

pub(super) fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status");
    let status = object.dig("status");
    let at = path.child("reservedFor");
    let consumers = status.list("reservedFor");
    if fits(errors, &at, consumers.len(), CONSUMERS) {
        for (index, consumer) in consumers.iter().enumerate() {
            for key in ["resource", "name", "uid"] {
                errors.need(&at.index(index).child(key), consumer.text(key));
            }
        }
        unique(errors, &at, consumers.iter().map(|consumer| consumer.text("uid")));
    }
    devices(errors, &path.child("devices"), status);
    if !consumers.is_empty() && !status.has("allocation") {
        errors.forbidden(&at, "may not be specified when `allocated` is not set");
    } else if object.has("metadata.deletionTimestamp") {
        let before: HashSet<&Value> = old.list("status.reservedFor").iter().collect();
        if consumers.iter().any(|consumer| !before.contains(consumer)) {
            let text =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&at, text);
        }
    }
    let (new, before) = (status.dig("allocation"), old.dig("status.allocation"));
    if new.is_null() {
        return;
    }
    if before.is_null() {
        let requests = Requests::of(object.dig("spec"));
        allocation(errors, &path.child("allocation"), new, &requests);
    } else if !same(new, before) {
        errors.invalid_value(&path.child("allocation"), new, crate::errors::IMMUTABLE);
    }
}

/// What tells one allocated device from another.
pub(super) fn device_id(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|key| device.text(key))
}

fn devices(errors: &mut Errors, path: &FieldPath<'_>, status: &Value) {
    let results = status.list("allocation.devices.results");
    let allocated: HashSet<[&str; 4]> = results.iter().map(device_id).collect();
    let list = status.list("devices");
    for (index, device) in list.iter().enumerate() {
        let at = path.index(index);
        device_name(errors, &at, device);
        if !allocated.contains(&device_id(device)) {
            errors.invalid_value(&at, device, "must be an allocated device in the claim");
        }
        let conditions = at.child("conditions");
        fits(errors, &conditions, device.list("conditions").len(), CONDITIONS);
        for error in validate_conditions(device.list("conditions"), &conditions) {
            errors.push(error);
        }
        if device.has("data") {
            raw(errors, &at.child("data"), device.dig("data"), false);
        }
        network(errors, &at.child("networkData"), device.dig("networkData"));
    }
    let mut seen = HashSet::new();
    for (index, device) in list.iter().enumerate() {
        if !seen.insert(device_id(device)) {
            errors.duplicate(&path.index(index), device.clone());
        }
    }
}

fn device_name(errors: &mut Errors, path: &FieldPath<'_>, device: &Value) {
    csi_driver(errors, &path.child("driver"), device.text("driver"));
    pool_name(errors, &path.child("pool"), device.text("pool"));
    let name = device.text("device");
    errors.text(&path.child("device"), name, dns1123_label(name));
    if let Some(share) = device.dig("shareID").as_str() {
        uid(errors, &path.child("shareID"), share);
    }
}

fn network(errors: &mut Errors, path: &FieldPath<'_>, data: &Value) {
    for (key, most) in [
        ("interfaceName", INTERFACE_BYTES),
        ("hardwareAddress", HARDWARE_ADDRESS_BYTES),
    ] {
        if data.text(key).len() > most {
            errors.too_long(&path.child(key), most);
        }
    }
    let at = path.child("ips");
    if fits(errors, &at, data.list("ips").len(), ADDRESSES) {
        for (index, address) in data.strings("ips").enumerate() {
            if let Some(error) = validate_interface_address(&at.index(index), address) {
                errors.push(error);
            }
        }
        unique(errors, &at, data.strings("ips"));
    }
}

fn allocation(errors: &mut Errors, path: &FieldPath<'_>, allocation: &Value, requests: &Requests<'_>) {
    let devices = path.child("devices");
    let at = devices.child("results");
    let results = allocation.list("devices.results");
    if fits(errors, &at, results.len(), RESULTS) {
        for (index, result) in results.iter().enumerate() {
            let at = at.index(index);
            requests.check(errors, &at.child("request"), result.text("request"));
            device_name(errors, &at, result);
            binding_conditions(errors, &at, result);
        }
    }
    let at = devices.child("config");
    let list = allocation.list("devices.config");
    // Those of classes and those of the claim.
    if fits(errors, &at, list.len(), 2 * CONFIGURATIONS) {
        for (index, item) in list.iter().enumerate() {
            let at = at.index(index);
            errors.required_one_of(
                &at.child("source"),
                item.text("source"),
                &["FromClaim", "FromClass"],
            );
            requests.check_all(errors, &at, item);
            configuration(errors, &at, item, false);
        }
    }
    if allocation.has("nodeSelector") {
        node_selector(
            errors,
            &path.child("nodeSelector"),
            allocation.dig("nodeSelector"),
        );
    }
}

const _: () = assert!(RESULTS == REQUESTS);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    fn claim() -> Value {
        json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
    }

    #[track_caller]
    fn check(status: Value, expected: &[&str]) {
        let claims = kind("resourceclaims.resource.k8s.io");
        claims.update_of("status", &claim(), &json!({"status": status}), expected);
    }

    #[test]
    fn allocations_are_of_requests() {
        let result = |request: &str| json!({"devices": {"results": [{"request": request, "driver": "d.example.com", "pool": "p", "device": "x"}]}});
        check(json!({"allocation": result("r")}), &[]);
        check(
            json!({"allocation": result("s")}),
            &[
                r#"status.allocation.devices.results[0].request: Invalid value: "s": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
            ],
        );
        check(
            json!({"allocation": result("r"), "devices": [{"driver": "d.example.com", "pool": "p", "device": "x"}],
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}),
            &[],
        );
    }

    #[test]
    fn reservations_need_an_allocation() {
        check(
            json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": ""}]}),
            &[
                "status.reservedFor[0].uid: Required value",
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ],
        );
    }
}
