//! A key management plugin (KMS v2) for tests: gRPC on a Unix socket, keys made of their names. It protects nothing.
//!
//! Dropping it takes it down; another one on the same socket brings it up again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// A running plugin.
#[derive(Debug)]
pub struct Plugin {
    state: Arc<State>,
    socket: PathBuf,
    task: tokio::task::JoinHandle<()>,
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
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let state = Arc::new(State {
            key: Mutex::new(key.to_string()),
            healthz: Mutex::new("ok".to_string()),
            encrypted: AtomicUsize::new(0),
            decrypted: AtomicUsize::new(0),
        });
        let shared = state.clone();
        let task = tokio::spawn(async move {
            // Connections end with the plugin.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| serve(state.clone(), request));
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // A client that goes away in the middle is no fault of the plugin.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Plugin {
            state,
            socket: socket.to_path_buf(),
            task,
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

impl Drop for Plugin {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
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

async fn serve(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_string();
    let outcome = match request.into_body().collect().await {
        // Every message has five bytes before it: whether it is compressed, and its length.
        Ok(body) => {
            let body = body.to_bytes();
            answer(&state, &path, body.get(5..).unwrap_or_default())
        }
        Err(_) => Err((13, "the request broke off")),
    };
    let (message, code, text) = match outcome {
        Ok(message) => (message, 0, ""),
        Err((code, text)) => (Vec::new(), code, text),
    };
    let mut frame = BytesMut::new();
    if code == 0 {
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        frame.put_slice(&message);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let body = Full::new(frame.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

type Refusal = (u16, &'static str);

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
