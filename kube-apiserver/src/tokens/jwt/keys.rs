//! The public keys of an issuer (RFC 7517), and the signatures of its tokens.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use machinery::limits;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::Value;

use super::super::es512;
use super::super::jws::Jws;

/// The algorithms that a configuration may allow.
pub(super) const ALGORITHMS: [&str; 9] = [
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];

/// A key of a kind that can be used.
#[derive(Clone, PartialEq, Eq)]
enum Key {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed points.
    P256(Vec<u8>),
    P384(Vec<u8>),
    P521(Vec<u8>),
}

/// The keys of an issuer, with their ids.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct KeySet(Vec<(String, Key)>);

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

impl KeySet {
    /// Reads a key set. Keys that cannot be used are passed over.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let document = document.as_object().ok_or("it is no object")?;
        let keys = match document.get("keys") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(keys)) => keys,
            Some(_) => return Err("keys is no list".into()),
        };
        let found = keys.iter().filter_map(|jwk| {
            let id = jwk.get("kid").and_then(Value::as_str).unwrap_or_default();
            Some((id.to_owned(), Key::parse(jwk)?))
        });
        Ok(KeySet(found.take(limits::ISSUER_KEYS).collect()))
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of the keys signed the token: the named one, or any when none is named.
    pub(super) fn verify(&self, jws: &Jws<'_>) -> bool {
        let named = |id: &str| jws.key_id.is_empty() || jws.key_id == id;
        self.0.iter().any(|(id, key)| named(id) && key.verify(jws))
    }
}

impl Key {
    fn parse(jwk: &Value) -> Option<Self> {
        let member = |name: &str| jwk.get(name).and_then(Value::as_str);
        let number = |name: &str| BASE64.decode(member(name)?).ok();
        let point = |size: usize| {
            let mut point = vec![4];
            for name in ["x", "y"] {
                let coordinate = number(name)?;
                let missing = size.checked_sub(coordinate.len())?;
                point.extend(std::iter::repeat_n(0, missing));
                point.extend(coordinate);
            }
            Some(point)
        };
        match (member("kty")?, member("crv")) {
            ("RSA", _) => Some(Key::Rsa {
                modulus: without_zeros(number("n")?)?,
                exponent: without_zeros(number("e")?)?,
            }),
            ("EC", Some("P-256")) => point(32).map(Key::P256),
            ("EC", Some("P-384")) => point(48).map(Key::P384),
            ("EC", Some("P-521")) => point(66).map(Key::P521),
            _ => None,
        }
    }

    /// The algorithm of the token has to be one of the key's: a token cannot choose another use of it.
    fn verify(&self, jws: &Jws<'_>) -> bool {
        let (signed, signature) = (jws.signed.as_bytes(), &*jws.signature);
        match (self, &*jws.algorithm) {
            (Key::Rsa { modulus, exponent }, algorithm) => {
                let components = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                rsa(algorithm)
                    .is_some_and(|parameters| components.verify(parameters, signed, signature).is_ok())
            }
            (Key::P256(point), "ES256") => ecdsa(&ECDSA_P256_SHA256_FIXED, point, signed, signature),
            (Key::P384(point), "ES384") => ecdsa(&ECDSA_P384_SHA384_FIXED, point, signed, signature),
            (Key::P521(point), "ES512") => es512::verify(point, signed, signature),
            (Key::P256(_) | Key::P384(_) | Key::P521(_), _) => false,
        }
    }
}

/// As `ring` takes numbers; `None` for zero.
fn without_zeros(number: Vec<u8>) -> Option<Vec<u8>> {
    let first = number.iter().position(|byte| *byte != 0)?;
    Some(number[first..].to_vec())
}

fn rsa(algorithm: &str) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        "RS256" => &RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &RSA_PSS_2048_8192_SHA256,
        "PS384" => &RSA_PSS_2048_8192_SHA384,
        "PS512" => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn ecdsa(
    algorithm: &'static EcdsaVerificationAlgorithm,
    point: &[u8],
    signed: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, point)
        .verify(signed, signature)
        .is_ok()
}

#[cfg(test)]
mod tests;
