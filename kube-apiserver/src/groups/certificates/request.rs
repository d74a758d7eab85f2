//! PKCS #10 certificate requests: read from PEM, their signature checked, their subject's organizations decoded.
//!
//! One reader for validation and admission, so that what one takes the other has seen. Mirrors upstream's `certificates.ParseCSR`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
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
    parsed.verify_signature().map_err(|error| match error {
        X509Error::SignatureUnsupportedAlgorithm => {
            "x509: cannot verify signature: algorithm unimplemented".to_string()
        }
        _ => "x509: verification failure".to_string(),
    })?;
    Ok(CertificateRequest {
        organizations,
        common_name,
    })
}

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
