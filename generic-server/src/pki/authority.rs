//! Certificate authorities and what they issue.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use super::{PkiError, subject};

/// How long an authority lasts.
pub(super) const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// How long a certificate lasts.
const CERTIFICATE_LIFE: Duration = Duration::days(365);
/// Certificates begin this long ago: for clocks that are behind, and for one that was ahead when they were made.
const SKEW: Duration = Duration::days(1);

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

/// A certificate authority.
pub struct Authority {
    /// Its certificate, in PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub(super) key: String,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// The bytes of a certificate in PEM.
fn pem_bytes(pem: &str) -> Result<Vec<u8>, PkiError> {
    let certificates = super::certificates(pem)?;
    let first = certificates.first().map(|certificate| certificate.to_vec());
    first.ok_or_else(|| PkiError::Issue("there is no certificate in the PEM text".into()))
}

fn pem_text(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// A new ECDSA P-256 private key, PKCS#8 in PEM.
pub(super) fn generate_key() -> Result<String, PkiError> {
    Ok(KeyPair::generate().map_err(issue)?.serialize_pem())
}

/// The public half of a private key, in PEM.
pub(super) fn public_key(key: &str) -> Result<String, PkiError> {
    Ok(KeyPair::from_pem(key).map_err(issue)?.public_key_pem())
}

fn issue(error: rcgen::Error) -> PkiError {
    PkiError::Issue(error.to_string())
}

fn params(
    names: &[String],
    common_name: &str,
    organization: &str,
    (now, life): (OffsetDateTime, Duration),
) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(names)
        .map_err(|e| PkiError::Issue(format!("one of the names {} is unusable: {e}", names.join(", "))))?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    if !organization.is_empty() {
        subject.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name = subject;
    params.not_before = now - SKEW;
    params.not_after = now + life;
    Ok(params)
}

impl Authority {
    /// A new one, for ten years.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(common_name: &str) -> Result<Self, PkiError> {
        Self::generate_at(OffsetDateTime::now_utc(), common_name)
    }

    pub(crate) fn generate_at(now: OffsetDateTime, common_name: &str) -> Result<Self, PkiError> {
        let ends = now + AUTHORITY_LIFE;
        Self::of_key(now, ends, common_name, KeyPair::generate().map_err(issue)?)
    }

    /// The same authority with another certificate, which begins now: its signatures stay valid, also when it is now that the clock is
    /// wrong.
    pub(super) fn renewed_at(
        now: OffsetDateTime,
        ends: OffsetDateTime,
        common_name: &str,
        key: &str,
    ) -> Result<Self, PkiError> {
        Self::of_key(now, ends, common_name, KeyPair::from_pem(key).map_err(issue)?)
    }

    fn of_key(
        now: OffsetDateTime,
        ends: OffsetDateTime,
        common_name: &str,
        key: KeyPair,
    ) -> Result<Self, PkiError> {
        let mut params = params(&[], common_name, "", (now, ends - now))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let certificate = params.self_signed(&key).map_err(issue)?.pem();
        Ok(Authority {
            certificate,
            key: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// One from its PEM texts.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn load(certificate: &str, key: &str) -> Result<Self, PkiError> {
        let pair = KeyPair::from_pem(key).map_err(issue)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, pair).map_err(issue)?;
        Ok(Authority {
            certificate: certificate.into(),
            key: key.into(),
            issuer,
        })
    }

    /// The signature of these bytes by its key.
    #[cfg(test)]
    pub(crate) fn signature_of(&self, bytes: &[u8]) -> Vec<u8> {
        rcgen::SigningKey::sign(self.issuer.key(), bytes).expect("it signs")
    }

    /// A server certificate for these names, for a year.
    ///
    /// # Errors
    /// When a name is neither a DNS name nor an address.
    pub fn server(&self, common_name: &str, names: &[String]) -> Result<Issued, PkiError> {
        self.server_at(OffsetDateTime::now_utc(), common_name, names)
    }

    pub(super) fn server_at(
        &self,
        now: OffsetDateTime,
        common_name: &str,
        names: &[String],
    ) -> Result<Issued, PkiError> {
        let mut params = params(names, common_name, "", (now, CERTIFICATE_LIFE))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate: the user, and one group or none, for a year.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn client(&self, user: &str, group: &str) -> Result<Issued, PkiError> {
        self.client_for(user, group, CERTIFICATE_LIFE)
    }

    pub(super) fn client_at(&self, now: OffsetDateTime, user: &str, group: &str) -> Result<Issued, PkiError> {
        self.client_of(user, group, (now, CERTIFICATE_LIFE))
    }

    pub(crate) fn client_for(&self, user: &str, group: &str, life: Duration) -> Result<Issued, PkiError> {
        self.client_of(user, group, (OffsetDateTime::now_utc(), life))
    }

    fn client_of(
        &self,
        user: &str,
        group: &str,
        when: (OffsetDateTime, Duration),
    ) -> Result<Issued, PkiError> {
        let mut params = params(&[], user, group, when)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A client certificate for a user in any number of groups, which ends when it is told to.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn member(
        &self,
        user: &str,
        groups: &[String],
        life: std::time::Duration,
    ) -> Result<Issued, PkiError> {
        let life = Duration::try_from(life).map_err(|error| PkiError::Issue(error.to_string()))?;
        let one = self.client_for(user, groups.first().map_or("", String::as_str), life)?;
        if groups.len() < 2 {
            return Ok(one);
        }
        // The library holds one organization in a name.
        let plain = pem_bytes(&one.certificate)?;
        let named = subject::replaced(&plain, &subject::name(user, groups), |tbs| {
            rcgen::SigningKey::sign(self.issuer.key(), tbs).ok()
        });
        let named = named.ok_or_else(|| PkiError::Issue("the groups cannot be written into it".into()))?;
        Ok(Issued {
            certificate: pem_text(&named),
            key: one.key,
        })
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Issued, PkiError> {
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(issue)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(issue)?.pem();
        Ok(Issued {
            certificate,
            key: key.serialize_pem(),
        })
    }
}
