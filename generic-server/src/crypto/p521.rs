//! ECDSA on the curve P-521, in certificates and handshakes: Go has it, ring has not.

use p521::ecdsa::signature::hazmat::PrehashVerifier;
use p521::ecdsa::{Signature, VerifyingKey};
use ring::digest::{self, digest};
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};

/// Bytes of a number of the curve.
const NUMBER: usize = 66;

/// As rustls takes it: with SHA-512, which is the only one of TLS 1.3.
pub(super) static ECDSA_P521_SHA512: &dyn SignatureVerificationAlgorithm = &EcdsaP521 {
    hash: &digest::SHA512,
    id: alg_id::ECDSA_SHA512,
};
/// With SHA-384, as clients of TLS 1.2 have it.
pub(super) static ECDSA_P521_SHA384: &dyn SignatureVerificationAlgorithm = &EcdsaP521 {
    hash: &digest::SHA384,
    id: alg_id::ECDSA_SHA384,
};
/// With SHA-256, in which `openssl` signs when it is not told otherwise.
pub(super) static ECDSA_P521_SHA256: &dyn SignatureVerificationAlgorithm = &EcdsaP521 {
    hash: &digest::SHA256,
    id: alg_id::ECDSA_SHA256,
};

#[derive(Debug)]
struct EcdsaP521 {
    hash: &'static digest::Algorithm,
    id: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for EcdsaP521 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        match verify(self.hash, public_key, message, signature) {
            true => Ok(()),
            false => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.id
    }
}

/// Whether the key at a point made a signature, which is in DER.
pub(super) fn verify(
    hash: &'static digest::Algorithm,
    point: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    // The hash as a number: shorter ones have zeros before them.
    let hash = digest(hash, message);
    let mut number = [0; NUMBER];
    let Some(end) = number.len().checked_sub(hash.as_ref().len()) else {
        return false;
    };
    number[end..].copy_from_slice(hash.as_ref());
    let key = VerifyingKey::from_sec1_bytes(point);
    let signature = Signature::from_der(signature);
    key.is_ok_and(|key| signature.is_ok_and(|signature| key.verify_prehash(&number, &signature).is_ok()))
}
