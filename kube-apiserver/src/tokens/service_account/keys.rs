//! Keys for service account tokens: ES256, ES384 and RS256, from the PEM files that upstream takes. All by `ring`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256,
    RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::super::jws::Jws;

/// The fault of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text holds no key of a kind that can be used.
    #[error("no usable {0} key in PEM; ECDSA P-256 and P-384 and RSA of 2048 bits or more can be used")]
    None(&'static str),
    /// Signing failed.
    #[error("cannot sign")]
    Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Es256,
    Es384,
    Rs256,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Rs256 => "RS256",
        }
    }

    fn verifier(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }

    /// The DER `AlgorithmIdentifier`.
    fn identifier(self) -> &'static [u8] {
        match self {
            Algorithm::Es256 => &[
                0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
            ],
            Algorithm::Es384 => &[
                0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x22,
            ],
            Algorithm::Rs256 => &[
                0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
            ],
        }
    }
}

/// One DER value: tag, length, content.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    let mut out = vec![tag];
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1)..];
    if length >= 0x80 {
        #[allow(clippy::cast_possible_truncation, reason = "at most eight")]
        out.push(0x80 | significant.len() as u8);
    }
    out.extend_from_slice(significant);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// The DER `SubjectPublicKeyInfo` of a raw public key.
fn spki(algorithm: Algorithm, raw: &[u8]) -> Vec<u8> {
    let key = der(0x03, &[&[0], raw]);
    der(0x30, &[algorithm.identifier(), &key])
}

/// The key id that upstream gives: the hash of the public key.
fn key_id(spki: &[u8]) -> String {
    BASE64.encode(ring::digest::digest(&ring::digest::SHA256, spki))
}

enum Private {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A private key that signs tokens.
pub struct SigningKey {
    private: Private,
    public: PublicKey,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The first private key of a PEM text: PKCS#8, SEC1 or PKCS#1.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
        sections
            .filter_map(|(kind, der)| private(kind, &der))
            .map(|(private, algorithm)| {
                let raw = match &private {
                    Private::Ecdsa(key) => key.public_key().as_ref().to_vec(),
                    Private::Rsa(key) => key.public_key().as_ref().to_vec(),
                };
                let id = key_id(&spki(algorithm, &raw));
                SigningKey {
                    private,
                    public: PublicKey { algorithm, raw },
                    id,
                }
            })
            .next()
            .ok_or(KeyError::None("private"))
    }

    /// A signed token in compact form.
    pub(super) fn sign_jwt(&self, payload: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.public.algorithm.name(), "kid": self.id});
        let mut token = format!(
            "{}.{}",
            BASE64.encode(header.to_string()),
            BASE64.encode(payload.to_string())
        );
        let random = SystemRandom::new();
        let signature = match &self.private {
            Private::Ecdsa(key) => {
                let signature = key.sign(&random, token.as_bytes()).map_err(|_| KeyError::Sign)?;
                BASE64.encode(signature)
            }
            Private::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, token.as_bytes(), &mut signature)
                    .map_err(|_| KeyError::Sign)?;
                BASE64.encode(signature)
            }
        };
        token.push('.');
        token.push_str(&signature);
        Ok(token)
    }
}

fn private(kind: SectionKind, bytes: &[u8]) -> Option<(Private, Algorithm)> {
    let ecdsa = |pkcs8: &[u8]| {
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random);
        if let Ok(key) = p256 {
            return Some((Private::Ecdsa(key), Algorithm::Es256));
        }
        let p384 = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, pkcs8, &random).ok()?;
        Some((Private::Ecdsa(p384), Algorithm::Es384))
    };
    match kind {
        SectionKind::PrivateKey => ecdsa(bytes).or_else(|| {
            RsaKeyPair::from_pkcs8(bytes)
                .ok()
                .map(|key| (Private::Rsa(key), Algorithm::Rs256))
        }),
        SectionKind::RsaPrivateKey => RsaKeyPair::from_der(bytes)
            .ok()
            .map(|key| (Private::Rsa(key), Algorithm::Rs256)),
        // OpenSSL's `EC PRIVATE KEY` is the inside of PKCS#8.
        SectionKind::EcPrivateKey => [Algorithm::Es256, Algorithm::Es384]
            .into_iter()
            .find_map(|algorithm| {
                let inside = der(0x04, &[bytes]);
                ecdsa(&der(
                    0x30,
                    &[&[0x02, 0x01, 0x00], algorithm.identifier(), &inside],
                ))
            }),
        _ => None,
    }
}

#[derive(Clone)]
struct PublicKey {
    algorithm: Algorithm,
    /// An uncompressed point, or a DER `RSAPublicKey`.
    raw: Vec<u8>,
}

impl PublicKey {
    fn from_spki(bytes: &[u8]) -> Option<Self> {
        let (_, parsed) = SubjectPublicKeyInfo::from_der(bytes).ok()?;
        let raw = parsed.subject_public_key.data.to_vec();
        [Algorithm::Es256, Algorithm::Es384, Algorithm::Rs256]
            .into_iter()
            .find(|algorithm| spki(*algorithm, &raw) == bytes)
            .map(|algorithm| PublicKey { algorithm, raw })
    }

    fn jwk(&self, id: &str) -> Option<Value> {
        let mut key = json!({"use": "sig", "kid": id, "alg": self.algorithm.name()});
        let object = key.as_object_mut()?;
        match self.algorithm {
            Algorithm::Rs256 => {
                let (_, parts) = RSAPublicKey::from_der(&self.raw).ok()?;
                // DER puts a zero before a number whose first bit is set; JWK does not.
                let plain = |number: &[u8]| {
                    let zeros = number.iter().take_while(|byte| **byte == 0).count();
                    BASE64.encode(&number[zeros..])
                };
                object.insert("kty".into(), "RSA".into());
                object.insert("n".into(), plain(parts.modulus).into());
                object.insert("e".into(), plain(parts.exponent).into());
            }
            Algorithm::Es256 | Algorithm::Es384 => {
                let (x, y) = self.raw.get(1..)?.split_at((self.raw.len() - 1) / 2);
                let curve = if self.algorithm == Algorithm::Es256 {
                    "P-256"
                } else {
                    "P-384"
                };
                object.insert("kty".into(), "EC".into());
                object.insert("crv".into(), curve.into());
                object.insert("x".into(), BASE64.encode(x).into());
                object.insert("y".into(), BASE64.encode(y).into());
            }
        }
        Some(key)
    }
}

/// The public keys that tokens are checked with, by id.
pub struct PublicKeys {
    keys: Vec<(String, PublicKey)>,
    by_id: HashMap<String, usize>,
}

impl fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

impl PublicKeys {
    /// Every key of PEM texts: public keys, certificates, or private keys whose public half counts.
    ///
    /// # Errors
    /// When a text holds none that can be used.
    pub fn from_pem<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut all = PublicKeys {
            keys: Vec::new(),
            by_id: HashMap::new(),
        };
        for text in texts {
            let mut usable = false;
            for (kind, bytes) in
                <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()).filter_map(Result::ok)
            {
                let found = match kind {
                    SectionKind::PublicKey => PublicKey::from_spki(&bytes),
                    SectionKind::Certificate => x509_parser::parse_x509_certificate(&bytes)
                        .ok()
                        .and_then(|(_, parsed)| PublicKey::from_spki(parsed.public_key().raw)),
                    kind => private(kind, &bytes).map(|(private, algorithm)| {
                        let raw = match &private {
                            Private::Ecdsa(key) => key.public_key().as_ref().to_vec(),
                            Private::Rsa(key) => key.public_key().as_ref().to_vec(),
                        };
                        PublicKey { algorithm, raw }
                    }),
                };
                if let Some(key) = found {
                    usable = true;
                    let id = key_id(&spki(key.algorithm, &key.raw));
                    // The signing key is often among the files, too: each is published once.
                    if let Entry::Vacant(free) = all.by_id.entry(id.clone()) {
                        free.insert(all.keys.len());
                        all.keys.push((id, key));
                    }
                }
            }
            if !usable {
                return Err(KeyError::None("public"));
            }
        }
        Ok(all)
    }

    /// Whether one of the keys signed a token in compact form; the named one, or any when none is named.
    pub(super) fn verify(&self, token: &str) -> Result<bool, &'static str> {
        let jws = Jws::parse(token).map_err(|_| "malformed token")?;
        let candidates: &[(String, PublicKey)] = if jws.key_id.is_empty() {
            &self.keys
        } else {
            match self.by_id.get(&jws.key_id) {
                Some(at) => std::slice::from_ref(&self.keys[*at]),
                None => &[],
            }
        };
        if candidates.is_empty() {
            return Err("invalid signature, no keys found");
        }
        // The algorithm is the key's; a token with another one in its header (or `none`) is invalid.
        Ok(candidates.iter().any(|(_, key)| {
            key.algorithm.name() == jws.algorithm
                && UnparsedPublicKey::new(key.algorithm.verifier(), &key.raw)
                    .verify(jws.signed.as_bytes(), &jws.signature)
                    .is_ok()
        }))
    }

    /// The JSON Web Key Set at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.keys.iter().filter_map(|(id, key)| key.jwk(id)).collect();
        json!({"keys": keys})
    }

    /// The discovery document at `/.well-known/openid-configuration`.
    pub fn discovery(&self, issuer: &str, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.keys.iter().map(|(_, key)| key.algorithm.name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}
