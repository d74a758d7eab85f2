//! A token issuer as OpenID Connect has them: discovery and keys over TLS with an authority of its own, keys that rotate, and documents at
//! any path for distributed claims.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use generic_server::pki::Authority;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

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

struct Shared {
    url: String,
    keys: Mutex<Vec<Key>>,
    down: AtomicBool,
    /// Further documents, by path.
    documents: Mutex<HashMap<String, String>>,
    /// The path and the bearer token of each request.
    requests: Mutex<Vec<(String, String)>>,
}

/// An issuer on this machine; it ends when it is dropped.
pub struct Issuer {
    ca: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("url", &self.shared.url)
            .finish_non_exhaustive()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    /// Starts one on a free port, with a key for ES256.
    pub async fn start() -> Self {
        let authority = Authority::generate("issuer").expect("an authority");
        let issued = authority
            .server("localhost", &["localhost".to_string()])
            .expect("a certificate");
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("a chain");
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            url: format!("https://localhost:{}", address.port()),
            keys: Mutex::new(vec![Key::new("1".into(), Signing::Es256)]),
            down: AtomicBool::new(false),
            documents: Mutex::default(),
            requests: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, acceptor, shared.clone()));
        Issuer {
            ca: authority.certificate,
            shared,
            task,
        }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The certificate of its authority, PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Answers nothing but errors while it is down.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::Relaxed);
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

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, acceptor.clone(), shared.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(&shared, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    // A client that goes away is no failure of a test.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = token
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    shared.requests.lock().push((path.to_string(), token.to_string()));
    let document = shared.documents.lock().get(path).cloned();
    let (status, body) = match (path, document) {
        _ if shared.down.load(Ordering::Relaxed) => (503, "down".into()),
        (_, Some(document)) => (200, document),
        ("/.well-known/openid-configuration", None) => {
            let document = json!({"issuer": shared.url, "jwks_uri": format!("{}/keys", shared.url)});
            (200, document.to_string())
        }
        ("/keys", None) => {
            let keys: Vec<Value> = shared.keys.lock().iter().map(Key::jwk).collect();
            (200, json!({"keys": keys}).to_string())
        }
        _ => (404, String::new()),
    };
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .expect("a response")
}
