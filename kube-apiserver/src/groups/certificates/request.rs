//! PKCS #10 certificate requests: read from PEM, their signature checked, their subject's organizations decoded.
//!
//! One reader for validation and admission, so that what one takes the other has seen. Mirrors upstream's `certificates.ParseCSR`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::crypto;
use ring::{digest, signature};
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{
    OID_NIST_EC_P521, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512, OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME,
    Oid,
};
use x509_parser::prelude::FromDer;

use super::pem;

/// A request that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CertificateRequest {
    /// The organizations of the subject, which become groups.
    pub(crate) organizations: Vec<String>,
    /// The last common name of the subject, empty without one.
    pub(crate) common_name: String,
}

/// Reads the `spec.request` of a CertificateSigningRequest: base64 of PEM.
///
/// # Errors
/// The faults of a request, in upstream's words where they are not those of Go's own parser.
pub(crate) fn parse(field: &str) -> Result<CertificateRequest, String> {
    let bytes = STANDARD.decode(field).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let block = pem::first(&text).map(|(block, _)| block);
    let Some(block) = block.filter(|block| block.kind == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".into());
    };
    let (rest, parsed) = X509CertificationRequest::from_der(&block.bytes).map_err(|_| malformed())?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".into());
    }
    let subject = &parsed.certification_request_info.subject;
    let texts = |oid: Oid<'static>| -> Result<Vec<String>, String> {
        subject
            .iter_attributes()
            .filter(|attribute| *attribute.attr_type() == oid)
            .map(|attribute| string(attribute.attr_value()).ok_or_else(malformed))
            .collect()
    };
    let organizations = texts(OID_X509_ORGANIZATION_NAME)?;
    let common_name = texts(OID_X509_COMMON_NAME)?.pop().unwrap_or_default();
    verified(&parsed)?;
    Ok(CertificateRequest {
        organizations,
        common_name,
    })
}

/// Checks that the request is signed by its own key.
pub(super) fn verified(request: &X509CertificationRequest<'_>) -> Result<(), String> {
    let key = &request.certification_request_info.subject_pki;
    let (signed, by) = (
        request.certification_request_info.raw,
        &request.signature_algorithm.algorithm,
    );
    let (point, signature) = (&key.subject_public_key.data, &request.signature_value.data);
    let of_rsa = match by {
        by if *by == OID_PKCS1_SHA256WITHRSA => {
            Some(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY)
        }
        by if *by == OID_PKCS1_SHA512WITHRSA => {
            Some(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY)
        }
        _ => None,
    };
    // As Go: 1,024 bits are enough to show that one has the key. Whether that is enough for a certificate is the signer's decision.
    if let Some(algorithm) = of_rsa {
        let key = signature::UnparsedPublicKey::new(algorithm, point);
        return key
            .verify(signed, signature)
            .map_err(|_| NOT_VERIFIED.to_string());
    }
    let curve = key
        .algorithm
        .parameters
        .as_ref()
        .and_then(|curve| curve.as_oid().ok());
    let of_p521 = curve.is_some_and(|curve| curve == OID_NIST_EC_P521);
    let hash = match by {
        by if *by == OID_SIG_ECDSA_WITH_SHA256 => Some(&digest::SHA256),
        by if *by == OID_SIG_ECDSA_WITH_SHA384 => Some(&digest::SHA384),
        by if *by == OID_SIG_ECDSA_WITH_SHA512 => Some(&digest::SHA512),
        _ => None,
    };
    if let Some(hash) = hash.filter(|_| of_p521) {
        return match crypto::verify_p521(hash, point, signed, signature) {
            true => Ok(()),
            false => Err(NOT_VERIFIED.into()),
        };
    }
    request.verify_signature().map_err(|error| match error {
        X509Error::SignatureUnsupportedAlgorithm => {
            "x509: cannot verify signature: algorithm unimplemented".to_string()
        }
        _ => NOT_VERIFIED.to_string(),
    })
}

const NOT_VERIFIED: &str = "x509: verification failure";

fn malformed() -> String {
    "asn1: structure error: malformed certificate request".into()
}

/// The text of a value of any of ASN.1's string types; `None` for other types and for bytes that the type does not allow.
fn string(value: &Any<'_>) -> Option<String> {
    if value.header.is_constructed() {
        return None;
    }
    let bytes = value.data;
    match value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::NumericString
        | Tag::Ia5String
        | Tag::VisibleString
        | Tag::GraphicString
        | Tag::GeneralString => String::from_utf8(bytes.to_vec()).ok(),
        // As everybody reads it: Latin-1.
        Tag::T61String | Tag::VideotexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            text.ok().filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (units, rest) = bytes.as_chunks::<4>();
            let text: Option<String> = units
                .iter()
                .map(|unit| char::from_u32(u32::from_be_bytes(*unit)))
                .collect();
            text.filter(|_| rest.is_empty())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString, UniversalString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    /// A request of an organization, in PEM.
    pub(crate) fn pem_of(organization: DnValue) -> String {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    #[track_caller]
    fn check(pem: &str, expected: Result<&str, &str>) {
        let found = parse(&STANDARD.encode(pem)).map(|request| request.organizations.join(","));
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn organizations_of_any_string_type_are_decoded() {
        for value in [
            DnValue::Utf8String("a:b".into()),
            DnValue::PrintableString(PrintableString::try_from("a:b").unwrap()),
            DnValue::Ia5String(Ia5String::try_from("a:b").unwrap()),
            DnValue::TeletexString(TeletexString::try_from("a:b").unwrap()),
            DnValue::BmpString(BmpString::try_from("a:b").unwrap()),
            DnValue::UniversalString(UniversalString::try_from("a:b").unwrap()),
        ] {
            check(&pem_of(value), Ok("a:b"));
        }
    }

    /// Of a key of P-521, signed with SHA-512.
    const P521: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBXzCBwgIBADAdMQwwCgYDVQQKDANkZXYxDTALBgNVBAMMBGphbmUwgZswEAYH\n\
KoZIzj0CAQYFK4EEACMDgYYABAGBcoCVeyxGSUslh34JLfa20ht7/s+6qi4cDo4b\n\
450KQ/m6sMbLJOWrKgNVhl90qNtfg1YwnZ9VDQBjR09axBVq7wFzLcVNqQxuQ/I2\n\
PBamVETTQtheoTWXMhWb+FcCMv7OVP5Vi9cIfAWyFa/GrdV8N2LzknPEKUgvEHTl\n\
lxfs6425VqAAMAoGCCqGSM49BAMEA4GLADCBhwJBX30LhMd6pkuZcQDt5u1B9ZKs\n\
3wOKulVAxD3urOmBB9A1LgaYZd+75TjfyOcXRib44naj6t4KwhPtEVEeABsad3sC\n\
QgEyWrY1uCp3Me8DA9vbtoZelMjfZJRsXA9Fp+lRVqXw88XTQf7t0Hbj9vMmJq6H\n\
kDjRAmTmSZq64qwFgi+EfcJq+Q==\n\
-----END CERTIFICATE REQUEST-----";
    /// Of the same key, signed with SHA-256.
    const P521_SHA256: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBYDCBwgIBADAdMQwwCgYDVQQKDANkZXYxDTALBgNVBAMMBGphbmUwgZswEAYH\n\
KoZIzj0CAQYFK4EEACMDgYYABAGBcoCVeyxGSUslh34JLfa20ht7/s+6qi4cDo4b\n\
450KQ/m6sMbLJOWrKgNVhl90qNtfg1YwnZ9VDQBjR09axBVq7wFzLcVNqQxuQ/I2\n\
PBamVETTQtheoTWXMhWb+FcCMv7OVP5Vi9cIfAWyFa/GrdV8N2LzknPEKUgvEHTl\n\
lxfs6425VqAAMAoGCCqGSM49BAMCA4GMADCBiAJCAfgz6iNyclXaBJrqHRJqmXYn\n\
opHJ+FMN2OILi9PRrfxw+lU62qp25VXqLGK2HKB5jT5ld8NgGdiUh9pjWN/xI9EN\n\
AkIBhPXHmc8tnv5peEnxSDGzDGslqDzd096HDM3KVBOSYzfCI42yM4nuwBigWCoI\n\
HjpKY7dh+L0hEDPJVdtWQQRPbzc=\n\
-----END CERTIFICATE REQUEST-----\n";
    /// Of an RSA key of 1,024 bits.
    const RSA_1024: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBWzCBxQIBADAcMQwwCgYDVQQKDANkZXYxDDAKBgNVBAMMA2pvZTCBnzANBgkq\n\
hkiG9w0BAQEFAAOBjQAwgYkCgYEAz2NjJW5TOQAXErmfbArRT6c0RQtRQY23/w0w\n\
FzAxtT9ps2P2HkncFqnrtkDgkvMCp1Gx2vUNXwh4+Prp4IZKyyPIt0CVtkckMRcz\n\
IxPyLBb7QkKwMC7YmZ6LKwQCCx+m5z8gu/PNVVlcQi5888WJ/fBF+UgIpnYH1cmS\n\
55qnLn8CAwEAAaAAMA0GCSqGSIb3DQEBCwUAA4GBAEUQjPhob/mrN0q16j0CMJIz\n\
GDIh8TMomuLaDqV47d/JXAidiJDNUSXR8WV+YYRvT5+JM9dc/MU/Voi0hAPd5Z33\n\
rq6GswQWdzZyN106CvmCJ1GxIO+f/sqGlZpBjdBM4jvMDC+/zNuT692HM1LsEJtu\n\
KeazsqS0C+XLm7Tu69Kq\n\
-----END CERTIFICATE REQUEST-----";

    #[test]
    fn keys_are_taken_that_go_takes() {
        for request in [P521, P521_SHA256, RSA_1024] {
            check(request, Ok("dev"));
            // The subject is not what was signed.
            let (block, _) = pem::first(request).unwrap();
            let mut bytes = block.bytes.clone();
            let at = bytes.windows(3).position(|text| text == b"dev").unwrap();
            bytes[at] = b'D';
            let text = STANDARD.encode(bytes);
            let changed =
                format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
            check(&changed, Err(NOT_VERIFIED));
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let kind = Err("PEM block type must be CERTIFICATE REQUEST");
        let good = pem_of(DnValue::Utf8String("o".into()));
        check(&good, Ok("o"));
        check("", kind);
        check("text", kind);
        check("-----BEGIN CERTIFICATE REQUEST-----\n", kind);
        check(
            &good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            kind,
        );
        let other = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        check(&format!("{other}{good}"), kind);
        // A first block that is malformed is passed over, and headers belong to a block: the request behind them is seen.
        check(
            &format!("-----BEGIN CERTIFICATE REQUEST-----\n!\n-----END CERTIFICATE REQUEST-----\n{good}"),
            Ok("o"),
        );
        check(&good.replacen("-----\n", "-----\nKey: value\n\n", 1), Ok("o"));
        let block = |der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
        };
        let malformed = malformed();
        check(&block(b"no DER"), Err(&malformed));
        check(&block(b""), Err(&malformed));
        let der = pem::first(&good).unwrap().0.bytes;
        check(&block(&der[..der.len() - 1]), Err(&malformed));
        check(
            &block(&[&der[..], b"x"].concat()),
            Err("asn1: syntax error: trailing data"),
        );
        let mut forged = der.clone();
        *forged.last_mut().unwrap() ^= 1;
        check(&block(&forged), Err("x509: verification failure"));
    }
}
