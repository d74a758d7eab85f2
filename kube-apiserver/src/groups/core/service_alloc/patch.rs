//! What clients that know less leave out of an update: taken from what was there.

use serde_json::Value;

use super::super::service::{needs_cluster_ip, needs_health_check, needs_node_port};
use crate::json::{Json, same};

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
        let new: Vec<i64> = service.list("spec.ports").iter().map(port_of).collect();
        let mut used: Vec<i64> = old.list("spec.ports").iter().map(port_of).collect();
        used.retain(|port| new.contains(port));
        for port in service.list_mut("spec.ports") {
            if port_of(port) != 0 {
                continue;
            }
            let before = old
                .list("spec.ports")
                .iter()
                .find(|before| before.text("name") == port.text("name"))
                .map(port_of)
                .unwrap_or_default();
            if before != 0 && !used.contains(&before) {
                port.put("nodePort", before);
                used.push(before);
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
