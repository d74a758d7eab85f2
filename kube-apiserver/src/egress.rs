//! `--egress-selector-config-file`: an `EgressSelectorConfiguration` of `apiserver.k8s.io`, which names the proxies that the server's own
//! connections go through. Mirrors `pkg/server/egressselector/config.go`. Read at the start, as upstream's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::client::egress::{EgressMetrics, EgressSelector, Network, Proxy, ProxyEndpoint, Route};
use generic_server::client::trust::{TrustedPeers, settings};
use generic_server::serve::certified_key;
use generic_server::spawn::Tasks;
use machinery::field::{FieldError, FieldPath};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config_file;

const VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "EgressSelectorConfiguration";
/// The former name of `controlplane`.
const MASTER: &str = "master";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    egress_selections: Vec<Selection>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selection {
    #[serde(default)]
    name: String,
    #[serde(default)]
    connection: Connection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connection {
    #[serde(default)]
    proxy_protocol: String,
    transport: Option<Transport>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Transport {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tcp {
    #[serde(default)]
    url: String,
    tls_config: Option<TlsFiles>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Uds {
    #[serde(default)]
    uds_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsFiles {
    #[serde(default)]
    ca_bundle: String,
    #[serde(default)]
    client_key: String,
    #[serde(default)]
    client_cert: String,
    #[serde(default, rename = "tlsServerName")]
    server_name: String,
}

/// Reads a configuration, and the certificates that it names. Tasks of tunnels belong to `tasks`; the metrics are those of all proxies.
///
/// # Errors
/// A file that cannot be read, or all faults of the configuration.
pub fn read_egress(
    path: &Path,
    metrics: &Arc<EgressMetrics>,
    tasks: &Tasks,
) -> Result<EgressSelector, String> {
    let data = config_file::read(path)
        .map_err(|why| format!("unable to read egress selector configuration from {why}"))?;
    let configuration = config_file::document(&data)
        .and_then(|document| config_file::of_kind::<Configuration>(document, &VERSIONS, KIND))
        .map_err(|why| format!("\"{}\": {why}", path.display()))?;
    let routes = configuration
        .routes(metrics, tasks)
        .map_err(|why| format!("\"{}\": {why}", path.display()))?;
    Ok(EgressSelector::new(routes))
}

impl Configuration {
    fn routes(&self, metrics: &Arc<EgressMetrics>, tasks: &Tasks) -> Result<Vec<(Network, Route)>, String> {
        let root = FieldPath::new("egressSelections");
        let mut errors = Vec::new();
        let mut routes: Vec<(Network, Route)> = Vec::new();
        for (index, selection) in self.egress_selections.iter().enumerate() {
            let path = root.index(index);
            let network = selection.network(&path, &routes);
            let route = selection.connection.route(&path.child("connection"));
            match (network, route) {
                (Ok(network), Ok(at)) => routes.push((network, with(at, metrics, tasks))),
                (network, route) => {
                    errors.extend(network.err().into_iter().chain(route.err().into_iter().flatten()))
                }
            }
        }
        match errors.is_empty() {
            true => Ok(routes),
            false => {
                let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(machinery::go::aggregate(&texts).into_owned())
            }
        }
    }
}

fn with(at: Option<ProxyEndpoint>, metrics: &Arc<EgressMetrics>, tasks: &Tasks) -> Route {
    at.map_or(Route::Direct, |at| {
        Route::Proxy(Arc::new(Proxy {
            at,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        }))
    })
}

impl Selection {
    fn network(&self, path: &FieldPath<'_>, before: &[(Network, Route)]) -> Result<Network, FieldError> {
        let path = path.child("name");
        let lower = self.name.to_lowercase();
        let name = match &*lower {
            MASTER => "controlplane",
            name => name,
        };
        let Some((_, network)) = Network::ALL.iter().find(|(known, _)| *known == name) else {
            let known = Network::ALL.map(|(name, _)| name);
            return Err(FieldError::not_supported(&path, &json!(name), &known));
        };
        match before.iter().any(|(other, _)| other == network) {
            true => Err(FieldError::duplicate(&path, &json!(name))),
            false => Ok(*network),
        }
    }
}

impl Connection {
    /// The proxy; `None` for connections without one.
    fn route(&self, path: &FieldPath<'_>) -> Result<Option<ProxyEndpoint>, Vec<FieldError>> {
        let one = |error: FieldError| vec![error];
        let at = path.child("transport");
        match (&*self.proxy_protocol, &self.transport) {
            ("Direct", None) => Ok(None),
            ("Direct", Some(_)) => {
                let detail = "config must be absent for direct connect";
                Err(one(FieldError::invalid_str(&at, "direct", detail)))
            }
            ("HTTPConnect" | "GRPC", None) => {
                let detail = format!("transport must be set for {}", self.proxy_protocol);
                Err(one(FieldError::required(&at, detail)))
            }
            ("HTTPConnect", Some(transport)) => match (&transport.tcp, &transport.uds) {
                (Some(_), Some(_)) => {
                    let detail = "TCP and UDS cannot both be set";
                    let value = Value::Object(serde_json::Map::new());
                    Err(one(FieldError::invalid(&at.child("tcp"), &value, detail)))
                }
                (None, None) => {
                    let detail = "One of TCP or UDS must be set";
                    Err(one(FieldError::required(&at.child("tcp"), detail)))
                }
                (Some(tcp), None) => tcp.endpoint(&at.child("tcp")).map(Some),
                (None, Some(uds)) => uds
                    .socket(&at.child("uds"))
                    .map(|socket| Some(ProxyEndpoint::HttpUds(socket)))
                    .map_err(one),
            },
            ("GRPC", Some(transport)) => match (&transport.tcp, &transport.uds) {
                // Upstream passes over it.
                (Some(_), _) => {
                    let detail = "GRPC is spoken over a Unix socket alone";
                    Err(one(FieldError::forbidden(&at.child("tcp"), detail)))
                }
                (None, None) => {
                    let detail = "UDS must be set with GRPC";
                    Err(one(FieldError::required(&at.child("uds"), detail)))
                }
                (None, Some(uds)) => uds
                    .socket(&at.child("uds"))
                    .map(|socket| Some(ProxyEndpoint::Grpc(socket)))
                    .map_err(one),
            },
            (other, _) => Err(one(FieldError::not_supported(
                &path.child("proxyProtocol"),
                &json!(other),
                &["Direct", "GRPC", "HTTPConnect"],
            ))),
        }
    }
}

impl Uds {
    fn socket(&self, path: &FieldPath<'_>) -> Result<PathBuf, FieldError> {
        match &*self.uds_name {
            "" => {
                let detail = "must be present for UDS connections";
                Err(FieldError::invalid_str(&path.child("udsName"), "nil", detail))
            }
            name => Ok(PathBuf::from(name)),
        }
    }
}

impl Tcp {
    fn endpoint(&self, path: &FieldPath<'_>) -> Result<ProxyEndpoint, Vec<FieldError>> {
        let url = path.child("url");
        let invalid = |detail: &str| vec![FieldError::invalid_str(&url, &self.url, detail)];
        let uri: http::Uri = self.url.parse().unwrap_or_default();
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("supported connection protocols are http:// and https://")),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() || uri.path_and_query().is_some_and(|path| path != "/") {
            return Err(invalid("must be a scheme, a host and a port"));
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let at = path.child("tlsConfig");
        let tls = match (secure, &self.tls_config) {
            (false, None) => None,
            (false, Some(_)) => {
                let detail = "config must not be present when using HTTP";
                return Err(vec![FieldError::invalid_str(&at, "nil", detail)]);
            }
            (true, None) => {
                let detail = "TLSConfig must be present when using HTTPS";
                return Err(vec![FieldError::required(&at, detail)]);
            }
            (true, Some(files)) => Some(files.tls(host, &at)?),
        };
        Ok(ProxyEndpoint::HttpTcp {
            authority: generic_server::client::authority(host, port),
            tls,
        })
    }
}

impl TlsFiles {
    fn tls(
        &self,
        host: &str,
        path: &FieldPath<'_>,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), Vec<FieldError>> {
        let mut errors = Vec::new();
        let files = [
            ("clientCert", &self.client_cert, "Using TLS requires clientCert"),
            ("clientKey", &self.client_key, "Using TLS requires clientKey"),
        ];
        for (field, file, detail) in files {
            if file.is_empty() {
                errors.push(FieldError::invalid_str(&path.child(field), "nil", detail));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let invalid = |field: &str, value: &str, detail: String| {
            vec![FieldError::invalid_str(&path.child(field), value, detail)]
        };
        let key = certified_key(Path::new(&self.client_cert), Path::new(&self.client_key))
            .map_err(|error| invalid("clientCert", &self.client_cert, error.to_string()))?;
        let bad_bundle = |why: String| invalid("caBundle", &self.ca_bundle, why);
        let bundle = match &*self.ca_bundle {
            "" => None,
            file => {
                let pem = std::fs::read(file).map_err(|error| bad_bundle(error.to_string()))?;
                Some(BASE64_STANDARD.encode(pem))
            }
        };
        let peers = bundle
            .as_deref()
            .map_or(TrustedPeers::System, TrustedPeers::Bundle);
        let shown = SingleCertAndKey::from(rustls::sign::CertifiedKey::clone(&key));
        let mut config = settings(peers)
            .map_err(bad_bundle)?
            .with_client_cert_resolver(Arc::new(shown));
        // A proxy is asked in HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = match &*self.server_name {
            "" => host,
            name => name,
        };
        let name = ServerName::try_from(name.to_string())
            .map_err(|error| invalid("tlsServerName", name, error.to_string()))?;
        Ok((Arc::new(config), name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EgressSelector, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("egress.yaml");
        std::fs::write(&path, text).expect("a file");
        let shown = format!("\"{}\": ", path.display());
        read_egress(&path, &Arc::default(), &Tasks::new()).map_err(|why| why.replace(&shown, ""))
    }

    fn selections(text: &str) -> Result<EgressSelector, String> {
        read(&format!(
            "{{apiVersion: apiserver.k8s.io/v1beta1, kind: EgressSelectorConfiguration, egressSelections: {text}}}"
        ))
    }

    #[test]
    fn networks_have_their_ways() {
        let selector = selections(
            "[{name: Cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}}, \
              {name: master, connection: {proxyProtocol: Direct}}]",
        )
        .expect("a selector");
        let cluster = selector.route(Network::Cluster);
        assert!(
            matches!(&cluster, Route::Proxy(proxy) if matches!(&proxy.at, ProxyEndpoint::Grpc(path) if path == Path::new("/run/k.sock"))),
            "{cluster:?}"
        );
        assert!(matches!(
            selector.configured(Network::ControlPlane),
            Some(Route::Direct)
        ));
        assert!(selector.configured(Network::Etcd).is_none());
        assert!(matches!(selector.route(Network::Etcd), Route::Direct));
        let plain = selections(
            "[{name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://[::1]:8131'}}}}]",
        );
        let route = plain.expect("a selector").route(Network::Etcd);
        let text = format!("{route:?}");
        assert!(text.contains("HttpTcp(\"[::1]:8131\")"), "{text}");
    }

    #[test]
    fn faults_are_named_all_together() {
        #[track_caller]
        fn check(text: &str, expected: &[&str]) {
            let why = selections(text).expect_err("it is refused");
            let shown = match expected {
                [one] => (*one).to_string(),
                all => format!("[{}]", all.join(", ")),
            };
            assert_eq!(why, shown);
        }
        let connection = |connection: &str| format!("[{{name: cluster, connection: {{{connection}}}}}]");
        let path = "egressSelections[0].connection";
        check(
            "[{name: nodes, connection: {proxyProtocol: Direct}}, {name: etcd, connection: {proxyProtocol: SOCKS}}]",
            &[
                "egressSelections[0].name: Unsupported value: \"nodes\": supported values: \"controlplane\", \"cluster\", \"etcd\"",
                "egressSelections[1].connection.proxyProtocol: Unsupported value: \"SOCKS\": supported values: \"Direct\", \"GRPC\", \"HTTPConnect\"",
            ],
        );
        check(
            "[{name: controlplane, connection: {proxyProtocol: Direct}}, {name: master, connection: {proxyProtocol: Direct}}]",
            &["egressSelections[1].name: Duplicate value: \"controlplane\""],
        );
        for (given, at, expected) in [
            (
                "proxyProtocol: GRPC",
                ".transport",
                "Required value: transport must be set for GRPC",
            ),
            (
                "proxyProtocol: GRPC, transport: {}",
                ".transport.uds",
                "Required value: UDS must be set with GRPC",
            ),
            (
                "proxyProtocol: GRPC, transport: {uds: {}}",
                ".transport.uds.udsName",
                "Invalid value: \"nil\": must be present for UDS connections",
            ),
            (
                "proxyProtocol: Direct, transport: {}",
                ".transport",
                "Invalid value: \"direct\": config must be absent for direct connect",
            ),
            (
                "proxyProtocol: HTTPConnect, transport: {}",
                ".transport.tcp",
                "Required value: One of TCP or UDS must be set",
            ),
            (
                "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'socks://p'}}",
                ".transport.tcp.url",
                "Invalid value: \"socks://p\": supported connection protocols are http:// and https://",
            ),
            (
                "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://p'}}",
                ".transport.tcp.tlsConfig",
                "Required value: TLSConfig must be present when using HTTPS",
            ),
        ] {
            check(&connection(given), &[&format!("{path}{at}: {expected}")]);
        }
        check(
            &connection("proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://p', tlsConfig: {}}}"),
            &[
                "egressSelections[0].connection.transport.tcp.tlsConfig.clientCert: Invalid value: \"nil\": Using TLS requires clientCert",
                "egressSelections[0].connection.transport.tcp.tlsConfig.clientKey: Invalid value: \"nil\": Using TLS requires clientKey",
            ],
        );
    }

    #[test]
    fn other_documents_are_refused() {
        let why = read("{apiVersion: v1, kind: EgressSelectorConfiguration}").expect_err("refused");
        assert_eq!(
            why,
            "no kind \"EgressSelectorConfiguration\" is registered for version \"v1\""
        );
        let why = selections("[{name: etcd, port: 1}]").expect_err("refused");
        assert!(
            why.starts_with("strict decoding error: unknown field `port`"),
            "{why}"
        );
        let nowhere = read_egress(Path::new("/nonexistent"), &Arc::default(), &Tasks::new());
        let why = nowhere.expect_err("refused");
        assert!(
            why.starts_with("unable to read egress selector configuration from \"/nonexistent\": "),
            "{why}"
        );
    }
}
