//! The objects of remote servers, for the controllers that work across resources, through [`RemoteResources`]: deleted with its namespace, or
//! with its owners. An unreachable server blocks only its own content.
//!
//! Mirrors the remote part of upstream's `pkg/controller/namespace/deletion` and `pkg/controller/garbagecollector`, which find the
//! resources by discovery.

mod kinds;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use generic_server::User;
use generic_server::directory::{
    KindLocation, RemainingContent, RemoteAsk, RemoteLines, RemoteResource, RemoteResources,
};
use generic_server::discovery::DiscoverySource;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::{ApiError, GroupResource, GroupVersionKind, Reason, meta};
use serde_json::Value;

use self::kinds::Kinds;
use crate::backend::Backend;
use crate::local::version_rank;
use crate::proxy;
use crate::published::Published;
use crate::remote_discovery::{self, BackendRequest};

/// Objects looked at per resource and round; more are left for the next.
const PAGE: usize = 500;
/// How large a page may be, and an object.
const MAX_PAGE_BYTES: usize = 64 << 20;
const MAX_OBJECT_BYTES: usize = 4 << 20;

/// Metadata alone, where the server can.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The server's own access to the objects of remote servers.
#[derive(Debug)]
pub(crate) struct RemoteContent {
    published: Arc<Published>,
    kinds: Kinds,
    /// As the namespace controller.
    headers: HeaderMap,
    /// As the garbage collector, reading objects and lists of metadata.
    object_headers: HeaderMap,
    list_headers: HeaderMap,
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
        let headers = |account: &str, accept: &'static str| {
            let user = User {
                name: format!("system:serviceaccount:kube-system:{account}"),
                groups: ["serviceaccounts", "serviceaccounts:kube-system", "authenticated"]
                    .map(|group| format!("system:{group}"))
                    .into(),
                ..User::default()
            };
            let mut headers = HeaderMap::new();
            proxy::identify(&mut headers, &user);
            headers.insert(mark.0.clone(), mark.1.clone());
            headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-aggregator"));
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            headers
        };
        let collector = "generic-garbage-collector";
        RemoteContent {
            kinds: Kinds::default(),
            published,
            headers: headers("namespace-controller", "application/json"),
            object_headers: headers(collector, METADATA),
            list_headers: headers(collector, METADATA_LIST),
        }
    }

    /// The server of a resource; none when it is away.
    fn backend_of(&self, resource: &RemoteResource) -> Option<Arc<Backend>> {
        let kind = &resource.kind;
        let mut all = self.published.backends().into_iter();
        let found = all.find(|(b, _)| *b.spec.group == *kind.group && *b.spec.version == *kind.version);
        found
            .filter(|(_, available)| *available)
            .map(|(backend, _)| backend)
    }

    async fn request_json(
        &self,
        backend: &Arc<Backend>,
        method: Method,
        path: &str,
    ) -> Result<Value, String> {
        let ask = BackendRequest {
            method,
            headers: &self.headers,
            body: Bytes::new(),
            most: Some(MAX_PAGE_BYTES),
        };
        let answer = remote_discovery::send_to_backend(backend, path, &ask)
            .await
            .map_err(|fault| fault.to_string())?;
        match answer.status {
            // A resource that does not list, or went meanwhile.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(Value::Null),
            status if status.is_success() => {
                serde_json::from_slice(&answer.body).map_err(|error| format!("{}: {error}", answer.url))
            }
            status => {
                let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let message = meta::dig_str(&document, &["message"]);
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
        remaining: &mut RemainingContent,
    ) -> Result<(), String> {
        let root = remote_discovery::path(&backend.spec);
        let path = format!("{root}/namespaces/{namespace}/{}", resource.name);
        let page = format!("{path}?limit={PAGE}");
        let found = self.request_json(backend, Method::GET, &page).await?;
        let items = |list: &Value| -> Vec<Value> {
            let items = list.get("items").and_then(Value::as_array);
            items.cloned().unwrap_or_default()
        };
        if items(&found).is_empty() {
            return Ok(());
        }
        if resource.collection {
            let all = format!("{path}?propagationPolicy=Background");
            self.request_json(backend, Method::DELETE, &all).await?;
        } else {
            for item in items(&found) {
                let one = format!("{path}/{}?propagationPolicy=Background", meta::name(&item));
                self.request_json(backend, Method::DELETE, &one).await?;
            }
        }
        let rest = items(&self.request_json(backend, Method::GET, &page).await?);
        if !rest.is_empty() {
            let key = GroupResource::new(&backend.spec.group, &resource.name);
            remaining.resources.push((key, rest.len()));
        }
        let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
        for item in &rest {
            for finalizer in meta::finalizers(item) {
                *finalizers.entry(finalizer.to_string()).or_default() += 1;
            }
        }
        remaining.finalizers.extend(finalizers);
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
impl RemoteResources for RemoteContent {
    async fn empty(&self, namespace: &str) -> RemainingContent {
        let mut remaining = RemainingContent::default();
        let mut backends = self.published.backends();
        // Of several versions of a resource the newest is asked.
        backends.sort_by(|(a, _), (b, _)| version_rank(&b.spec.version).cmp(&version_rank(&a.spec.version)));
        let mut done: BTreeSet<(String, String)> = BTreeSet::new();
        for (backend, available) in backends {
            let known = backend.known.load_full().filter(|_| available);
            let Some(known) = known else {
                remaining.undiscovered.push(undiscovered(&backend));
                continue;
            };
            for resource in deletable(&known.aggregated) {
                if !done.insert((backend.spec.group.clone(), resource.name.clone())) {
                    continue;
                }
                if let Err(why) = self
                    .empty_one(&backend, namespace, &resource, &mut remaining)
                    .await
                {
                    remaining.failures.push(why);
                }
            }
        }
        remaining
    }

    fn undiscovered(&self) -> Vec<String> {
        let backends = self.published.backends().into_iter();
        let away = backends.filter(|(backend, available)| !available || backend.known.load().is_none());
        away.map(|(backend, _)| undiscovered(&backend)).collect()
    }

    fn locate(&self, kind: &GroupVersionKind) -> KindLocation {
        let mut away = false;
        for (backend, available) in self.published.backends() {
            let served = *backend.spec.group == *kind.group;
            away |= served && (!available || backend.known.load().is_none());
        }
        let resources = self.kinds.of(&self.published);
        let mut same = resources
            .iter()
            .filter(|r| r.kind.group == kind.group && r.kind.kind == kind.kind);
        match same.next() {
            Some(resource) => KindLocation::Served(resource.clone()),
            None if away => KindLocation::Away,
            None => KindLocation::Nowhere,
        }
    }

    fn resources(&self) -> Vec<Arc<RemoteResource>> {
        self.kinds.of(&self.published).to_vec()
    }

    async fn request(
        &self,
        resource: &RemoteResource,
        namespace: &str,
        name: &str,
        ask: RemoteAsk,
    ) -> Result<Value, ApiError> {
        let away = |why: String| ApiError::unavailable(format!("{}: {why}", resource.group_resource()));
        let backend = self
            .backend_of(resource)
            .ok_or_else(|| away("its server is away".into()))?;
        let path = format!("{}/{}", collection(resource, namespace), proxy::segment(name));
        let mut headers = self.object_headers.clone();
        let (method, body) = match ask {
            RemoteAsk::Get => (Method::GET, Bytes::new()),
            RemoteAsk::Patch(patch) => {
                let media = HeaderValue::from_static("application/merge-patch+json");
                headers.insert(header::CONTENT_TYPE, media);
                (Method::PATCH, patch.to_string().into())
            }
            RemoteAsk::Delete(options) => {
                let media = HeaderValue::from_static("application/json");
                headers.insert(header::CONTENT_TYPE, media);
                (Method::DELETE, options.to_string().into())
            }
        };
        let what = BackendRequest {
            method,
            headers: &headers,
            body,
            most: Some(MAX_OBJECT_BYTES),
        };
        let answer = remote_discovery::send_to_backend(&backend, &path, &what)
            .await
            .map_err(|fault| away(fault.to_string()))?;
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status.is_success() && document.is_object() {
            return Ok(document);
        }
        let status = meta::dig_str(&document, &["kind"]) == "Status";
        let message = meta::dig_str(&document, &["message"]);
        // A 404 of anything but the object is no proof that the object is gone.
        match meta::dig_str(&document, &["reason"]) {
            "NotFound" if status && meta::dig_str(&document, &["details", "name"]) == name => {
                Err(ApiError::not_found(&resource.group_resource(), name))
            }
            "Conflict" if status => Err(ApiError::new(409, Reason::Conflict, message)),
            _ if message.is_empty() => Err(away(format!(
                "bad status from {}: {}",
                answer.url,
                answer.status.as_u16()
            ))),
            _ => Err(away(message.to_string())),
        }
    }

    fn follow(&self, resource: &Arc<RemoteResource>) -> RemoteLines {
        let path = collection(resource, "");
        stream::follow(self.backend_of(resource), path, self.list_headers.clone())
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.published.changes()
    }
}

/// The error for a server that cannot be reached.
fn undiscovered(backend: &Backend) -> String {
    let group_version = format!("{}/{}", backend.spec.group, backend.spec.version);
    format!("{group_version}: stale GroupVersion discovery: {group_version}")
}

/// Where the objects of a resource are, in one namespace where one is named.
fn collection(resource: &RemoteResource, namespace: &str) -> String {
    let (kind, name) = (&resource.kind, &resource.resource);
    match namespace {
        "" => format!("/apis/{}/{}/{name}", kind.group, kind.version),
        _ => format!(
            "/apis/{}/{}/namespaces/{}/{name}",
            kind.group,
            kind.version,
            proxy::segment(namespace)
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deletable_resources_are_found() {
        let known = json!({"version": "v1", "resources": [
            {"resource": "a", "scope": "Namespaced", "verbs": ["list", "delete", "deletecollection"]},
            {"resource": "b", "scope": "Namespaced", "verbs": ["list", "delete"]},
            {"resource": "c", "scope": "Cluster", "verbs": ["list", "delete"]},
            {"resource": "d", "scope": "Namespaced", "verbs": ["create"]},
            {"resource": "e"},
        ]});
        let actual: Vec<(String, bool)> = deletable(known.to_string().as_bytes())
            .into_iter()
            .map(|d| (d.name, d.collection))
            .collect();
        assert_eq!(actual, [("a".to_string(), true), ("b".to_string(), false)]);
        assert_eq!(deletable(b"garbage"), []);
    }
}
