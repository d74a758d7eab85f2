//! Server certificates that no client takes any more: without a subject alternative name, or signed with SHA-1. They are refused in the words
//! of Go's client, and counted under upstream's names (`x509metrics`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use machinery::go::quote;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, Error, OtherError};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metrics::{Collect, family, sample};

const SHA1_WITH_RSA: &str = "1.2.840.113549.1.1.5";
const ECDSA_WITH_SHA1: &str = "1.2.840.10045.4.1";

/// Counts such certificates.
#[derive(Debug)]
pub struct DeprecatedCertificates {
    /// `webhooks` or `kube_aggregator`.
    subsystem: &'static str,
    missing_san: AtomicU64,
    sha1: AtomicU64,
}

impl DeprecatedCertificates {
    /// Counts for the servers of `subsystem`, as metrics name it.
    pub fn new(subsystem: &'static str) -> Arc<Self> {
        Arc::new(DeprecatedCertificates {
            subsystem,
            missing_san: AtomicU64::new(0),
            sha1: AtomicU64::new(0),
        })
    }

    pub(super) fn count(&self, what: &Deprecated) {
        let count = match what {
            Deprecated::CommonName => &self.missing_san,
            Deprecated::Sha1 { .. } => &self.sha1,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for DeprecatedCertificates {
    fn collect(&self, out: &mut String) {
        for (what, help, count) in [
            (
                "missing_san",
                "Connections refused because the server's certificate has no subject alternative name.",
                &self.missing_san,
            ),
            (
                "insecure_sha1",
                "Connections refused because the server's certificate is signed with SHA-1.",
                &self.sha1,
            ),
        ] {
            let name = format!("apiserver_{}_x509_{what}_total", self.subsystem);
            family(out, &name, "counter", help);
            sample(out, &name, &[], count.load(Ordering::Relaxed));
        }
    }
}

/// Why a certificate is refused. Shown as Go's `x509` says it, without its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deprecated {
    /// It names its server in the common name alone.
    CommonName,
    /// It is signed with SHA-1, by this authority.
    Sha1 { algorithm: &'static str, issuer: String },
}

impl fmt::Display for Deprecated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deprecated::CommonName => {
                f.write_str("certificate relies on legacy Common Name field, use SANs instead")
            }
            Deprecated::Sha1 { algorithm, issuer } => {
                let cause = quote(&format!(
                    "x509: cannot verify signature: insecure algorithm {algorithm}"
                ));
                let issuer = quote(issuer);
                write!(
                    f,
                    "certificate signed by unknown authority (possibly because of {cause} while trying to verify candidate authority certificate {issuer})"
                )
            }
        }
    }
}

impl std::error::Error for Deprecated {}

impl From<Deprecated> for Error {
    fn from(what: Deprecated) -> Self {
        CertificateError::Other(OtherError(Arc::new(what))).into()
    }
}

/// What is deprecated about the certificates of a server that was refused for `error`.
pub(super) fn of_refused(
    error: &Error,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    name: &ServerName<'_>,
) -> Option<Deprecated> {
    use CertificateError as Bad;
    let Error::InvalidCertificate(error) = error else {
        return None;
    };
    match error {
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            let (_, parsed) = X509Certificate::from_der(end_entity).ok()?;
            let is_without_names = matches!(parsed.subject_alternative_name(), Ok(None));
            let common_name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
            (is_without_names && matches_host(common_name, &name.to_str())).then_some(Deprecated::CommonName)
        }
        Bad::UnknownIssuer | Bad::BadSignature | Bad::UnsupportedSignatureAlgorithmContext { .. } => {
            std::iter::once(end_entity).chain(intermediates).find_map(sha1)
        }
        _ => None,
    }
}

/// A signature with SHA-1 by another than itself.
fn sha1(certificate: &CertificateDer<'_>) -> Option<Deprecated> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let algorithm = match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        SHA1_WITH_RSA => "SHA1-RSA",
        ECDSA_WITH_SHA1 => "ECDSA-SHA1",
        _ => return None,
    };
    if parsed.subject() == parsed.issuer() {
        return None;
    }
    let names = parsed.issuer().iter_common_name();
    let name = names
        .chain(parsed.issuer().iter_organization())
        .find_map(|name| name.as_str().ok());
    Some(Deprecated::Sha1 {
        algorithm,
        issuer: name.unwrap_or_default().to_string(),
    })
}

/// Whether a name in a certificate, whose first label may be `*`, is that of a host.
fn matches_host(pattern: &str, host: &str) -> bool {
    let (pattern, host) = (pattern.trim_end_matches('.'), host.trim_end_matches('.'));
    if pattern.is_empty() || host.is_empty() {
        return false;
    }
    match pattern.strip_prefix("*.") {
        Some(parent) => host
            .split_once('.')
            .is_some_and(|(_, of)| of.eq_ignore_ascii_case(parent)),
        None => pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_names_are_matched_by_labels() {
        let check = |pattern: &str, host: &str, expected: bool| {
            assert_eq!(matches_host(pattern, host), expected, "{pattern} {host}");
        };
        check("a.b", "A.b", true);
        check("a.b.", "a.b", true);
        check("*.b", "a.b", true);
        check("*.b", "x.a.b", false);
        check("*.b", "b", false);
        check("b", "a.b", false);
        check("", "", false);
    }

    #[test]
    fn they_are_told_in_gos_words() {
        assert_eq!(
            Deprecated::CommonName.to_string(),
            "certificate relies on legacy Common Name field, use SANs instead"
        );
        let sha1 = Deprecated::Sha1 {
            algorithm: "SHA1-RSA",
            issuer: "ca".into(),
        };
        assert_eq!(
            sha1.to_string(),
            "certificate signed by unknown authority (possibly because of \"x509: cannot verify signature: insecure algorithm SHA1-RSA\" \
             while trying to verify candidate authority certificate \"ca\")"
        );
    }

    #[test]
    fn counts_are_by_subsystem() {
        let counts = DeprecatedCertificates::new("webhooks");
        counts.count(&Deprecated::CommonName);
        let mut out = String::new();
        counts.collect(&mut out);
        assert!(
            out.contains("\napiserver_webhooks_x509_missing_san_total 1\n"),
            "{out}"
        );
        assert!(
            out.contains("\napiserver_webhooks_x509_insecure_sha1_total 0\n"),
            "{out}"
        );
    }
}
