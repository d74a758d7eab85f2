//! Names of certificates with several organizations: a user in several groups. Written in DER here, because the library that makes
//! certificates holds one attribute of each type.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// 2.5.4.3 and 2.5.4.10, with their tags.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];
/// Before the subject: version, serial number, algorithm, issuer and validity.
const FIELDS_BEFORE: usize = 5;

/// The name of a user in these groups.
pub(super) fn name(user: &str, groups: &[String]) -> Vec<u8> {
    let mut parts: Vec<u8> = groups
        .iter()
        .flat_map(|group| attribute(&ORGANIZATION, group))
        .collect();
    parts.extend(attribute(&COMMON_NAME, user));
    element(SEQUENCE, &parts)
}

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let pair = [kind, &element(UTF8_STRING, value.as_bytes())].concat();
    element(SET, &element(SEQUENCE, &pair))
}

/// The certificate with another subject, signed again. `None` when it is none, or when it cannot be signed.
pub(super) fn replaced(
    certificate: &[u8],
    subject: &[u8],
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let (whole, _) = split(certificate)?;
    let (signed, rest) = split(content(whole)?)?;
    let (algorithm, _) = split(rest)?;
    let mut fields = content(signed)?;
    let mut before = Vec::new();
    for _ in 0..FIELDS_BEFORE {
        let (field, more) = split(fields)?;
        before.extend_from_slice(field);
        fields = more;
    }
    let (_old, after) = split(fields)?;
    let signed = element(SEQUENCE, &[&before, subject, after].concat());
    // A bit string says first how many bits of its last byte are not used.
    let signature = [vec![0], sign(&signed)?].concat();
    Some(element(
        SEQUENCE,
        &[&signed, algorithm, &element(BIT_STRING, &signature)].concat(),
    ))
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    match significant {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            // At most eight bytes.
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

/// How many bytes the tag and the length take, and how many the content.
fn header(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.get(1)?;
    if first < 0x80 {
        return Some((2, usize::from(first)));
    }
    let count = usize::from(first & 0x7f);
    if count > 4 {
        return None;
    }
    let digits = bytes.get(2..2 + count)?;
    let length = digits.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    Some((2 + count, length))
}

/// The first element, and what is behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (start, length) = header(bytes)?;
    bytes.split_at_checked(start.checked_add(length)?)
}

fn content(element: &[u8]) -> Option<&[u8]> {
    element.get(header(element)?.0..)
}

#[cfg(test)]
mod tests {
    use super::super::authority::Authority;
    use super::*;

    #[test]
    fn every_group_is_in_the_certificate_and_the_signature_holds() {
        let authority = Authority::generate("test").expect("an authority");
        let long = "g".repeat(300);
        for groups in [vec![], vec!["a"], vec!["a", "b", "c"], vec!["a", &long, "c"]] {
            let groups: Vec<String> = groups.into_iter().map(String::from).collect();
            let issued = authority
                .member("alice", &groups, std::time::Duration::from_secs(60))
                .expect("it is signed");
            let (_, pem) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).expect("PEM");
            let certificate = pem.parse_x509().expect("a certificate");
            let subject = certificate.subject();
            let organizations: Vec<&str> = subject
                .iter_organization()
                .filter_map(|value| value.as_str().ok())
                .collect();
            assert_eq!(organizations, groups);
            let name = subject
                .iter_common_name()
                .next()
                .and_then(|name| name.as_str().ok());
            assert_eq!(name, Some("alice"));
            let (_, root) = x509_parser::pem::parse_x509_pem(authority.certificate.as_bytes()).expect("PEM");
            let root = root.parse_x509().expect("a certificate");
            let spki = &root.public_key().subject_public_key.data;
            let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, spki);
            key.verify(
                certificate.tbs_certificate.as_ref(),
                &certificate.signature_value.data,
            )
            .expect("the authority has signed it");
            issued.certified_key().expect("the key fits");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused() {
        for bytes in [
            &b""[..],
            b"\x30",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x03\x02\x01\x00",
            b"\x30\x89",
        ] {
            assert_eq!(replaced(bytes, b"", |_| Some(Vec::new())), None);
        }
    }
}
