//! A client of the main API server: JSON over pooled connections, verified against the kubeconfig's authorities.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::field::clip_text;
use machinery::limits;
use machinery::time::GoDuration;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::Value;

use super::kubeconfig::{Kubeconfig, ServerTrust};
use crate::client::egress::Route;
use crate::client::trust::{TrustedPeers, settings};
use crate::client::{Answer, BearerToken, Fault, Outgoing, fault_of, late, refusal_of};
use crate::request::BoxError;
use crate::version;

/// How long an answer may take, where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a download may be prepared for, which the server bounds (`--request-timeout`); a dead connection is found before.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(10);
/// The longest answer.
const ANSWER_BYTES: usize = 8 << 20;

/// The server (the main one, or a webhook) could not be asked, or said no.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig's certificates cannot be used.
    #[error("unusable credentials: {0}")]
    Credentials(String),
    /// No answer.
    #[error("{}", fault_of(&**.0))]
    Unreachable(BoxError),
    /// The answer took too long.
    #[error("{0}")]
    TimedOut(Fault),
    /// An answer that is no success, and what upstream's client says of it.
    #[error("{1}")]
    Status(StatusCode, String),
}

/// Asks the main server. Clones share connections.
#[derive(Debug, Clone)]
pub struct KubeClient {
    http: Outgoing,
    server: String,
    token: Option<Arc<BearerToken>>,
    /// The `Authorization` of a user with a password.
    basic: Option<HeaderValue>,
    timeout: Duration,
    /// Servers outside the cluster are told the time that they have.
    tells_time: bool,
    user_agent: HeaderValue,
}

impl KubeClient {
    /// A client as a kubeconfig says, whose connections go by `route`.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn new(config: &Kubeconfig, route: &Route) -> Result<Self, ClientError> {
        let token = match &config.token {
            Some(token) => {
                let token = BearerToken::new(token, config.token_file.clone());
                Some(Arc::new(token.map_err(|e| bad(&e))?))
            }
            None => None,
        };
        // An administrator has written the kubeconfig.
        let http = match &config.server_name {
            None => Outgoing::new(tls(config)?, route).map_err(|e| bad(&e))?,
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(|e| bad(&e))?;
                Outgoing::named(tls(config)?, route, name)
            }
        };
        let basic = config.password.as_ref().map(|(user, password)| {
            let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
            let mut value = HeaderValue::try_from(value).map_err(|e| bad(&e))?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(KubeClient {
            http,
            server: config.server.trim_end_matches('/').to_string(),
            token,
            basic: basic.transpose()?,
            timeout: TIMEOUT,
            tells_time: false,
            user_agent: HeaderValue::from_static("extension-apiserver"),
        })
    }

    /// A client of a webhook, which is asked at the URL of the kubeconfig, without its query: as kube-apiserver, with the time that it has.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn of_webhook(config: &Kubeconfig, route: &Route, timeout: Duration) -> Result<Self, ClientError> {
        let client = KubeClient::new(config, route)?;
        let end = client.server.find(['?', '#']).unwrap_or(client.server.len());
        let (os, architecture) = (std::env::consts::OS, version::ARCHITECTURE);
        let agent = format!("kube-apiserver/v{} ({os}/{architecture})", version::KUBERNETES);
        Ok(KubeClient {
            server: client.server[..end].to_string(),
            timeout,
            tells_time: true,
            user_agent: HeaderValue::try_from(agent).map_err(|e| bad(&e))?,
            ..client
        })
    }

    /// The URL of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When the server cannot be asked or does not give it.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.ask(Method::GET, path, None).await
    }

    /// Creates an object (a review), and gives the answer.
    ///
    /// # Errors
    /// When the server cannot be asked or does not take it.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        self.ask(Method::POST, path, Some(object.to_string().into()))
            .await
    }

    /// Sends JSON, whatever the answer says beside its status.
    ///
    /// # Errors
    /// When the server cannot be asked or does not take it.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<(), ClientError> {
        self.ask(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Waits until a watch says something, or ends.
    ///
    /// # Errors
    /// When the server cannot be asked or does not let this server watch.
    pub async fn wait_for_change(&self, path: &str) -> Result<(), ClientError> {
        let mut response = self.begin(path, self.timeout).await?;
        // The first event is enough: waiters read the object again. A dead connection is found by its pings.
        while let Some(bytes) = response.chunk().await.map_err(unreachable)? {
            if !bytes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// An answer whose body is read in pieces, by its `chunk`.
    ///
    /// # Errors
    /// When the server cannot be asked, does not begin to answer in time, or does not give it.
    pub async fn download(&self, path: &str) -> Result<Answer, ClientError> {
        self.begin(path, DOWNLOAD_TIMEOUT).await
    }

    async fn begin(&self, path: &str, patience: Duration) -> Result<Answer, ClientError> {
        let head = tokio::time::timeout(patience, self.send(Method::GET, path, Bytes::new()));
        let answer = head.await.map_err(|_| self.late(&Method::GET, path))??;
        match answer.status().is_success() {
            true => Ok(answer),
            false => {
                let status = answer.status();
                Err(ClientError::Status(status, refusal_of(status.as_u16(), &[])))
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([
            (header::ACCEPT, json.clone()),
            (header::CONTENT_TYPE, json),
            (header::USER_AGENT, self.user_agent.clone()),
        ]);
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.get().await);
        } else if let Some(basic) = &self.basic {
            headers.insert(header::AUTHORIZATION, basic.clone());
        }
        self.http
            .send(method, &self.url(path), headers, body)
            .await
            .map_err(unreachable)
    }

    fn url(&self, path: &str) -> String {
        let server = &self.server;
        if !self.tells_time {
            return format!("{server}{path}");
        }
        let nanos = i64::try_from(self.timeout.as_nanos()).unwrap_or(i64::MAX);
        format!("{server}{path}?timeout={}", GoDuration(nanos))
    }

    fn late(&self, method: &Method, path: &str) -> ClientError {
        ClientError::TimedOut(late(method, &self.url(path)))
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Value, ClientError> {
        let answer = async {
            let sent = self.send(method.clone(), path, body.unwrap_or_default());
            let mut response = sent.await?;
            let mut body = Vec::new();
            while let Some(bytes) = response.chunk().await.map_err(unreachable)? {
                if body.len() + bytes.len() > ANSWER_BYTES {
                    return Err(unreachable("the answer is too long"));
                }
                body.extend_from_slice(&bytes);
            }
            Ok((response.status(), body))
        };
        let (status, body) = tokio::time::timeout(self.timeout, answer)
            .await
            .map_err(|_| self.late(&method, path))??;
        if status.is_success() {
            return Ok(serde_json::from_slice(&body).unwrap_or_default());
        }
        let text = refusal_of(status.as_u16(), &body);
        Err(ClientError::Status(
            status,
            clip_text(limits::SHOWN_VALUE_BYTES, text),
        ))
    }
}

fn unreachable(error: impl Into<BoxError>) -> ClientError {
    ClientError::Unreachable(error.into())
}

fn bad(error: &dyn std::fmt::Display) -> ClientError {
    ClientError::Credentials(error.to_string())
}

/// Trusts the kubeconfig's authorities alone (the system's where it names none), and shows its client certificate. A certificate that is among the authorities itself is trusted as it is,
/// as in Go.
fn tls(config: &Kubeconfig) -> Result<ClientConfig, ClientError> {
    let bundle = match &config.trust {
        ServerTrust::Authorities(pem) => {
            crate::pki::certificates(pem).map_err(|e| bad(&e))?;
            Some(BASE64_STANDARD.encode(pem))
        }
        ServerTrust::System | ServerTrust::Anyone => None,
    };
    let peers = match &bundle {
        Some(bundle) => TrustedPeers::Bundle(bundle),
        None if config.trust == ServerTrust::Anyone => TrustedPeers::Anyone,
        None => TrustedPeers::System,
    };
    let builder = settings(peers).map_err(|why| bad(&why))?;
    match &config.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = crate::pki::certificates(certificate).map_err(|e| bad(&e))?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| bad(&e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| bad(&e))
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::ServerConfig;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server whose certificate says that it is an authority and has signed itself, which is what `openssl req -x509` makes.
    #[tokio::test]
    async fn a_server_may_show_the_very_authority_of_the_kubeconfig() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let provider = Arc::new(crate::crypto::provider());
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that trusts another authority ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}")
                    .await;
                let _ = stream.shutdown().await;
            }
        });
        let client = |ca: String| {
            let config = Kubeconfig {
                server: format!("https://localhost:{port}"),
                trust: ServerTrust::Authorities(ca),
                certificate: None,
                server_name: None,
                token: None,
                token_file: None,
                password: None,
            };
            KubeClient::new(&config, &Route::Direct).expect("a client")
        };
        let answer = client(certificate.pem()).get("/").await.expect("an answer");
        assert_eq!(answer["a"], 1);
        let other = crate::pki::Authority::generate("other").expect("an authority");
        let refused = client(other.certificate.clone()).get("/").await;
        assert!(matches!(refused, Err(ClientError::Unreachable(_))), "{refused:?}");
        serving.abort();
    }
}
