//! The ranges that cluster addresses come from: those of all ServiceCIDRs that are ready (KEP-1880).

use std::net::IpAddr;
use std::sync::Arc;

use generic_server::registry::Entry;
use machinery::meta;
use serde_json::Value;

use crate::json::Json;
use crate::net::{Cidr, service_cidr_ready};
use crate::unique::Seen;

/// The ServiceCIDR that states the ranges of the server's flag.
const DEFAULT: &str = "kubernetes";

/// The ranges, as of some snapshot of the ServiceCIDRs.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    objects: Option<imbl::OrdMap<Arc<str>, Arc<Entry>>>,
    ranges: Vec<Cidr>,
}

impl Ranges {
    /// The ranges as a snapshot has them. Those of the flag stand in for the default ServiceCIDR where it is not there: at the first
    /// start it is made beside the first service.
    pub(super) fn follow(
        &mut self,
        objects: &imbl::OrdMap<Arc<str>, Arc<Entry>>,
        of_flag: &[Cidr],
    ) -> Vec<Cidr> {
        let unchanged = |known: &imbl::OrdMap<Arc<str>, Arc<Entry>>| known.ptr_eq(objects);
        if !self.objects.as_ref().is_some_and(unchanged) {
            let values: Vec<Value> = objects.values().map(|entry| entry.value()).collect();
            self.ranges = ranges(&values, of_flag);
            self.objects = Some(objects.clone());
        }
        self.ranges.clone()
    }
}

/// Each range once, in the order in which they are used up: the default ServiceCIDR's first.
fn ranges(objects: &[Value], of_flag: &[Cidr]) -> Vec<Cidr> {
    let (default, others): (Vec<&Value>, Vec<&Value>) =
        objects.iter().partition(|object| meta::name(object) == DEFAULT);
    let mut all = Vec::new();
    if default.is_empty() {
        all.extend(of_flag);
    }
    let usable = default
        .into_iter()
        .chain(others)
        .filter(|object| is_usable(object));
    all.extend(usable.flat_map(|object| {
        object
            .strings("spec.cidrs")
            .filter_map(|cidr| cidr.parse::<Cidr>().ok())
    }));
    let mut seen = Seen::default();
    all.retain(|cidr: &Cidr| !seen.again(*cidr));
    all
}

/// Whether addresses may be taken from a ServiceCIDR. One without a condition is ready: there may be no controller that sets it.
fn is_usable(object: &Value) -> bool {
    meta::deletion_timestamp(object).is_none() && matches!(service_cidr_ready(object), "" | "True")
}

/// Whether an address of a range may be a service's: not the first, nor the last of an IPv4 range.
pub(super) fn has(cidr: &Cidr, ip: IpAddr) -> bool {
    let last = cidr.size() - 1;
    let offset = cidr.offset(ip);
    offset.is_some_and(|offset| offset != 0 && (cidr.is_v6() || offset != last))
}

/// How many addresses of a range may be services', and how many of them are left for clients to choose (KEP-3070).
pub(super) fn size(cidr: &Cidr) -> (u128, u128) {
    let size = cidr.size() - if cidr.is_v6() { 1 } else { 2 }.min(cidr.size());
    (size, if size < 16 { 0 } else { (size / 16).clamp(16, 256) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_of_service_cidrs_that_are_ready() {
        #[track_caller]
        fn check(objects: &[Value], expected: &[&str]) {
            let flag = ["10.0.0.0/24".parse().unwrap(), "fd00::/120".parse().unwrap()];
            let found: Vec<String> = ranges(objects, &flag).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
        let cidr = |name: &str, cidrs: &[&str], ready: &[&str]| {
            let conditions: Vec<Value> = ready
                .iter()
                .map(|ready| json!({"type": "Ready", "status": ready}))
                .collect();
            json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}, "status": {"conditions": conditions}})
        };
        check(&[], &["10.0.0.0/24", "fd00::/120"]);
        // The object's ranges replace those of the flag.
        let default = cidr("kubernetes", &["10.3.0.0/24"], &["True"]);
        check(std::slice::from_ref(&default), &["10.3.0.0/24"]);
        let more = [
            cidr("a", &["10.1.0.0/24", "fd01::/120"], &[]),
            cidr("b", &["10.2.0.0/24"], &["False"]),
            cidr("c", &["10.1.0.0/24", "nonsense"], &["True"]),
            default,
        ];
        check(&more, &["10.3.0.0/24", "10.1.0.0/24", "fd01::/120"]);
        let mut deleting = cidr("kubernetes", &["10.3.0.0/24"], &["True"]);
        meta::set(&mut deleting, "deletionTimestamp", "2026-01-01T00:00:00Z");
        check(&[deleting], &[]);
    }
}
