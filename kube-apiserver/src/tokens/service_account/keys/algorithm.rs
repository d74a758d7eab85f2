//! The kinds of keys, and their public form in DER.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::super::super::es512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
}

impl Algorithm {
    pub(super) const ALL: [Algorithm; 4] = [
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::Es512,
        Algorithm::Rs256,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Es512 => "ES512",
            Algorithm::Rs256 => "RS256",
        }
    }

    /// The name of the curve of a key, where it is on one.
    pub(super) fn curve(self) -> Option<&'static str> {
        match self {
            Algorithm::Es256 => Some("P-256"),
            Algorithm::Es384 => Some("P-384"),
            Algorithm::Es512 => Some("P-521"),
            Algorithm::Rs256 => None,
        }
    }

    /// Whether the key, in its raw form, made a signature.
    pub(super) fn verify(self, key: &[u8], signed: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => return es512::verify(key, signed, signature),
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        };
        UnparsedPublicKey::new(algorithm, key)
            .verify(signed, signature)
            .is_ok()
    }

    /// The DER `AlgorithmIdentifier`.
    pub(super) fn identifier(self) -> &'static [u8] {
        match self {
            Algorithm::Es256 => &[
                0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
            ],
            Algorithm::Es384 => &[
                0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x22,
            ],
            Algorithm::Es512 => &[
                0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x23,
            ],
            Algorithm::Rs256 => &[
                0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
            ],
        }
    }
}

/// One DER value: tag, length, content.
pub(super) fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    let mut out = vec![tag];
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1)..];
    if length >= 0x80 {
        // At most eight.
        out.push(0x80 | significant.len() as u8);
    }
    out.extend_from_slice(significant);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// The DER `SubjectPublicKeyInfo` of a raw public key.
pub(super) fn spki(algorithm: Algorithm, raw: &[u8]) -> Vec<u8> {
    let key = der(0x03, &[&[0], raw]);
    der(0x30, &[algorithm.identifier(), &key])
}

/// The key id that upstream gives: the hash of the public key.
pub(super) fn key_id(spki: &[u8]) -> String {
    BASE64.encode(ring::digest::digest(&ring::digest::SHA256, spki))
}
