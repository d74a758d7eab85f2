//! Private keys, from PEM.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};

use super::super::super::es512;
use super::KeyError;
use super::algorithm::{Algorithm, der, key_id, spki};

pub(super) enum Private {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    P521(es512::Key),
}

impl Private {
    /// The public half: an uncompressed point, or a DER `RSAPublicKey`.
    pub(super) fn public(&self) -> Vec<u8> {
        match self {
            Private::Ecdsa(key) => key.public_key().as_ref().to_vec(),
            Private::Rsa(key) => key.public_key().as_ref().to_vec(),
            Private::P521(key) => key.public(),
        }
    }
}

/// A private key that signs tokens.
pub struct SigningKey {
    private: Private,
    algorithm: Algorithm,
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
                let id = key_id(&spki(algorithm, &private.public()));
                SigningKey {
                    private,
                    algorithm,
                    id,
                }
            })
            .next()
            .ok_or(KeyError::None("private"))
    }

    /// A signed token in compact form.
    pub(in super::super) fn sign_jwt(&self, payload: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.algorithm.name(), "kid": self.id});
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
            Private::P521(key) => BASE64.encode(key.sign(token.as_bytes()).ok_or(KeyError::Sign)?),
        };
        token.push('.');
        token.push_str(&signature);
        Ok(token)
    }
}

/// The key in a section of PEM.
pub(super) fn private(kind: SectionKind, bytes: &[u8]) -> Option<(Private, Algorithm)> {
    let ecdsa = |pkcs8: &[u8]| {
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random);
        if let Ok(key) = p256 {
            return Some((Private::Ecdsa(key), Algorithm::Es256));
        }
        let p384 = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, pkcs8, &random);
        if let Ok(key) = p384 {
            return Some((Private::Ecdsa(key), Algorithm::Es384));
        }
        let p521 = es512::Key::from_pkcs8(pkcs8)?;
        Some((Private::P521(p521), Algorithm::Es512))
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
        SectionKind::EcPrivateKey => [Algorithm::Es256, Algorithm::Es384, Algorithm::Es512]
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
