//! The addresses that a cluster gives to Services, and that the `kubernetes` Service leads to.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use kube_apiserver::{Cidr, special_ip};

use machinery::go;

use super::Findings;

/// Bits of a range of cluster IPs, at most. Upstream's figure.
const CIDR_BITS: u8 = 20;
/// Addresses in a range of cluster IPs, at least. Upstream's figure.
const MIN_CIDR_ADDRESSES: u128 = 8;

/// The ranges of cluster IPs: one, or one of each family.
pub(super) fn service_cidrs(text: &str) -> Result<Vec<Cidr>, String> {
    const FLAG: &str = "--service-cluster-ip-range";
    let ranges = text.split(',').map(str::trim);
    let all: Vec<Cidr> = ranges
        .map(|range| {
            let parsed = range.parse();
            parsed.map_err(|_| format!("{FLAG}: `{range}` is not a CIDR such as 10.0.0.0/16"))
        })
        .collect::<Result<_, _>>()?;
    for cidr in &all {
        let bits = if cidr.is_v6() { 128 } else { 32 };
        let least = bits - CIDR_BITS;
        if cidr.bits() < least {
            return Err(format!(
                "specified {FLAG} is too large; for {bits}-bit addresses, the mask must be >= {least}"
            ));
        }
        if cidr.size() < MIN_CIDR_ADDRESSES {
            return Err(format!(
                "{FLAG}: the service cluster IP range must be at least {MIN_CIDR_ADDRESSES} IP addresses"
            ));
        }
    }
    match all.as_slice() {
        [_] => Ok(all),
        [one, other] if one.is_v6() != other.is_v6() => Ok(all),
        [_, _] => Err(format!("{FLAG}[0] and {FLAG}[1] must be of different IP family")),
        _ => Err(format!("{FLAG} must not contain more than two entries")),
    }
}

/// The address that members of the cluster reach this server at. An unspecified one is none, as upstream has it: the host's own is
/// found later.
pub(super) fn advertise_address(
    found: &mut Findings,
    given: Option<IpAddr>,
    service_cidrs: &[Cidr],
) -> Option<IpAddr> {
    const FLAG: &str = "--advertise-address";
    let address = given.filter(|address| !address.is_unspecified())?;
    if address.is_loopback() {
        found.warn(format!(
            "{FLAG}: {address} is a loopback address: the Service `kubernetes` gets no endpoint"
        ));
    } else {
        for reason in special_ip(address) {
            found.fault(format!("{FLAG}: {address} {reason}"));
        }
    }
    if let Some(primary) = service_cidrs.first()
        && primary.is_v6() != address.is_ipv6()
    {
        found.fault(format!(
            "{FLAG}: service IP family \"{primary}\" must match public address family \"{address}\""
        ));
    }
    Some(address)
}

/// Whether this server keeps the endpoints of the Service `kubernetes`.
pub(super) fn keeps_endpoints(found: &mut Findings, reconciler: &str) -> bool {
    const FLAG: &str = "--endpoint-reconciler-type";
    match reconciler {
        "lease" => true,
        "none" => false,
        "master-count" => {
            found.warn(format!(
                "{FLAG}=master-count: replicas are known by their leases, not by their number"
            ));
            true
        }
        other => {
            found.fault(format!(
                "{FLAG} is {}: must be one of: [lease, master-count, none]",
                go::quote(other)
            ));
            true
        }
    }
}

/// The ports of Services of type NodePort.
pub(super) fn node_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
    range
        .filter(|range: &RangeInclusive<u16>| !range.is_empty())
        .ok_or_else(|| format!("--service-node-port-range: `{text}` is not a range such as 30000-32767"))
}
