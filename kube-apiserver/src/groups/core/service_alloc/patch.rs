//! What clients that know less leave out of an update: taken from what was there.

use serde_json::Value;

use super::super::service::{needs_cluster_ip, needs_health_check, needs_node_port};
use crate::json::{Json, same};
use crate::unique::{Seen, first_by};

/// What the client left out and the server gave before.
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
