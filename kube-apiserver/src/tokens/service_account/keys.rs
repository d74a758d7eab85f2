//! Keys for service account tokens: ES256, ES384, ES512 and RS256, from the PEM files that upstream takes.

mod algorithm;
mod private;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::super::jws::Jws;
use algorithm::{Algorithm, key_id, spki};
pub use private::SigningKey;
use private::private;

/// The fault of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text holds no key of a kind that can be used.
    #[error(
        "no usable {0} key in PEM; ECDSA P-256, P-384 and P-521 and RSA of 2048 bits or more can be used"
    )]
    None(&'static str),
    /// Signing failed.
    #[error("cannot sign")]
    Sign,
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
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| spki(*algorithm, &raw) == bytes)
            .map(|algorithm| PublicKey { algorithm, raw })
    }

    fn jwk(&self, id: &str) -> Option<Value> {
        let mut key = json!({"use": "sig", "kid": id, "alg": self.algorithm.name()});
        let object = key.as_object_mut()?;
        match self.algorithm.curve() {
            None => {
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
            Some(curve) => {
                let (x, y) = self.raw.get(1..)?.split_at((self.raw.len() - 1) / 2);
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
#[derive(Default)]
pub struct PublicKeys {
    keys: Vec<Known>,
    by_id: HashMap<String, usize>,
}

struct Known {
    id: String,
    key: PublicKey,
    /// It is in the documents that others verify tokens with.
    published: bool,
}

impl fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.keys.iter().map(|known| &known.id))
            .finish()
    }
}

impl PublicKeys {
    /// Every key of PEM texts: public keys, certificates, or private keys whose public half counts.
    ///
    /// # Errors
    /// When a text holds none that can be used.
    pub fn from_pem<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut all = PublicKeys::default();
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
                    kind => private(kind, &bytes).map(|(private, algorithm)| PublicKey {
                        algorithm,
                        raw: private.public(),
                    }),
                };
                if let Some(key) = found {
                    usable = true;
                    all.add(key_id(&spki(key.algorithm, &key.raw)), key, true);
                }
            }
            if !usable {
                return Err(KeyError::None("public"));
            }
        }
        Ok(all)
    }

    /// Adds a key of a program that signs, as a DER `SubjectPublicKeyInfo`. A second one of an id is as good as the first to tokens of that
    /// id, as upstream has it.
    ///
    /// # Errors
    /// When it is none of a kind that can be used.
    pub(super) fn add_der(&mut self, id: &str, der: &[u8], published: bool) -> Result<(), KeyError> {
        let key = PublicKey::from_spki(der).ok_or(KeyError::None("public"))?;
        self.add(id.to_string(), key, published);
        Ok(())
    }

    fn add(&mut self, id: String, key: PublicKey, published: bool) {
        // The signing key is often among the files, too: each is published once.
        if let Entry::Vacant(free) = self.by_id.entry(id.clone()) {
            free.insert(self.keys.len());
            self.keys.push(Known { id, key, published });
        }
    }

    /// Whether tokens that name this key can be verified.
    pub(super) fn knows(&self, id: &str) -> bool {
        match id.is_empty() {
            true => !self.keys.is_empty(),
            false => self.by_id.contains_key(id),
        }
    }

    /// Whether there is such a key, and it is not published.
    pub(super) fn withholds(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|at| !self.keys[*at].published)
    }

    /// The ids of the keys, and whether they are published, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = (&str, bool)> {
        self.keys.iter().map(|known| (&*known.id, known.published))
    }

    /// Whether one of the keys signed a token in compact form; the named one, or any when none is named.
    pub(super) fn verify(&self, jws: &Jws<'_>) -> Result<bool, &'static str> {
        let candidates: &[Known] = if jws.key_id.is_empty() {
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
        Ok(candidates.iter().any(|Known { key, .. }| {
            key.algorithm.name() == jws.algorithm
                && key
                    .algorithm
                    .verify(&key.raw, jws.signed.as_bytes(), &jws.signature)
        }))
    }

    fn published(&self) -> impl Iterator<Item = &Known> {
        self.keys.iter().filter(|known| known.published)
    }

    /// The JSON Web Key Set at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self
            .published()
            .filter_map(|known| known.key.jwk(&known.id))
            .collect();
        json!({"keys": keys})
    }

    /// The discovery document at `/.well-known/openid-configuration`.
    pub fn discovery(&self, issuer: &str, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.published().map(|known| known.key.algorithm.name()).collect();
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
