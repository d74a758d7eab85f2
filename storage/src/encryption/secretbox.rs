//! NaCl's secretbox: XSalsa20 with a Poly1305 tag in front, over a random nonce.

use std::fmt;

use bytes::Bytes;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;
use salsa20::XSalsa20;
use salsa20::cipher::{KeyIvInit, StreamCipher};

use super::{Plain, TOO_SHORT, TransformError, Transformer, random};

const NONCE: usize = 24;
const TAG: usize = 16;
const KEY: usize = 32;

/// XSalsa20 and Poly1305 with a random nonce. The storage key is not authenticated: a value can be swapped for another of the
/// same key.
pub struct Secretbox([u8; KEY]);

impl fmt::Debug for Secretbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secretbox").finish_non_exhaustive()
    }
}

impl Secretbox {
    /// With a key of 32 bytes.
    ///
    /// # Errors
    /// When the key has another length.
    pub fn new(key: &[u8]) -> Result<Self, TransformError> {
        key.try_into().map(Secretbox).map_err(|_| {
            TransformError::Failed(format!(
                "expected key size 32 for secretbox provider, got {}",
                key.len()
            ))
        })
    }

    /// The stream cipher, and the authenticator keyed with the first 32 bytes of its stream.
    fn start(&self, nonce: &[u8; NONCE]) -> (XSalsa20, Poly1305) {
        let mut stream = XSalsa20::new(&self.0.into(), &(*nonce).into());
        let mut one_time = [0; KEY];
        stream.apply_keystream(&mut one_time);
        (stream, Poly1305::new(&one_time.into()))
    }

    fn seal(&self, nonce: &[u8; NONCE], plain: &[u8]) -> Vec<u8> {
        let (mut stream, mac) = self.start(nonce);
        let mut body = plain.to_vec();
        stream.apply_keystream(&mut body);
        let tag = mac.compute_unpadded(&body);
        [&nonce[..], tag.as_slice(), &body].concat()
    }
}

impl Transformer for Secretbox {
    fn read(&self, stored: &Bytes, _context: &[u8]) -> Result<Plain, TransformError> {
        let parts = stored
            .split_first_chunk::<NONCE>()
            .and_then(|(nonce, rest)| Some((nonce, rest.split_first_chunk::<TAG>()?)));
        let Some((nonce, (tag, body))) = parts else {
            return Err(TransformError::failed(TOO_SHORT));
        };
        let (mut stream, mac) = self.start(nonce);
        let found = mac.compute_unpadded(body);
        // All of it is looked at, wherever it differs.
        let differs = found.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b)) != 0;
        if differs {
            return Err(TransformError::failed(
                "output array was not large enough for encryption",
            ));
        }
        let mut data = body.to_vec();
        stream.apply_keystream(&mut data);
        Ok(Plain {
            data: data.into(),
            stale: false,
        })
    }

    fn write(&self, plain: &[u8], _context: &[u8]) -> Result<Vec<u8>, TransformError> {
        let mut nonce = [0; NONCE];
        random(&mut nonce)?;
        Ok(self.seal(&nonce, plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of NaCl's own test program (`tests/secretbox.c`).
    #[test]
    fn known_answer() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
                .collect()
        };
        let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce: [u8; NONCE] = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
            .try_into()
            .unwrap();
        let plain = hex(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705",
        );
        let sealed = hex(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
        );
        let secretbox = Secretbox::new(&key).unwrap();
        let stored = secretbox.seal(&nonce, &plain);
        assert_eq!(stored[NONCE..], sealed);
        assert_eq!(
            secretbox.read(&stored.into(), b"").unwrap().data,
            Bytes::from(plain)
        );
    }
}
