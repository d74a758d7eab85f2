//! Fields that older clients leave out of an update: taken from the stored service.

use serde_json::Value;

use super::super::service::{needs_cluster_ip, needs_health_check, needs_node_port};
use crate::json::{Json, same};
use crate::unique::{Seen, first_by};

/// Allocated fields that the client left out.
pub(super) fn patch_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        let spec = service.ensure("spec");
        spec.fill_text("clusterIP", old.text("spec.clusterIP"));
        if spec.list("clusterIPs").is_empty() && spec.text("clusterIP") == old.text("spec.clusterIP") {
            spec.copy_key("clusterIPs", old.dig("spec"));
        }
    }
    let port_of = |port: &Value| port.int("nodePort").unwrap_or_default();
    if needs_node_port(old) && needs_node_port(service) {
        let new: Seen<i64> = service.list("spec.ports").iter().map(port_of).collect();
        let before = old.list("spec.ports");
        let mut used: Seen<i64> = before.iter().map(port_of).filter(|port| new.has(port)).collect();
        let before = first_by(before, "name");
        for port in service.list_mut("spec.ports") {
            if port_of(port) != 0 {
                continue;
            }
            let before = before.get(port.text("name")).map_or(0, |before| port_of(before));
            if before != 0 && !used.again(before) {
                port.put("nodePort", before);
            }
        }
    }
    if needs_health_check(old)
        && needs_health_check(service)
        && let Some(port) = old.int("spec.healthCheckNodePort")
    {
        service.ensure("spec").fill_int("healthCheckNodePort", port);
    }
}

/// Keeps `clusterIP` and the first of `clusterIPs` the same for clients that know only one.
pub(super) fn normalize(service: &mut Value, old: &Value) {
    let ip = service.text("spec.clusterIP").to_owned();
    if old.is_null() {
        if !ip.is_empty() && service.list("spec.clusterIPs").is_empty() {
            service.ensure("spec").put("clusterIPs", vec![ip]);
        }
        return;
    }
    let same_list = same(service.dig("spec.clusterIPs"), old.dig("spec.clusterIPs"));
    if ip == old.text("spec.clusterIP") || !same_list {
        return;
    }
    if ip.is_empty() {
        service.ensure("spec").take_key("clusterIPs");
    } else {
        service.ensure("spec").put("clusterIPs", vec![ip]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn left_out_fields_stay() {
        #[track_caller]
        fn check(old: Value, new: Value, expected: Value) {
            let mut service = json!({"spec": new});
            patch_allocated(&mut service, &json!({"spec": old}));
            assert_eq!(service["spec"], expected);
        }
        let given = json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]});
        check(given.clone(), json!({"type": "ClusterIP"}), given.clone());
        let other = json!({"type": "ClusterIP", "clusterIP": "10.0.0.2"});
        check(given.clone(), other.clone(), other);
        let external = json!({"type": "ExternalName"});
        check(given, external.clone(), external);

        let ports = |ports: Value| json!({"type": "NodePort", "clusterIP": "None", "ports": ports});
        let old = ports(json!([{"name": "a", "nodePort": 30_001}, {"name": "b", "nodePort": 30_002}]));
        check(
            old.clone(),
            ports(json!([{"name": "b"}, {"name": "a"}])),
            ports(json!([{"name": "b", "nodePort": 30_002}, {"name": "a", "nodePort": 30_001}])),
        );
        // A port that the update gives to another name is not given twice.
        let moved = ports(json!([{"name": "b", "nodePort": 30_001}, {"name": "a"}]));
        check(old, moved.clone(), moved);
    }

    #[test]
    fn one_address_and_the_list_agree() {
        #[track_caller]
        fn check(old: Value, new: Value, expected: Value) {
            let mut service = json!({"spec": new});
            let old = match old.is_null() {
                true => Value::Null,
                false => json!({"spec": old}),
            };
            normalize(&mut service, &old);
            assert_eq!(service["spec"], expected);
        }
        let of = |ip: &str, ips: Value| json!({"clusterIP": ip, "clusterIPs": ips});
        check(Value::Null, json!({"clusterIP": "a"}), of("a", json!(["a"])));
        check(Value::Null, of("a", json!(["b"])), of("a", json!(["b"])));
        check(
            of("a", json!(["a"])),
            of("b", json!(["a"])),
            of("b", json!(["b"])),
        );
        check(
            of("a", json!(["a"])),
            of("", json!(["a"])),
            json!({"clusterIP": ""}),
        );
        check(
            of("a", json!(["a"])),
            of("a", json!(["c"])),
            of("a", json!(["c"])),
        );
        check(
            of("a", json!(["a"])),
            of("b", json!(["c"])),
            of("b", json!(["c"])),
        );
    }
}
