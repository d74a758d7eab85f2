//! The facts of a request's connection: its peer, and the certificates of the client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use machinery::limits;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

/// The facts of a request's connection. In the request's extensions as `Arc<ConnectionInfo>`.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// The certificates that the client showed, its own first. *Not verified*: the x509 authenticators do that.
    pub client_certificates: Vec<CertificateDer<'static>>,
    /// The verdicts of verifiers, so that each connection pays once.
    pub(crate) verdicts: Mutex<Vec<CachedVerdict>>,
    pub(crate) closing: CancellationToken,
    /// Static files that were asked for without credentials.
    static_files: AtomicU32,
}

impl ConnectionInfo {
    /// A connection from an address with what the client showed of itself.
    pub fn new(peer: SocketAddr, client_certificates: Vec<CertificateDer<'static>>) -> Self {
        ConnectionInfo {
            peer,
            client_certificates,
            verdicts: Mutex::default(),
            closing: CancellationToken::new(),
            static_files: AtomicU32::new(0),
        }
    }

    /// Counts a static file that is asked for without credentials, and says whether the connection may go on after it.
    pub(crate) fn takes_static(&self) -> bool {
        self.static_files.fetch_add(1, Ordering::Relaxed) < limits::STATIC_FILES
    }

    /// Whether the client has shown a certificate, good or not.
    pub(crate) fn has_certificate(&self) -> bool {
        !self.client_certificates.is_empty()
    }

    /// Asks for the connection to end once its requests are answered: GOAWAY on HTTP/2, `Connection: close` on HTTP/1.1.
    pub fn close_when_idle(&self) {
        self.closing.cancel();
    }
}

/// The identity in a verified certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The subject's last common name, or empty.
    pub common_name: String,
    /// The subject's organizations.
    pub organizations: Vec<String>,
    /// The subject's Kubernetes user id (OID 1.3.6.1.4.1.57683.2), or empty.
    pub uid: String,
    /// `X509SHA256=` and the hexadecimal hash of the certificate.
    pub credential_id: String,
    /// The last second of the certificate, since 1970.
    pub not_after: i64,
}

/// The verdict of a verifier on a connection's certificate.
#[derive(Debug, Clone)]
pub(crate) struct CachedVerdict {
    /// Of the bundle of authorities that it was verified against.
    pub(crate) generation: u64,
    pub(crate) until: Instant,
    pub(crate) found: Result<Arc<CertificateIdentity>, Arc<str>>,
}
