//! Client certificates: verified against a bundle of authorities that can be replaced while serving; the common name is the
//! user, the organizations are the groups.
//!
//! The TLS layer has shown that the client holds the key; whether the certificate means anything is decided here. Mirrors
//! upstream's `authentication/request/x509`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::request::Parts;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{Authenticator, Verdict};
use crate::request::{CachedVerdict, CertificateIdentity, ConnectionInfo, User};

/// How long a connection's certificate is taken as verified before it is looked at again: a certificate that expires, or an
/// authority that is taken out, counts after this at the latest.
const VERDICT_LIFETIME: Duration = Duration::from_secs(10);

/// A bundle of authorities that client certificates are verified against. Empty until loaded: then it has no opinion.
#[derive(Debug, Default)]
pub struct ClientAuthorities(ArcSwapOption<Anchors>);

#[derive(Debug)]
struct Anchors {
    /// Unique per bundle in this process, so that cached verdicts of an older bundle do not count.
    generation: u64,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("unusable client certificate authorities: {0}")]
pub struct AuthoritiesError(String);

impl ClientAuthorities {
    /// A bundle of these certificates.
    ///
    /// # Errors
    /// When one of them cannot be a trust anchor.
    pub fn new(certificates: &[CertificateDer<'static>]) -> Result<Self, AuthoritiesError> {
        let authorities = ClientAuthorities::default();
        authorities.reload(certificates)?;
        Ok(authorities)
    }

    /// Replaces the bundle; an empty one verifies no certificate. Fail-closed: when it cannot be used the old one stays.
    ///
    /// # Errors
    /// When a certificate cannot be a trust anchor.
    pub fn reload(&self, certificates: &[CertificateDer<'static>]) -> Result<(), AuthoritiesError> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        if certificates.is_empty() {
            self.0.store(None);
            return Ok(());
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots
                .add(certificate.clone())
                .map_err(|e| AuthoritiesError(e.to_string()))?;
        }
        let provider = Arc::new(crate::crypto::provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| AuthoritiesError(e.to_string()))?;
        self.0.store(Some(Arc::new(Anchors {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            verifier,
        })));
        Ok(())
    }

    /// Verifies what a connection's client showed. `None` when it showed nothing or nothing is loaded.
    pub(crate) fn verify(
        &self,
        connection: &ConnectionInfo,
    ) -> Option<Result<Arc<CertificateIdentity>, Arc<str>>> {
        let (leaf, intermediates) = connection.client_certificates.split_first()?;
        let anchors = self.0.load_full()?;
        let now = Instant::now();
        let mut cached = connection.verdicts.lock();
        if let Some(hit) = cached
            .iter()
            .find(|v| v.generation == anchors.generation && v.until > now)
        {
            return Some(hit.found.clone());
        }
        let found = anchors
            .verifier
            .verify_client_cert(leaf, intermediates, UnixTime::now())
            .map_err(|e| Arc::from(format!("verifying certificate failed: {e}")))
            .and_then(|_| identity(leaf).map(Arc::new).map_err(Arc::from));
        cached.retain(|v| v.generation != anchors.generation && v.until > now);
        cached.push(CachedVerdict {
            generation: anchors.generation,
            until: now + VERDICT_LIFETIME,
            found: found.clone(),
        });
        Some(found)
    }
}

fn identity(certificate: &CertificateDer<'_>) -> Result<CertificateIdentity, String> {
    const COMMON_NAME: &str = "2.5.4.3";
    const ORGANIZATION: &str = "2.5.4.10";
    const KUBERNETES_UID: &str = "1.3.6.1.4.1.57683.2";
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|e| format!("cannot read the certificate: {e}"))?;
    let mut identity = CertificateIdentity::default();
    for attribute in parsed.subject().iter_attributes() {
        let Ok(value) = attribute.as_str() else { continue };
        match attribute.attr_type().to_id_string().as_str() {
            COMMON_NAME => identity.common_name = value.into(),
            ORGANIZATION => identity.organizations.push(value.into()),
            KUBERNETES_UID if !identity.uid.is_empty() => {
                return Err("expected 1 UID, but found multiple".into());
            }
            KUBERNETES_UID if value.is_empty() => return Err("UID cannot be an empty string".into()),
            KUBERNETES_UID => identity.uid = value.into(),
            _ => {}
        }
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    identity.credential_id = digest
        .as_ref()
        .iter()
        .fold(String::from("X509SHA256="), |mut out, byte| {
            use std::fmt::Write;
            let _ = write!(out, "{byte:02x}");
            out
        });
    Ok(identity)
}

/// Authenticates users by their client certificate.
#[derive(Debug)]
pub struct X509 {
    authorities: Arc<ClientAuthorities>,
}

impl X509 {
    /// With these authorities.
    pub fn new(authorities: Arc<ClientAuthorities>) -> Self {
        X509 { authorities }
    }
}

#[async_trait::async_trait]
impl Authenticator for X509 {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        let Some(connection) = head.extensions.get::<Arc<ConnectionInfo>>() else {
            return Verdict::NotRequested;
        };
        match self.authorities.verify(connection) {
            None => Verdict::NotRequested,
            Some(Err(why)) => Verdict::Failed(why.to_string()),
            Some(Ok(who)) if who.common_name.is_empty() => Verdict::NotRequested,
            Some(Ok(who)) => Verdict::User(User {
                name: who.common_name.clone(),
                uid: who.uid.clone(),
                groups: who.organizations.clone(),
                extra: [(
                    "authentication.kubernetes.io/credential-id".to_string(),
                    vec![who.credential_id.clone()],
                )]
                .into(),
                notes: None,
            }),
        }
    }
}
