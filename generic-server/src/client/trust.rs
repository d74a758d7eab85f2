//! Whom this server trusts when it talks to others.
//!
//! Fail-closed: a bundle that cannot be read is an error that the caller reports, never a reason to trust anybody.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

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

/// Whom to trust.
#[derive(Debug, Clone, Copy)]
pub enum Whom<'a> {
    /// Those of a bundle, PEM in base64.
    Bundle(&'a str),
    /// The operating system's authorities.
    System,
    /// Whoever holds the key of the certificate they show.
    Anyone,
}

/// TLS settings that trust them, and nobody else.
///
/// # Errors
/// Why a bundle cannot be read, as upstream says it. Nobody is trusted then.
pub fn settings(whom: Whom<'_>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier {
        trusted: Trusted::of(whom, &provider)?,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

#[derive(Debug)]
struct Verifier {
    trusted: Trusted,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Trusted {
    Anyone,
    Nobody,
    /// As in Go, a certificate that is in the bundle itself is trusted, authority or not.
    Authorities {
        known: Arc<WebPkiServerVerifier>,
        pinned: Vec<CertificateDer<'static>>,
    },
}

impl Trusted {
    fn of(whom: Whom<'_>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let pinned = match whom {
            Whom::Anyone => return Ok(Trusted::Anyone),
            Whom::System => {
                roots.add_parsable_certificates(system_authorities());
                Vec::new()
            }
            Whom::Bundle(bundle) => {
                let certificates = decode(bundle)?;
                for certificate in &certificates {
                    roots
                        .add(certificate.clone())
                        .map_err(|error| format!("unable to load root certificates: {error}"))?;
                }
                certificates
            }
        };
        if roots.is_empty() {
            return Ok(Trusted::Nobody);
        }
        let known = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Ok(Trusted::Authorities {
            known: known.map_err(|error| error.to_string())?,
            pinned,
        })
    }
}

/// The certificate is itself in the bundle: its name and time count, its issuer does not.
fn is_pinned(
    pinned: &[CertificateDer<'static>],
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
) -> bool {
    pinned.iter().any(|pinned| pinned == certificate)
        && ParsedCertificate::try_from(certificate)
            .is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (known, pinned) = match &self.trusted {
            Trusted::Anyone => return Ok(ServerCertVerified::assertion()),
            Trusted::Nobody => return Err(CertificateError::UnknownIssuer.into()),
            Trusted::Authorities { known, pinned } => (known, pinned),
        };
        match known.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // What is wrong with a pinned certificate must be that alone: an expired one is told as expired.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_),
            )) if is_pinned(pinned, end_entity, server_name) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_bundle_is_an_error_and_never_trust() {
        let pem = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        for bad in ["", "Zm9v", "!!", &pem] {
            assert!(settings(Whom::Bundle(bad)).is_err(), "{bad}");
        }
    }
}
