//! EndpointSlice.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::ip::{ip_warnings, validate_ip};
use machinery::names::object_meta::validate_labels;
use machinery::names::{
    dns1123_label, fully_qualified_domain_name, label_value, name_is_dns_subdomain, qualified_name,
};
use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;
use std::collections::HashSet;

use crate::errors::Errors;
use crate::groups::core::service::{endpoint_ip, legacy_ip};
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::AS_NEW,
    generation: &["endpoints", "ports", "addressType", "metadata.labels"],
    default: |object| {
        for port in object.list_mut("ports") {
            port.fill("name", "");
            port.fill("protocol", "TCP");
        }
    },
    prepare_create: |_, object| drop_topology(object, &Value::Null),
    prepare_update: |_, object, old| drop_topology(object, old),
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: |errors, object, old| {
        validate(errors, object, old);
        errors.immutable_at("addressType", object, old);
    },
    warnings,
    ..Rules::PLAIN
};

/// The controllers that write no addresses that are to be warned of.
const CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

fn warnings(object: &Value, old: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if old.is_null() && object.text("addressType") == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".to_string());
    }
    let manager =
        meta::labels(object).and_then(|all| all.get("endpointslice.kubernetes.io/managed-by")?.as_str());
    if manager.is_some_and(|manager| CONTROLLERS.contains(&manager)) {
        return out;
    }
    let endpoints = FieldPath::new("endpoints");
    for (index, endpoint) in object.list("endpoints").iter().enumerate() {
        let at = endpoints.index(index);
        let at = at.child("addresses");
        for (index, address) in endpoint.strings("addresses").enumerate() {
            out.extend(ip_warnings(&at.index(index), address));
        }
    }
    out
}

const HOSTNAME: &str = "kubernetes.io/hostname";

/// `deprecatedTopology` cannot be written through v1; a node that it named before becomes the endpoint's.
fn drop_topology(object: &mut Value, old: &Value) {
    if object.list("endpoints") == old.list("endpoints") {
        return;
    }
    let known = old.list("endpoints").iter();
    let known: HashSet<&str> = known
        .filter_map(|endpoint| endpoint.dig("deprecatedTopology").get(HOSTNAME)?.as_str())
        .collect();
    for endpoint in object.list_mut("endpoints") {
        let Some(topology) = endpoint.take_key("deprecatedTopology") else {
            continue;
        };
        let node = topology.get(HOSTNAME).and_then(Value::as_str);
        let node = node.filter(|node| known.contains(node) && name_is_dns_subdomain(node, false).is_empty());
        if let Some(node) = node.filter(|_| !endpoint.has("nodeName")) {
            endpoint.put("nodeName", node);
        }
    }
}

const PORTS: usize = 20_000;
const ENDPOINTS: usize = 1_000;
const ADDRESSES: usize = 100;
const TOPOLOGY_LABELS: usize = 16;
/// Of zones, and of nodes.
const HINTS: usize = 8;

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    errors.required_one_of(
        &FieldPath::new("addressType"),
        object.text("addressType"),
        &["FQDN", "IPv4", "IPv6"],
    );
    ports(errors, &FieldPath::new("ports"), object.list("ports"));
    // Endpoints of before that are not what they should be may stay.
    if old.is_null() || !same(object.dig("endpoints"), old.dig("endpoints")) {
        endpoints(errors, object);
    }
}

/// Whether a list is longer than it may be, which is said.
fn too_many(errors: &mut Errors, path: &FieldPath<'_>, count: usize, most: usize) -> bool {
    if count > most {
        errors.push(FieldError::too_many(path, count, most));
    }
    count > most
}

fn ports(errors: &mut Errors, path: &FieldPath<'_>, ports: &[Value]) {
    if too_many(errors, path, ports.len(), PORTS) {
        return;
    }
    let mut seen = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.text(&at.child("name"), name, dns1123_label(name));
        }
        if seen.again(name) {
            errors.duplicate(&at.child("name"), name);
        }
        errors.one_of(
            &at.child("protocol"),
            port.text("protocol"),
            &["SCTP", "TCP", "UDP"],
        );
        if let Some(protocol) = port.dig("appProtocol").as_str() {
            errors.text(&at.child("appProtocol"), protocol, qualified_name(protocol));
        }
    }
}

fn endpoints(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("endpoints");
    let endpoints = object.list("endpoints");
    if too_many(errors, &path, endpoints.len(), ENDPOINTS) {
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = path.index(index);
        addresses(
            errors,
            &at.child("addresses"),
            endpoint,
            object.text("addressType"),
        );
        if let Some(node) = endpoint.dig("nodeName").as_str() {
            errors.text(&at.child("nodeName"), node, name_is_dns_subdomain(node, false));
        }
        if let Some(labels) = endpoint.object_at("deprecatedTopology") {
            let at = at.child("deprecatedTopology");
            too_many(errors, &at, labels.len(), TOPOLOGY_LABELS);
            for error in validate_labels(labels, &at) {
                errors.push(error);
            }
        }
        if let Some(host) = endpoint.dig("hostname").as_str() {
            errors.text(&at.child("hostname"), host, dns1123_label(host));
        }
        hints(errors, &at.child("hints"), endpoint.dig("hints"));
    }
}

fn addresses(errors: &mut Errors, path: &FieldPath<'_>, endpoint: &Value, kind: &str) {
    let count = endpoint.list("addresses").len();
    if count == 0 {
        errors.required(path, "must contain at least 1 address");
    }
    too_many(errors, path, count, ADDRESSES);
    for (index, address) in endpoint.strings("addresses").enumerate() {
        let at = path.index(index);
        match kind {
            "IPv4" => {
                let holds = legacy_ip(errors, &at, address, &Seen::default());
                if holds {
                    if address.contains(':') {
                        errors.invalid(path, address, "must be an IPv4 address");
                    }
                    endpoint_ip(errors, &at, address);
                }
            }
            "IPv6" => {
                let found = validate_ip(&at, address);
                if found.is_empty() {
                    if !address.contains(':') {
                        errors.invalid(path, address, "must be an IPv6 address");
                    }
                    endpoint_ip(errors, &at, address);
                }
                found.into_iter().for_each(|error| errors.push(error));
            }
            "FQDN" => {
                if let Some(error) = fully_qualified_domain_name(&at, address) {
                    errors.push(error);
                }
            }
            _ => {}
        }
    }
}

fn hints(errors: &mut Errors, path: &FieldPath<'_>, hints: &Value) {
    for (key, judge) in [
        ("forZones", label_value as fn(&str) -> Vec<String>),
        ("forNodes", |name| name_is_dns_subdomain(name, false)),
    ] {
        let at = path.child(key);
        let list = hints.list(key);
        if too_many(errors, &at, list.len(), HINTS) {
            return;
        }
        let mut seen = Seen::default();
        for (index, hint) in list.iter().enumerate() {
            let at = at.index(index);
            let at = at.child("name");
            let name = hint.text("name");
            if seen.again(name) {
                errors.duplicate(&at, name);
            }
            errors.text(&at, name, judge(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::kind;

    #[test]
    fn topology_is_not_written() {
        #[track_caller]
        fn check(endpoint: &Value, before: &Value, expected: &Value) {
            let list = |endpoint: &Value| json!({"endpoints": [endpoint]});
            let mut object = list(endpoint);
            drop_topology(&mut object, &list(before));
            assert_eq!(object, list(expected), "{endpoint}");
        }
        let on = |node: &str, address: &str| json!({"addresses": [address], "deprecatedTopology": {HOSTNAME: node}});
        check(
            &on("n", "1.1.1.1"),
            &Value::Null,
            &json!({"addresses": ["1.1.1.1"]}),
        );
        // As it was, and with another address.
        check(&on("n", "1.1.1.1"), &on("n", "1.1.1.1"), &on("n", "1.1.1.1"));
        check(
            &on("n", "1.1.1.2"),
            &on("n", "1.1.1.1"),
            &json!({"addresses": ["1.1.1.2"], "nodeName": "n"}),
        );
        check(
            &on("other", "1.1.1.1"),
            &on("n", "1.1.1.1"),
            &json!({"addresses": ["1.1.1.1"]}),
        );
    }

    #[track_caller]
    fn check(slice: Value, expected: &[&str]) {
        kind("endpointslices.discovery.k8s.io").create(&slice, expected);
    }

    fn with(kind: &str, endpoint: Value) -> Value {
        json!({"addressType": kind, "endpoints": [endpoint]})
    }

    #[test]
    fn addresses_are_of_their_type() {
        check(with("IPv4", json!({"addresses": ["10.0.0.1"]})), &[]);
        check(with("IPv6", json!({"addresses": ["fd00::1"]})), &[]);
        check(with("FQDN", json!({"addresses": ["a.example.com"]})), &[]);
        check(
            json!({"addressType": "", "endpoints": []}),
            &["addressType: Required value"],
        );
        check(
            json!({"addressType": "IPX", "endpoints": []}),
            &[r#"addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6""#],
        );
        check(
            with("IPv4", json!({"addresses": []})),
            &["endpoints[0].addresses: Required value: must contain at least 1 address"],
        );
        check(
            with("IPv4", json!({"addresses": ["fd00::1", "127.0.0.1"]})),
            &[
                r#"endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address"#,
                r#"endpoints[0].addresses[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
            ],
        );
        check(
            with("IPv6", json!({"addresses": ["10.0.0.1"]})),
            &[r#"endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address"#],
        );
    }

    #[test]
    fn ports_and_hints_are_validated() {
        check(
            json!({"addressType": "IPv4", "endpoints": [],
                "ports": [{"name": "a"}, {"name": "a", "protocol": "ICMP"}, {"name": "b", "appProtocol": "example.com/x"}]}),
            &[
                r#"ports[1].name: Duplicate value: "a""#,
                r#"ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
            ],
        );
        let zones: Vec<Value> = (0..9).map(|n| json!({"name": format!("z{n}")})).collect();
        check(
            with(
                "IPv4",
                json!({"addresses": ["10.0.0.1"], "hints": {"forZones": zones}}),
            ),
            &["endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"],
        );
        check(
            with(
                "IPv4",
                json!({"addresses": ["10.0.0.1"], "hints": {"forNodes": [{"name": "n"}, {"name": "n"}]}}),
            ),
            &[r#"endpoints[0].hints.forNodes[1].name: Duplicate value: "n""#],
        );
        let many: Vec<Value> = (0..1001).map(|_| json!({"addresses": []})).collect();
        check(
            json!({"addressType": "IPv4", "endpoints": many}),
            &["endpoints: Too many: 1001: must have at most 1000 items"],
        );
    }

    #[test]
    fn the_type_stays() {
        let slices = kind("endpointslices.discovery.k8s.io");
        let object = json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]});
        slices.defaults(
            &object,
            &json!({"metadata": {"generation": 1}, "ports": [{"name": "", "protocol": "TCP", "port": 80}]}),
        );
        slices.update(
            &object,
            &json!({"addressType": "IPv6"}),
            &[r#"addressType: Invalid value: "IPv6": field is immutable"#],
        );
        slices.warnings(
            &json!({"addressType": "FQDN", "endpoints": []}),
            &["spec.addressType: FQDN endpoints are deprecated"],
        );
    }
}
