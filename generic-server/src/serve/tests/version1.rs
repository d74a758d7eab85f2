//! Client certificates of X.509 version 1.

use x509_parser::asn1_rs::{Any, FromDer};

use super::*;

/// A DER value of this tag and content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[tag, 0x82], &len[..], content].concat()
}

/// The values in the content of a DER value, whole.
fn values(mut content: &[u8]) -> Vec<&[u8]> {
    let mut values = Vec::new();
    while !content.is_empty() {
        let (rest, _) = Any::from_der(content).unwrap();
        values.push(&content[..content.len() - rest.len()]);
        content = rest;
    }
    values
}

/// The certificate as one of version 1: without its version and its extensions.
fn version1(issued: &Issued, issuer: &Authority) -> CertificateDer<'static> {
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 3;
    let whole = crate::pki::certificates(&issued.certificate).unwrap().remove(0);
    let (_, whole) = Any::from_der(&whole).unwrap();
    let [signed, algorithm, _] = values(whole.data)[..] else {
        panic!("a certificate has three parts");
    };
    let (_, signed) = Any::from_der(signed).unwrap();
    let fields = values(signed.data);
    let signed = der(SEQUENCE, &fields[1..fields.len() - 1].concat());
    let signature = der(BIT_STRING, &[&[0], &issuer.signature_of(&signed)[..]].concat());
    der(SEQUENCE, &[&signed, algorithm, &signature].concat()).into()
}

#[tokio::test]
async fn clients_may_show_certificates_of_version_1() {
    let port = port().await;
    let ca = &port.pki.ca;
    let jane = ca.client("jane", "developers").unwrap();
    let old = version1(&jane, ca);
    let versions: [&[&rustls::SupportedProtocolVersion]; 2] =
        [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];
    for version in versions {
        let answer = ask_with(&port, version, b"h2", Some((vec![old.clone()], &jane.key))).await;
        let expected = "jane developers,system:authenticated";
        assert_eq!(answer, (http::StatusCode::OK, expected.into()), "{version:?}");
    }

    // One that is not valid any more, one of another authority of the same name, and one that was changed.
    let late = ca.client_for("late", "", time::Duration::seconds(-1)).unwrap();
    let stranger = Authority::generate("kubernetes").unwrap();
    let mallory = stranger.client("mallory", "system:masters").unwrap();
    let mut changed = old.to_vec();
    let at = changed.windows(4).position(|run| run == b"jane").unwrap();
    changed[at] = b'J';
    for (name, shown, key) in [
        ("late", version1(&late, ca), &late.key),
        ("mallory", version1(&mallory, &stranger), &mallory.key),
        ("changed", changed.into(), &jane.key),
    ] {
        let (status, body) = ask_with(&port, rustls::ALL_VERSIONS, b"h2", Some((vec![shown], key))).await;
        assert_eq!(status, 401, "{name}: {body}");
    }
}

/// Who does not hold the key of a certificate does not get through the handshake.
#[tokio::test]
async fn a_certificate_of_version_1_needs_its_key() {
    let port = port().await;
    let jane = port.pki.ca.client("jane", "developers").unwrap();
    let old = version1(&jane, &port.pki.ca);
    let other = port.pki.ca.client("other", "").unwrap();
    let versions: [&[&rustls::SupportedProtocolVersion]; 2] =
        [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];
    for version in versions {
        let asked = std::panic::AssertUnwindSafe(ask_with(
            &port,
            version,
            b"http/1.1",
            Some((vec![old.clone()], &other.key)),
        ));
        let outcome = futures_util::FutureExt::catch_unwind(asked).await;
        assert!(outcome.is_err(), "{version:?}: {outcome:?}");
    }
}
