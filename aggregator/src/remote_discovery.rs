//! Discovery of remote servers: read in the background, within bounds, and turned into what discovery publishes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use generic_server::client::fault_of;
use generic_server::discovery::VersionDiscovery;
use generic_server::request::{ReadError, read_bounded};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::meta;
use serde_json::{Map, Value, json};

use crate::backend::Backend;
use crate::proxy;
use crate::remote::RemoteSpec;

/// How long an answer may take, to its end.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How large a discovery document may be.
const MAX_DISCOVERY_BYTES: usize = 8 << 20;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The answer of a backend to a request of this server itself.
#[derive(Debug)]
pub(crate) struct BackendResponse {
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Empty unless asked for.
    pub(crate) body: Bytes,
}

/// Why there is no answer; without an address the URL is empty.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {why}")]
pub(crate) struct Fault {
    pub(crate) url: String,
    pub(crate) why: String,
}

/// `/apis/GROUP/VERSION`.
pub(crate) fn path(spec: &RemoteSpec) -> String {
    if spec.group.is_empty() {
        format!("/api/{}", spec.version)
    } else {
        format!("/apis/{}/{}", spec.group, spec.version)
    }
}

/// A request to a backend, without its path.
#[derive(Debug)]
pub(crate) struct BackendRequest<'a> {
    pub(crate) method: Method,
    pub(crate) headers: &'a HeaderMap,
    /// The body; may be empty.
    pub(crate) body: Bytes,
    /// The body is read, up to so many bytes.
    pub(crate) most: Option<usize>,
}

/// Reads a path at one of a backend's addresses; with `most` the body is read, up to so many bytes.
pub(crate) async fn get(
    backend: &Arc<Backend>,
    path: &str,
    headers: &HeaderMap,
    most: Option<usize>,
) -> Result<BackendResponse, Fault> {
    let request = BackendRequest {
        method: Method::GET,
        headers,
        body: Bytes::new(),
        most,
    };
    send_to_backend(backend, path, &request).await
}

/// Sends a request to one of a backend's addresses. It may be repeated.
pub(crate) async fn send_to_backend(
    backend: &Arc<Backend>,
    path: &str,
    request: &BackendRequest<'_>,
) -> Result<BackendResponse, Fault> {
    let nowhere = |why: String| Fault {
        url: String::new(),
        why,
    };
    let transport = backend.transport.as_ref().map_err(|why| nowhere(why.clone()))?;
    let targets = backend.targets().map_err(nowhere)?;
    let mut last = nowhere("no address".into());
    // A second address, or the same one on a new connection: the pooled one may have died.
    for authority in targets.iter().cycle().take(targets.len().clamp(2, 3)) {
        let url = format!("https://{authority}{path}");
        let sent = send(transport, &url, request);
        let why = match tokio::time::timeout(RESPONSE_TIMEOUT, sent).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => why,
            Err(_) => "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into(),
        };
        last = Fault { url, why };
    }
    Err(last)
}

async fn send(
    transport: &crate::transport::Transport,
    url: &str,
    what: &BackendRequest<'_>,
) -> Result<BackendResponse, String> {
    let mut request = http::Request::new(proxy::body(what.body.clone()));
    *request.method_mut() = what.method.clone();
    *request.uri_mut() = url.parse().map_err(|error| format!("{error}"))?;
    request.headers_mut().clone_from(what.headers);
    let place = transport
        .place()
        .ok_or("too many requests to this server are under way")?;
    let response = place
        .pool
        .request(request)
        .await
        .map_err(|error| fault_of(&error))?;
    let (head, body) = response.into_parts();
    let body = match what.most {
        None => Bytes::new(),
        Some(most) => read_bounded(body, most).await.map_err(|error| match error {
            ReadError::TooLarge(most) => format!("the answer is larger than {most} bytes"),
            ReadError::Failed(error) => fault_of(&error),
        })?,
    };
    Ok(BackendResponse {
        url: url.to_string(),
        status: head.status,
        headers: head.headers,
        body,
    })
}

/// Opens a path at one of a backend's addresses, to be read for as long as the caller likes.
///
/// # Errors
/// Why there is no answer.
pub(crate) async fn open(
    backend: &Arc<Backend>,
    path: &str,
    headers: &HeaderMap,
) -> Result<(StatusCode, hyper::body::Incoming, crate::transport::StreamPermit), String> {
    let transport = backend.transport.as_ref().map_err(Clone::clone)?;
    let targets = backend.targets()?;
    let authority = targets.first().ok_or("no address")?;
    let mut request = http::Request::new(proxy::body(Bytes::new()));
    *request.uri_mut() = format!("https://{authority}{path}")
        .parse()
        .map_err(|error| format!("{error}"))?;
    request.headers_mut().clone_from(headers);
    let place = transport
        .place()
        .ok_or("too many requests to this server are under way")?;
    let asked = tokio::time::timeout(RESPONSE_TIMEOUT, place.pool.request(request)).await;
    let response = asked
        .map_err(|_| "context deadline exceeded (Client.Timeout exceeded while awaiting headers)")?
        .map_err(|error| fault_of(&error))?;
    let (head, body) = response.into_parts();
    Ok((head.status, body, place))
}

/// The resources of a backend's group version: from its aggregated document, else from its resource list.
pub(crate) async fn fetch(backend: &Arc<Backend>, headers: &HeaderMap) -> Result<VersionDiscovery, String> {
    let spec = &backend.spec;
    let mut modern = headers.clone();
    modern.insert(header::ACCEPT, HeaderValue::from_static(AGGREGATED));
    if let Ok(answer) = get(backend, "/apis", &modern, Some(MAX_DISCOVERY_BYTES)).await
        && answer.status.is_success()
        && is_aggregated(&answer.headers)
        && let Ok(document) = serde_json::from_slice::<Value>(&answer.body)
        && let Some(version) = of_aggregated(&document, spec)
    {
        return Ok(version);
    }
    let mut legacy = headers.clone();
    legacy.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let answer = get(backend, &path(spec), &legacy, Some(MAX_DISCOVERY_BYTES))
        .await
        .map_err(|fault| fault.to_string())?;
    if !answer.status.is_success() {
        return Err(format!(
            "bad status from {}: {}",
            answer.url,
            answer.status.as_u16()
        ));
    }
    let document = serde_json::from_slice::<Value>(&answer.body)
        .map_err(|error| format!("{} is not JSON: {error}", answer.url))?;
    of_legacy(&document, spec)
        .ok_or_else(|| format!("{} is not an APIResourceList of its group version", answer.url))
}

/// How large an OpenAPI document may be.
const MAX_OPENAPI_BYTES: usize = 8 << 20;

/// An OpenAPI document that a backend gave, with its ETag.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) body: Bytes,
    pub(crate) etag: String,
}

/// An OpenAPI document of a backend: its own of the group version, or the one of everything. `None` when it has none, or still
/// has the one of this ETag.
///
/// # Errors
/// Why it cannot be used.
pub(crate) async fn fetch_openapi(
    backend: &Arc<Backend>,
    headers: &HeaderMap,
    path: &str,
    etag: &str,
) -> Result<Option<Given>, String> {
    let mut headers = headers.clone();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(etag) = HeaderValue::from_str(etag)
        && !etag.is_empty()
    {
        headers.insert(header::IF_NONE_MATCH, etag);
    }
    let answer = get(backend, path, &headers, Some(MAX_OPENAPI_BYTES))
        .await
        .map_err(|fault| fault.to_string())?;
    match answer.status {
        StatusCode::NOT_MODIFIED => return Ok(None),
        // It does not publish any.
        status if status.is_client_error() => return Ok(None),
        status if !status.is_success() => {
            return Err(format!("bad status from {}: {}", answer.url, status.as_u16()));
        }
        _ => {}
    }
    if answer.body.first() != Some(&b'{')
        || serde_json::from_slice::<serde::de::IgnoredAny>(&answer.body).is_err()
    {
        return Err(format!("{} is not a JSON object", answer.url));
    }
    let etag = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    Ok(Some(Given {
        etag: etag.unwrap_or_default().to_string(),
        body: answer.body,
    }))
}

fn is_aggregated(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| {
            kind.contains("g=apidiscovery.k8s.io") && kind.contains("as=APIGroupDiscoveryList")
        })
}

fn of_aggregated(document: &Value, spec: &RemoteSpec) -> Option<VersionDiscovery> {
    let items = document.get("items")?.as_array()?;
    let group = items
        .iter()
        .find(|item| meta::name(item) == spec.group)?
        .get("versions")?
        .as_array()?;
    let version = group
        .iter()
        .find(|version| meta::dig_str(version, &["version"]) == spec.version)?;
    Some(published(spec, version.get("resources").cloned(), false))
}

fn published(spec: &RemoteSpec, resources: Option<Value>, stale: bool) -> VersionDiscovery {
    let freshness = if stale { "Stale" } else { "Current" };
    let mut element = json!({"version": spec.version, "freshness": freshness});
    if let Some(resources) = resources.filter(|r| r.as_array().is_some_and(|r| !r.is_empty())) {
        element["resources"] = resources;
    }
    VersionDiscovery {
        version: spec.version.as_str().into(),
        // Clients get it from the server itself.
        resource_list: Bytes::new(),
        aggregated: element.to_string().into(),
        stale,
    }
}

/// The document that is published for a server that cannot be reached: its last one, if any.
pub(crate) fn stale(spec: &RemoteSpec, known: Option<&VersionDiscovery>) -> VersionDiscovery {
    let resources = known
        .and_then(|known| serde_json::from_slice::<Value>(&known.aggregated).ok())
        .and_then(|mut element| Some(element.get_mut("resources")?.take()));
    published(spec, resources, true)
}

/// An `APIResourceList` as elements of the aggregated document.
fn of_legacy(document: &Value, spec: &RemoteSpec) -> Option<VersionDiscovery> {
    let group_version = if spec.group.is_empty() {
        spec.version.clone()
    } else {
        format!("{}/{}", spec.group, spec.version)
    };
    if meta::dig_str(document, &["groupVersion"]) != group_version {
        return None;
    }
    let list = document.get("resources")?.as_array()?;
    let mut resources: Vec<Value> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for resource in list {
        let name = meta::dig_str(resource, &["name"]);
        let text = |key: &str| meta::dig_str(resource, &[key]);
        let kind = json!({"group": text("group"), "version": text("version"), "kind": text("kind")});
        let verbs = resource.get("verbs").cloned().unwrap_or_else(|| json!([]));
        if let Some((parent, subresource)) = name.split_once('/') {
            let one = json!({"subresource": subresource, "responseKind": kind, "verbs": verbs});
            let known = places.get(parent).copied();
            if let Some(parent) = known.and_then(|at| resources.get_mut(at)) {
                match parent.get_mut("subresources").and_then(Value::as_array_mut) {
                    Some(all) => all.push(one),
                    None => parent["subresources"] = json!([one]),
                }
            }
            continue;
        }
        let namespaced = resource.get("namespaced").and_then(Value::as_bool) == Some(true);
        let mut one = Map::new();
        one.insert("resource".into(), name.into());
        one.insert("responseKind".into(), kind);
        let scope = if namespaced { "Namespaced" } else { "Cluster" };
        one.insert("scope".into(), scope.into());
        one.insert("singularResource".into(), text("singularName").into());
        one.insert("verbs".into(), verbs);
        for key in ["shortNames", "categories"] {
            if let Some(value) = resource.get(key) {
                one.insert(key.into(), value.clone());
            }
        }
        // Of resources with one name the first has the subresources.
        places.entry(name).or_insert(resources.len());
        resources.push(Value::Object(one));
    }
    Some(published(spec, Some(resources.into()), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_list_becomes_an_aggregated_element() {
        let list = json!({"groupVersion": "a.io/v1", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
            {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["update"]},
            {"name": "orphans/status", "kind": "X", "verbs": []}]});
        let version = of_legacy(&list, &RemoteSpec::example()).expect("it is of the group version");
        let kind = json!({"group": "", "version": "", "kind": "Thing"});
        let expected = json!({"version": "v1", "freshness": "Current", "resources": [{
            "resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing",
            "verbs": ["get"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["update"]}]}]});
        assert_eq!(
            serde_json::from_slice::<Value>(&version.aggregated).ok(),
            Some(expected)
        );
        let stale = stale(&RemoteSpec::example(), Some(&version));
        let said = String::from_utf8_lossy(&stale.aggregated).into_owned();
        assert!(said.contains("Stale") && said.contains("things"), "{said}");
    }

    #[test]
    fn documents_of_something_else_are_refused() {
        for bad in [
            json!({}),
            json!([]),
            json!({"groupVersion": "b.io/v1", "resources": []}),
            json!({"groupVersion": "a.io/v1"}),
        ] {
            assert!(of_legacy(&bad, &RemoteSpec::example()).is_none(), "{bad}");
            assert!(of_aggregated(&bad, &RemoteSpec::example()).is_none(), "{bad}");
        }
    }
}
