//! The addresses that a cluster gives to Services.

use std::ops::RangeInclusive;

use kube_apiserver::Cidr;

/// Bits of a range of cluster IPs, at most. Upstream's figure.
const CIDR_BITS: u8 = 20;

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
    }
    match all.as_slice() {
        [_] => Ok(all),
        [one, other] if one.is_v6() != other.is_v6() => Ok(all),
        [_, _] => Err(format!("{FLAG}[0] and {FLAG}[1] must be of different IP family")),
        _ => Err(format!("{FLAG} must not contain more than two entries")),
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
