//! Delegated authentication: TokenReviews, and the front proxy that the main server vouches for.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{ClientError, KubeClient};
use crate::authn::request_header::RequestHeaderOptions;
use crate::authn::{TokenAuthenticator, TokenVerdict};
use crate::request::User;

const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Asks the main server whose tokens are. Put a [`crate::authn::token_cache::TokenCache`] before it.
#[derive(Debug)]
pub struct TokenReviews(pub KubeClient);

#[async_trait::async_trait]
impl TokenAuthenticator for TokenReviews {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = match self.0.create(path, &review).await {
            Ok(answer) => answer,
            Err(error) => return TokenVerdict::Failed(error.to_string()),
        };
        let Some(status) = answer.get("status") else {
            return TokenVerdict::Failed("a TokenReview without status".into());
        };
        if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
            let why = status.get("error").and_then(Value::as_str).unwrap_or_default();
            return TokenVerdict::Failed(format!("invalid bearer token: {why}"));
        }
        let user = status.get("user").cloned().unwrap_or_default();
        let text = |key: &str| {
            user.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let extra = user.get("extra").and_then(Value::as_object);
        let user = User {
            name: text("username"),
            uid: text("uid"),
            groups: strings(user.get("groups")),
            extra: extra
                .into_iter()
                .flatten()
                .map(|(key, values)| (key.clone(), strings(Some(values))))
                .collect(),
        };
        TokenVerdict::User(user, strings(status.get("audiences")))
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_string).collect()
}

/// Whom the main server's clients and front proxy are told by.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// Authorities of client certificates, PEM; may be empty.
    pub client_ca: String,
    /// Authorities of the front proxy, PEM; empty when nobody may vouch for others.
    pub proxy_ca: String,
    /// Names and headers.
    pub options: RequestHeaderOptions,
}

/// Reads the `extension-apiserver-authentication` ConfigMap.
///
/// # Errors
/// When the main server cannot be asked or does not let this server read it.
pub async fn front_proxy(client: &KubeClient) -> Result<FrontProxy, ClientError> {
    let map = client.get(CONFIG_MAP).await?;
    let text = |key: &str| {
        let data = map.get("data").and_then(|data| data.get(key)?.as_str());
        data.unwrap_or_default().to_string()
    };
    let list = |key: &str| -> Vec<String> {
        let names: Vec<String> = serde_json::from_str(&text(key)).unwrap_or_default();
        names
    };
    let headers =
        |key: &str| -> Vec<String> { list(key).iter().map(|name| name.to_ascii_lowercase()).collect() };
    Ok(FrontProxy {
        client_ca: text("client-ca-file"),
        proxy_ca: text("requestheader-client-ca-file"),
        options: RequestHeaderOptions {
            allowed_names: list("requestheader-allowed-names"),
            username_headers: headers("requestheader-username-headers"),
            uid_headers: headers("requestheader-uid-headers"),
            group_headers: headers("requestheader-group-headers"),
            extra_prefixes: headers("requestheader-extra-headers-prefix"),
        },
    })
}

impl FrontProxy {
    /// The bundles as authorities: of clients, then of proxies. `None` where there is none.
    ///
    /// # Errors
    /// When a bundle cannot be read.
    pub fn authorities(&self) -> Result<[Option<Arc<crate::authn::x509::ClientAuthorities>>; 2], String> {
        let load = |pem: &str| {
            if pem.trim().is_empty() {
                return Ok(None);
            }
            let certificates = crate::pki::certificates(pem).map_err(|error| error.to_string())?;
            crate::authn::x509::ClientAuthorities::new(&certificates)
                .map(|found| Some(Arc::new(found)))
                .map_err(|error| error.to_string())
        };
        Ok([load(&self.client_ca)?, load(&self.proxy_ca)?])
    }
}
