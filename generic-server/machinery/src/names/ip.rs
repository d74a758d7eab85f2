//! Addresses and CIDRs: the lax reading that old fields keep, the strict one of new fields, and the warnings between them.
//! Mirrors upstream's `util/validation/ip.go`. "Lax" means leading zeros, as upstream's Go of old took them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::go::quote;
use crate::{FieldError, FieldPath};

/// An address and how many of its leading bits are the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The address as written.
    pub ip: IpAddr,
    /// The length of the prefix.
    pub bits: u8,
}

/// Reads an address, allowing leading zeros in its numbers. No zones.
pub fn parse_ip_sloppy(value: &str) -> Option<IpAddr> {
    if let Ok(ip) = value.parse() {
        return Some(ip);
    }
    // Only leading zeros can make the lax reading differ: take them away and ask again.
    let mut plain = String::with_capacity(value.len());
    for part in value.split_inclusive(['.', ':']) {
        let (digits, end) = match part.strip_suffix(['.', ':']) {
            Some(digits) => (digits, &part[digits.len()..]),
            None => (part, ""),
        };
        let bare = digits.trim_start_matches('0');
        plain.push_str(if bare.is_empty() && !digits.is_empty() {
            "0"
        } else {
            bare
        });
        plain.push_str(end);
    }
    plain.parse().ok()
}

/// Reads a CIDR with [`parse_ip_sloppy`]'s laxness.
pub fn parse_cidr_sloppy(value: &str) -> Option<Cidr> {
    let (ip, bits) = value.split_once('/')?;
    let ip = parse_ip_sloppy(ip)?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = bits.trim_start_matches('0');
    let bits: u8 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    (bits <= width(ip)).then_some(Cidr { ip, bits })
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// The address as Go's `net.IP` prints it: IPv4-mapped ones as IPv4.
pub fn ip_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V6(v6) => v6
            .to_ipv4_mapped()
            .map_or_else(|| v6.to_string(), |v4| v4.to_string()),
        IpAddr::V4(v4) => v4.to_string(),
    }
}

impl Cidr {
    /// The network's first address.
    pub fn network(self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & mask).into()
            }
        }
    }

    /// Whether the network holds the address.
    pub fn contains(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Cidr { ip, ..self }.network() == self.network()
    }

    /// The network in canonical form, IPv4-mapped ones as IPv4.
    pub fn text(self) -> String {
        let network = self.network();
        let bits = if is_mapped(network) {
            self.bits.saturating_sub(96)
        } else {
            self.bits
        };
        format!("{}/{bits}", ip_text(network))
    }
}

fn parse_ip(path: &FieldPath<'_>, value: &str) -> Result<IpAddr, Vec<FieldError>> {
    let error = |text: &str| FieldError::invalid_str(path, value, text);
    let Some(ip) = parse_ip_sloppy(value) else {
        return Err(vec![error(
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        )]);
    };
    if value.parse::<IpAddr>().is_err() {
        Err(vec![error("must not have leading 0s")])
    } else if is_mapped(ip) {
        Err(vec![error("must not be an IPv4-mapped IPv6 address")])
    } else {
        Ok(ip)
    }
}

/// Checks an address of a field that was once lax (KEP-4858). What `is_kept` knows, from the stored object, passes.
pub fn validate_ip_legacy(
    path: &FieldPath<'_>,
    value: &str,
    is_kept: impl Fn(&str) -> bool,
) -> Vec<FieldError> {
    match parse_ip(path, value) {
        Err(errors) if !is_kept(value) => errors,
        _ => Vec::new(),
    }
}

/// Checks an address strictly; it must be in canonical form.
pub fn validate_ip(path: &FieldPath<'_>, value: &str) -> Vec<FieldError> {
    match parse_ip(path, value) {
        Err(errors) => errors,
        Ok(ip) if ip_text(ip) == value => Vec::new(),
        Ok(ip) => {
            let detail = format!("must be in canonical form ({})", quote(&ip_text(ip)));
            vec![FieldError::invalid_str(path, value, detail)]
        }
    }
}

/// Warns about an address that [`validate_ip_legacy`] takes and [`validate_ip`] would not.
pub fn ip_warnings(path: &FieldPath<'_>, value: &str) -> Option<String> {
    let ip = parse_ip_sloppy(value)?;
    let text = quote(&ip_text(ip));
    let shown = quote(value);
    if value.parse::<IpAddr>().is_err() || is_mapped(ip) {
        return Some(format!(
            "{path}: non-standard IP address {shown} is invalid: use {text}"
        ));
    }
    (ip.is_ipv6() && ip.to_string() != value)
        .then(|| format!("{path}: IPv6 address {shown} should be in RFC 5952 canonical format ({text})"))
}

fn parse_cidr(path: &FieldPath<'_>, value: &str) -> Result<Cidr, Vec<FieldError>> {
    let error = |text: &str| vec![FieldError::invalid_str(path, value, text)];
    let Some(cidr) = parse_cidr_sloppy(value) else {
        return Err(error(
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ));
    };
    if !is_plain_cidr(value) {
        return Err(error("must not have leading 0s in IP or prefix length"));
    }
    if is_mapped(cidr.ip) {
        return Err(error("must not have an IPv4-mapped IPv6 address"));
    }
    if cidr.ip != cidr.network() {
        return Err(error("must not have bits set beyond the prefix length"));
    }
    Ok(cidr)
}

/// Whether Go's strict reader takes the CIDR: no leading zeros anywhere.
fn is_plain_cidr(value: &str) -> bool {
    value
        .split_once('/')
        .is_some_and(|(ip, bits)| ip.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0')))
}

/// Checks a CIDR of a field that was once lax (KEP-4858). What `is_kept` knows, from the stored object, passes.
pub fn validate_cidr_legacy(
    path: &FieldPath<'_>,
    value: &str,
    is_kept: impl Fn(&str) -> bool,
) -> Vec<FieldError> {
    match parse_cidr(path, value) {
        Err(errors) if !is_kept(value) => errors,
        _ => Vec::new(),
    }
}

/// Checks a CIDR strictly; it must be in canonical form.
pub fn validate_cidr(path: &FieldPath<'_>, value: &str) -> Vec<FieldError> {
    match parse_cidr(path, value) {
        Err(errors) => errors,
        Ok(cidr) if cidr.text() == value => Vec::new(),
        Ok(cidr) => {
            let detail = format!("must be in canonical form ({})", quote(&cidr.text()));
            vec![FieldError::invalid_str(path, value, detail)]
        }
    }
}

/// Checks an address with its network's prefix length (`10.9.8.7/24`), in canonical form.
pub fn validate_interface_address(path: &FieldPath<'_>, value: &str) -> Option<FieldError> {
    let Some(cidr) = parse_cidr_sloppy(value) else {
        let text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return Some(FieldError::invalid_str(path, value, text));
    };
    let bits = if is_mapped(cidr.ip) && cidr.bits > 32 {
        cidr.bits.saturating_sub(96)
    } else {
        cidr.bits
    };
    let canonical = format!("{}/{bits}", ip_text(cidr.ip));
    (canonical != value).then(|| {
        FieldError::invalid_str(
            path,
            value,
            format!("must be in canonical form ({})", quote(&canonical)),
        )
    })
}

/// Warns about a CIDR that [`validate_cidr_legacy`] takes and [`validate_cidr`] would not.
pub fn cidr_warnings(path: &FieldPath<'_>, value: &str) -> Vec<String> {
    let Some(cidr) = parse_cidr_sloppy(value) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let (shown, text) = (quote(value), quote(&cidr.text()));
    if cidr.ip != cidr.network() {
        let single = quote(&format!("{}/{}", ip_text(cidr.ip), width(cidr.ip)));
        warnings.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be {text} or {single}?)"
        ));
    }
    if !is_plain_cidr(value) || is_mapped(cidr.ip) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {shown} is invalid: use {text}"
        ));
    }
    if warnings.is_empty() && cidr.ip.is_ipv6() && cidr.text() != value {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({text})"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errors: Vec<FieldError>, expected: &[&str]) {
        let got: Vec<String> = errors.into_iter().map(|e| e.detail).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn addresses() {
        let path = FieldPath::new("ip");
        let ip = |value| validate_ip(&path, value);
        check(ip("10.0.0.1"), &[]);
        check(ip("2001:db8::1"), &[]);
        check(ip("10.0.0.01"), &["must not have leading 0s"]);
        check(
            ip("2001:DB8::1"),
            &["must be in canonical form (\"2001:db8::1\")"],
        );
        check(ip("::ffff:1.2.3.4"), &["must not be an IPv4-mapped IPv6 address"]);
        for bad in ["", "1.2.3", "1.2.3.256", "fe80::1%eth0", "x", "1..2.3"] {
            check(
                ip(bad),
                &["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
            );
        }
        check(validate_ip_legacy(&path, "2001:DB8::1", |_| false), &[]);
        check(
            validate_ip_legacy(&path, "010.0.0.1", |_| false),
            &["must not have leading 0s"],
        );
        check(
            validate_ip_legacy(&path, "010.0.0.1", |ip| ip == "010.0.0.1"),
            &[],
        );
        assert_eq!(
            ip_warnings(&path, "010.0.0.1").unwrap(),
            "ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""
        );
    }

    #[test]
    fn cidrs() {
        let path = FieldPath::new("cidr");
        let cidr = |value| validate_cidr(&path, value);
        check(cidr("10.0.0.0/8"), &[]);
        check(cidr("::/0"), &[]);
        check(
            cidr("10.0.0.0/08"),
            &["must not have leading 0s in IP or prefix length"],
        );
        check(
            cidr("10.0.0.1/8"),
            &["must not have bits set beyond the prefix length"],
        );
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/999",
        ] {
            check(
                cidr(bad),
                &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"],
            );
        }
        assert_eq!(
            cidr_warnings(&path, "10.0.0.1/8"),
            [
                "cidr: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
        assert!(validate_interface_address(&path, "10.0.0.1/8").is_none());
        assert!(
            parse_cidr_sloppy("10.0.0.0/8")
                .unwrap()
                .contains("10.3.0.0".parse().unwrap())
        );
    }
}
