//! ECDSA on the curve P-521 with SHA-512 (ES512), which `ring` has not.

use p521::SecretKey;
use p521::ecdsa::signature::{Signer, Verifier};
use p521::ecdsa::{Signature, SigningKey, VerifyingKey};
use p521::pkcs8::DecodePrivateKey;

/// A private key.
pub(super) struct Key(SigningKey);

impl Key {
    /// From PKCS#8, in DER.
    pub(super) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        SecretKey::from_pkcs8_der(der).ok().map(|key| Key(key.into()))
    }

    /// A signature of two numbers of fixed length, as JWTs have it. The nonce is of the key and the text (RFC 6979).
    pub(super) fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.0.try_sign(text).ok()?;
        Some(signature.to_bytes().to_vec())
    }

    /// The public half, an uncompressed point.
    pub(super) fn public(&self) -> Vec<u8> {
        self.0.verifying_key().to_sec1_point(false).as_bytes().to_vec()
    }
}

/// Whether the key at an uncompressed point made a signature.
pub(super) fn verify(point: &[u8], text: &[u8], signature: &[u8]) -> bool {
    let key = VerifyingKey::from_sec1_bytes(point);
    let signature = Signature::from_slice(signature);
    key.is_ok_and(|key| signature.is_ok_and(|signature| key.verify(text, &signature).is_ok()))
}
