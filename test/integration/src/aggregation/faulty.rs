//! A backend that sends scripted bytes, which no HTTP library would send.

use std::sync::Arc;

use generic_server::pki::{Authority, Issued};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One thing that it does with a request.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sends these bytes.
    Say(Vec<u8>),
    /// Sends these bytes again and again until the other side has had enough.
    Forever(&'static [u8]),
    /// Says nothing more until the other side gives up.
    Stall,
    /// Echoes its input.
    Echo,
}

/// The steps for a request, by its path and its whole head in lower case. The connection ends afterwards.
pub(super) type Script = Arc<dyn Fn(&str, &str) -> Vec<Step> + Send + Sync>;

/// The running backend; it ends with the value.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A whole answer.
pub(super) fn answer(status: &str, body: &str) -> Vec<Step> {
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    vec![Step::Say(text.into_bytes())]
}

/// A server certificate with its key.
pub(super) fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(server_config(certificate, key, None)))
}

/// The same, for clients that must be known.
pub(super) fn server_config(
    certificate: &str,
    key: &str,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> rustls::ServerConfig {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_single_cert(chain, key)
        .expect("a pair")
}

/// A certificate of `authority` for the service `default/NAME`.
pub(super) fn issued(authority: &Authority, service: &str) -> Issued {
    authority
        .server(service, &[format!("{service}.default.svc")])
        .expect("a certificate")
}

impl Faulty {
    /// One with a certificate for the service `default/NAME`.
    pub(super) async fn start(authority: &Authority, service: &str, script: Script) -> Self {
        let issued = issued(authority, service);
        Self::with(Some(acceptor(&issued.certificate, &issued.key)), script).await
    }

    /// One with any certificate, or without TLS.
    pub(super) async fn with(acceptor: Option<TlsAcceptor>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, script) = (acceptor.clone(), script.clone());
                tokio::spawn(async move {
                    match acceptor {
                        // A client that speaks TLS to it gets HTTP.
                        None => {
                            let mut stream = stream;
                            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                            let _ = stream.read(&mut [0; 4096]).await;
                        }
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                converse(stream, &script).await;
                            }
                        }
                    }
                });
            }
        });
        Faulty { port, task }
    }
}

/// One request. Whoever hangs up early does not want the rest, so that failed writes end it quietly.
async fn converse(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, script: &Script) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let target = text.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    for step in script(path, &text.to_ascii_lowercase()) {
        let done = match step {
            Step::Say(bytes) => stream.write_all(&bytes).await,
            Step::Forever(bytes) => loop {
                if let Err(error) = stream.write_all(bytes).await {
                    break Err(error);
                }
                tokio::task::yield_now().await;
            },
            Step::Stall => stream.read(&mut buffer).await.map(|_| ()),
            Step::Echo => loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => break Ok(()),
                    Ok(n) => {
                        if let Err(error) = stream.write_all(&buffer[..n]).await {
                            break Err(error);
                        }
                    }
                    Err(error) => break Err(error),
                }
            },
        };
        if done.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}
