//! A client of one connection: HTTP/2 over TLS with the kubeconfig's certificate.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where the server is and how to talk to it.
#[derive(Clone)]
pub(crate) struct Target {
    authority: String,
    tls: Arc<rustls::ClientConfig>,
    /// The header of a bearer token.
    authorization: Option<http::HeaderValue>,
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Client {
    authority: Arc<str>,
    /// The header of a bearer token.
    authorization: Option<http::HeaderValue>,
    send: SendRequest<Full<Bytes>>,
}

impl Target {
    /// Reads a kubeconfig: the current context's server, authority and client certificate, embedded or in files.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read(path)?;
        let config = machinery::codec::yaml::decode(&text)
            .map_err(|e| e.to_string())?
            .value;
        let named = |list: &str, name: &str, key: &str| -> Option<Value> {
            let items = config.get(list)?.as_array()?;
            let item = items
                .iter()
                .find(|i| i.get("name").and_then(Value::as_str) == Some(name))?;
            item.get(key).cloned()
        };
        let current = config
            .get("current-context")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let context = named("contexts", current, "context").ok_or("no current context")?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(String::from);
        let cluster = text(&context, "cluster")
            .and_then(|n| named("clusters", &n, "cluster"))
            .ok_or("no cluster")?;
        let user = text(&context, "user")
            .and_then(|n| named("users", &n, "user"))
            .ok_or("no user")?;
        let data = |from: &Value, key: &str| -> Result<Vec<u8>, Error> {
            if let Some(data) = text(from, &format!("{key}-data")) {
                return Ok(base64::engine::general_purpose::STANDARD.decode(data)?);
            }
            let file = text(from, key).ok_or_else(|| format!("the kubeconfig has no {key}"))?;
            Ok(std::fs::read(path.parent().unwrap_or(Path::new(".")).join(file))?)
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&data(&cluster, "certificate-authority")?) {
            roots.add(certificate?)?;
        }
        let chain = CertificateDer::pem_slice_iter(&data(&user, "client-certificate")?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&data(&user, "client-key")?)?;
        let mut tls = config_builder()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let server = text(&cluster, "server").ok_or("no server")?;
        let authority = server
            .trim_start_matches("https://")
            .trim_end_matches('/')
            .to_string();
        Ok(Target {
            authority,
            tls: Arc::new(tls),
            authorization: None,
        })
    }

    /// The same server for who has this token, without the client certificate.
    pub(crate) fn with_token(&self, token: &str) -> Result<Self, Error> {
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.client_auth_cert_resolver = Arc::new(NoCertificate);
        // A resumed session would be that of the certificate.
        tls.resumption = rustls::client::Resumption::disabled();
        let mut authorization = http::HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        Ok(Target {
            authority: self.authority.clone(),
            tls: Arc::new(tls),
            authorization: Some(authorization),
        })
    }

    /// Another server with the same credentials; its certificate is not verified.
    pub(crate) fn at(mut self, server: &str) -> Self {
        self.authority = server
            .trim_start_matches("https://")
            .trim_end_matches('/')
            .to_string();
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.dangerous().set_certificate_verifier(Arc::new(Anyone));
        self.tls = Arc::new(tls);
        self
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string())?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let (send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(64 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Client {
            authority: self.authority.as_str().into(),
            authorization: self.authorization.clone(),
            send,
        })
    }
}

fn config_builder() -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
}

impl Client {
    /// Sends a request and gives the answer's head; the body streams.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        self.open_as(method, path, "application/json", media, body).await
    }

    async fn open_as(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        media: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        self.sent(self.request(method, path, accept, media, body)?).await
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        media: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header(header::USER_AGENT, "bench/1")
            .header(header::ACCEPT, accept);
        if !media.is_empty() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        Ok(request.body(Full::new(body))?)
    }

    async fn sent(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let mut send = self.send.clone();
        send.ready().await?;
        Ok(send.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer; gives the status code and the body's length.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<(u16, usize), Error> {
        self.call_as(method, path, "application/json", media, body).await
    }

    /// Sends a request and reads its answer as JSON.
    pub(crate) async fn json(&self, method: &str, path: &str, body: Bytes) -> Result<Value, Error> {
        let response = self.open(method, path, "application/json", body).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// The same, for an answer of this media type.
    pub(crate) async fn call_as(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        media: &str,
        body: Bytes,
    ) -> Result<(u16, usize), Error> {
        counted(self.open_as(method, path, accept, media, body).await?).await
    }

    /// Reads what is at a path in a form and an encoding (none when empty); gives the status code and the length as it was sent.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        accept: &str,
        encoding: &str,
    ) -> Result<(u16, usize), Error> {
        let mut request = self.request("GET", path, accept, "", Bytes::new())?;
        if !encoding.is_empty() {
            let encoding = http::HeaderValue::from_str(encoding)?;
            request.headers_mut().insert(header::ACCEPT_ENCODING, encoding);
        }
        counted(self.sent(request).await?).await
    }

    /// Calls on behalf of another user, as an administrator may.
    pub(crate) async fn call_for(
        &self,
        user: &str,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<(u16, usize), Error> {
        let mut request = self.request(method, path, "application/json", media, body)?;
        let user = http::HeaderValue::from_str(user)?;
        request.headers_mut().insert("impersonate-user", user);
        counted(self.sent(request).await?).await
    }
}

/// Reads an answer to its end; gives its code and its length.
async fn counted(response: Response<Incoming>) -> Result<(u16, usize), Error> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok((status, length))
}

/// Whether `/readyz` answers 200. Verifies nothing: it looks for a sign of life, and sends no credential.
pub(crate) async fn answers_ready(url: &str) -> bool {
    let authority = url
        .trim_start_matches("https://")
        .trim_end_matches('/')
        .to_string();
    let attempt = async {
        let stream = TcpStream::connect(&authority).await?;
        let mut tls = config_builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
        let (send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let client = Client {
            authority: authority.as_str().into(),
            authorization: None,
            send,
        };
        client.call("GET", "/readyz", "", Bytes::new()).await
    };
    matches!(attempt.await, Ok::<_, Error>((200, _)))
}

/// Shows no certificate.
#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Takes any certificate.
#[derive(Debug)]
struct Anyone;

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
