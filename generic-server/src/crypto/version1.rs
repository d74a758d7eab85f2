//! Certificates of X.509 version 1, which have no extensions: what `openssl x509 -req` makes of a request unless it is told otherwise. Go takes
//! them of clients; webpki reads those of version 3 alone.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{DigitallySignedStruct, Error, PeerMisbehaved};
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// A certificate of version 1.
#[derive(Debug)]
pub(crate) struct Version1<'c> {
    certificate: X509Certificate<'c>,
    /// The content of its signature's AlgorithmIdentifier.
    algorithm: &'c [u8],
}

impl<'c> Version1<'c> {
    /// `None` for certificates of other versions, and for what is no certificate.
    pub(crate) fn read(der: &'c CertificateDer<'_>) -> Option<Version1<'c>> {
        Self::of_any_version(der).filter(|read| read.certificate.version() == X509Version::V1)
    }

    fn of_any_version(der: &'c CertificateDer<'_>) -> Option<Version1<'c>> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let (_, whole) = Any::from_der(der).ok()?;
        let (behind, _signed) = Any::from_der(whole.data).ok()?;
        let (_, algorithm) = Any::from_der(behind).ok()?;
        Some(Version1 {
            certificate,
            algorithm: algorithm.data,
        })
    }

    /// Verifies that one of these authorities has issued it, with one of the algorithms that are known, and that it is valid at this time.
    ///
    /// # Errors
    /// What does not hold.
    pub(crate) fn verify(
        &self,
        authorities: &[CertificateDer<'_>],
        known: &WebPkiSupportedAlgorithms,
        now: ASN1Time,
    ) -> Result<(), &'static str> {
        if !self.certificate.validity().is_valid_at(now) {
            return Err("certificate has expired or is not yet valid");
        }
        if self.is_issued_by_one(authorities, known) {
            Ok(())
        } else {
            Err("certificate signed by unknown authority")
        }
    }

    fn is_issued_by_one(
        &self,
        authorities: &[CertificateDer<'_>],
        known: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let parsed = authorities
            .iter()
            .filter_map(|der| X509Certificate::from_der(der).ok());
        parsed
            .map(|(_, authority)| authority)
            .filter(|authority| authority.subject().as_raw() == self.certificate.issuer().as_raw())
            .any(|authority| self.is_signed_by(&authority, known))
    }

    fn is_signed_by(&self, authority: &X509Certificate<'_>, known: &WebPkiSupportedAlgorithms) -> bool {
        let key = authority.public_key();
        let Some(key_algorithm) = algorithm_of(key.raw) else {
            return false;
        };
        let mut algorithms = known.all.iter().filter(|algorithm| {
            algorithm.signature_alg_id().as_ref() == self.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
        });
        algorithms.any(|algorithm| {
            let signed = self.certificate.tbs_certificate.as_ref();
            let signature = &self.certificate.signature_value.data;
            algorithm
                .verify_signature(&key.subject_public_key.data, signed, signature)
                .is_ok()
        })
    }

    /// Verifies the signature of a handshake of TLS 1.2 by this certificate's key.
    ///
    /// # Errors
    /// When it is by another key, or in a way that is not known.
    pub(crate) fn verify_tls12(
        &self,
        message: &[u8],
        signature: &DigitallySignedStruct,
        known: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let key = self.certificate.public_key();
        let key_algorithm = algorithm_of(key.raw);
        let named = known
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signature.scheme);
        let mut algorithms = named
            .map_or(&[][..], |(_, algorithms)| algorithms)
            .iter()
            .filter(|algorithm| Some(algorithm.public_key_alg_id().as_ref()) == key_algorithm);
        let is_right = algorithms.any(|algorithm| {
            algorithm
                .verify_signature(&key.subject_public_key.data, message, signature.signature())
                .is_ok()
        });
        if is_right {
            Ok(())
        } else {
            Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
        }
    }

    /// The same of TLS 1.3.
    ///
    /// # Errors
    /// As [`Version1::verify_tls12`].
    pub(crate) fn verify_tls13(
        &self,
        message: &[u8],
        signature: &DigitallySignedStruct,
        known: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let key = SubjectPublicKeyInfoDer::from(self.certificate.public_key().raw);
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, known).map(drop)
    }
}

/// Whether one of these authorities has issued a certificate, whatever its version, with none between them. Its time and its use are not looked at.
pub(crate) fn is_issued_by_one(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateDer<'_>],
    known: &WebPkiSupportedAlgorithms,
) -> bool {
    Version1::of_any_version(certificate).is_some_and(|read| read.is_issued_by_one(authorities, known))
}

/// The content of the AlgorithmIdentifier of a SubjectPublicKeyInfo.
fn algorithm_of(key: &[u8]) -> Option<&[u8]> {
    let (_, whole) = Any::from_der(key).ok()?;
    let (_, algorithm) = Any::from_der(whole.data).ok()?;
    Some(algorithm.data)
}
