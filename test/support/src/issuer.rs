//! A token issuer as OpenID Connect has them: discovery and keys over TLS with an authority of its own, keys that rotate, and documents at
//! any path for distributed claims.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
};
use serde_json::{Value, json};

use crate::https::{HttpsServer, json_answer};

/// The algorithm of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
}

struct Key {
    id: String,
    signing: Signing,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: String, signing: Signing) -> Self {
        let algorithm = match signing {
            Signing::Es256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            Signing::Es384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
        };
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        Key { id, signing, pair }
    }

    fn names(&self) -> (&'static str, &'static str) {
        match self.signing {
            Signing::Es256 => ("ES256", "P-256"),
            Signing::Es384 => ("ES384", "P-384"),
        }
    }

    fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let (algorithm, curve) = self.names();
        json!({"kty": "EC", "use": "sig", "kid": self.id, "alg": algorithm, "crv": curve, "x": BASE64.encode(x), "y": BASE64.encode(y)})
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.names().0, "kid": self.id, "typ": "JWT"});
        let message = format!(
            "{}.{}",
            BASE64.encode(header.to_string()),
            BASE64.encode(claims.to_string())
        );
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", BASE64.encode(signature.expect("a signature")))
    }
}

/// The signature of a message by HS256, as a forger would make it.
pub fn hs256(secret: &[u8], message: &str) -> Vec<u8> {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
}

struct Shared {
    url: String,
    keys: Mutex<Vec<Key>>,
    down: AtomicBool,
    stalled: AtomicBool,
    /// Further documents, by path.
    documents: Mutex<HashMap<String, String>>,
    /// The path and the bearer token of each request.
    requests: Mutex<Vec<(String, String)>>,
}

/// An issuer on this machine; it ends when it is dropped.
pub struct Issuer {
    server: HttpsServer,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("url", &self.shared.url)
            .finish_non_exhaustive()
    }
}

impl Issuer {
    /// Starts one on a free port, with a key for ES256.
    pub async fn start() -> Self {
        let mut made = None;
        let server = HttpsServer::start(|url| {
            let shared = Arc::new(Shared {
                url: url.to_string(),
                keys: Mutex::new(vec![Key::new("1".into(), Signing::Es256)]),
                down: AtomicBool::new(false),
                stalled: AtomicBool::new(false),
                documents: Mutex::default(),
                requests: Mutex::default(),
            });
            made = Some(shared.clone());
            move |request| answer(shared.clone(), request)
        });
        let server = server.await;
        Issuer {
            server,
            shared: made.expect("it was started"),
        }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The certificate of its authority, PEM.
    pub fn ca(&self) -> &str {
        self.server.ca()
    }

    /// Answers nothing but errors while it is down.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::Relaxed);
    }

    /// Answers nothing at all while it is stalled.
    pub fn set_stalled(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::Relaxed);
    }

    /// The public keys that it publishes, as a key set.
    pub fn keys(&self) -> Value {
        self.shared.key_set()
    }

    /// Signs with a new key from now on, which is the only one that is published.
    pub fn rotate(&self, signing: Signing) {
        let mut keys = self.shared.keys.lock();
        let id = keys.last().map_or(1, |key| key.id.parse().unwrap_or(0) + 1);
        *keys = vec![Key::new(format!("{id}"), signing)];
    }

    /// Serves a document at a path.
    pub fn serve(&self, path: &str, body: String) {
        self.shared.documents.lock().insert(path.to_string(), body);
    }

    /// The paths of the requests so far, each with its bearer token.
    pub fn requests(&self) -> Vec<(String, String)> {
        self.shared.requests.lock().clone()
    }

    /// A token with these claims. Its issuer, the audience `kubernetes`, and an hour from now on are claimed unless they say otherwise; null
    /// takes a claim away.
    pub fn token(&self, claims: &Value) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        let now = since.as_secs();
        let mut all = json!({"iss": self.url(), "aud": "kubernetes", "iat": now, "exp": now + 3600});
        for (name, value) in claims.as_object().expect("claims") {
            all[name] = value.clone();
        }
        if let Some(members) = all.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        self.shared.keys.lock().last().expect("a key").sign(&all)
    }
}

impl Shared {
    fn key_set(&self) -> Value {
        let keys: Vec<Value> = self.keys.lock().iter().map(Key::jwk).collect();
        json!({"keys": keys})
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = token
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    shared.requests.lock().push((path.to_string(), token.to_string()));
    if shared.stalled.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    let document = shared.documents.lock().get(path).cloned();
    let (status, body) = match (path, document) {
        _ if shared.down.load(Ordering::Relaxed) => (503, "down".into()),
        (_, Some(document)) => (200, document),
        ("/.well-known/openid-configuration", None) => {
            let document = json!({"issuer": shared.url, "jwks_uri": format!("{}/keys", shared.url)});
            (200, document.to_string())
        }
        ("/keys", None) => (200, shared.key_set().to_string()),
        _ => (404, String::new()),
    };
    json_answer(status, body)
}
