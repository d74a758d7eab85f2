//! The status of a load balancer, as Services and Ingresses have it.

use machinery::FieldPath;
use machinery::names::dns1123_subdomain;
use machinery::names::ip::{ip_warnings, parse_ip_sloppy, validate_ip_legacy};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

/// Checks `status.loadBalancer` of an object. Addresses that were there before stay as they are.
pub(crate) fn load_balancer_status(errors: &mut Errors, object: &Value, old: &Value) {
    let known = old.list("status.loadBalancer.ingress").iter();
    let known: Seen<&str> = known.map(|ingress| ingress.text("ip")).collect();
    let path = FieldPath::new("status.loadBalancer.ingress");
    for (index, ingress) in object.list("status.loadBalancer.ingress").iter().enumerate() {
        let path = path.index(index);
        let (ip, host) = (ingress.text("ip"), ingress.text("hostname"));
        if !ip.is_empty() {
            for error in validate_ip_legacy(&path.child("ip"), ip, |ip| known.has(ip)) {
                errors.push(error);
            }
        }
        if !host.is_empty() {
            let at = path.child("hostname");
            errors.text(&at, host, dns1123_subdomain(host));
            if parse_ip_sloppy(host).is_some() {
                errors.invalid(&at, host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// The same of a Service, which says how traffic to an address arrives.
pub(crate) fn service_status(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status.loadBalancer.ingress");
    let list = object.list("status.loadBalancer.ingress");
    let is_new = list != old.list("status.loadBalancer.ingress");
    if object.text("spec.type") != "LoadBalancer" && !list.is_empty() && is_new {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (index, ingress) in list.iter().enumerate() {
        let at = path.index(index);
        let at = at.child("ipMode");
        let mode = ingress.dig("ipMode").as_str();
        match (mode, ingress.text("ip").is_empty()) {
            (None, false) => errors.required(&at, "must be specified when `ip` is set"),
            (Some(_), true) => errors.forbidden(&at, "may not be specified when `ip` is not set"),
            (Some(mode), false) => {
                errors.one_of(&at, mode, &["Proxy", "VIP"]);
            }
            (None, true) => {}
        }
    }
    load_balancer_status(errors, object, old);
}

/// Warnings about the addresses of a status.
pub(crate) fn warnings(status: &Value) -> Vec<String> {
    let path = FieldPath::new("status.loadBalancer.ingress");
    let list = status.list("loadBalancer.ingress").iter().enumerate();
    list.filter_map(|(index, one)| ip_warnings(&path.index(index), one.text("ip")))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(kind: &str, ingress: Value, expected: &[&str]) {
        let object = json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": [ingress]}}});
        check_errors(|errors| service_status(errors, &object, &Value::Null), expected);
    }

    #[test]
    fn addresses_of_another_type_stay() {
        let object = json!({"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}});
        check_errors(|errors| service_status(errors, &object, &object), &[]);
    }

    #[test]
    fn addresses_are_validated() {
        check("LoadBalancer", json!({"ip": "1.2.3.4", "ipMode": "VIP"}), &[]);
        check("LoadBalancer", json!({"hostname": "a.example.com"}), &[]);
        check(
            "ClusterIP",
            json!({"ip": "1.2.3.4"}),
            &["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"],
        );
        check(
            "LoadBalancer",
            json!({"ip": "x", "hostname": "10.0.0.1"}),
            &[
                "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
                r#"status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                r#"status.loadBalancer.ingress[0].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address"#,
            ],
        );
        check(
            "LoadBalancer",
            json!({"ipMode": "Odd"}),
            &["status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set"],
        );
    }

    #[test]
    fn addresses_of_before_stay() {
        let object = json!({"status": {"loadBalancer": {"ingress": [{"ip": "010.0.0.1"}]}}});
        check_errors(|errors| load_balancer_status(errors, &object, &object), &[]);
    }
}
