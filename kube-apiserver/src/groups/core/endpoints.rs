//! Endpoints.

use machinery::names::ip::ip_warnings;
use machinery::names::{dns1123_label, dns1123_subdomain, port_number, qualified_name};
use machinery::{FieldPath, meta};
use serde_json::Value;

use super::service::{endpoint_ip, legacy_ip};
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    default: |object| {
        for subset in object.list_mut("subsets") {
            for port in subset.list_mut("ports") {
                port.fill_text("protocol", "TCP");
            }
        }
    },
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    warnings: |object, _| warnings(object),
    ..Rules::PLAIN
};

/// About addresses; the controller of Endpoints writes none that are to be warned of.
fn warnings(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let manager =
        meta::labels(object).and_then(|all| all.get("endpoints.kubernetes.io/managed-by")?.as_str());
    if manager == Some("endpoint-controller") {
        return out;
    }
    let subsets = FieldPath::new("subsets");
    for (index, subset) in object.list("subsets").iter().enumerate() {
        let at = subsets.index(index);
        for list in ["addresses", "notReadyAddresses"] {
            let at = at.child(list);
            for (index, address) in subset.list(list).iter().enumerate() {
                out.extend(ip_warnings(&at.index(index).child("ip"), address.text("ip")));
            }
        }
    }
    out
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("subsets");
    for (index, subset) in object.list("subsets").iter().enumerate() {
        let path = path.index(index);
        let (ready, not_ready) = (subset.list("addresses"), subset.list("notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for (key, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
            let path = path.child(key);
            for (index, address) in addresses.iter().enumerate() {
                let path = path.index(index);
                legacy_ip(errors, &path.child("ip"), address.text("ip"), &Seen::default());
                let host = address.text("hostname");
                if !host.is_empty() {
                    errors.text(&path.child("hostname"), host, dns1123_label(host));
                }
                if let Some(node) = address.dig("nodeName").as_str() {
                    errors.text(&path.child("nodeName"), node, dns1123_subdomain(node));
                }
                endpoint_ip(errors, &path.child("ip"), address.text("ip"));
            }
        }
        let ports = subset.list("ports");
        for (index, port) in ports.iter().enumerate() {
            let at = path.child("ports");
            let path = at.index(index);
            let name = port.text("name");
            if name.is_empty() {
                if ports.len() > 1 {
                    errors.required(&path.child("name"), "");
                }
            } else {
                errors.text(&path.child("name"), name, dns1123_label(name));
            }
            let number = port.int("port").unwrap_or_default();
            for text in port_number(number) {
                errors.invalid(&path.child("port"), number, text);
            }
            errors.required_one_of(
                &path.child("protocol"),
                port.text("protocol"),
                &["SCTP", "TCP", "UDP"],
            );
            if let Some(protocol) = port.dig("appProtocol").as_str() {
                errors.text(&path.child("appProtocol"), protocol, qualified_name(protocol));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(subsets: Value, expected: &[&str]) {
        kind("endpoints").create(&json!({"subsets": subsets}), expected);
    }

    #[test]
    fn endpoints_are_validated() {
        check(
            json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]),
            &[],
        );
        check(
            json!([{"ports": [{"port": 80}]}]),
            &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
        );
        check(
            json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 0}, {"name": "b", "port": 1, "protocol": "X"}]}]),
            &[
                r#"subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                "subsets[0].ports[0].name: Required value",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"subsets[0].ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
            ],
        );
        kind("endpoints").defaults(
            &json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
            &json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}]}),
        );
    }

    #[test]
    fn protocols_of_applications_are_qualified_names() {
        let subset = |protocol: &str| json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1, "appProtocol": protocol}]}]});
        kind("endpoints").create(&subset("example.com/x"), &[]);
        let errors = kind("endpoints").errors(&subset("a b"));
        assert!(
            errors[0].starts_with("subsets[0].ports[0].appProtocol: Invalid value"),
            "{errors:?}"
        );
    }
}
