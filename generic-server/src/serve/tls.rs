//! The server's side of TLS: certificates by name, client certificates asked for but not required, reload.
//!
//! A client certificate is *not* judged here: as upstream's `RequestClientCert` does, the handshake only proves that the client
//! holds the key, and the x509 authenticator verifies the chain, so that a bad certificate is a 401 and not a broken handshake.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::DistinguishedName;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;

use crate::crypto::{Version1, provider};

/// The fault of a certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds no PEM of the kind wanted.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A PEM file without a certificate.
    #[error("`{0}` holds no certificate")]
    Empty(String),
    /// A key of another certificate.
    #[error("the key in `{0}` is not that of the certificate: name the pair that was issued together")]
    Mismatch(String),
    /// TLS cannot work with it.
    #[error("unusable TLS settings")]
    Rustls(#[from] rustls::Error),
    /// A cipher suite that is not known or not offered.
    #[error("cipher suite `{0}` is not supported")]
    CipherSuite(String),
}

/// The lowest protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    V12,
    /// TLS 1.3.
    V13,
}

/// A certificate for certain names.
#[derive(Debug, Clone)]
pub struct SniCertificate {
    /// DNS names, lower case; `*.example.com` stands for one label.
    pub names: Vec<String>,
    /// The certificate with its key.
    pub certificate: Arc<CertifiedKey>,
}

/// How a TLS port is configured.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// For clients that name nothing better.
    pub default: Arc<CertifiedKey>,
    /// For clients that name one of these: whole names before patterns, and of either the first.
    pub sni: Vec<SniCertificate>,
    /// Authorities whose client certificates are accepted, sent to clients as a hint.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// The lowest version.
    pub min_version: TlsVersion,
    /// Cipher suites of TLS 1.2 by their IANA names; empty for all that are offered.
    pub cipher_suites: Vec<String>,
    /// Key exchanges by their IANA numbers; empty for all that are offered.
    pub curves: Vec<u16>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl TlsOptions {
    /// One certificate and nothing else.
    pub fn new(default: Arc<CertifiedKey>) -> Self {
        TlsOptions {
            default,
            sni: Vec::new(),
            client_ca: Vec::new(),
            min_version: TlsVersion::default(),
            cipher_suites: Vec::new(),
            curves: Vec::new(),
            http2: true,
        }
    }
}

/// The TLS settings of a port. Connections take those that hold when they are accepted.
#[derive(Debug)]
pub struct Tls(ArcSwap<ServerConfig>);

impl Tls {
    /// Checks and takes settings.
    ///
    /// # Errors
    /// When they cannot work.
    pub fn new(options: TlsOptions) -> Result<Self, TlsError> {
        Ok(Tls(ArcSwap::from_pointee(server_config(options)?)))
    }

    /// Replaces the settings for new connections.
    ///
    /// # Errors
    /// When they cannot work; the old ones stay.
    pub fn reload(&self, options: TlsOptions) -> Result<(), TlsError> {
        self.0.store(Arc::new(server_config(options)?));
        Ok(())
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

/// All certificates of a PEM file.
///
/// # Errors
/// When it cannot be read or has none.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let named = || path.display().to_string();
    let read = |source| TlsError::Read {
        path: named(),
        source,
    };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(read)?
        .collect::<Result<_, _>>()
        .map_err(read)?;
    if found.is_empty() {
        return Err(TlsError::Empty(named()));
    }
    Ok(found)
}

/// A certificate chain and its key from PEM files.
///
/// # Errors
/// When they cannot be read or do not belong together.
pub fn certified_key(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = read_certificates(certificate)?;
    let shown = key.display().to_string();
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Read {
        path: key.display().to_string(),
        source,
    })?;
    match CertifiedKey::from_der(chain, key, &provider()) {
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::Mismatch(shown)),
        pair => Ok(Arc::new(pair?)),
    }
}

/// Whether a key exchange is spoken, by its IANA number.
pub fn speaks_curve(id: u16) -> bool {
    provider()
        .kx_groups
        .iter()
        .any(|group| u16::from(group.name()) == id)
}

fn server_config(options: TlsOptions) -> Result<ServerConfig, TlsError> {
    let mut provider = provider();
    if !options.curves.is_empty() {
        let wanted =
            |group: &&dyn rustls::crypto::SupportedKxGroup| options.curves.contains(&u16::from(group.name()));
        provider.kx_groups.retain(wanted);
    }
    if !options.cipher_suites.is_empty() {
        let mut suites = Vec::with_capacity(options.cipher_suites.len());
        for wanted in &options.cipher_suites {
            let suite = provider
                .cipher_suites
                .iter()
                .find(|suite| iana_name(suite) == *wanted)
                .ok_or_else(|| TlsError::CipherSuite(wanted.clone()))?;
            suites.push(*suite);
        }
        // As in Go, the list is about TLS 1.2; the suites of 1.3 are always there.
        for suite in &provider.cipher_suites {
            if suite.tls13().is_some() && !suites.contains(suite) {
                suites.push(*suite);
            }
        }
        provider.cipher_suites = suites;
    }
    let provider = Arc::new(provider);
    let versions: &[&rustls::SupportedProtocolVersion] = match options.min_version {
        TlsVersion::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::V13 => &[&rustls::version::TLS13],
    };
    let hints = options
        .client_ca
        .iter()
        .filter_map(|ca| subject(ca))
        .map(DistinguishedName::from)
        .collect();
    let verifier = AnyClientCertificate {
        hints,
        provider: provider.clone(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(ByName {
            default: options.default,
            sni: options.sni,
        }));
    config.alpn_protocols = match options.http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    config.ticketer = rustls::crypto::ring::Ticketer::new()?;
    Ok(config)
}

/// Whether a cipher suite of this IANA name is spoken.
pub fn speaks_cipher_suite(name: &str) -> bool {
    provider()
        .cipher_suites
        .iter()
        .any(|suite| iana_name(suite) == name)
}

/// The names that clients may ask for a certificate by: those that it is for, in lower case, and its common name where that is a host's. Addresses
/// are none: clients do not name them.
pub fn certificate_names(key: &CertifiedKey) -> Vec<String> {
    let parsed = key
        .cert
        .first()
        .map(|certificate| x509_parser::parse_x509_certificate(certificate));
    let Some(Ok((_, parsed))) = parsed else {
        return Vec::new();
    };
    let common = parsed
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let is_host = |name: &str| {
        let host = name.strip_prefix("*.").unwrap_or(name);
        name.parse::<std::net::IpAddr>().is_err()
            && machinery::names::name_is_dns_subdomain(host, false).is_empty()
    };
    let mut names: Vec<String> = common
        .filter(|name| is_host(name))
        .map(str::to_ascii_lowercase)
        .collect();
    let others = parsed.subject_alternative_name().ok().flatten();
    for name in others.iter().flat_map(|others| &others.value.general_names) {
        if let x509_parser::extensions::GeneralName::DNSName(name) = name {
            names.push(name.to_ascii_lowercase());
        }
    }
    names
}

fn iana_name(suite: &rustls::SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn subject(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.subject().as_raw().to_vec())
}

/// Chooses the certificate by the name that the client asks for.
#[derive(Debug)]
struct ByName {
    default: Arc<CertifiedKey>,
    sni: Vec<SniCertificate>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = hello.server_name().and_then(|asked| {
            let asked = asked.trim_end_matches('.').to_ascii_lowercase();
            let exact = |one: &&SniCertificate| one.names.contains(&asked);
            let pattern = |one: &&SniCertificate| one.names.iter().any(|name| name_matches(name, &asked));
            self.sni
                .iter()
                .find(exact)
                .or_else(|| self.sni.iter().find(pattern))
        });
        Some(chosen.map_or_else(|| self.default.clone(), |one| one.certificate.clone()))
    }
}

fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(parent) => name
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest == parent),
        None => pattern == name,
    }
}

/// Takes any client certificate whose key the client holds.
#[derive(Debug)]
struct AnyClientCertificate {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        match Version1::read(certificate) {
            Some(old) => old
                .verify_tls12(message, signature, known)
                .map(|()| HandshakeSignatureValid::assertion()),
            None => rustls::crypto::verify_tls12_signature(message, certificate, signature, known),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        match Version1::read(certificate) {
            Some(old) => old
                .verify_tls13(message, signature, known)
                .map(|()| HandshakeSignatureValid::assertion()),
            None => rustls::crypto::verify_tls13_signature(message, certificate, signature, known),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        };
        check("a.example", "a.example", true);
        check("a.example", "b.example", false);
        check("*.example", "b.example", true);
        check("*.example", "a.b.example", false);
        check("*.example", "example", false);
    }

    #[test]
    fn cipher_suites_by_their_iana_names() {
        let names: Vec<_> = provider().cipher_suites.iter().map(iana_name).collect();
        assert!(names.contains(&"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_string()));
        assert!(names.contains(&"TLS_AES_128_GCM_SHA256".to_string()));
    }

    #[test]
    fn files_that_are_no_certificates() {
        let missing = read_certificates(Path::new("/nonexistent/x.crt")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read `/nonexistent/x.crt`");
    }
}
