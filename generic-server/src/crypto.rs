//! The cryptography of TLS, for serving and for the server's own requests alike: ring's, certificates of P-521, and before its key exchanges
//! X25519MLKEM768, which stays secret when X25519 is broken by a quantum computer. Clients that do not offer it get another one.

mod hybrid;
mod p521;
#[cfg(test)]
mod tests;
mod version1;

use std::sync::LazyLock;

use ring::digest;
use rustls::SignatureScheme;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};

pub(crate) use self::version1::{Version1, is_issued_by_one};

/// The provider of every TLS connection.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.kx_groups.insert(0, hybrid::X25519_MLKEM768);
    provider.signature_verification_algorithms = *ALGORITHMS;
    provider
}

/// Those of ring, and ECDSA on P-521.
static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let of_ring = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let own = [
        (SignatureScheme::ECDSA_NISTP521_SHA512, p521::ECDSA_P521_SHA512),
        // In TLS 1.2 the scheme says nothing of the curve.
        (SignatureScheme::ECDSA_NISTP384_SHA384, p521::ECDSA_P521_SHA384),
        (SignatureScheme::ECDSA_NISTP256_SHA256, p521::ECDSA_P521_SHA256),
    ];
    let (mut all, mut mapping) = (of_ring.all.to_vec(), of_ring.mapping.to_vec());
    for (scheme, algorithm) in own {
        all.push(algorithm);
        // All of it is made once, for as long as the process lasts.
        match mapping.iter_mut().find(|(known, _)| *known == scheme) {
            Some((_, algorithms)) => {
                let mut more = algorithms.to_vec();
                more.push(algorithm);
                *algorithms = more.leak();
            }
            None => mapping.push((scheme, vec![algorithm].leak())),
        }
    }
    WebPkiSupportedAlgorithms {
        all: all.leak(),
        mapping: mapping.leak(),
    }
});

/// Whether the key at an uncompressed point of P-521 made a signature of ECDSA with this hash, in DER.
pub fn verify_p521(hash: &'static digest::Algorithm, point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    p521::verify(hash, point, message, signature)
}
