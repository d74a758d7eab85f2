use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme, SupportedProtocolVersion,
};

use super::hybrid::X25519_MLKEM768;
use super::provider;
use crate::pki::Authority;

/// The group that a client and a server agree on.
fn agreed(
    client: CryptoProvider,
    server: CryptoProvider,
    version: &'static SupportedProtocolVersion,
) -> NamedGroup {
    let authority = Authority::generate("authority").unwrap();
    let issued = authority.server("localhost", &["localhost".to_string()]).unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in crate::pki::certificates(&authority.certificate).unwrap() {
        roots.add(certificate).unwrap();
    }
    let resolver = rustls::sign::SingleCertAndKey::from(issued.certified_key().unwrap());
    let server = ServerConfig::builder_with_provider(Arc::new(server))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    let client = ClientConfig::builder_with_provider(Arc::new(client))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let mut bytes = Vec::new();
    while client.is_handshaking() || server.is_handshaking() {
        client.write_tls(&mut bytes).unwrap();
        server
            .read_tls(&mut std::mem::take(&mut bytes).as_slice())
            .unwrap();
        server.process_new_packets().unwrap();
        server.write_tls(&mut bytes).unwrap();
        client
            .read_tls(&mut std::mem::take(&mut bytes).as_slice())
            .unwrap();
        client.process_new_packets().unwrap();
    }
    client.negotiated_key_exchange_group().unwrap().name()
}

#[test]
fn both_ends_prefer_the_hybrid_key_exchange() {
    let ring = rustls::crypto::ring::default_provider;
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    assert_eq!(agreed(provider(), provider(), v13), NamedGroup::X25519MLKEM768);
    // An end that does not speak it takes the X25519 key of the same share.
    assert_eq!(agreed(provider(), ring(), v13), NamedGroup::X25519);
    assert_eq!(agreed(ring(), provider(), v13), NamedGroup::X25519);
    // It is one of TLS 1.3.
    assert_eq!(agreed(provider(), provider(), v12), NamedGroup::X25519);
    // A server that does not take what the client sent first asks for another share.
    let mut others = provider();
    others
        .kx_groups
        .retain(|group| group.name() == NamedGroup::secp384r1);
    assert_eq!(agreed(provider(), others, v13), NamedGroup::secp384r1);
    let mut alone = provider();
    alone.kx_groups.truncate(1);
    assert_eq!(agreed(ring_then_hybrid(), alone, v13), NamedGroup::X25519MLKEM768);
}

fn ring_then_hybrid() -> CryptoProvider {
    let mut provider = provider();
    provider.kx_groups.rotate_left(1);
    provider
}

#[test]
fn shares_have_the_lengths_of_the_draft_and_secrets_agree() {
    let started = X25519_MLKEM768.start().unwrap();
    assert_eq!(started.pub_key().len(), 1216);
    let completed = X25519_MLKEM768.start_and_complete(started.pub_key()).unwrap();
    assert_eq!(
        (completed.group, completed.pub_key.len()),
        (NamedGroup::X25519MLKEM768, 1120)
    );
    let secret = started.complete(&completed.pub_key).unwrap();
    assert_eq!(secret.secret_bytes(), completed.secret.secret_bytes());
    assert_eq!(secret.secret_bytes().len(), 64);
    // The key of X25519 comes last, and is the one that is offered alone.
    let started = X25519_MLKEM768.start().unwrap();
    let (group, key) = started.hybrid_component().unwrap();
    assert_eq!((group, key), (NamedGroup::X25519, &started.pub_key()[1184..]));
}

#[test]
fn bad_shares_are_refused() {
    let group: &dyn SupportedKxGroup = X25519_MLKEM768;
    let good = group.start().unwrap().pub_key().to_vec();
    #[track_caller]
    fn refused(group: &dyn SupportedKxGroup, share: &[u8]) {
        let error = group.start_and_complete(share).err().unwrap();
        assert!(error.to_string().contains("InvalidKeyShare"), "{error}");
    }
    for length in [0, 1, 32, 1184, 1215] {
        refused(group, &good[..length]);
    }
    refused(group, &[&*good, &[0]].concat());
    // A coefficient of 4095 is beyond the modulus 3329.
    let mut beyond = good.clone();
    beyond[..2].copy_from_slice(&[0xff, 0xff]);
    refused(group, &beyond);
    // An X25519 key of small order leads to a secret of zeros.
    let mut small = good.clone();
    small[1184..].fill(0);
    refused(group, &small);
    let answer = group.start_and_complete(&good).unwrap().pub_key;
    for bad in [&answer[..1119], &answer[..32], &[]] {
        assert!(group.start().unwrap().complete(bad).is_err());
    }
    let mut small = answer.clone();
    small[1088..].fill(0);
    assert!(group.start().unwrap().complete(&small).is_err());
    // A ciphertext that was changed leads to another secret, not to an error that tells the sender something.
    let started = group.start().unwrap();
    let completed = group.start_and_complete(started.pub_key()).unwrap();
    let mut changed = completed.pub_key.clone();
    changed[0] ^= 1;
    let secret = started.complete(&changed).unwrap();
    assert_ne!(secret.secret_bytes(), completed.secret.secret_bytes());
}

/// An authority of P-521, and a client that it has signed, for a hundred years.
const P521_AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIICEzCCAXSgAwIBAgIUGQ2gpHcjO18YukwQMMa+HB9FC2owCgYIKoZIzj0EAwQw\n\
EjEQMA4GA1UEAwwHcDUyMS1jYTAgFw0yNjExMjMyMDI0MjJaGA8yMTI2MTAzMDIw\n\
MjQyMlowEjEQMA4GA1UEAwwHcDUyMS1jYTCBmzAQBgcqhkjOPQIBBgUrgQQAIwOB\n\
hgAEAGOcp/z9K06FwxovluPUXTaH3coXP/7T9dzK8ES/fTq+I+Xmgp3eUYdzhDwO\n\
f4BoYRHUdQsWv5YOkoDk7+Vjo07ZAAXtC19651G9+lAcLkA0+Vo3HtYbVAqW0Cg2\n\
DUEJ/OhEW6Nq8ZDeX/2nEOmhgsRu5oo8U/1Vo+C2OwjVGDAvFIJ4o2MwYTAdBgNV\n\
HQ4EFgQUiT7hytUiV8Zv+sS01E+wn53yVswwHwYDVR0jBBgwFoAUiT7hytUiV8Zv\n\
+sS01E+wn53yVswwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAgQwCgYI\n\
KoZIzj0EAwQDgYwAMIGIAkIAt10T/006l3gmb/hrkl2jr4cmkUVdV8Mky9OvkGq3\n\
PYkTAN4fEhc8gSl+aEX9TW3UNptHWkaX9WTDAP3PTHXnKb8CQgHya6Sxl1iHEDsK\n\
v8ZHnTjI1cFZD0K1TANdyaYsuM/XELNwnJCtVuVT4tarU65J8RG0sHVZWxJ2z/DP\n\
MC8ShhsAcQ==\n\
-----END CERTIFICATE-----\n";
const P521_CLIENT: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIICETCCAXOgAwIBAgIUC/jsj2AO1nPXgstsZm9z9gMF+TQwCgYIKoZIzj0EAwQw\n\
EjEQMA4GA1UEAwwHcDUyMS1jYTAgFw0yNjExMjMyMDI0MjJaGA8yMTI2MTAzMDIw\n\
MjQyMlowHTEMMAoGA1UECgwDZGV2MQ0wCwYDVQQDDARqYW5lMIGbMBAGByqGSM49\n\
AgEGBSuBBAAjA4GGAAQBgXKAlXssRklLJYd+CS32ttIbe/7PuqouHA6OG+OdCkP5\n\
urDGyyTlqyoDVYZfdKjbX4NWMJ2fVQ0AY0dPWsQVau8Bcy3FTakMbkPyNjwWplRE\n\
00LYXqE1lzIVm/hXAjL+zlT+VYvXCHwFshWvxq3VfDdi85JzxClILxB05ZcX7OuN\n\
uVajVzBVMBMGA1UdJQQMMAoGCCsGAQUFBwMCMB0GA1UdDgQWBBSxWiTFnbIGsX8T\n\
mFbTGp0wDhzM2jAfBgNVHSMEGDAWgBSJPuHK1SJXxm/6xLTUT7CfnfJWzDAKBggq\n\
hkjOPQQDBAOBiwAwgYcCQgETfQE/pBECzei2BZO+zmmAObuWkbZ0JadDVUsvnF2t\n\
zFLK4s+Z06syRz04Jr+JBryMm/v7+OzmHksOfNURFWV3wgJBEKGYL7TNiKc3wIGG\n\
kgWZmZQ7rnvbS9gyfG5Vd9r+ivElOMYjh7ADu67p+Com5T13Xd/7uMk2vDljhZ/T\n\
NQB653Q=\n\
-----END CERTIFICATE-----\n";

#[test]
fn certificates_of_p521_are_verified() {
    let certificate = |pem: &str| crate::pki::certificates(pem).unwrap().remove(0);
    let verified = |pem: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(P521_AUTHORITY)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
        let verifier = verifier.build().unwrap();
        assert!(
            verifier
                .supported_verify_schemes()
                .contains(&SignatureScheme::ECDSA_NISTP521_SHA512)
        );
        verifier.verify_client_cert(&certificate(pem), &[], UnixTime::now())
    };
    verified(P521_CLIENT).unwrap();
    // The last byte is of the signature.
    let mut spoiled = certificate(P521_CLIENT).to_vec();
    *spoiled.last_mut().unwrap() ^= 1;
    let mut roots = RootCertStore::empty();
    roots.add(certificate(P521_AUTHORITY)).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
    let refused = verifier
        .build()
        .unwrap()
        .verify_client_cert(&spoiled.into(), &[], UnixTime::now());
    assert!(refused.is_err());
}
