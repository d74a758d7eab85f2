//! The trust of this server's outgoing connections.
//!
//! Fail-closed: a bundle that cannot be read is an error that the caller reports, never a reason to trust anybody.

use std::sync::Arc;
use std::time::Duration;

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
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::deprecated::{self, DeprecatedCertificates};
use crate::crypto::is_issued_by_one;

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

/// The peers to trust.
#[derive(Debug, Clone, Copy)]
pub enum TrustedPeers<'a> {
    /// Those of a bundle, PEM in base64.
    Bundle(&'a str),
    /// The operating system's authorities.
    System,
    /// Any peer that holds the key of its certificate.
    Anyone,
}

/// TLS settings that trust these peers alone.
///
/// # Errors
/// Why a bundle cannot be read, in upstream's words. No peer is trusted then.
pub fn settings(peers: TrustedPeers<'_>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    build(peers, None)
}

/// The same; peers that are refused for a deprecated certificate are counted.
///
/// # Errors
/// Why a bundle cannot be read, in upstream's words. No peer is trusted then.
pub fn counting_settings(
    peers: TrustedPeers<'_>,
    deprecated: &Arc<DeprecatedCertificates>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    build(peers, Some(deprecated.clone()))
}

fn build(
    peers: TrustedPeers<'_>,
    deprecated: Option<Arc<DeprecatedCertificates>>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(crate::crypto::provider());
    let verifier = Verifier {
        trusted: Trusted::of(peers, &provider)?,
        algorithms: provider.signature_verification_algorithms,
        deprecated,
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
    deprecated: Option<Arc<DeprecatedCertificates>>,
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
    fn of(peers: TrustedPeers<'_>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let pinned = match peers {
            TrustedPeers::Anyone => return Ok(Trusted::Anyone),
            TrustedPeers::System => {
                roots.add_parsable_certificates(system_authorities());
                Vec::new()
            }
            TrustedPeers::Bundle(bundle) => {
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

/// Verifies a certificate that is itself in the bundle, as Go does: its time, its name and its usage count, its issuer does not.
fn verify_pinned(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
    let at = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let (not_before, not_after) = (at(parsed.validity().not_before), at(parsed.validity().not_after));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext {
            time: now,
            not_before,
        }
        .into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    let usage = parsed.extended_key_usage();
    let usage = usage.map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    Ok(ServerCertVerified::assertion())
}

/// Whether webpki refused the certificate because it is an authority's, which Go accepts.
fn is_authority_that_serves(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.0.to_string() == "CaUsedAsEndEntity"
        }
        _ => false,
    }
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
        let verified = match &self.trusted {
            Trusted::Anyone => return Ok(ServerCertVerified::assertion()),
            Trusted::Nobody => Err(CertificateError::UnknownIssuer.into()),
            // Before the chain is built: an issuer of the same name as the pinned certificate would be taken for it.
            Trusted::Authorities { pinned, .. } if pinned.contains(end_entity) => {
                verify_pinned(end_entity, server_name, now)
            }
            Trusted::Authorities { known, pinned } => {
                let verified =
                    known.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
                match verified {
                    // Go takes a server whose certificate is itself an authority's, as `openssl req -x509 -CA` makes them.
                    Err(error) if is_authority_that_serves(&error) => {
                        match is_issued_by_one(end_entity, pinned, &self.algorithms) {
                            true => verify_pinned(end_entity, server_name, now),
                            false => Err(CertificateError::UnknownIssuer.into()),
                        }
                    }
                    verified => verified,
                }
            }
        };
        verified.map_err(|error| {
            match deprecated::of_refused(&error, end_entity, intermediates, server_name) {
                None => error,
                Some(what) => {
                    if let Some(counts) = &self.deprecated {
                        counts.count(&what);
                    }
                    what.into()
                }
            }
        })
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
            assert!(settings(TrustedPeers::Bundle(bad)).is_err(), "{bad}");
        }
    }

    /// The verdict of a client that trusts `bundle` on a server that shows `shown`, asked for as `localhost` in the year 2030.
    fn verdict(bundle: &[&CertificateDer<'static>], shown: &CertificateDer<'static>) -> Result<(), String> {
        let provider = Arc::new(crate::crypto::provider());
        let pem: String = bundle
            .iter()
            .map(|der| {
                let text = BASE64_STANDARD.encode(der);
                format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
            })
            .collect();
        let bundle = BASE64_STANDARD.encode(pem);
        let verifier = Verifier {
            trusted: Trusted::of(TrustedPeers::Bundle(&bundle), &provider)?,
            algorithms: provider.signature_verification_algorithms,
            deprecated: None,
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_893_456_000));
        let name = ServerName::try_from("localhost").unwrap();
        let verdict = verifier.verify_server_cert(shown, &[], &name, &[], now);
        verdict.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_certificate_in_the_bundle_is_trusted_whoever_issued_it() {
        use rcgen::{
            BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        };
        let params = |name: &str, host: &str| {
            let mut params = CertificateParams::new(vec![host.to_string()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_after = rcgen::date_time_ymd(2035, 1, 1);
            params
        };
        let key = KeyPair::generate().unwrap();
        let mut authority = params("operator", "authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_der = authority.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(authority, key);
        let leaf = |params: CertificateParams| {
            let key = KeyPair::generate().unwrap();
            params.signed_by(&key, &issuer).unwrap().der().clone()
        };
        // Subject and issuer have the same name.
        let same = leaf(params("operator", "localhost"));
        assert_eq!(verdict(&[&same], &same), Ok(()));
        assert_eq!(verdict(&[&authority_der, &same], &same), Ok(()));
        assert_eq!(verdict(&[&authority_der], &same), Ok(()));
        // Another of that issuer is not in the bundle.
        let other = leaf(params("operator", "localhost"));
        assert!(verdict(&[&same], &other).is_err());
        // A pinned certificate still has a name, a time and a usage.
        let elsewhere = leaf(params("operator", "elsewhere"));
        assert!(
            verdict(&[&elsewhere], &elsewhere)
                .unwrap_err()
                .contains("not valid for name")
        );
        let mut old = params("operator", "localhost");
        old.not_after = rcgen::date_time_ymd(2025, 1, 1);
        let old = leaf(old);
        assert!(
            verdict(&[&old], &old)
                .unwrap_err()
                .to_lowercase()
                .contains("expired")
        );
        let mut client = params("operator", "localhost");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client = leaf(client);
        assert!(verdict(&[&client], &client).is_err());
        // The certificate of an authority may be a server's, and is verified as any other.
        let below = |host: &str| {
            let mut params = params("below", host);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let serving = leaf(below("localhost"));
        assert_eq!(verdict(&[&authority_der], &serving), Ok(()));
        assert!(verdict(&[&same], &serving).is_err());
        let elsewhere = leaf(below("elsewhere"));
        assert!(verdict(&[&authority_der], &elsewhere).is_err());
        let mut old = below("localhost");
        old.not_after = rcgen::date_time_ymd(2025, 1, 1);
        assert!(verdict(&[&authority_der], &leaf(old)).is_err());
        let stranger = KeyPair::generate().unwrap();
        let stranger = Issuer::new(params("operator", "authority"), stranger);
        let key = KeyPair::generate().unwrap();
        let forged = below("localhost").signed_by(&key, &stranger).unwrap();
        assert!(verdict(&[&authority_der], &forged.der().clone()).is_err());
        // A name that is the common name alone counts no more, and Go says so.
        let mut legacy = params("localhost", "localhost");
        legacy.subject_alt_names.clear();
        let legacy = leaf(legacy);
        for bundle in [&legacy, &authority_der] {
            let refused = verdict(&[bundle], &legacy).unwrap_err();
            assert!(refused.contains("CommonName"), "{refused}");
        }
        let mut other = params("elsewhere", "localhost");
        other.subject_alt_names.clear();
        let other = leaf(other);
        let refused = verdict(&[&authority_der], &other).unwrap_err();
        assert!(!refused.contains("CommonName"), "{refused}");
    }
}
