//! NetworkPolicy.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use machinery::names::ip::{cidr_warnings, parse_cidr_sloppy, validate_cidr_legacy};
use machinery::names::{port_name, port_number};
use serde_json::Value;

use crate::errors::{Errors, Ratchet};
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

const TYPES: [&str; 2] = ["Ingress", "Egress"];
/// The directions: the key of the rules and of the peers in a rule.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    generation: &["spec"],
    default: |object| {
        let spec = object.ensure("spec");
        if spec.list("policyTypes").is_empty() {
            let count = if spec.list("egress").is_empty() { 1 } else { 2 };
            spec.put("policyTypes", TYPES[..count].to_vec());
        }
        for (rules, _) in DIRECTIONS {
            for rule in spec.list_mut(rules) {
                for port in rule.list_mut("ports") {
                    port.fill("protocol", "TCP");
                }
            }
        }
    },
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: validate,
    warnings: |object, _| warnings(object),
    ..Rules::PLAIN
};

/// About networks.
fn warnings(policy: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let spec = FieldPath::new("spec");
    for (rules, peers) in DIRECTIONS {
        let at = spec.child(rules);
        for (index, rule) in policy.dig("spec").list(rules).iter().enumerate() {
            let at = at.index(index);
            let at = at.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                let block = peer.dig("ipBlock");
                let at = at.index(index);
                let at = at.child("ipBlock");
                out.extend(cidr_warnings(&at.child("cidr"), block.text("cidr")));
                let at = at.child("except");
                for (index, cidr) in block.strings("except").enumerate() {
                    out.extend(cidr_warnings(&at.index(index), cidr));
                }
            }
        }
    }
    out
}

fn selector(errors: &mut Errors, path: &FieldPath<'_>, selector: &Value) {
    errors.selector(path, selector, Some(Ratchet::SelectorValues));
}

/// The networks a policy names, which may stay as they are.
fn cidrs(policy: &Value) -> Seen<&str> {
    let mut found = Seen::default();
    for (rules, peers) in DIRECTIONS {
        for rule in policy.dig("spec").list(rules) {
            for peer in rule.list(peers) {
                if peer.has("ipBlock") {
                    found.extend([peer.text("ipBlock.cidr")]);
                    found.extend(peer.strings("ipBlock.except"));
                }
            }
        }
    }
    found
}

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let known = cidrs(old);
    selector(errors, &path.child("podSelector"), spec.dig("podSelector"));
    for (rules, peers) in DIRECTIONS {
        let path = path.child(rules);
        for (index, rule) in spec.list(rules).iter().enumerate() {
            let path = path.index(index);
            let at = path.child("ports");
            for (index, port) in rule.list("ports").iter().enumerate() {
                validate_port(errors, &at.index(index), port);
            }
            let at = path.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                validate_peer(errors, &at.index(index), peer, &known);
            }
        }
    }
    let at = path.child("policyTypes");
    if spec.list("policyTypes").len() > TYPES.len() {
        let text = "may not specify more than two policyTypes";
        return errors.invalid_value(&at, spec.dig("policyTypes"), text);
    }
    for (index, kind) in spec.strings("policyTypes").enumerate() {
        errors.one_of(&at.index(index), kind, &TYPES);
    }
}

fn validate_port(errors: &mut Errors, path: &FieldPath<'_>, port: &Value) {
    if port.has("protocol") {
        let protocols = ["TCP", "UDP", "SCTP"];
        errors.one_of(&path.child("protocol"), port.text("protocol"), &protocols);
    }
    let end = port.int("endPort");
    let end_path = path.child("endPort");
    match port.dig("port") {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(
                    &end_path,
                    end,
                    "may not be specified when `port` is not specified",
                );
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            errors.text(&path.child("port"), name, port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            for text in port_number(number) {
                errors.invalid(&path.child("port"), number, text);
            }
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&end_path, number, "must be greater than or equal to `port`");
                }
                for text in port_number(end) {
                    errors.invalid(&end_path, end, text);
                }
            }
        }
    }
}

fn validate_peer(errors: &mut Errors, path: &FieldPath<'_>, peer: &Value, known: &Seen<&str>) {
    let mut count = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if peer.has(key) {
            count += 1;
            selector(errors, &path.child(key), peer.dig(key));
        }
    }
    if peer.has("ipBlock") {
        block(errors, &path.child("ipBlock"), peer.dig("ipBlock"), known);
        if count > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if count == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn block(errors: &mut Errors, path: &FieldPath<'_>, block: &Value, known: &Seen<&str>) {
    let text = block.text("cidr");
    if !errors.need(&path.child("cidr"), text) {
        return;
    }
    for error in validate_cidr_legacy(&path.child("cidr"), text, |cidr| known.has(cidr)) {
        errors.push(error);
    }
    let Some(cidr) = parse_cidr_sloppy(text) else {
        return;
    };
    let at = path.child("except");
    for (index, text) in block.strings("except").enumerate() {
        let at = at.index(index);
        for error in validate_cidr_legacy(&at, text, |cidr| known.has(cidr)) {
            errors.push(error);
        }
        let Some(except) = parse_cidr_sloppy(text) else {
            continue;
        };
        if !cidr.contains(except.network()) || cidr.bits >= except.bits {
            errors.invalid(&at, text, "must be a strict subset of `cidr`");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("networkpolicies.networking.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn policies_are_validated() {
        check(json!({"podSelector": {}}), &[]);
        check(
            json!({"podSelector": {}, "ingress": [{"ports": [{"port": 0}, {"port": 80, "endPort": 79}, {"endPort": 1}], "from": [{}]}]}),
            &[
                "spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ingress[0].ports[1].endPort: Invalid value: 80: must be greater than or equal to `port`",
                "spec.ingress[0].ports[2].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                "spec.ingress[0].from[0]: Required value: must specify a peer",
            ],
        );
        check(
            json!({"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}, "podSelector": {}}]}]}),
            &[
                r#"spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`"#,
                "spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer",
            ],
        );
        check(
            json!({"podSelector": {}, "policyTypes": ["Sideways"]}),
            &[r#"spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress""#],
        );
    }

    #[test]
    fn networks_that_were_there_stay_but_none_is_not_one() {
        let of = |except: &str| {
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": [except]}}, {"podSelector": {}}]}]}})
        };
        kind("networkpolicies.networking.k8s.io").update(
            &of("10.1.0.0/16"),
            &of(""),
            &[r#"spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#],
        );
    }

    #[test]
    fn directions_follow_from_the_rules() {
        let policies = kind("networkpolicies.networking.k8s.io");
        policies.defaults(
            &json!({"spec": {"podSelector": {}}}),
            &json!({"spec": {"policyTypes": ["Ingress"]}}),
        );
        policies.defaults(
            &json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}}),
            &json!({"spec": {"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}]}}),
        );
    }
}
