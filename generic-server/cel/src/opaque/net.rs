//! IP addresses and CIDR prefixes.

mod go;

use go_text::Quoted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and a prefix length; the address keeps its host bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) addr: IpAddr,
    pub(crate) bits: u8,
}

impl Cidr {
    pub(crate) fn width(&self) -> u8 {
        if self.addr.is_ipv4() { 32 } else { 128 }
    }

    pub(crate) fn masked(&self) -> Cidr {
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(addr) & mask))
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(addr) & mask))
            }
        };
        Cidr {
            addr,
            bits: self.bits,
        }
    }

    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        let within = Cidr {
            addr,
            bits: self.bits,
        };
        addr.is_ipv4() == self.addr.is_ipv4() && self.bits <= self.width() && within.masked() == self.masked()
    }
}

/// An address without zone that is not an IPv4 address in IPv6 clothing.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if let Some((addr, zone)) = text.split_once('%')
        && !zone.is_empty()
        && addr.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!(
            "IP address {text} with zone value is not allowed",
            text = Quoted(text)
        ));
    }
    let addr: IpAddr = text.parse().map_err(|_| {
        format!(
            "IP Address {text} parse error during conversion from string: {}",
            go::reason(text),
            text = Quoted(text)
        )
    })?;
    match addr {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(format!(
            "IPv4-mapped IPv6 address {text} is not allowed",
            text = Quoted(text)
        )),
        addr => Ok(addr),
    }
}

pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let wrap = |why: &str| {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text}): {why}",
            text = Quoted(text)
        )
    };
    let (addr, bits) = text.rsplit_once('/').ok_or_else(|| wrap("no '/'"))?;
    let addr: IpAddr = addr.parse().map_err(|_| {
        wrap(&format!(
            "ParseAddr({addr}): unable to parse IP",
            addr = Quoted(addr)
        ))
    })?;
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let parsed: u16 = match bits.parse() {
        Ok(bits) if plain => bits,
        _ => {
            return Err(wrap(&format!(
                "bad bits after slash: {bits}",
                bits = Quoted(bits)
            )));
        }
    };
    let bits = match u8::try_from(parsed) {
        Ok(bits) if bits <= width => bits,
        _ => return Err(wrap("prefix length out of range")),
    };
    match addr {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(format!(
            "IPv4-mapped IPv6 address {text} is not allowed",
            text = Quoted(text)
        )),
        addr => Ok(Cidr { addr, bits }),
    }
}
