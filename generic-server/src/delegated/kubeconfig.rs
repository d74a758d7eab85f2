//! The current context of a kubeconfig: the server, its authorities and the credentials.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Fields that change the server or the user of a request, and that this client does not support.
const UNSUPPORTED_OF_CLUSTERS: [&str; 1] = ["proxy-url"];
const UNSUPPORTED_OF_USERS: [&str; 5] = ["exec", "auth-provider", "as", "as-groups", "as-user-extra"];

/// A kubeconfig's current context. PEM texts are decoded, files are read.
#[derive(Clone)]
pub struct Kubeconfig {
    /// `https://host:port`.
    pub server: String,
    /// Who the server may be.
    pub trust: ServerTrust,
    /// The name in the server's certificate, where it is not that of the URL.
    pub server_name: Option<String>,
    /// A client certificate and its key, PEM.
    pub certificate: Option<(String, String)>,
    /// A bearer token.
    pub token: Option<String>,
    /// The file that the token comes from, which is read again while the token is in use.
    pub token_file: Option<PathBuf>,
    /// A user name and its password.
    pub password: Option<(String, String)>,
}

/// The servers that a kubeconfig trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerTrust {
    /// Those of these authorities, PEM.
    Authorities(String),
    /// Those of the operating system's authorities.
    System,
    /// Any (`insecure-skip-tls-verify`).
    Anyone,
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A kubeconfig that cannot be used, in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KubeconfigError(String);

/// What is said of a configuration that leads to no server.
const EMPTY: &str = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable";
/// The lists of a kubeconfig, and the types of their items in Go.
const LISTS: [(&str, &str); 3] = [
    ("clusters", "NamedCluster"),
    ("contexts", "NamedContext"),
    ("users", "NamedAuthInfo"),
];

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it, or a file that it names, cannot be read or is incomplete.
    pub fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| KubeconfigError(format!("stat {shown}: {}", os_text(&error))))?;
        let document = decode(&text).map_err(|why| {
            let shown = machinery::go::quote(&shown.to_string());
            KubeconfigError(format!("error loading config file {shown}: {why}"))
        })?;
        Self::of(&document)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is incomplete, or a file that it names cannot be read.
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        Self::of(&decode(text).map_err(KubeconfigError)?)
    }

    fn of(document: &Value) -> Result<Self, KubeconfigError> {
        let none = Value::Null;
        let context = match string(document, "current-context") {
            None => &none,
            Some(current) => named(document, "contexts", &current, "context").ok_or_else(|| {
                KubeconfigError(format!(
                    "invalid configuration: [context was not found for specified context: {current}, cluster has no server defined]"
                ))
            })?,
        };
        let cluster_name = string(context, "cluster").unwrap_or_default();
        let cluster = named(document, "clusters", &cluster_name, "cluster");
        let cluster = cluster.ok_or_else(|| KubeconfigError(EMPTY.to_owned()))?;
        // A user that is not there has no credentials.
        let user_name = string(context, "user").unwrap_or_default();
        let user = named(document, "users", &user_name, "user").unwrap_or(&none);
        for (object, fields) in [
            (cluster, &UNSUPPORTED_OF_CLUSTERS[..]),
            (user, &UNSUPPORTED_OF_USERS),
        ] {
            if let Some(field) = fields.iter().find(|field| is_set(object, field)) {
                return Err(KubeconfigError(format!("`{field}` is not supported")));
            }
        }
        let mut faults = Vec::new();
        let mut pem = |object: &Value, owner: &str, key: &str, shown: &str| {
            pem(object, key).unwrap_or_else(|fault| {
                faults.push(fault.of(shown, owner));
                None
            })
        };
        let certificate = pem(user, &user_name, "client-certificate", "client-cert");
        let key = pem(user, &user_name, "client-key", "client-key");
        let ca = pem(
            cluster,
            &cluster_name,
            "certificate-authority",
            "certificate-authority",
        );
        let has = |object: &Value, key: &str| is_set(object, key) || is_set(object, &format!("{key}-data"));
        if has(user, "client-certificate") && !has(user, "client-key") {
            faults.push(format!(
                "client-key-data or client-key must be specified for {user_name} to use the clientCert authentication method."
            ));
        }
        let server = string(cluster, "server");
        if server.is_none() {
            let shown = machinery::go::quote(&cluster_name);
            faults.push(format!("no server found for cluster {shown}"));
        }
        let is_insecure = is_set(cluster, "insecure-skip-tls-verify");
        let mut methods = Vec::new();
        if string(user, "token").is_some() {
            methods.push("token");
        }
        if is_set(user, "username") || is_set(user, "password") {
            methods.push("basicAuth");
        }
        if methods.len() > 1 {
            let methods = methods.join(" ");
            faults.push(format!(
                "more than one authentication method found for {user_name}; found [{methods}], only one is allowed"
            ));
        }
        match &faults[..] {
            [] => {}
            [one] => return Err(KubeconfigError(format!("invalid configuration: {one}"))),
            many => {
                return Err(KubeconfigError(format!(
                    "invalid configuration: [{}]",
                    many.join(", ")
                )));
            }
        }
        let trust = match ca {
            Some(_) if is_insecure => {
                let text = "specifying a root certificates file with the insecure flag is not allowed";
                return Err(KubeconfigError(text.to_owned()));
            }
            Some(ca) if has_pem(&ca) => ServerTrust::Authorities(ca),
            Some(_) => {
                let text = "unable to load root certificates: unable to parse bytes as PEM block";
                return Err(KubeconfigError(text.to_owned()));
            }
            None if is_insecure => ServerTrust::Anyone,
            None => ServerTrust::System,
        };
        let certificate = certificate.zip(key);
        if let Some((certificate, key)) = &certificate {
            for (text, what) in [(certificate, "certificate"), (key, "key")] {
                if !has_pem(text) {
                    let text = format!("tls: failed to find any PEM data in {what} input");
                    return Err(KubeconfigError(text));
                }
            }
        }
        let token_file = string(user, "tokenFile");
        let token = match &token_file {
            Some(file) => Some(read_file(file).map_err(KubeconfigError)?.trim().to_string()),
            None => string(user, "token"),
        };
        Ok(Kubeconfig {
            server: server.unwrap_or_default(),
            trust,
            server_name: string(cluster, "tls-server-name"),
            certificate,
            token,
            token_file: token_file.map(PathBuf::from),
            password: string(user, "username")
                .map(|name| (name, string(user, "password").unwrap_or_default())),
        })
    }
}

/// The document of a text: an object of this kind, with the lists that it may have.
fn decode(text: &str) -> Result<Value, String> {
    let decoded = machinery::codec::yaml::decode(text.as_bytes()).map_err(|error| error.to_string())?;
    let document = decoded.value;
    if document.is_null() {
        return Ok(Value::Object(machinery::Map::new()));
    }
    if !document.is_object() {
        return Err(format!(
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }}"#,
            type_of(&document)
        ));
    }
    let (kind, version) = (string(&document, "kind"), string(&document, "apiVersion"));
    let (kind, version) = (
        kind.as_deref().unwrap_or("Config"),
        version.as_deref().unwrap_or("v1"),
    );
    if (kind, version) != ("Config", "v1") {
        return Err(format!(
            r#"no kind "{kind}" is registered for version "{version}" in scheme "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50""#
        ));
    }
    for (list, item) in LISTS {
        let value = document.get(list).unwrap_or(&Value::Null);
        if !value.is_null() && !value.is_array() {
            return Err(format!(
                "json: cannot unmarshal {} into Go struct field Config.{list} of type []v1.{item}",
                type_of(value)
            ));
        }
    }
    let current = document.get("current-context").unwrap_or(&Value::Null);
    if !current.is_null() && !current.is_string() {
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field Config.current-context of type string",
            type_of(current)
        ));
    }
    Ok(document)
}

/// A type of JSON by Go's name.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// An error of a file in the words of Go, which are the system's.
fn os_text(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::IsADirectory => "is a directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether a text has PEM in it.
fn has_pem(text: &str) -> bool {
    text.contains("-----BEGIN ")
}

fn string(value: &Value, key: &str) -> Option<String> {
    value
        .get(key)?
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_string)
}

fn is_set(object: &Value, field: &str) -> bool {
    let value = object.get(field).unwrap_or(&Value::Null);
    !(value.is_null() || *value == Value::Bool(false) || value.as_str() == Some(""))
}

fn named<'a>(document: &'a Value, list: &str, name: &str, inner: &str) -> Option<&'a Value> {
    let all = document.get(list)?.as_array()?;
    all.iter()
        .find(|one| one.get("name").and_then(Value::as_str) == Some(name))?
        .get(inner)
}

fn read_file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("open {path}: {}", os_text(&error)))
}

/// Why a PEM text cannot be read.
enum PemFault {
    /// Of the data itself.
    Data(String),
    /// Of the file, and its path.
    File { path: String, why: String },
}

impl PemFault {
    fn of(self, shown: &str, owner: &str) -> String {
        match self {
            PemFault::Data(why) => why,
            PemFault::File { path, why } => {
                format!("unable to read {shown} {path} for {owner} due to {why}")
            }
        }
    }
}

/// `KEY-data`, or the file that `KEY` names.
fn pem(value: &Value, key: &str) -> Result<Option<String>, PemFault> {
    if let Some(data) = string(value, &format!("{key}-data")) {
        let bytes = BASE64_STANDARD
            .decode(data)
            .map_err(|_| PemFault::Data(format!("`{key}-data` is not base64")))?;
        return String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| PemFault::Data(format!("`{key}-data` is not PEM")));
    }
    let Some(path) = string(value, key) else {
        return Ok(None);
    };
    match read_file(&path) {
        Ok(text) => Ok(Some(text)),
        Err(why) => Err(PemFault::File { path, why }),
    }
}

#[cfg(test)]
mod tests;
