//! Ports of one pod that collide or share a name.
//!
//! A port is compared with those it can collide with alone, found by number, protocol, host port and host address. Every colliding pair
//! is a warning, so warnings end at [`limits::WARNINGS`], as many as a response carries.

use std::collections::{BTreeSet, HashMap};

use machinery::go;
use machinery::{FieldPath, limits};
use serde_json::Value;

use crate::groups::core::pod_spec::CONTAINERS;
use crate::json::Json;

/// As many of some places as there can be warnings.
fn first(list: Option<&Vec<usize>>) -> impl Iterator<Item = usize> + '_ {
    list.into_iter().flatten().copied().take(limits::WARNINGS)
}

/// A port and where it stands.
struct Port<'v> {
    at: String,
    name: &'v str,
    host: i64,
    ip: &'v str,
}

/// The ports of one number and protocol so far, by their places among all ports.
#[derive(Default)]
struct SamePort<'v> {
    all: Vec<usize>,
    /// Those without a host port.
    without_host: Vec<usize>,
    /// The others by host port and address.
    by_address: HashMap<(i64, &'v str), Vec<usize>>,
    /// Those with an address by host port.
    with_address: HashMap<i64, Vec<usize>>,
}

impl<'v> SamePort<'v> {
    fn add(&mut self, index: usize, port: &Port<'v>) {
        self.all.push(index);
        if port.host == 0 {
            self.without_host.push(index);
            return;
        }
        self.by_address
            .entry((port.host, port.ip))
            .or_default()
            .push(index);
        if !port.ip.is_empty() {
            self.with_address.entry(port.host).or_default().push(index);
        }
    }

    /// The first of those that collide with a port, in order.
    fn colliding(&self, port: &Port<'v>) -> BTreeSet<usize> {
        if port.host == 0 {
            return first(Some(&self.all)).collect();
        }
        let same = first(self.by_address.get(&(port.host, port.ip)));
        let ambiguous = match port.ip {
            "" => self.with_address.get(&port.host),
            _ => self.by_address.get(&(port.host, "")),
        };
        first(Some(&self.without_host))
            .chain(same)
            .chain(first(ambiguous))
            .collect()
    }
}

/// Adds the warnings about the ports of a specification at `path`.
pub(super) fn warnings(out: &mut Vec<String>, path: &FieldPath<'_>, spec: &Value) {
    let most = out.len() + limits::WARNINGS;
    let mut seen: Vec<Port<'_>> = Vec::new();
    let mut same_port: HashMap<(i64, &str), SamePort<'_>> = HashMap::new();
    for list in CONTAINERS {
        let list_path = path.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            let at = list_path.index(index);
            let ports = at.child("ports");
            for (index, port) in container.list("ports").iter().enumerate() {
                let key = (
                    port.int("containerPort").unwrap_or_default(),
                    port.text("protocol"),
                );
                let port = Port {
                    at: ports.index(index).to_string(),
                    name: port.text("name"),
                    host: port.int("hostPort").unwrap_or_default(),
                    ip: port.text("hostIP"),
                };
                if port.host == 0 && !port.ip.is_empty() && out.len() < most {
                    let (number, protocol) = key;
                    out.push(format!(
                        "{}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{}}}",
                        port.at, port.name, port.ip
                    ));
                }
                let same_port = same_port.entry(key).or_default();
                for other in same_port
                    .colliding(&port)
                    .into_iter()
                    .filter_map(|other| seen.get(other))
                {
                    if out.len() >= most {
                        return;
                    }
                    out.push(format!(
                        "{}: {} port definition with {}",
                        port.at,
                        how(&port, other),
                        other.at
                    ));
                }
                same_port.add(seen.len(), &port);
                seen.push(port);
            }
        }
    }
    let mut first: HashMap<&str, &str> = HashMap::new();
    for port in seen.iter().filter(|port| !port.name.is_empty()) {
        let there = *first.entry(port.name).or_insert(&port.at);
        if there != port.at {
            out.push(format!(
                "{}: duplicate port name {} with {there}, services and probes that select ports by name will use {there}",
                port.at,
                go::quote(port.name)
            ));
        }
    }
}

/// How two ports of one number and protocol collide that do.
fn how(port: &Port<'_>, other: &Port<'_>) -> &'static str {
    if port.ip == other.ip && port.host == other.host {
        "duplicate"
    } else if port.host == 0 || other.host == 0 {
        "overlapping"
    } else {
        "dangerously ambiguous"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(ports: Value, expected: &[&str]) {
        let mut out = Vec::new();
        warnings(
            &mut out,
            &FieldPath::new("spec"),
            &json!({"containers": [{"ports": ports}]}),
        );
        let expected: Vec<String> = expected
            .iter()
            .map(|text| text.replace('#', "spec.containers[0].ports"))
            .collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn ports_collide_by_host_port_and_address() {
        let port = |host: i64, ip: &str| json!({"containerPort": 80, "protocol": "TCP", "hostPort": host, "hostIP": ip});
        check(
            json!([port(0, ""), port(0, "")]),
            &["#[1]: duplicate port definition with #[0]"],
        );
        check(json!([port(1, ""), port(2, "")]), &[]);
        check(json!([port(1, "a"), port(1, "b")]), &[]);
        check(
            json!([port(1, "a"), port(1, "b"), port(1, ""), port(0, "")]),
            &[
                "#[2]: dangerously ambiguous port definition with #[0]",
                "#[2]: dangerously ambiguous port definition with #[1]",
                "#[3]: overlapping port definition with #[0]",
                "#[3]: overlapping port definition with #[1]",
                "#[3]: overlapping port definition with #[2]",
            ],
        );
        check(
            json!([port(1, ""), port(1, "a"), port(1, "a")]),
            &[
                "#[1]: dangerously ambiguous port definition with #[0]",
                "#[2]: dangerously ambiguous port definition with #[0]",
                "#[2]: duplicate port definition with #[1]",
            ],
        );
        check(
            json!([port(1, ""), {"containerPort": 80, "protocol": "UDP", "hostPort": 1}]),
            &[],
        );
    }

    #[test]
    fn pairs_are_reported_up_to_a_bound() {
        let ports = |n: usize| {
            let list = vec![json!({"containerPort": 80, "protocol": "TCP"}); n];
            let mut out = Vec::new();
            warnings(
                &mut out,
                &FieldPath::new("spec"),
                &json!({"containers": [{"ports": list}]}),
            );
            out.len()
        };
        assert_eq!(ports(14), 91);
        assert_eq!(ports(15), limits::WARNINGS);
        assert_eq!(ports(2_000), limits::WARNINGS);
    }

    #[test]
    fn names_are_said_against_the_first() {
        let named = |port: i64| json!({"containerPort": port, "protocol": "TCP", "name": "n"});
        check(
            json!([named(1), named(2)]),
            &[
                "#[1]: duplicate port name \"n\" with #[0], services and probes that select ports by name will use #[0]",
            ],
        );
    }
}
