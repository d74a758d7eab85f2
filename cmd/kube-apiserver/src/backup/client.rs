//! Fetches a snapshot from the server that a kubeconfig names.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use machinery::codec::yaml;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{PATH, append};

/// Gets the snapshot into a file.
pub(super) async fn fetch(kubeconfig: &Path, file: &mut BufWriter<File>) -> Result<(), String> {
    let text = std::fs::read(kubeconfig)
        .map_err(|error| format!("cannot read {}: {error}", kubeconfig.display()))?;
    let config = yaml::decode(&text)
        .map_err(|error| format!("{} is no kubeconfig: {error}", kubeconfig.display()))?
        .value;
    let context = named(&config, "contexts", config["current-context"].as_str(), "context");
    let cluster = named(&config, "clusters", context["cluster"].as_str(), "cluster");
    let user = named(&config, "users", context["user"].as_str(), "user");
    let server = cluster["server"].as_str().unwrap_or_default();
    let uri: Uri = server
        .parse()
        .map_err(|_| format!("the kubeconfig's server `{server}` is no URL"))?;
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']'])
        .to_string();
    let port = uri.port_u16().unwrap_or(443);
    let tls = TlsConnector::from(Arc::new(tls(cluster, user)?));
    let unreachable = |error: &dyn std::fmt::Display| format!("cannot reach {server}: {error}");
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| unreachable(&error))?;
    let name = ServerName::try_from(host).map_err(|error| unreachable(&error))?;
    let stream = tls
        .connect(name, stream)
        .await
        .map_err(|error| unreachable(&error))?;
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    let connection = tokio::spawn(connection);
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let mut request = Request::get(PATH).header(header::HOST, authority);
    if let Some(token) = user["token"].as_str() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| unreachable(&error))?;
    let answer = send
        .send_request(request)
        .await
        .map_err(|error| unreachable(&error))?;
    if !answer.status().is_success() {
        return Err(format!("the server answered {} to GET {PATH}", answer.status()));
    }
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the snapshot broke off: {error}"))?;
        if let Some(bytes) = frame.data_ref() {
            append(file, bytes)?;
        }
    }
    connection.abort();
    Ok(())
}

/// What a list of a kubeconfig has under a name.
fn named<'v>(config: &'v Value, list: &str, name: Option<&str>, key: &str) -> &'v Value {
    let all = config[list].as_array().into_iter().flatten();
    let found = all.into_iter().find(|one| one["name"].as_str() == name);
    found.map_or(&Value::Null, |one| &one[key])
}

/// Data that a kubeconfig embeds or names a file of.
fn data(value: &Value, key: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(text) = value[format!("{key}-data")].as_str() {
        let decoded = STANDARD.decode(text);
        return decoded
            .map(Some)
            .map_err(|_| format!("the kubeconfig's {key}-data is no base64"));
    }
    match value[key].as_str() {
        None => Ok(None),
        Some(file) => std::fs::read(file)
            .map(Some)
            .map_err(|error| format!("cannot read {file}: {error}")),
    }
}

fn tls(cluster: &Value, user: &Value) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let ca = data(cluster, "certificate-authority")?
        .ok_or("the kubeconfig names no certificate authority of its cluster")?;
    for certificate in CertificateDer::pem_slice_iter(&ca) {
        let certificate = certificate.map_err(|error| format!("the kubeconfig's authority: {error}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let pair = (data(user, "client-certificate")?, data(user, "client-key")?);
    let (Some(certificate), Some(key)) = pair else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the kubeconfig's client certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| "the kubeconfig's client key cannot be read".to_string())?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| error.to_string())
}
