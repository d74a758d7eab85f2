//! A client of one request per connection: HTTP/1.1 over TLS, JSON in and out.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Talks to one server as one user.
#[derive(Debug, Clone)]
pub struct Client {
    authority: String,
    tls: Arc<rustls::ClientConfig>,
    headers: Vec<(String, String)>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as JSON; null when it is none.
    pub json: Value,
    /// The body's bytes.
    pub body: Bytes,
}

/// A connection that left HTTP, and the head of the answer that said so.
#[derive(Debug)]
pub struct Upgraded {
    /// The headers of the 101.
    pub headers: HeaderMap,
    /// The connection.
    pub io: TokioIo<hyper::upgrade::Upgraded>,
}

/// A watch, event by event.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    pending: Vec<u8>,
}

impl Client {
    /// A client of the current context of a kubeconfig with embedded certificates.
    pub fn from_kubeconfig(text: &[u8]) -> Self {
        let config = machinery::codec::yaml::decode(text).expect("a kubeconfig").value;
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let data = |value: &Value| {
            let text = value.as_str().expect("embedded data");
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .expect("base64")
        };
        let builder = builder(&data(&cluster["certificate-authority-data"]));
        let chain = CertificateDer::pem_slice_iter(&data(&user["client-certificate-data"]))
            .collect::<Result<Vec<_>, _>>()
            .expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(&data(&user["client-key-data"])).expect("a key");
        let tls = builder.with_client_auth_cert(chain, key).expect("a pair");
        let authority = cluster["server"]
            .as_str()
            .expect("a server")
            .trim_start_matches("https://");
        Client {
            authority: authority.to_string(),
            tls: Arc::new(tls),
            headers: Vec::new(),
        }
    }

    /// The same server without a client certificate, for tokens and anonymous requests.
    #[must_use]
    pub fn anonymous(&self, ca: &str) -> Self {
        let tls = builder(ca.as_bytes()).with_no_client_auth();
        Client {
            authority: self.authority.clone(),
            tls: Arc::new(tls),
            headers: Vec::new(),
        }
    }

    /// The same client with another header on every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    async fn send(&self, method: &str, path: &str, media: &str, body: Bytes) -> http::Response<Incoming> {
        let answer = self.try_send(method, path, media, body).await;
        answer.unwrap_or_else(|error| panic!("an answer to {method} {path}: {error}"))
    }

    async fn connect(&self) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let connected = TcpStream::connect(&self.authority).await;
        let stream = connected.map_err(|error| error.to_string())?;
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_string()).expect("a host");
        TlsConnector::from(self.tls.clone())
            .connect(name, stream)
            .await
            .map_err(|error| error.to_string())
    }

    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    async fn try_send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, String> {
        let stream = self.connect().await?;
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let mut request = self.request(method, path);
        if !media.is_empty() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        send.send_request(request.body(Full::new(body)).expect("a request"))
            .await
            .map_err(|error| error.to_string())
    }

    /// Sends a request and gives its answer while the body is still coming.
    pub async fn open(&self, path: &str) -> http::Response<Incoming> {
        self.send("GET", path, "", Bytes::new()).await
    }

    /// Asks for another protocol on the connection.
    ///
    /// # Errors
    /// The answer, where it is not 101.
    pub async fn upgrade(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Upgraded, Answer> {
        let stream = self.connect().await.expect("a connection");
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("a connection");
        tokio::spawn(connection.with_upgrades());
        let mut request = self.request(method, path).header(header::CONNECTION, "Upgrade");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let mut response = send.send_request(request).await.expect("an answer");
        if response.status() != 101 {
            let (head, body) = response.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            return Err(Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                json: serde_json::from_slice(&body).unwrap_or_default(),
                body,
            });
        }
        let io = hyper::upgrade::on(&mut response).await.expect("an upgrade");
        Ok(Upgraded {
            headers: std::mem::take(response.headers_mut()),
            io: TokioIo::new(io),
        })
    }

    /// The same for servers that may not be trusted and answers that may be cut short.
    ///
    /// # Errors
    /// Why there was no answer, or it did not come to its end.
    pub async fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.try_raw("GET", path, "", Bytes::new()).await
    }

    /// POST of JSON to a server that may be away.
    ///
    /// # Errors
    /// Why there was no answer, or it did not come to its end.
    pub async fn try_post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        let body = body.to_string().into();
        self.try_raw("POST", path, "application/json", body).await
    }

    /// Sends a request with a body of any media type to a server that may be away.
    ///
    /// # Errors
    /// Why there was no answer, or it did not come to its end.
    pub async fn try_raw(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<Answer, String> {
        let sent = self.try_send(method, path, media, body).await;
        let (head, body) = sent?.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            json: serde_json::from_slice(&body).unwrap_or_default(),
            body,
        })
    }

    /// Sends a request with a body of any media type.
    pub async fn raw(&self, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> Answer {
        let (head, body) = self.send(method, path, media, body.into()).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        let json = serde_json::from_slice(&body).unwrap_or_default();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            json,
            body,
        }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.raw("GET", path, "", Bytes::new()).await
    }

    /// DELETE without options.
    pub async fn delete(&self, path: &str) -> Answer {
        self.raw("DELETE", path, "", Bytes::new()).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.raw("POST", path, "application/json", body.to_string()).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.raw("PUT", path, "application/json", body.to_string()).await
    }

    /// PATCH: `json-patch+json`, `merge-patch+json`, `strategic-merge-patch+json` or `apply-patch+yaml`.
    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        self.raw("PATCH", path, &format!("application/{kind}"), body.to_string())
            .await
    }

    /// Opens a watch; the path has its query.
    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.send("GET", path, "", Bytes::new()).await;
        assert_eq!(response.status(), 200, "the watch opens");
        Watch {
            body: response.into_body(),
            pending: Vec::new(),
        }
    }
}

impl Answer {
    /// The answer, when it has this code; fails the test otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json
    }
}

impl Watch {
    /// The next event; `None` when the server ends the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            let frame = tokio::time::timeout(crate::PATIENCE, self.body.frame())
                .await
                .expect("an event in time");
            let frame = frame?.ok()?;
            self.pending
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

fn builder(ca: &[u8]) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate.expect("a certificate")).expect("a CA");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots)
}
