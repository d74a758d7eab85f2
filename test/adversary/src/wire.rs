//! How attacks talk to the server: whole requests over connections of their own, and bytes that no library would send.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Error;

/// Bytes of an answer that are kept; the others are counted.
const KEPT: usize = 1 << 20;

/// A server and the ways to it.
#[derive(Debug, Clone)]
pub struct Target {
    authority: String,
    admin: Arc<rustls::ClientConfig>,
    nobody: Arc<rustls::ClientConfig>,
}

/// On whose behalf a request is sent.
#[derive(Debug, Clone)]
pub enum Credential {
    /// The kubeconfig's.
    Admin,
    /// None.
    Anonymous,
    /// A bearer token.
    Token(String),
}

/// One request.
#[derive(Debug, Clone)]
pub struct Shot {
    method: &'static str,
    path: String,
    credential: Credential,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// One answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// The code; 0 where the connection ended without one.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// How long the body is.
    pub bytes: usize,
    /// Its beginning.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Shot {
    /// GET.
    pub fn get(path: impl Into<String>) -> Self {
        Self::of("GET", path)
    }

    /// Any method without a body.
    pub fn of(method: &'static str, path: impl Into<String>) -> Self {
        Shot {
            method,
            path: path.into(),
            credential: Credential::Admin,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// POST of JSON.
    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::of("POST", path).body("application/json", body.to_string())
    }

    /// PATCH of this kind: `json-patch+json` and so on.
    pub fn patch(path: impl Into<String>, kind: &str, body: impl Into<Bytes>) -> Self {
        Self::of("PATCH", path).body(&format!("application/{kind}"), body)
    }

    /// The same on behalf of a user.
    #[must_use]
    pub fn by(mut self, credential: &Credential) -> Self {
        self.credential = credential.clone();
        self
    }

    /// The same with another header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, media: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", media)
    }

    fn request(self, authority: &str) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(header::HOST, authority)
            .header(header::USER_AGENT, "adversary/1");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Credential::Token(token) = self.credential {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(request.body(Full::new(self.body))?)
    }
}

impl Target {
    /// The server of a kubeconfig with a client certificate, embedded or in files.
    ///
    /// # Errors
    /// When the file is none, or has no such certificate.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&std::fs::read(path)?, path.parent().unwrap_or(Path::new(".")))
    }

    /// The same from its text.
    ///
    /// # Errors
    /// As there.
    pub fn parse(text: &[u8], beside: &Path) -> Result<Self, Error> {
        let config = machinery::codec::yaml::decode(text)
            .map_err(|e| e.to_string())?
            .value;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let data = |from: &Value, key: &str| -> Result<Vec<u8>, Error> {
            if let Some(data) = from[format!("{key}-data")].as_str() {
                return Ok(base64::engine::general_purpose::STANDARD.decode(data)?);
            }
            let file = from[key]
                .as_str()
                .ok_or_else(|| format!("the kubeconfig has no {key}"))?;
            Ok(std::fs::read(beside.join(file))?)
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&data(cluster, "certificate-authority")?) {
            roots.add(certificate?)?;
        }
        let chain = CertificateDer::pem_slice_iter(&data(user, "client-certificate")?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&data(user, "client-key")?)?;
        let builder = || -> Result<_, Error> {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            Ok(rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots.clone()))
        };
        let server = cluster["server"].as_str().ok_or("no server")?;
        Ok(Target {
            authority: server
                .trim_start_matches("https://")
                .trim_end_matches('/')
                .to_string(),
            admin: Arc::new(builder()?.with_client_auth_cert(chain, key)?),
            nobody: Arc::new(builder()?.with_no_client_auth()),
        })
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A connection without TLS.
    ///
    /// # Errors
    /// When nothing listens.
    pub async fn tcp(&self) -> Result<TcpStream, Error> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection with TLS and without a request yet, for these protocols.
    ///
    /// # Errors
    /// When there is none.
    pub async fn tls(&self, who: &Credential, protocols: &[&str]) -> Result<TlsStream<TcpStream>, Error> {
        let config = match who {
            Credential::Admin => &self.admin,
            _ => &self.nobody,
        };
        let mut config = rustls::ClientConfig::clone(config);
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string())?;
        Ok(TlsConnector::from(Arc::new(config))
            .connect(name, self.tcp().await?)
            .await?)
    }

    /// An HTTP/1.1 connection.
    ///
    /// # Errors
    /// When there is none.
    pub async fn connect(&self, who: &Credential) -> Result<SendRequest<Full<Bytes>>, Error> {
        let stream = self.tls(who, &["http/1.1"]).await?;
        let (send, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(4 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(send)
    }

    /// Sends a request and gives the answer's head; nothing of the body is read.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn open(&self, shot: Shot) -> Result<http::Response<Incoming>, Error> {
        let mut send = self.connect(&shot.credential).await?;
        Ok(send.send_request(shot.request(&self.authority)?).await?)
    }

    /// Sends a request over a connection of its own. A connection that ends without an answer has the code 0.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn send(&self, shot: Shot) -> Result<Answer, Error> {
        let mut send = self.connect(&shot.credential).await?;
        self.send_over(&mut send, shot).await
    }

    /// The same over a connection that is there.
    ///
    /// # Errors
    /// When the request is none.
    pub async fn send_over(&self, send: &mut SendRequest<Full<Bytes>>, shot: Shot) -> Result<Answer, Error> {
        let request = shot.request(&self.authority)?;
        if send.ready().await.is_err() {
            return Ok(Answer::default());
        }
        let Ok(response) = send.send_request(request).await else {
            return Ok(Answer::default());
        };
        let (head, mut body) = response.into_parts();
        let (mut kept, mut bytes) = (BytesMut::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Ok(Answer::default());
            };
            let data = frame.data_ref().map_or(&[][..], |d| d);
            bytes += data.len();
            if kept.len() < KEPT {
                kept.extend_from_slice(data);
            }
        }
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            bytes,
            body: kept.freeze(),
        })
    }

    /// Sends bytes as they are and reads until the end, or for a while; the code is that of the first line.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn raw(&self, who: &Credential, bytes: &[u8], patience: Duration) -> Result<Answer, Error> {
        let mut stream = self.tls(who, &["http/1.1"]).await?;
        let mut read = Vec::new();
        // A server that refuses early may close before everything has been written.
        let written = stream.write_all(bytes).await;
        let conversation = async {
            let mut buffer = [0; 16 * 1024];
            while let Ok(n) = stream.read(&mut buffer).await {
                if n == 0 {
                    break;
                }
                read.extend_from_slice(&buffer[..n]);
            }
        };
        let ended = tokio::time::timeout(patience, conversation).await.is_ok();
        let text = String::from_utf8_lossy(&read);
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_default();
        if status == 0 && !ended && written.is_ok() {
            return Err("no answer, and the connection stays open".into());
        }
        Ok(Answer {
            status,
            headers: HeaderMap::new(),
            bytes: read.len(),
            body: read.into(),
        })
    }
}
