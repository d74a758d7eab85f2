//! IP addresses and ranges as Kubernetes writes them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use machinery::go::Quoted;
use serde_json::Value;

use crate::json::Json;

/// An address range, `10.0.0.0/24`. The address is the range's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    first: IpAddr,
    bits: u8,
}

impl Cidr {
    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The prefix length.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether it is an IPv6 range.
    pub fn is_v6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// How many addresses it holds, at most 2^64.
    pub fn size(&self) -> u128 {
        let host = if self.is_v6() {
            128 - self.bits
        } else {
            32 - self.bits
        };
        1u128 << host.min(64)
    }

    /// Whether an address is in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.offset(ip).is_some()
    }

    /// The address at an offset from the first.
    pub fn nth(&self, offset: u128) -> IpAddr {
        match self.first {
            IpAddr::V4(v4) => {
                // Offsets are below `size`, so the sum stays in the range's family.
                let sum = u128::from(u32::from(v4)).saturating_add(offset);
                IpAddr::V4(u32::try_from(sum).unwrap_or(u32::MAX).into())
            }
            IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).saturating_add(offset).into()),
        }
    }

    /// How far an address is from the first; `None` outside the range.
    pub fn offset(&self, ip: IpAddr) -> Option<u128> {
        let (first, ip, host) = match (self.first, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (u128::from(u32::from(a)), u128::from(u32::from(b)), 32 - self.bits)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128 - self.bits),
            _ => return None,
        };
        let offset = ip.checked_sub(first)?;
        (host == 128 || offset >> host == 0).then_some(offset)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{} is not an address range such as 10.0.0.0/24", Quoted(text));
        let (ip, bits) = text.split_once('/').ok_or_else(bad)?;
        let ip: IpAddr = ip.parse().map_err(|_| bad())?;
        let bits: u8 = bits.parse().map_err(|_| bad())?;
        let first = match ip {
            IpAddr::V4(v4) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
            _ => return Err(bad()),
        };
        Ok(Cidr { first, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// The status of a ServiceCIDR's condition `Ready`; empty where it has none.
pub(crate) fn service_cidr_ready(cidr: &Value) -> &str {
    let mut conditions = cidr.list("status.conditions").iter();
    let ready = conditions.find(|condition| condition.text("type") == "Ready");
    ready.map_or("", |condition| condition.text("status"))
}

/// Why an address may not be the endpoint of a Service, in upstream's words; nothing for one that may.
pub fn special_ip(ip: IpAddr) -> impl Iterator<Item = &'static str> {
    let (link_local, local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (
            v6.segments()[0] & 0xffc0 == 0xfe80,
            v6.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let reasons = [
        (ip.is_unspecified(), "may not be unspecified (0.0.0.0 or ::)"),
        (
            ip.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ];
    reasons
        .into_iter()
        .filter_map(|(is_special, reason)| is_special.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_their_first_address() {
        let cidr: Cidr = "10.0.0.7/24".parse().expect("a range");
        assert_eq!(cidr.to_string(), "10.0.0.0/24");
        assert_eq!(cidr.size(), 256);
        assert_eq!(cidr.nth(1).to_string(), "10.0.0.1");
        assert_eq!(cidr.offset("10.0.0.255".parse().expect("an address")), Some(255));
        assert_eq!(cidr.offset("10.0.1.0".parse().expect("an address")), None);
        let six: Cidr = "fd00::/108".parse().expect("a range");
        assert!(six.contains("fd00::f:ffff".parse().expect("an address")));
        assert!(!six.contains("fd00::10:0".parse().expect("an address")));
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0/8"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
