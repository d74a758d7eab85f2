//! How the remote server of an APIService is reached: a plain fact, below everything that talks to it.

use machinery::meta;
use serde_json::Value;

/// How a remote server is reached, as its APIService says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteSpec {
    /// The APIService's name.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) service: String,
    pub(crate) port: u16,
    /// PEM in base64; `None` verifies against the system's roots.
    pub(crate) ca_bundle: Option<String>,
    pub(crate) insecure: bool,
}

impl RemoteSpec {
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let service = meta::dig(object, &["spec", "service"]).filter(|s| s.is_object())?;
        let text = |key: &str| {
            service
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        let bundle = meta::dig_str(object, &["spec", "caBundle"]);
        Some(RemoteSpec {
            name: meta::name(object).to_string(),
            group: meta::dig_str(object, &["spec", "group"]).to_string(),
            version: meta::dig_str(object, &["spec", "version"]).to_string(),
            namespace: text("namespace"),
            service: text("name"),
            port: u16::try_from(port).unwrap_or(443),
            ca_bundle: (!bundle.is_empty()).then(|| bundle.to_string()),
            insecure: meta::dig(object, &["spec", "insecureSkipTLSVerify"])
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        })
    }

    /// `v1.a.io`, served by the service `n/s`.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        RemoteSpec {
            name: "v1.a.io".into(),
            group: "a.io".into(),
            version: "v1".into(),
            namespace: "n".into(),
            service: "s".into(),
            port: 443,
            ca_bundle: None,
            insecure: false,
        }
    }
}
