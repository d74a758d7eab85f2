//! The identity of a server: the name by which its lease, and the metrics of several servers, tell it from others. Upstream's, so that a server
//! that takes over from one on the same host is the same to whoever looks.

use ring::digest::{SHA256, digest};

/// The program that the identity is of.
pub const PROGRAM: &str = "kube-apiserver";

/// The name of this host; empty when the system does not say.
pub fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_string()
}

/// The identity of the server on a host.
pub fn of_host(host: &str) -> String {
    let mut named = Vec::new();
    for part in [host, PROGRAM] {
        named.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        named.extend_from_slice(part.as_bytes());
    }
    let hash = digest(&SHA256, &named);
    format!("apiserver-{}", base32(&hash.as_ref()[..16]))
}

/// RFC 4648 in lower case, without padding.
fn base32(bytes: &[u8]) -> String {
    let bit = |at: usize| {
        let byte = bytes.get(at / 8).copied().unwrap_or_default();
        byte >> (7 - at % 8) & 1
    };
    let digit = |at: usize| (0..5).fold(0, |digit, more| digit << 1 | bit(at + more));
    let digits = (0..bytes.len() * 8).step_by(5);
    digits
        .map(|at| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(digit(at))]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        assert_eq!(
            base32(&[0xff; 16]),
            "777777777777777777777777 74".replace(' ', "")
        );
        assert_eq!(of_host("n1").len(), "apiserver-".len() + 26);
        assert_ne!(of_host("n1"), of_host("n2"));
    }
}
