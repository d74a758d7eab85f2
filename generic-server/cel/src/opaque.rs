//! Values of Kubernetes' own types.

pub(crate) mod formats;
pub(crate) mod net;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod url;

use std::{fmt, net::IpAddr};

use crate::types::Type;

pub(crate) use formats::NamedFormat;
pub(crate) use net::Cidr;
pub(crate) use quantity::Quantity;
pub use semver::Semver;
pub(crate) use url::Url;

/// A value CEL cannot look into, only ask.
#[derive(Debug, Clone)]
pub enum Opaque {
    Url(Url),
    Ip(IpAddr),
    Cidr(Cidr),
    Quantity(Quantity),
    Semver(Semver),
    Format(NamedFormat),
}

impl Opaque {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Opaque::Url(_) => Type::URL,
            Opaque::Ip(_) => Type::IP,
            Opaque::Cidr(_) => Type::CIDR,
            Opaque::Quantity(_) => Type::QUANTITY,
            Opaque::Semver(_) => Type::SEMVER,
            Opaque::Format(_) => Type::FORMAT,
        }
    }

    /// The size cost functions see: bytes of an address or prefix.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Opaque::Ip(IpAddr::V4(_)) => Some(4),
            Opaque::Ip(IpAddr::V6(_)) => Some(16),
            Opaque::Cidr(cidr) => Some(u64::from(cidr.bits.div_ceil(8))),
            _ => None,
        }
    }

    /// Equality; none between different types.
    pub(crate) fn equal(&self, other: &Opaque) -> Option<bool> {
        Some(match (self, other) {
            (Opaque::Url(a), Opaque::Url(b)) => a.text == b.text,
            (Opaque::Ip(a), Opaque::Ip(b)) => a == b,
            (Opaque::Cidr(a), Opaque::Cidr(b)) => a == b,
            (Opaque::Quantity(a), Opaque::Quantity(b)) => a.nanos == b.nanos,
            (Opaque::Semver(a), Opaque::Semver(b)) => a.order(b).is_eq(),
            (Opaque::Format(a), Opaque::Format(b)) => a == b,
            _ => return None,
        })
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opaque::Url(url) => f.write_str(&url.text),
            Opaque::Ip(ip) => write!(f, "{ip}"),
            Opaque::Cidr(cidr) => write!(f, "{}/{}", cidr.addr, cidr.bits),
            other => f.write_str(other.type_of().name()),
        }
    }
}
