//! An HTTP proxy that joins connections by CONNECT, on a port or on a Unix socket.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use generic_server::pki::{Authority, Issued};
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A proxy on this machine; it ends when it is dropped. Every name that ends in `.invalid` is this machine to it; `refused.invalid` is
/// answered with 403.
#[derive(Debug)]
pub struct ConnectProxy {
    port: u16,
    authority: Authority,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConnectProxy {
    /// Starts one on a free port, which wants client certificates of its authority.
    pub async fn start() -> Self {
        let authority = Authority::generate("proxies").expect("an authority");
        let acceptor = acceptor(&authority);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                serving.spawn(async move {
                    // A client without a certificate is not served.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        join(stream, &seen).await;
                    }
                });
            }
        });
        ConnectProxy {
            port,
            authority,
            asked,
            task,
        }
    }

    /// Starts one on a Unix socket, in plain text.
    pub fn on_socket(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                serving.spawn(async move { join(stream, &seen).await });
            }
        });
        ConnectProxy {
            port: 0,
            authority: Authority::generate("proxies").expect("an authority"),
            asked,
            task,
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The servers that it was asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// Writes its authority, and a client's certificate and key, into a directory.
    pub fn write_client(&self, directory: &Path) -> [PathBuf; 3] {
        let client: Issued = self
            .authority
            .client("kube-apiserver", "")
            .expect("a certificate");
        let write = |name: &str, text: &str| {
            let file = directory.join(name);
            std::fs::write(&file, text).expect("a file");
            file
        };
        [
            write("proxy-ca.crt", &self.authority.certificate),
            write("proxy-client.crt", &client.certificate),
            write("proxy-client.key", &client.key),
        ]
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let issued = authority
        .server("localhost", &["localhost".to_string()])
        .expect("a certificate");
    let chain = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("certificates")
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(chain(&authority.certificate));
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .expect("a verifier");
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(&issued.certificate), key)
        .expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}

/// Reads the request of a client and joins it with the server that it names.
async fn join(mut client: impl AsyncRead + AsyncWrite + Unpin, asked: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head);
    let authority = head.split(' ').nth(1).unwrap_or_default();
    asked.lock().push(authority.to_string());
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "443"));
    let answer = match host {
        "refused.invalid" => Err("403 Forbidden"),
        host if host.ends_with(".invalid") => TcpStream::connect(format!("127.0.0.1:{port}"))
            .await
            .map_err(|_| "502 Bad Gateway"),
        _ => TcpStream::connect(authority).await.map_err(|_| "502 Bad Gateway"),
    };
    let status = answer.as_ref().err().unwrap_or(&"200 Connection established");
    let sent = client
        .write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes())
        .await;
    if let (Ok(()), Ok(mut server)) = (sent, answer) {
        // Either side may end at any time.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
