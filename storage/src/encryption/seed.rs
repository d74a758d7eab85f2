//! Data keys of an envelope: a seed from which every value gets a key of its own, or (to be read only) a key used as it is.

use std::fmt;

use bytes::Bytes;
use ring::hkdf;

use super::{AesGcm, Plain, TOO_SHORT, TransformError, Transformer, random};

/// Length of a seed, of the random bytes that a value's key is derived with, and of that key.
pub(super) const LENGTH: usize = 32;

/// The key that encrypts an envelope's values.
pub(super) enum DataKey {
    /// HKDF-SHA-256 (expand only) makes a key of it and of 32 random bytes that lie before each value.
    Seed(Box<hkdf::Prk>),
    /// The key itself, as envelopes of older servers have it.
    Key(AesGcm),
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

impl DataKey {
    /// From the bytes that the plugin gave back.
    pub(super) fn new(bytes: &[u8], seed: bool) -> Result<Self, TransformError> {
        if !seed {
            return AesGcm::new(bytes).map(DataKey::Key);
        }
        if bytes.len() < LENGTH {
            return Err(TransformError::Failed(format!(
                "invalid seed length {} used for key generation",
                bytes.len()
            )));
        }
        Ok(DataKey::Seed(Box::new(hkdf::Prk::new_less_safe(
            hkdf::HKDF_SHA256,
            bytes,
        ))))
    }

    pub(super) fn read(&self, stored: &Bytes, context: &[u8]) -> Result<Plain, TransformError> {
        match self {
            DataKey::Key(gcm) => gcm.read(stored, context),
            DataKey::Seed(seed) => {
                let Some((info, _)) = stored.split_first_chunk::<LENGTH>() else {
                    return Err(TransformError::failed(TOO_SHORT));
                };
                derive(seed, info)?.read(&stored.slice(LENGTH..), context)
            }
        }
    }

    pub(super) fn write(&self, plain: &[u8], context: &[u8]) -> Result<Vec<u8>, TransformError> {
        match self {
            // A key that was not made here may have been used with any nonce.
            DataKey::Key(_) => Err(TransformError::failed("the data key is for reading only")),
            DataKey::Seed(seed) => {
                let mut info = [0; LENGTH];
                random(&mut info)?;
                let body = derive(seed, &info)?.write(plain, context)?;
                Ok([&info[..], &body].concat())
            }
        }
    }
}

fn derive(seed: &hkdf::Prk, info: &[u8; LENGTH]) -> Result<AesGcm, TransformError> {
    let failed = |_| TransformError::failed("failed to KDF expand seed with info");
    let mut key = [0; LENGTH];
    seed.expand(&[info], hkdf::HKDF_SHA256)
        .map_err(failed)?
        .fill(&mut key)
        .map_err(failed)?;
    AesGcm::new(&key)
}
