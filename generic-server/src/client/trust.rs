//! Whom this server trusts when it talks to others: the authorities of a bundle.
//!
//! Fail-closed: a bundle that cannot be read is an error that the caller reports, never a reason to trust anybody.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Where operating systems keep their authorities.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

fn unreadable() -> String {
    "unable to load root certificates: unable to parse bytes as PEM block".into()
}

fn decode(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|_| unreadable())?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| unreadable())?;
    if found.is_empty() {
        return Err(unreadable());
    }
    Ok(found)
}

fn system_authorities() -> Vec<CertificateDer<'static>> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let files = named
        .iter()
        .map(String::as_str)
        .chain(SYSTEM_BUNDLES.iter().copied());
    files
        .filter_map(|file| CertificateDer::pem_file_iter(file).ok())
        .map(|certificates| certificates.filter_map(Result::ok).collect::<Vec<_>>())
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// Verifies against a bundle of authorities. As in Go, a certificate that is in the bundle itself is trusted, authority or not.
#[derive(Debug)]
pub struct Bundle {
    /// `None` when there is no authority at all: nobody is trusted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    pinned: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Bundle {
    /// Of a bundle in base64; of the system's authorities when there is none.
    ///
    /// # Errors
    /// Why the bundle cannot be read, as upstream says it. Nobody is trusted then.
    pub fn new(bundle: Option<&str>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let pinned = match bundle {
            Some(bundle) => {
                let certificates = decode(bundle)?;
                for certificate in &certificates {
                    roots
                        .add(certificate.clone())
                        .map_err(|error| format!("unable to load root certificates: {error}"))?;
                }
                certificates
            }
            None => {
                roots.add_parsable_certificates(system_authorities());
                Vec::new()
            }
        };
        let authorities = if roots.is_empty() {
            None
        } else {
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
            Some(built.map_err(|error| error.to_string())?)
        };
        Ok(Bundle {
            authorities,
            pinned,
            provider: provider.clone(),
        })
    }

    /// The certificate is itself in the bundle: its name and time count, its issuer does not.
    fn is_pinned(&self, certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
        self.pinned.iter().any(|pinned| pinned == certificate)
            && ParsedCertificate::try_from(certificate)
                .is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let verdict =
            authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // What is wrong with a pinned certificate must be that alone: an expired one is told as expired.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_),
            )) if self.is_pinned(end_entity, server_name) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_bundle_is_an_error_and_never_trust() {
        let pem = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        for bad in ["", "Zm9v", "!!", &pem] {
            assert!(Bundle::new(Some(bad), &provider).is_err(), "{bad}");
        }
    }
}
