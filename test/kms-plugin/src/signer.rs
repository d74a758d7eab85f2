//! A signer of service account tokens (`v1.ExternalJWTSigner`), with keys of P-256 that are made for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use prost::Message;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::served::{Refusal, Served};

/// The header of a DER `SubjectPublicKeyInfo` of P-256, before the point.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A running signer.
#[derive(Debug)]
pub struct Signer {
    state: Arc<State>,
    _served: Served,
}

#[derive(Debug)]
struct State {
    keys: Mutex<Vec<Key>>,
    answers: Mutex<Answers>,
    signed: AtomicUsize,
    fetched: AtomicUsize,
}

struct Key {
    id: String,
    pair: EcdsaKeyPair,
    withheld: bool,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What it says besides keys and signatures.
#[derive(Debug, Clone)]
pub struct Answers {
    /// How long tokens may hold, in seconds.
    pub most_seconds: i64,
    /// When the keys are to be fetched again, in seconds.
    pub refresh_seconds: i64,
    /// The header of tokens, before it is encoded; of the last key by default.
    pub header: Option<String>,
    /// Signatures; of the last key by default.
    pub signature: Option<String>,
    /// Whether the answer says what moment its keys are of.
    pub dated: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            most_seconds: 86_400,
            refresh_seconds: 3_600,
            header: None,
            signature: None,
            dated: true,
        }
    }
}

impl Signer {
    /// Listens on a socket, whose file is recreated, with one key of this id.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn listen(socket: &Path, key: &str) -> std::io::Result<Self> {
        let state = Arc::new(State {
            keys: Mutex::default(),
            answers: Mutex::default(),
            signed: AtomicUsize::new(0),
            fetched: AtomicUsize::new(0),
        });
        let shared = state.clone();
        let answers = move |path: &str, message: &[u8]| answer(&shared, path, message);
        let signer = Signer {
            state,
            _served: Served::listen(socket, answers)?,
        };
        signer.add_key(key, false);
        Ok(signer)
    }

    /// Signs with another key from now on. The old ones are still published; `withheld` ones are for verification alone.
    pub fn add_key(&self, id: &str, withheld: bool) {
        let random = SystemRandom::new();
        let pair =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).and_then(|pkcs8| {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
                    .map_err(|_| ring::error::Unspecified)
            });
        if let Ok(pair) = pair {
            let id = id.to_string();
            self.state.keys.lock().push(Key { id, pair, withheld });
        }
    }

    /// Forgets a key.
    pub fn withdraw_key(&self, id: &str) {
        self.state.keys.lock().retain(|key| key.id != id);
    }

    /// Changes what it says.
    pub fn answer(&self, answers: Answers) {
        *self.state.answers.lock() = answers;
    }

    /// How many tokens it has signed, and how often its keys were fetched.
    pub fn calls(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.state.signed), count(&self.state.fetched))
    }
}

/// The one field of the request for a signature.
#[derive(Clone, PartialEq, Message)]
struct SignRequest {
    #[prost(string, tag = "1")]
    claims: String,
}

#[derive(Clone, PartialEq, Message)]
struct SignResponse {
    #[prost(string, tag = "1")]
    header: String,
    #[prost(string, tag = "2")]
    signature: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeysResponse {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<KeyMessage>,
    #[prost(message, optional, tag = "2")]
    data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyMessage {
    #[prost(string, tag = "1")]
    key_id: String,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bool, tag = "3")]
    exclude_from_oidc_discovery: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataResponse {
    #[prost(int64, tag = "1")]
    max_token_expiration_seconds: i64,
}

fn answer(state: &State, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let answers = state.answers.lock().clone();
    match path {
        "/v1.ExternalJWTSigner/Sign" => {
            let SignRequest { claims } =
                SignRequest::decode(message).map_err(|_| (3, "the message cannot be decoded"))?;
            state.signed.fetch_add(1, Ordering::Relaxed);
            let keys = state.keys.lock();
            let key = keys.last().ok_or((9, "there is no key"))?;
            let header = answers
                .header
                .unwrap_or_else(|| format!(r#"{{"alg":"ES256","kid":"{}","typ":"JWT"}}"#, key.id));
            let header = BASE64.encode(header);
            let signature = key
                .pair
                .sign(&SystemRandom::new(), format!("{header}.{claims}").as_bytes())
                .map_err(|_| (13, "signing failed"))?;
            let signature = answers.signature.unwrap_or_else(|| BASE64.encode(signature));
            Ok(SignResponse { header, signature }.encode_to_vec())
        }
        "/v1.ExternalJWTSigner/FetchKeys" => {
            state.fetched.fetch_add(1, Ordering::Relaxed);
            let keys = state.keys.lock();
            let keys = keys.iter().map(|key| KeyMessage {
                key_id: key.id.clone(),
                key: [&P256[..], key.pair.public_key().as_ref()].concat(),
                exclude_from_oidc_discovery: key.withheld,
            });
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
            Ok(KeysResponse {
                keys: keys.collect(),
                data_timestamp: answers.dated.then_some(Timestamp { seconds }),
                refresh_hint_seconds: answers.refresh_seconds,
            }
            .encode_to_vec())
        }
        "/v1.ExternalJWTSigner/Metadata" => Ok(MetadataResponse {
            max_token_expiration_seconds: answers.most_seconds,
        }
        .encode_to_vec()),
        _ => Err((12, "no such method")),
    }
}
