//! Whether the certificate and the key of a TLS secret belong together, as `crypto/tls` of Go judges and words it.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use x509_parser::asn1_rs::{Any, BitString, FromDer, Integer, OctetString, Oid, Sequence, Tag};
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::groups::certificates::pem;

const MISMATCH: &str = "tls: private key does not match public key";
const OTHER_TYPE: &str = "tls: private key type does not match public key type";

/// A private key, by what its public half can be told from.
enum Private {
    /// Modulus and exponent, big endian without zeros before them.
    Rsa(Vec<u8>, Vec<u8>),
    /// The point, where the key states it.
    Ec(Option<Vec<u8>>),
    Ed25519(Vec<u8>),
}

/// Checks a certificate chain and a key, both PEM.
///
/// # Errors
/// Why a TLS server could not use them.
pub(super) fn check(chain: &[u8], key: &[u8]) -> Result<(), String> {
    let leaf = certificate(&String::from_utf8_lossy(chain))?;
    let key = private_key(&String::from_utf8_lossy(key))?;
    let Ok((_, leaf)) = x509_parser::parse_x509_certificate(&leaf) else {
        return Err("x509: malformed certificate".into());
    };
    let Some(key) = parse(&key) else {
        return Err("tls: failed to parse private key".into());
    };
    matches(leaf.public_key(), &key).map_err(str::to_owned)
}

/// The first certificate.
fn certificate(text: &str) -> Result<Vec<u8>, String> {
    let (mut rest, mut others) = (text, Vec::new());
    while let Some((block, next)) = pem::first(rest) {
        if block.kind == "CERTIFICATE" {
            return Ok(block.bytes);
        }
        others.push(block.kind);
        rest = next;
    }
    Err(match others[..] {
        [] => "tls: failed to find any PEM data in certificate input".into(),
        [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".into(),
        _ => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })
}

/// The first private key.
fn private_key(text: &str) -> Result<Vec<u8>, String> {
    let (mut rest, mut others) = (text, Vec::new());
    while let Some((block, next)) = pem::first(rest) {
        if block.kind == "PRIVATE KEY" || block.kind.ends_with(" PRIVATE KEY") {
            return Ok(block.bytes);
        }
        others.push(block.kind);
        rest = next;
    }
    Err(match others[..] {
        [] => "tls: failed to find any PEM data in key input".into(),
        ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".into(),
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })
}

/// A key in PKCS#1, PKCS#8 (RFC 5958) or SEC 1 (RFC 5915).
fn parse(der: &[u8]) -> Option<Private> {
    pkcs1(der).or_else(|| pkcs8(der)).or_else(|| sec1(der))
}

fn content(der: &[u8]) -> Option<Vec<u8>> {
    let (_, sequence) = Sequence::from_der(der).ok()?;
    Some(sequence.content.into_owned())
}

fn number(integer: &Integer<'_>) -> Vec<u8> {
    let bytes = integer.as_ref();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

fn pkcs1(der: &[u8]) -> Option<Private> {
    let content = content(der)?;
    let (rest, _version) = Integer::from_der(&content).ok()?;
    let (rest, modulus) = Integer::from_der(rest).ok()?;
    let (_, exponent) = Integer::from_der(rest).ok()?;
    Some(Private::Rsa(number(&modulus), number(&exponent)))
}

fn pkcs8(der: &[u8]) -> Option<Private> {
    let outer = content(der)?;
    let (rest, _version) = Integer::from_der(&outer).ok()?;
    let (rest, algorithm) = Sequence::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    let (_, algorithm) = Oid::from_der(&algorithm.content).ok()?;
    if algorithm == OID_PKCS1_RSAENCRYPTION {
        return pkcs1(key.as_ref());
    }
    if algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        return sec1(key.as_ref());
    }
    if algorithm == OID_SIG_ED25519 {
        let (_, seed) = OctetString::from_der(key.as_ref()).ok()?;
        return Some(Private::Ed25519(seed.as_ref().to_vec()));
    }
    None
}

fn sec1(der: &[u8]) -> Option<Private> {
    let content = content(der)?;
    let (rest, version) = Integer::from_der(&content).ok()?;
    let (mut rest, _scalar) = OctetString::from_der(rest).ok()?;
    if version.as_u32() != Ok(1) {
        return None;
    }
    while let Ok((next, tagged)) = Any::from_der(rest) {
        if tagged.tag() == Tag(1) {
            let (_, point) = BitString::from_der(tagged.data).ok()?;
            return Some(Private::Ec(Some(point.as_ref().to_vec())));
        }
        rest = next;
    }
    Some(Private::Ec(None))
}

fn matches(public: &SubjectPublicKeyInfo<'_>, private: &Private) -> Result<(), &'static str> {
    let same = if public.algorithm.algorithm == OID_SIG_ED25519 {
        let Private::Ed25519(seed) = private else {
            return Err(OTHER_TYPE);
        };
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        pair.is_ok_and(|pair| pair.public_key().as_ref() == &*public.subject_public_key.data)
    } else {
        match (public.parsed(), private) {
            (Ok(PublicKey::RSA(public)), Private::Rsa(modulus, exponent)) => {
                let plain = |bytes: &[u8]| bytes.iter().copied().skip_while(|b| *b == 0).collect::<Vec<u8>>();
                plain(public.modulus) == *modulus && plain(public.exponent) == *exponent
            }
            // Without the point in it the key says nothing that could be compared.
            (Ok(PublicKey::EC(public)), Private::Ec(point)) => {
                point.as_ref().is_none_or(|point| point == public.data())
            }
            (Ok(PublicKey::RSA(_) | PublicKey::EC(_)), _) => return Err(OTHER_TYPE),
            _ => return Err("tls: unknown public key algorithm"),
        }
    };
    if same { Ok(()) } else { Err(MISMATCH) }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    /// A certificate of the key itself, and the key, both PEM.
    fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[track_caller]
    fn expect(chain: &str, key: &str, expected: Result<(), &str>) {
        let found = check(chain.as_bytes(), key.as_bytes());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn pairs_that_belong_together() {
        let [p256, p384, ed25519] =
            [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519].map(pair);
        for (chain, key) in [&p256, &p384, &ed25519] {
            expect(chain, key, Ok(()));
            expect(&format!("{chain}{}", p256.0), key, Ok(()));
        }
        expect(&p256.0, &pair(&PKCS_ECDSA_P256_SHA256).1, Err(MISMATCH));
        expect(&p256.0, &p384.1, Err(MISMATCH));
        expect(&ed25519.0, &pair(&PKCS_ED25519).1, Err(MISMATCH));
        expect(&p256.0, &ed25519.1, Err(OTHER_TYPE));
        expect(&ed25519.0, &p256.1, Err(OTHER_TYPE));
    }

    #[test]
    fn what_is_no_pair() {
        let (chain, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let block = |kind: &str| format!("-----BEGIN {kind}-----\nYWJj\n-----END {kind}-----\n");
        expect(
            "",
            &key,
            Err("tls: failed to find any PEM data in certificate input"),
        );
        expect(
            &key,
            &key,
            Err(
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
        );
        expect(
            &(block("A") + &block("B")),
            &key,
            Err(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [A B]",
            ),
        );
        expect(&block("CERTIFICATE"), &key, Err("x509: malformed certificate"));
        expect(&chain, "x", Err("tls: failed to find any PEM data in key input"));
        expect(
            &chain,
            &chain,
            Err("tls: found a certificate rather than a key in the PEM for the private key"),
        );
        expect(
            &chain,
            &block("PUBLIC KEY"),
            Err(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [PUBLIC KEY]",
            ),
        );
        expect(
            &chain,
            &block("PRIVATE KEY"),
            Err("tls: failed to parse private key"),
        );
        // Other blocks are passed over.
        expect(&(block("A") + &chain), &(block("B") + &key), Ok(()));
    }
}
