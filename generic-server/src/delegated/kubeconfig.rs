//! The current context of a kubeconfig: the server, its authorities and the credentials.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Fields that change the server or the user of a request, and that this client does not support.
const UNSUPPORTED_OF_CLUSTERS: [&str; 3] = ["insecure-skip-tls-verify", "tls-server-name", "proxy-url"];
const UNSUPPORTED_OF_USERS: [&str; 7] = [
    "exec",
    "auth-provider",
    "username",
    "password",
    "as",
    "as-groups",
    "as-user-extra",
];

/// A kubeconfig's current context. PEM texts are decoded, files are read.
#[derive(Clone)]
pub struct Kubeconfig {
    /// `https://host:port`.
    pub server: String,
    /// Authorities of the server, PEM.
    pub ca: String,
    /// A client certificate and its key, PEM.
    pub certificate: Option<(String, String)>,
    /// A bearer token.
    pub token: Option<String>,
    /// The file that the token comes from, which is read again while the token is in use.
    pub token_file: Option<PathBuf>,
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("unusable kubeconfig: {0}")]
pub struct KubeconfigError(String);

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it, or a file that it names, cannot be read or is incomplete.
    pub fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| KubeconfigError(format!("cannot read `{}`: {error}", path.display())))?;
        Self::parse(&text)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is incomplete, or a file that it names cannot be read.
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        let missing = |what: &str| KubeconfigError(format!("it has no {what}"));
        let document = machinery::codec::yaml::decode(text.as_bytes())
            .map_err(|error| KubeconfigError(error.to_string()))?
            .value;
        let current = string(&document, "current-context").ok_or_else(|| missing("current-context"))?;
        let context =
            named(&document, "contexts", &current, "context").ok_or_else(|| missing("such context"))?;
        let cluster = string(context, "cluster")
            .and_then(|name| named(&document, "clusters", &name, "cluster"))
            .ok_or_else(|| missing("such cluster"))?;
        let user = string(context, "user")
            .and_then(|name| named(&document, "users", &name, "user"))
            .ok_or_else(|| missing("such user"))?;
        for (object, fields) in [
            (cluster, &UNSUPPORTED_OF_CLUSTERS[..]),
            (user, &UNSUPPORTED_OF_USERS),
        ] {
            if let Some(field) = fields.iter().find(|field| is_set(object, field)) {
                return Err(KubeconfigError(format!("`{field}` is not supported")));
            }
        }
        let certificate = match (pem(user, "client-certificate")?, pem(user, "client-key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        let token_file = string(user, "tokenFile");
        let token = match &token_file {
            Some(file) => Some(read_file(file)?.trim().to_string()),
            None => string(user, "token"),
        };
        Ok(Kubeconfig {
            server: string(cluster, "server").ok_or_else(|| missing("server"))?,
            ca: pem(cluster, "certificate-authority")?.ok_or_else(|| missing("certificate authority"))?,
            certificate,
            token,
            token_file: token_file.map(PathBuf::from),
        })
    }
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

fn read_file(path: &str) -> Result<String, KubeconfigError> {
    std::fs::read_to_string(path).map_err(|error| KubeconfigError(format!("cannot read `{path}`: {error}")))
}

/// `KEY-data`, or the file that `KEY` names.
fn pem(value: &Value, key: &str) -> Result<Option<String>, KubeconfigError> {
    if let Some(data) = string(value, &format!("{key}-data")) {
        let bytes = BASE64_STANDARD
            .decode(data)
            .map_err(|_| KubeconfigError(format!("`{key}-data` is not base64")))?;
        return String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| KubeconfigError(format!("`{key}-data` is not PEM")));
    }
    string(value, key).map(|file| read_file(&file)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_context() {
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
            clusters: [{name: k, cluster: {server: 'https://h:1', certificate-authority-data: Zm9v}}]\n\
            users: [{name: u, user: {token: t}}]\n";
        let config = Kubeconfig::parse(text).expect("it is complete");
        assert_eq!(
            (&*config.server, &*config.ca, config.token.as_deref()),
            ("https://h:1", "foo", Some("t"))
        );
        for missing in [
            "server: 'https://h:1', ",
            "certificate-authority-data: Zm9v",
            "current-context: c\n",
            "name: u, ",
        ] {
            assert!(
                Kubeconfig::parse(&text.replace(missing, "")).is_err(),
                "without {missing}"
            );
        }
        // Verification and identity are never weaker than in the file.
        for (before, unsupported) in [
            ("server:", "insecure-skip-tls-verify: true, server:"),
            ("server:", "tls-server-name: h, server:"),
            ("token: t", "token: t, as: admin"),
            ("token: t", "exec: {command: c}"),
        ] {
            let error = Kubeconfig::parse(&text.replace(before, unsupported)).expect_err(unsupported);
            assert!(error.to_string().contains("is not supported"), "{error}");
        }
        let harmless = text.replace("server:", "insecure-skip-tls-verify: false, server:");
        assert!(Kubeconfig::parse(&harmless).is_ok());
    }
}
