//! Public keys of requests: which kinds are taken, and whether one made a signature.

use generic_server::crypto;
use ring::{digest, signature};
use x509_parser::oid_registry::asn1_rs::{Oid, oid};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_DSA, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521,
    OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

const OID_X25519: Oid<'static> = oid!(1.3.101.110);
const OID_P224: Oid<'static> = oid!(1.3.132.0.33);

/// The sizes of RSA keys that are taken, in bits.
const RSA_BITS: [usize; 2] = [3072, 4096];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublicKey<'k> {
    Ed25519(&'k [u8]),
    P256(&'k [u8]),
    P384(&'k [u8]),
    P521(&'k [u8]),
    /// A curve that can be read and is not taken.
    OtherCurve(&'static str),
    Rsa {
        bits: usize,
        key: &'k [u8],
    },
    /// A kind that can be read and is not taken.
    Other,
}

/// Why a key is not taken: the value that is shown, if any, and the text.
pub(super) type Fault = (Option<String>, &'static str);

impl<'k> PublicKey<'k> {
    /// The key; `None` of what cannot be read. Kinds that Go does not know are unreadable by themselves, and `Other` in a request.
    pub(super) fn of(info: &'k SubjectPublicKeyInfo<'k>, in_request: bool) -> Option<Self> {
        let bytes: &[u8] = &info.subject_public_key.data;
        let algorithm = &info.algorithm.algorithm;
        let is = |known: &Oid<'static>| algorithm == known;
        if is(&OID_SIG_ED25519) {
            return (bytes.len() == 32).then_some(PublicKey::Ed25519(bytes));
        }
        if is(&OID_KEY_TYPE_EC_PUBLIC_KEY) {
            let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
            let (key, size) = match &curve {
                curve if *curve == OID_EC_P256 => (PublicKey::P256(bytes), 32),
                curve if *curve == OID_NIST_EC_P384 => (PublicKey::P384(bytes), 48),
                curve if *curve == OID_NIST_EC_P521 => (PublicKey::P521(bytes), 66),
                curve if *curve == OID_P224 => (PublicKey::OtherCurve("P-224"), 28),
                _ => return None,
            };
            // An uncompressed point.
            return (bytes.len() == 2 * size + 1 && bytes[0] == 4).then_some(key);
        }
        if is(&OID_PKCS1_RSAENCRYPTION) {
            return match info.parsed() {
                Ok(Parsed::RSA(key)) => Some(PublicKey::Rsa {
                    bits: key.key_size(),
                    key: bytes,
                }),
                _ => None,
            };
        }
        (in_request || is(&OID_KEY_TYPE_DSA) || is(&OID_X25519)).then_some(PublicKey::Other)
    }

    /// Why the key is not taken. `curves`: the text about curves.
    pub(super) fn fault(self, curves: &'static str) -> Option<Fault> {
        match self {
            PublicKey::Ed25519(_) | PublicKey::P256(_) | PublicKey::P384(_) | PublicKey::P521(_) => None,
            PublicKey::OtherCurve(name) => Some((Some(format!("curve {name}")), curves)),
            PublicKey::Rsa { bits, .. } if RSA_BITS.contains(&bits) => None,
            PublicKey::Rsa { bits, .. } => Some((
                Some(format!("{bits}-bit modulus")),
                "RSA keys must have modulus size 3072 or 4096",
            )),
            PublicKey::Other => Some((
                None,
                "unknown public key type; supported types are Ed25519, ECDSA, and RSA",
            )),
        }
    }

    /// Whether the key signed a message, as proofs of possession are made: ECDSA in DER or PSS, over SHA-256.
    pub(super) fn verifies(self, message: &[u8], proof: &[u8]) -> bool {
        let (algorithm, key): (&dyn signature::VerificationAlgorithm, &[u8]) = match self {
            PublicKey::Ed25519(key) => (&signature::ED25519, key),
            PublicKey::P256(key) => (&signature::ECDSA_P256_SHA256_ASN1, key),
            PublicKey::P384(key) => (&signature::ECDSA_P384_SHA256_ASN1, key),
            PublicKey::Rsa { key, .. } => (&signature::RSA_PSS_2048_8192_SHA256, key),
            PublicKey::P521(key) => return crypto::verify_p521(&digest::SHA256, key, message, proof),
            PublicKey::OtherCurve(_) | PublicKey::Other => return false,
        };
        let key = signature::UnparsedPublicKey::new(algorithm, key);
        key.verify(message, proof).is_ok()
    }
}
