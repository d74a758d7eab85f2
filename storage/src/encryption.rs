//! Encryption at rest: values transformed on their way to and from a store, bound to the key that they are stored under.
//!
//! Formats are those of Kubernetes' `apiserver/pkg/storage/value`, so that another API server on the same etcd reads what was
//! written here and the reverse. Which transformer a value gets, and from which file keys come, is the caller's business.
//!
//! | provider | after its prefix |
//! |---|---|
//! | [`AesCbc`] | IV (16), AES-CBC with PKCS#7 padding. Not authenticated |
//! | [`AesGcm`] | nonce (12), AES-GCM; the key of the store is authenticated |
//! | [`Secretbox`] | nonce (24), tag (16), XSalsa20 |
//! | [`Kms`] | an envelope: encrypted seed, key id, and AES-GCM under a key derived from the seed for this value alone |

mod aes;
mod kms;
mod prefix;
mod secretbox;
mod seed;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

pub use aes::{AesCbc, AesGcm};
pub use kms::{Kms, KmsOptions};
pub use prefix::{Identity, Prefixed, PrefixedTransformers};
pub use secretbox::Secretbox;

/// Turns values into their stored form and back. Both ways are quick and wait for nothing; keys from the network are fetched by
/// [`Transformer::prepare`] beforehand.
#[async_trait::async_trait]
pub trait Transformer: Send + Sync + fmt::Debug {
    /// From the stored form. `context` is the key that it is stored under.
    ///
    /// # Errors
    /// `KeyNeeded` when `prepare` has to be called first, else why it cannot be read. Never contains secrets.
    fn read(&self, stored: &Bytes, context: &[u8]) -> Result<Plain, TransformError>;

    /// To the stored form under the key `context`.
    ///
    /// # Errors
    /// When there is no key to write with.
    fn write(&self, plain: &[u8], context: &[u8]) -> Result<Vec<u8>, TransformError>;

    /// Whether reading this needs a key that has to be fetched first.
    fn lacks_key(&self, stored: &Bytes) -> bool {
        let _ = stored;
        false
    }

    /// Fetches the key that reading this needs. Cancel-safe.
    ///
    /// # Errors
    /// When the holder of the key does not return it.
    async fn prepare(&self, stored: &Bytes) -> Result<(), TransformError> {
        let _ = stored;
        Ok(())
    }
}

/// A value as it was before it was stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// The value.
    pub data: Bytes,
    /// It would be stored otherwise now: with another key or provider. Storing it again is worth a write.
    pub stale: bool,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}

/// Why a value cannot be transformed. Texts are those that upstream's clients see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// The key has to be fetched first.
    #[error("the data encryption key has not been fetched")]
    KeyNeeded,
    /// It cannot be done.
    #[error("{0}")]
    Failed(String),
}

impl TransformError {
    fn failed(text: impl Into<String>) -> Self {
        TransformError::Failed(text.into())
    }
}

const TOO_SHORT: &str = "the stored data was shorter than the required size";

fn random(bytes: &mut [u8]) -> Result<(), TransformError> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| TransformError::failed("unable to read sufficient random bytes"))
}
