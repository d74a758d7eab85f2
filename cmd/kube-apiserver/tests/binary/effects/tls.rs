//! Flags about TLS, as a client sees them in the handshake.

use std::path::Path;
use std::sync::Arc;

use generic_server::pki::Authority;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::super::{authority_of, launch};

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    all.expect("certificates")
}

/// What a handshake came to.
#[derive(Debug)]
struct Agreed {
    suite: String,
    curve: String,
    protocol: String,
    certificate: Vec<u8>,
}

async fn connect(
    url: &str,
    (name, authority): (&'static str, &str),
    version: &'static SupportedProtocolVersion,
) -> Result<TlsStream<TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority) {
        roots.add(certificate).expect("a root");
    }
    let provider = Arc::new(generic_server::crypto::provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let address = url.strip_prefix("https://").expect("a URL");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from(name).expect("a name");
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| error.to_string())
}

async fn handshake(
    url: &str,
    name: (&'static str, &str),
    version: &'static SupportedProtocolVersion,
) -> Result<Agreed, String> {
    let connected = connect(url, name, version).await?;
    let (_, tls) = connected.get_ref();
    Ok(Agreed {
        suite: tls
            .negotiated_cipher_suite()
            .map_or(String::new(), |suite| format!("{:?}", suite.suite())),
        curve: tls
            .negotiated_key_exchange_group()
            .map_or(String::new(), |group| format!("{:?}", group.name())),
        protocol: String::from_utf8_lossy(tls.alpn_protocol().unwrap_or_default()).into_owned(),
        certificate: tls.peer_certificates().expect("a chain")[0].to_vec(),
    })
}

/// A certificate for a name, in files; its DER.
fn issue(dir: &Path, authority: &Authority, file: &str, name: &str) -> Vec<u8> {
    let issued = authority
        .server(name, &[name.to_string()])
        .expect("a certificate");
    std::fs::write(dir.join(format!("{file}.crt")), &issued.certificate).expect("a file");
    std::fs::write(dir.join(format!("{file}.key")), &issued.key).expect("a file");
    certificates(&issued.certificate)[0].to_vec()
}

#[tokio::test]
async fn certificates_by_name_and_the_lowest_version() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::generate("others").expect("an authority");
    let by_itself = issue(dir.path(), &authority, "one", "one.example.com");
    let by_flag = issue(dir.path(), &authority, "two", "two.example.com");
    let path = |file: &str| dir.path().join(file).display().to_string();
    let one = format!("--tls-sni-cert-key={},{}", path("one.crt"), path("one.key"));
    let two = format!(
        "--tls-sni-cert-key={},{}:*.Two.example.com,two.example.com",
        path("two.crt"),
        path("two.key")
    );
    let flags = [
        &*one,
        &*two,
        "--tls-min-version=VersionTLS13",
        "--disable-http2-serving",
    ];
    let (_child, url, _lines) = launch(dir.path(), 0, &flags).await;
    let own = authority_of(dir.path());
    let others = &authority.certificate;
    let agreed = handshake(&url, ("one.example.com", others), &TLS13)
        .await
        .expect("the first");
    assert_eq!((agreed.certificate, &*agreed.protocol), (by_itself, "http/1.1"));
    let agreed = handshake(&url, ("two.example.com", others), &TLS13)
        .await
        .expect("the second");
    assert_eq!(agreed.certificate, by_flag);
    assert_eq!(agreed.curve, "X25519MLKEM768");
    handshake(&url, ("localhost", &own), &TLS13)
        .await
        .expect("the server's own");
    let refused = handshake(&url, ("localhost", &own), &TLS12)
        .await
        .expect_err("an older version");
    assert!(refused.contains("ProtocolVersion"), "{refused}");
}

#[tokio::test]
async fn cipher_suites_are_chosen() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_GCM_SHA256",
        "--tls-curve-preferences=24,25",
    ];
    let (_child, url, _lines) = launch(dir.path(), 0, &flags).await;
    let own = authority_of(dir.path());
    let agreed = handshake(&url, ("localhost", &own), &TLS12)
        .await
        .expect("a connection");
    assert_eq!(
        (&*agreed.suite, &*agreed.protocol),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "h2")
    );
    assert_eq!(agreed.curve, "secp384r1");
    let agreed = handshake(&url, ("localhost", &own), &TLS13)
        .await
        .expect("those of TLS 1.3 stay");
    assert_eq!(agreed.curve, "secp384r1");
    let log = std::fs::read_to_string(dir.path().join("server.log")).expect("a log");
    assert!(
        log.contains("TLS_RSA_WITH_AES_128_GCM_SHA256 is not spoken"),
        "{log}"
    );
    assert!(log.contains("--tls-curve-preferences: 25 is not spoken"), "{log}");
}

#[tokio::test]
async fn streams_are_bounded_and_the_certificate_is_in_a_directory() {
    let (dir, certificates) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("another"),
    );
    let authority = Authority::generate("others").expect("an authority");
    let shown = issue(certificates.path(), &authority, "apiserver", "api.example.com");
    let cert_dir = format!("--cert-dir={}", certificates.path().display());
    let flags = [&*cert_dir, "--http2-max-streams-per-connection=7"];
    let (_child, url, _lines) = launch(dir.path(), 0, &flags).await;
    let name = ("api.example.com", &*authority.certificate);
    let mut tls = connect(&url, name, &TLS13).await.expect("a connection");
    assert_eq!(
        tls.get_ref().1.peer_certificates().expect("a chain")[0].to_vec(),
        shown
    );
    // The preface of HTTP/2 with empty settings; the answer begins with the server's.
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .expect("written");
    let mut head = [0; 9];
    tls.read_exact(&mut head).await.expect("a frame");
    assert_eq!((head[3], head[4]), (4, 0), "settings");
    let mut settings = vec![0; usize::from(head[2])];
    tls.read_exact(&mut settings).await.expect("its content");
    assert!(
        settings.chunks(6).any(|one| one == [0, 3, 0, 0, 0, 7]),
        "{settings:?}"
    );
}
