//! Programs beside a server, for tests, with gRPC on a Unix socket: a key management plugin (KMS v2) with keys made of their names, which
//! protects nothing, a [`signer`] of tokens, and a [`konnectivity`] server.
//!
//! Dropping it takes it down; another one on the same socket brings it up again.

pub mod konnectivity;
mod served;
pub mod signer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use served::{Refusal, Served};

/// A running plugin.
#[derive(Debug)]
pub struct Plugin {
    state: Arc<State>,
    _served: Served,
}

#[derive(Debug)]
struct State {
    key: Mutex<String>,
    healthz: Mutex<String>,
    encrypted: AtomicUsize,
    decrypted: AtomicUsize,
}

impl Plugin {
    /// Listens on a socket, whose file is recreated. `key` is the id of the key that is written with.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn listen(socket: &Path, key: &str) -> std::io::Result<Self> {
        let state = Arc::new(State {
            key: Mutex::new(key.to_string()),
            healthz: Mutex::new("ok".to_string()),
            encrypted: AtomicUsize::new(0),
            decrypted: AtomicUsize::new(0),
        });
        let shared = state.clone();
        let answers = move |path: &str, message: &[u8]| answer(&shared, path, message);
        Ok(Plugin {
            state,
            _served: Served::listen(socket, answers)?,
        })
    }

    /// Writes with another key from now on. The old ones are still read.
    pub fn use_key(&self, key: &str) {
        *self.state.key.lock() = key.to_string();
    }

    /// Sets its health status; `ok` at first.
    pub fn say(&self, healthz: &str) {
        *self.state.healthz.lock() = healthz.to_string();
    }

    /// How many seeds it has encrypted and decrypted.
    pub fn calls(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.state.encrypted), count(&self.state.decrypted))
    }
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Bytes>,
}

/// The one field of an encryption's request and of a decryption's answer.
#[derive(Clone, PartialEq, Message)]
struct Plaintext {
    #[prost(bytes = "bytes", tag = "1")]
    plaintext: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Bytes>,
}

const ANNOTATION: &str = "version.kms-plugin.test";

fn answer(state: &State, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let bad = |_| (3, "the message cannot be decoded");
    match path {
        "/v2.KeyManagementService/Status" => Ok(StatusResponse {
            version: "v2".into(),
            healthz: state.healthz.lock().clone(),
            key_id: state.key.lock().clone(),
        }
        .encode_to_vec()),
        "/v2.KeyManagementService/Encrypt" => {
            let Plaintext { plaintext } = Plaintext::decode(message).map_err(bad)?;
            state.encrypted.fetch_add(1, Ordering::Relaxed);
            let key_id = state.key.lock().clone();
            Ok(EncryptResponse {
                ciphertext: seal(&key_id, &plaintext)?.into(),
                key_id,
                annotations: BTreeMap::from([(ANNOTATION.into(), Bytes::from_static(b"1"))]),
            }
            .encode_to_vec())
        }
        "/v2.KeyManagementService/Decrypt" => {
            let request = DecryptRequest::decode(message).map_err(bad)?;
            state.decrypted.fetch_add(1, Ordering::Relaxed);
            if request.annotations.get(ANNOTATION).map(|v| &**v) != Some(b"1") {
                return Err((3, "the annotations are not those that came with the key"));
            }
            Ok(Plaintext {
                plaintext: open(&request.key_id, &request.ciphertext)?.into(),
            }
            .encode_to_vec())
        }
        _ => Err((12, "no such method")),
    }
}

fn key(id: &str) -> Result<LessSafeKey, Refusal> {
    let bytes = digest(&SHA256, id.as_bytes());
    UnboundKey::new(&AES_256_GCM, bytes.as_ref())
        .map(LessSafeKey::new)
        .map_err(|_| (13, "no key"))
}

fn seal(id: &str, plain: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut nonce = [0; NONCE_LEN];
    let failed = |_| (13, "encryption failed");
    SystemRandom::new().fill(&mut nonce).map_err(failed)?;
    let mut body = plain.to_vec();
    key(id)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut body)
        .map_err(failed)?;
    Ok([&nonce[..], &body].concat())
}

fn open(id: &str, sealed: &[u8]) -> Result<Vec<u8>, Refusal> {
    let short = (3, "the ciphertext is too short");
    let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(short)?;
    let mut body = body.to_vec();
    let plain = key(id)?
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut body)
        .map_err(|_| (3, "the ciphertext is not of this key"))?;
    Ok(plain.to_vec())
}
