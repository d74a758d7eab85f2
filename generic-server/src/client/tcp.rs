//! A TCP connection to another server: which addresses may be connected to, and what went wrong with it or with the TLS handshake, in the
//! words of Go's client, because people search for those texts.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use machinery::time::Timestamp;
use rustls_pki_types::{ServerName, UnixTime};
use tokio::net::TcpStream;

/// Why a server cannot be reached, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// `host:port`, with brackets around an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The metadata service of a cloud at an address that is not link-local.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Link-local addresses are where clouds keep their credentials; nothing that users of the API may have this server reach is there.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_unspecified() || ip.is_multicast(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast() || ip == METADATA_V6
        }
    }
}

/// Connects to the first address of the host that takes the connection.
pub(super) async fn dial_any(authority: &str, permitted: fn(IpAddr) -> bool) -> Result<TcpStream, Fault> {
    // Names are resolved here, so that the addresses they resolve to can be filtered.
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let found = tokio::net::lookup_host(authority)
        .await
        .map_err(|_| Fault(format!("dial tcp: lookup {host}: no such host")))?;
    let allowed: Vec<SocketAddr> = found.filter(|address| permitted(address.ip())).collect();
    if allowed.is_empty() {
        return Err(forbidden(authority));
    }
    let stream = TcpStream::connect(&*allowed)
        .await
        .map_err(|error| Fault(dial_fault("tcp", authority, &error)))?;
    // Watch events are small: they must not wait for more.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Refuses `authority` if it is an address and not `permitted`. Names are not resolved.
///
/// # Errors
/// It is refused.
pub(super) fn check_literal(authority: &str, permitted: fn(IpAddr) -> bool) -> Result<(), Fault> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    match host.trim_matches(['[', ']']).parse() {
        Ok(address) if !permitted(address) => Err(forbidden(authority)),
        _ => Ok(()),
    }
}

/// No address of a host is permitted.
pub(super) fn forbidden(host: &str) -> Fault {
    Fault(format!(
        "dial tcp {host}: no permitted address: link-local and unspecified ones are refused"
    ))
}

/// A failed connect to an address of a network, as Go names networks.
pub(super) fn dial_fault(network: &str, address: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused",
        io::ErrorKind::TimedOut => "connect: connection timed out",
        io::ErrorKind::HostUnreachable => "connect: no route to host",
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable",
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer",
        _ => return format!("dial {network} {address}: {error}"),
    };
    format!("dial {network} {address}: {why}")
}

fn rfc3339(time: UnixTime) -> String {
    Timestamp::from_unix(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)).to_rfc3339()
}

/// `a.example` of `DnsName("a.example")`, as the TLS library prints names.
fn bare_name(text: &str) -> &str {
    let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(text).trim_matches('"')
}

/// A failed handshake.
pub(super) fn tls_fault(error: &io::Error, name: &ServerName<'_>) -> String {
    use rustls::{CertificateError as Bad, Error};
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let expired = "certificate has expired or is not yet valid";
    let text = match cause {
        // An authority of the same name has another key.
        Some(Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            "certificate signed by unknown authority".to_string()
        }
        Some(Error::InvalidCertificate(Bad::ExpiredContext { time, not_after })) => {
            let (now, end) = (rfc3339(*time), rfc3339(*not_after));
            format!("{expired}: current time {now} is after {end}")
        }
        Some(Error::InvalidCertificate(Bad::NotValidYetContext { time, not_before })) => {
            let (now, begin) = (rfc3339(*time), rfc3339(*not_before));
            format!("{expired}: current time {now} is before {begin}")
        }
        Some(Error::InvalidCertificate(Bad::Expired | Bad::NotValidYet)) => expired.to_string(),
        Some(Error::InvalidCertificate(Bad::NotValidForNameContext { presented, .. }))
            if matches!(name, ServerName::IpAddress(_))
                && !presented.iter().any(|name| name.starts_with("IpAddress")) =>
        {
            format!(
                "cannot validate certificate for {} because it doesn't contain any IP SANs",
                name.to_str()
            )
        }
        Some(Error::InvalidCertificate(Bad::NotValidForName)) => format!(
            "certificate is not valid for any names, but wanted to match {}",
            name.to_str()
        ),
        Some(Error::InvalidCertificate(Bad::NotValidForNameContext { presented, .. })) => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            format!(
                "certificate is valid for {}, not {}",
                names.join(", "),
                name.to_str()
            )
        }
        Some(Error::InvalidCertificate(Bad::Other(other))) => other.0.to_string(),
        Some(Error::InvalidMessage(_)) => {
            return "tls: first record does not look like a TLS handshake".into();
        }
        Some(other) => return format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".into(),
        None if error.kind() == io::ErrorKind::ConnectionReset => {
            return "read: connection reset by peer".into();
        }
        None => return error.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {text}")
}
