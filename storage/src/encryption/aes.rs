//! AES in CBC mode, which hides, and in GCM mode, which also detects changed or moved values.

use std::fmt;

use ::aes::cipher::block_padding::Pkcs7;
use ::aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use ::aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use bytes::Bytes;

use super::{Plain, TOO_SHORT, TransformError, Transformer, random};

const BLOCK: usize = 16;
const NONCE: usize = 12;

/// AES-CBC with a random IV and PKCS#7 padding. It authenticates nothing: a value can be swapped for another of the same key.
pub struct AesCbc(Box<[u8]>);

/// AES-GCM with a random nonce; the storage key is the authenticated data. One key is good for about 2^32 writes.
pub struct AesGcm(Gcm);

enum Gcm {
    Short(Box<aes_gcm::Aes128Gcm>),
    Middle(Box<aes_gcm::AesGcm<Aes192, aes_gcm::aead::consts::U12>>),
    Long(Box<aes_gcm::Aes256Gcm>),
}

impl fmt::Debug for AesCbc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AesCbc").finish_non_exhaustive()
    }
}

impl fmt::Debug for AesGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AesGcm").finish_non_exhaustive()
    }
}

fn key_size(key: &[u8]) -> TransformError {
    TransformError::Failed(format!("crypto/aes: invalid key size {}", key.len()))
}

impl AesCbc {
    /// With a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// When the key has another length.
    pub fn new(key: &[u8]) -> Result<Self, TransformError> {
        match key.len() {
            16 | 24 | 32 => Ok(AesCbc(key.into())),
            _ => Err(key_size(key)),
        }
    }
}

fn encrypt<C: BlockModeEncrypt + KeyIvInit>(key: &[u8], iv: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let cipher = C::new_from_slices(key, iv).ok()?;
    Some(cipher.encrypt_padded_vec::<Pkcs7>(plain))
}

fn decrypt<C: BlockModeDecrypt + KeyIvInit>(key: &[u8], iv: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    let cipher = C::new_from_slices(key, iv).ok()?;
    cipher.decrypt_padded_vec::<Pkcs7>(stored).ok()
}

impl Transformer for AesCbc {
    fn read(&self, stored: &Bytes, _context: &[u8]) -> Result<Plain, TransformError> {
        let Some((iv, body)) = stored.split_at_checked(BLOCK) else {
            return Err(TransformError::failed(TOO_SHORT));
        };
        if body.len() % BLOCK != 0 {
            return Err(TransformError::failed(
                "the stored data is not a multiple of the block size",
            ));
        }
        if body.is_empty() {
            return Err(TransformError::failed("invalid PKCS7 data (empty or not padded)"));
        }
        let plain = match self.0.len() {
            16 => decrypt::<cbc::Decryptor<Aes128>>(&self.0, iv, body),
            24 => decrypt::<cbc::Decryptor<Aes192>>(&self.0, iv, body),
            _ => decrypt::<cbc::Decryptor<Aes256>>(&self.0, iv, body),
        };
        let data = plain.ok_or_else(|| TransformError::failed("invalid padding on input"))?;
        Ok(Plain {
            data: data.into(),
            stale: false,
        })
    }

    fn write(&self, plain: &[u8], _context: &[u8]) -> Result<Vec<u8>, TransformError> {
        let mut out = vec![0; BLOCK];
        random(&mut out)?;
        let body = match self.0.len() {
            16 => encrypt::<cbc::Encryptor<Aes128>>(&self.0, &out, plain),
            24 => encrypt::<cbc::Encryptor<Aes192>>(&self.0, &out, plain),
            _ => encrypt::<cbc::Encryptor<Aes256>>(&self.0, &out, plain),
        };
        out.extend(body.ok_or_else(|| key_size(&self.0))?);
        Ok(out)
    }
}

impl AesGcm {
    /// With a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// When the key has another length.
    pub fn new(key: &[u8]) -> Result<Self, TransformError> {
        let bad = |_| key_size(key);
        Ok(AesGcm(match key.len() {
            16 => Gcm::Short(Box::new(KeyInit::new_from_slice(key).map_err(bad)?)),
            24 => Gcm::Middle(Box::new(KeyInit::new_from_slice(key).map_err(bad)?)),
            32 => Gcm::Long(Box::new(KeyInit::new_from_slice(key).map_err(bad)?)),
            _ => return Err(key_size(key)),
        }))
    }
}

impl Transformer for AesGcm {
    fn read(&self, stored: &Bytes, context: &[u8]) -> Result<Plain, TransformError> {
        let Some((nonce, msg)) = stored.split_first_chunk::<NONCE>() else {
            return Err(TransformError::failed(TOO_SHORT));
        };
        let payload = Payload { msg, aad: context };
        let nonce = &(*nonce).into();
        let plain = match &self.0 {
            Gcm::Short(gcm) => gcm.decrypt(nonce, payload),
            Gcm::Middle(gcm) => gcm.decrypt(nonce, payload),
            Gcm::Long(gcm) => gcm.decrypt(nonce, payload),
        };
        let data = plain.map_err(|_| TransformError::failed("cipher: message authentication failed"))?;
        Ok(Plain {
            data: data.into(),
            stale: false,
        })
    }

    fn write(&self, plain: &[u8], context: &[u8]) -> Result<Vec<u8>, TransformError> {
        let mut nonce = [0; NONCE];
        random(&mut nonce)?;
        let payload = Payload {
            msg: plain,
            aad: context,
        };
        let body = match &self.0 {
            Gcm::Short(gcm) => gcm.encrypt(&nonce.into(), payload),
            Gcm::Middle(gcm) => gcm.encrypt(&nonce.into(), payload),
            Gcm::Long(gcm) => gcm.encrypt(&nonce.into(), payload),
        };
        let body = body.map_err(|_| TransformError::failed("the value is too large to be encrypted"))?;
        Ok([&nonce[..], &body].concat())
    }
}
