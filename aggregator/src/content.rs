//! What remote servers keep in a namespace: deleted with it. A server that is away holds up what it keeps, and nothing else.
//!
//! Called by the namespace controller through [`Elsewhere`]. Mirrors the remote part of upstream's
//! `pkg/controller/namespace/deletion`, which finds the resources by discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use generic_server::User;
use generic_server::registry::directory::{Elsewhere, Leftovers};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::{GroupResource, meta};
use serde_json::Value;

use crate::backend::Backend;
use crate::local::version_rank;
use crate::proxy;
use crate::remote_discovery::{self, Ask};
use crate::server::Published;

/// Objects looked at per resource and round; more are left for the next.
const PAGE: usize = 500;
/// How large a page may be.
const MOST: usize = 64 << 20;

/// Empties namespaces on remote servers.
#[derive(Debug)]
pub(crate) struct RemoteContent {
    published: Arc<Published>,
    headers: HeaderMap,
}

/// A namespaced resource that can be emptied.
#[derive(Debug, PartialEq, Eq)]
struct Deletable {
    name: String,
    /// All objects can be deleted at once.
    collection: bool,
}

impl RemoteContent {
    pub(crate) fn new(published: Arc<Published>, mark: (http::HeaderName, HeaderValue)) -> Self {
        let user = User {
            name: "system:serviceaccount:kube-system:namespace-controller".into(),
            groups: ["serviceaccounts", "serviceaccounts:kube-system", "authenticated"]
                .map(|group| format!("system:{group}"))
                .into(),
            ..User::default()
        };
        let mut headers = HeaderMap::new();
        proxy::identify(&mut headers, &user);
        headers.insert(mark.0, mark.1);
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-aggregator"));
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::ACCEPT, json);
        RemoteContent { published, headers }
    }

    async fn ask(&self, backend: &Arc<Backend>, method: Method, path: &str) -> Result<Value, String> {
        let ask = Ask {
            method,
            headers: &self.headers,
            most: Some(MOST),
        };
        let answer = remote_discovery::ask_backend(backend, path, &ask)
            .await
            .map_err(|fault| fault.to_string())?;
        match answer.status {
            // A resource that does not list, or went meanwhile.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(Value::Null),
            status if status.is_success() => {
                serde_json::from_slice(&answer.body).map_err(|error| format!("{}: {error}", answer.url))
            }
            status => {
                let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let message = meta::dig_str(&told, &["message"]);
                Err(match message {
                    "" => format!("bad status from {}: {}", answer.url, status.as_u16()),
                    message => message.to_string(),
                })
            }
        }
    }

    async fn empty_one(
        &self,
        backend: &Arc<Backend>,
        namespace: &str,
        resource: &Deletable,
        left: &mut Leftovers,
    ) -> Result<(), String> {
        let root = remote_discovery::path(&backend.spec);
        let path = format!("{root}/namespaces/{namespace}/{}", resource.name);
        let page = format!("{path}?limit={PAGE}");
        let found = self.ask(backend, Method::GET, &page).await?;
        let items = |list: &Value| -> Vec<Value> {
            let items = list.get("items").and_then(Value::as_array);
            items.cloned().unwrap_or_default()
        };
        if items(&found).is_empty() {
            return Ok(());
        }
        if resource.collection {
            let all = format!("{path}?propagationPolicy=Background");
            self.ask(backend, Method::DELETE, &all).await?;
        } else {
            for item in items(&found) {
                let one = format!("{path}/{}?propagationPolicy=Background", meta::name(&item));
                self.ask(backend, Method::DELETE, &one).await?;
            }
        }
        let rest = items(&self.ask(backend, Method::GET, &page).await?);
        if !rest.is_empty() {
            let key = GroupResource::new(&backend.spec.group, &resource.name);
            left.resources.push((key, rest.len()));
        }
        let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
        for item in &rest {
            for finalizer in meta::finalizers(item) {
                *finalizers.entry(finalizer.to_string()).or_default() += 1;
            }
        }
        left.finalizers.extend(finalizers);
        Ok(())
    }
}

/// The namespaced resources of a server's discovery that can be listed and deleted.
fn deletable(known: &[u8]) -> Vec<Deletable> {
    let element: Value = serde_json::from_slice(known).unwrap_or_default();
    let resources = element.get("resources").and_then(Value::as_array);
    let one = |resource: &Value| {
        let verbs = resource.get("verbs")?.as_array()?;
        let can = |verb: &str| verbs.iter().any(|v| v == verb);
        let fits = meta::dig_str(resource, &["scope"]) == "Namespaced" && can("list") && can("delete");
        fits.then(|| Deletable {
            name: meta::dig_str(resource, &["resource"]).to_string(),
            collection: can("deletecollection"),
        })
    };
    resources.into_iter().flatten().filter_map(one).collect()
}

#[async_trait::async_trait]
impl Elsewhere for RemoteContent {
    async fn empty(&self, namespace: &str) -> Leftovers {
        let mut left = Leftovers::default();
        let mut backends = self.published.backends();
        // Of several versions of a resource the newest is asked.
        backends.sort_by(|(a, _), (b, _)| version_rank(&b.spec.version).cmp(&version_rank(&a.spec.version)));
        let mut done: BTreeSet<(String, String)> = BTreeSet::new();
        for (backend, available) in backends {
            let group_version = format!("{}/{}", backend.spec.group, backend.spec.version);
            let known = backend.known.load_full().filter(|_| available);
            let Some(known) = known else {
                left.undiscovered.push(format!(
                    "{group_version}: stale GroupVersion discovery: {group_version}"
                ));
                continue;
            };
            for resource in deletable(&known.aggregated) {
                if !done.insert((backend.spec.group.clone(), resource.name.clone())) {
                    continue;
                }
                if let Err(why) = self.empty_one(&backend, namespace, &resource, &mut left).await {
                    left.failures.push(why);
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_can_be_emptied() {
        let known = json!({"version": "v1", "resources": [
            {"resource": "a", "scope": "Namespaced", "verbs": ["list", "delete", "deletecollection"]},
            {"resource": "b", "scope": "Namespaced", "verbs": ["list", "delete"]},
            {"resource": "c", "scope": "Cluster", "verbs": ["list", "delete"]},
            {"resource": "d", "scope": "Namespaced", "verbs": ["create"]},
            {"resource": "e"},
        ]});
        let told: Vec<(String, bool)> = deletable(known.to_string().as_bytes())
            .into_iter()
            .map(|d| (d.name, d.collection))
            .collect();
        assert_eq!(told, [("a".to_string(), true), ("b".to_string(), false)]);
        assert_eq!(deletable(b"garbage"), []);
    }
}
