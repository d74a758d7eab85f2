//! Delegated authentication: TokenReviews, and the front proxy that the main server vouches for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::client::{ClientError, KubeClient};
use super::token_review::ReviewStatus;
use crate::authn::request_header::{RequestHeader, RequestHeaderOptions};
use crate::authn::x509::ClientAuthorities;
use crate::authn::{TokenAuthenticator, TokenVerdict};

/// How long the main server is left alone when it cannot be asked.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Authenticates tokens by asking the main server. Put [`super::Lookups`] before it, and a [`crate::authn::token_cache::TokenCache`] before
/// these.
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
            Err(error) => {
                let why = format!("cannot ask the API server for a token review: {error}");
                return TokenVerdict::Failed(why.into());
            }
        };
        let status = match ReviewStatus::of(&answer) {
            Ok(status) => status,
            Err(why) => return TokenVerdict::Failed(why.into()),
        };
        if !status.authenticated {
            return TokenVerdict::Failed(format!("invalid bearer token: {}", status.error).into());
        }
        TokenVerdict::User(status.user.into(), status.audiences)
    }
}

/// The authorities of the main server's clients and front proxy.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// Authorities of client certificates, PEM; may be empty.
    pub client_ca: String,
    /// Authorities of the front proxy, PEM; empty when there are no front proxies.
    pub proxy_ca: String,
    /// Names and headers.
    pub options: RequestHeaderOptions,
}

/// Reads the `extension-apiserver-authentication` ConfigMap.
///
/// # Errors
/// When the main server cannot be asked or does not let this server read it.
pub async fn front_proxy(client: &KubeClient) -> Result<FrontProxy, ClientError> {
    read(client).await.map(|(known, _)| known)
}

/// The same with its version.
async fn read(client: &KubeClient) -> Result<(FrontProxy, String), ClientError> {
    let map = client.get(CONFIG_MAP).await?;
    let version = machinery::meta::dig_str(&map, &["metadata", "resourceVersion"]).to_string();
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
    let known = FrontProxy {
        client_ca: text("client-ca-file"),
        proxy_ca: text("requestheader-client-ca-file"),
        options: RequestHeaderOptions {
            allowed_names: list("requestheader-allowed-names"),
            username_headers: headers("requestheader-username-headers"),
            uid_headers: headers("requestheader-uid-headers"),
            group_headers: headers("requestheader-group-headers"),
            extra_prefixes: headers("requestheader-extra-headers-prefix"),
        },
    };
    Ok((known, version))
}

/// The content of the main server's ConfigMap, kept current: authorities of clients and of front proxies, and the proxies' names and
/// headers. Put [`Trust::front_proxies`] and an [`crate::authn::x509::X509`] of [`Trust::clients`] into the authentication.
#[derive(Debug)]
pub struct Trust {
    clients: Arc<ClientAuthorities>,
    proxies: Arc<ClientAuthorities>,
    front_proxies: Arc<RequestHeader>,
}

impl Trust {
    /// Of the current configuration.
    ///
    /// # Errors
    /// When a bundle cannot be used.
    pub fn new(known: FrontProxy) -> Result<Arc<Self>, String> {
        let proxies: Arc<ClientAuthorities> = Arc::default();
        let trust = Trust {
            clients: Arc::default(),
            front_proxies: Arc::new(RequestHeader::new(proxies.clone(), known.options.clone())),
            proxies,
        };
        trust.take(known)?;
        Ok(Arc::new(trust))
    }

    /// Authorities of client certificates.
    pub fn clients(&self) -> &Arc<ClientAuthorities> {
        &self.clients
    }

    /// Users named by trusted proxies.
    pub fn front_proxies(&self) -> &Arc<RequestHeader> {
        &self.front_proxies
    }

    /// Replaces the configuration.
    ///
    /// # Errors
    /// When a bundle cannot be used: then the old one stays.
    pub fn take(&self, known: FrontProxy) -> Result<(), String> {
        let load = |authorities: &ClientAuthorities, pem: &str| {
            let certificates = match pem.trim() {
                "" => Vec::new(),
                pem => crate::pki::certificates(pem).map_err(|error| error.to_string())?,
            };
            authorities
                .reload(&certificates)
                .map_err(|error| error.to_string())
        };
        load(&self.clients, &known.client_ca)?;
        load(&self.proxies, &known.proxy_ca)?;
        self.front_proxies.reload(known.options);
        Ok(())
    }

    /// Follows the ConfigMap for as long as it is polled; `change` puts the caller's own flags over what it says.
    pub async fn follow(&self, client: &KubeClient, change: impl Fn(FrontProxy) -> FrontProxy) {
        loop {
            let known = match read(client).await {
                Ok((known, version)) => {
                    if let Err(error) = self.take(change(known)) {
                        tracing::warn!(
                            error,
                            "the API server's authorities cannot be used; the old ones stay"
                        );
                    }
                    client.wait_for_change(&watch_path(&version)).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = known {
                tracing::warn!(%error, "cannot follow the trust configuration of the API server");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// The watch of the ConfigMap after a version.
fn watch_path(version: &str) -> String {
    let list = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dextension-apiserver-authentication";
    format!("{list}&resourceVersion={version}&watch=true&timeoutSeconds=300")
}
