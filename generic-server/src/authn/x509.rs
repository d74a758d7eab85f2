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
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

use super::{Authenticator, Verdict};
use crate::crypto::Version1;
use crate::metrics::{Collect, Histogram, family};
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
    /// Certificates that may issue others.
    authorities: Vec<CertificateDer<'static>>,
    /// By all of them, if there is one.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Those that stand for themselves alone.
    pinned: Vec<CertificateDer<'static>>,
    /// When all of the authorities are valid.
    valid: (i64, i64),
    known: WebPkiSupportedAlgorithms,
}

impl Anchors {
    fn new(certificates: &[CertificateDer<'static>]) -> Result<Anchors, AuthoritiesError> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let mut valid = (i64::MIN, i64::MAX);
        let (mut authorities, mut pinned) = (Vec::new(), Vec::new());
        for certificate in certificates {
            if !may_issue(certificate)? {
                pinned.push(certificate.clone());
                continue;
            }
            let (from, to) = validity(certificate)?;
            valid = (valid.0.max(from), valid.1.min(to));
            authorities.push(certificate.clone());
        }
        Ok(Anchors {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            verifier: verifier(&authorities)?,
            authorities,
            pinned,
            valid,
            known: crate::crypto::provider().signature_verification_algorithms,
        })
    }

    /// Whether one of the authorities that are valid now has issued this certificate, and it is valid itself.
    fn verify(&self, leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), String> {
        let now = UnixTime::now();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if let Some(pinned) = self.pinned.iter().find(|pinned| *pinned == leaf) {
            let alone = verifier(std::slice::from_ref(pinned)).map_err(|error| error.to_string())?;
            return self.verify_by(&[], alone.as_deref(), leaf, intermediates, now);
        }
        if self.valid.0 <= seconds && seconds <= self.valid.1 {
            return self.verify_by(
                &self.authorities,
                self.verifier.as_deref(),
                leaf,
                intermediates,
                now,
            );
        }
        // Trust anchors have no validity for webpki.
        let is_valid = |authority: &&CertificateDer<'static>| {
            validity(authority).is_ok_and(|(from, to)| from <= seconds && seconds <= to)
        };
        let valid: Vec<_> = self.authorities.iter().filter(is_valid).cloned().collect();
        if valid.is_empty() {
            return Err("certificate of the authority has expired or is not yet valid".into());
        }
        let verifier = verifier(&valid).map_err(|error| error.to_string())?;
        self.verify_by(&valid, verifier.as_deref(), leaf, intermediates, now)
    }

    fn verify_by(
        &self,
        authorities: &[CertificateDer<'_>],
        verifier: Option<&dyn ClientCertVerifier>,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        if let Some(old) = Version1::read(leaf) {
            let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            let now = ASN1Time::from_timestamp(seconds).map_err(|error| error.to_string())?;
            return Ok(old.verify(authorities, &self.known, now)?);
        }
        let Some(verifier) = verifier else {
            return Err("certificate signed by unknown authority".into());
        };
        verifier
            .verify_client_cert(leaf, intermediates, now)
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

/// The first and the last second of a certificate.
fn validity(certificate: &CertificateDer<'_>) -> Result<(i64, i64), AuthoritiesError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| AuthoritiesError(error.to_string()))?;
    let validity = parsed.validity();
    Ok((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// Whether a certificate of a bundle is that of an authority. webpki would take any; upstream, those of version 1, and those that say so.
fn may_issue(certificate: &CertificateDer<'_>) -> Result<bool, AuthoritiesError> {
    let unreadable = |error: &dyn std::fmt::Display| AuthoritiesError(error.to_string());
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| unreadable(&error))?;
    let usage = parsed.key_usage().map_err(|error| unreadable(&error))?;
    let signs = usage.is_none_or(|usage| usage.value.key_cert_sign());
    Ok(parsed.version() == X509Version::V1 || (parsed.is_ca() && signs))
}

/// `None` without authorities.
fn verifier(
    authorities: &[CertificateDer<'static>],
) -> Result<Option<Arc<dyn ClientCertVerifier>>, AuthoritiesError> {
    if authorities.is_empty() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| AuthoritiesError(error.to_string()))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(crate::crypto::provider()))
            .build()
            .map_err(|error| AuthoritiesError(error.to_string()))?;
    Ok(Some(verifier))
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
        let anchors = match certificates {
            [] => None,
            some => Some(Arc::new(Anchors::new(some)?)),
        };
        self.0.store(anchors);
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
            .verify(leaf, intermediates)
            .map_err(|e| Arc::from(format!("verifying certificate failed: {e}")))
            .and_then(|()| identity(leaf).map(Arc::new).map_err(Arc::from));
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
    identity.not_after = parsed.validity().not_after.timestamp();
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
    /// How long the certificates of requests are still valid.
    remaining: Histogram,
}

/// Upstream's, from half an hour to a year.
const REMAINING: &[f64] = &[
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

impl X509 {
    /// With these authorities.
    pub fn new(authorities: Arc<ClientAuthorities>) -> Self {
        X509 {
            authorities,
            remaining: Histogram::new(REMAINING),
        }
    }
}

impl Collect for X509 {
    fn collect(&self, out: &mut String) {
        let name = "apiserver_client_certificate_expiration_seconds";
        let help =
            "Distribution of the remaining lifetime on the certificate used to authenticate a request.";
        family(out, name, "histogram", help);
        self.remaining.write(out, name, &[]);
    }
}

#[async_trait::async_trait]
impl Authenticator for X509 {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        let Some(connection) = head.extensions.get::<Arc<ConnectionInfo>>() else {
            return Verdict::NotRequested;
        };
        let verified = self.authorities.verify(connection);
        let not_after = match &verified {
            Some(Ok(who)) => Some(who.not_after),
            Some(Err(_)) => {
                let shown = connection.client_certificates.first();
                shown.and_then(|shown| validity(shown).ok()).map(|(_, end)| end)
            }
            None => None,
        };
        if let Some(not_after) = not_after {
            let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
            let left = u64::try_from(not_after.saturating_sub(now)).unwrap_or_default();
            self.remaining.observe(Duration::from_secs(left));
        }
        match verified {
            None => Verdict::NotRequested,
            Some(Err(why)) => Verdict::Failed((*why).into()),
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

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::pki::{Authority, certificates};

    #[test]
    fn an_authority_that_is_not_valid_any_more_verifies_nothing() {
        let long_ago = OffsetDateTime::now_utc() - time::Duration::days(100 * 365);
        let over = Authority::generate_at(long_ago, "over").unwrap();
        let valid = Authority::generate("valid").unwrap();
        let trusted = |authorities: &[&Authority]| {
            let pem: String = authorities.iter().map(|one| one.certificate.as_str()).collect();
            ClientAuthorities::new(&certificates(&pem).unwrap()).unwrap()
        };
        let verify = |authorities: &ClientAuthorities, issuer: &Authority| {
            let shown = issuer.client("jane", "").unwrap();
            let shown = certificates(&shown.certificate).unwrap();
            let connection = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), shown);
            authorities
                .verify(&connection)
                .unwrap()
                .map(|who| who.common_name.clone())
        };
        let both = trusted(&[&over, &valid]);
        assert_eq!(verify(&both, &valid), Ok("jane".into()));
        assert!(verify(&both, &over).is_err());
        let refused = verify(&trusted(&[&over]), &over).unwrap_err();
        assert!(refused.contains("has expired or is not yet valid"), "{refused}");
    }

    /// A user's certificate in the bundle is that user, and issues none.
    #[test]
    fn a_certificate_that_is_no_authority_stands_for_itself() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        let jane = params.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        let mut others = rcgen::CertificateParams::default();
        others.distinguished_name.push(rcgen::DnType::CommonName, "admin");
        let other = others
            .signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer)
            .unwrap();
        let trusted = ClientAuthorities::new(&[jane.der().clone()]).unwrap();
        let verify = |shown: &rcgen::Certificate| {
            let shown = vec![shown.der().clone()];
            let connection = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), shown);
            trusted
                .verify(&connection)
                .unwrap()
                .map(|who| who.common_name.clone())
        };
        assert_eq!(verify(&jane), Ok("jane".into()));
        let refused = verify(&other).unwrap_err();
        assert!(refused.contains("signed by unknown authority"), "{refused}");
    }
}
