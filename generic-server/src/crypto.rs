//! The cryptography of TLS, for serving and for the server's own requests alike: ring's, and before its key exchanges X25519MLKEM768, which
//! stays secret when X25519 is broken by a quantum computer. Clients that do not offer it get another one.

mod hybrid;
#[cfg(test)]
mod tests;
mod version1;

use rustls::crypto::CryptoProvider;

pub(crate) use self::version1::Version1;

/// The provider of every TLS connection.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.kx_groups.insert(0, hybrid::X25519_MLKEM768);
    provider
}
