//! From a method and a path to a [`RequestInfo`]: which verb is asked of which resource.
//!
//! Mirrors upstream's `request.RequestInfoFactory`, so that what authorization decides on is what upstream decides on. It does
//! not know which resources exist. Called once per request by the chain.

mod query;

use std::borrow::Cow;

use http::Method;
use machinery::selector::{FieldSelector, LabelSelector};
use percent_encoding::percent_decode_str;

pub use query::{encode_query, query_bool, query_pairs, query_value};

/// The facts from path, method and query (upstream's `request.RequestInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path is `/api/v1/...` or `/apis/group/version/...` with a resource.
    pub is_resource: bool,
    /// The whole path, percent-decoded, as authorization uses it. The raw one is in the request's URI.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; for other paths the lower-case method.
    pub verb: Cow<'static, str>,
    /// `api` or `apis`.
    pub api_prefix: &'static str,
    /// The API group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace, empty for cluster scope. For `namespaces` themselves the name, as upstream has it.
    pub namespace: String,
    /// The resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The object's name, or empty. A `metadata.name=` field selector of a list or watch sets it too, for authorization.
    pub name: String,
    /// The segments after the resource in the path, decoded: name, subresource and any more segments.
    pub parts: Vec<String>,
    /// The raw field selector of a list, watch or deletecollection.
    pub field_selector: String,
    /// The raw label selector of the same.
    pub label_selector: String,
}

/// The segments of most paths, with room for a subresource: `apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE`.
const SEGMENTS: usize = 8;

/// Why no information could be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// A percent sign is not followed by two hexadecimal digits: 400, as for any request that cannot be read.
    #[error("invalid URL escape")]
    BadEscape,
    /// The query has more pairs than `limits::QUERY_PAIRS`: 400.
    #[error("number of URL query parameters exceeded limit")]
    QueryPairs,
    /// `/api/v1/watch` or `/proxy` without anything behind it: 500, as upstream has it.
    #[error("unable to determine kind and namespace from url, {0}")]
    Incomplete(String),
}

/// Reads method, path and query.
///
/// # Errors
/// When the path or the query cannot be read, or name no resource where there has to be one.
pub fn resolve(method: &Method, uri: &http::Uri) -> Result<RequestInfo, InfoError> {
    let path = decode_path(uri.path())?;
    let query = uri.query().unwrap_or_default();
    if query::is_too_long(query) {
        return Err(InfoError::QueryPairs);
    }
    let mut info = RequestInfo::default();
    let outcome = fill(&mut info, method, &path, query);
    if !info.is_resource {
        info.verb = plain_verb(method);
    }
    info.path = path;
    outcome.map_err(|()| InfoError::Incomplete(uri.to_string()))?;
    Ok(info)
}

fn plain_verb(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET => "get".into(),
        Method::POST => "post".into(),
        _ => method.as_str().to_ascii_lowercase().into(),
    }
}

/// The segments of a path without slashes at its ends. Paths are short, so that a plain loop finds the slashes soonest.
fn segments(path: &str) -> Vec<&str> {
    let mut found = Vec::with_capacity(SEGMENTS);
    let mut from = 0;
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            found.push(&path[from..at]);
            from = at + 1;
        }
    }
    found.push(&path[from..]);
    found
}

fn decode_path(path: &str) -> Result<String, InfoError> {
    if !path.contains('%') {
        return Ok(path.to_string());
    }
    if !query::is_escaped_well(path) {
        return Err(InfoError::BadEscape);
    }
    Ok(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

fn fill(info: &mut RequestInfo, method: &Method, path: &str, query: &str) -> Result<(), ()> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(());
    }
    let all = segments(trimmed);
    let mut parts = all.as_slice();
    if parts.len() < 3 || (parts[0] != "api" && parts[0] != "apis") {
        return Ok(());
    }
    info.api_prefix = if parts[0] == "api" { "api" } else { "apis" };
    parts = &parts[1..];
    if info.api_prefix == "apis" {
        if parts.len() < 3 {
            return Ok(());
        }
        info.group = parts[0].into();
        parts = &parts[1..];
    }
    info.is_resource = true;
    info.version = parts[0].into();
    parts = &parts[1..];

    let by_prefix = parts[0] == "proxy" || parts[0] == "watch";
    if by_prefix {
        if parts.len() < 2 {
            return Err(());
        }
        info.verb = if parts[0] == "proxy" { "proxy" } else { "watch" }.into();
        parts = &parts[1..];
    } else {
        info.verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        }
        .into();
    }

    // `namespaces/NAME/status` is about the namespace; `namespaces/NAME/pods` about pods in it.
    if parts[0] == "namespaces" && parts.len() > 1 {
        info.namespace = parts[1].into();
        if parts.len() > 2 && parts[2] != "status" && parts[2] != "finalize" {
            parts = &parts[2..];
        }
    }
    info.parts = parts.iter().map(|p| (*p).to_string()).collect();
    info.resource = parts[0].into();
    if let Some(name) = parts.get(1) {
        info.name = (*name).into();
    }
    if let Some(subresource) = parts.get(2).filter(|_| info.verb != "proxy") {
        info.subresource = (*subresource).into();
    }

    if info.name.is_empty() && info.verb == "get" {
        let watch = query_value(query, "watch");
        info.verb = if query_bool(watch.as_deref()) {
            "watch"
        } else {
            "list"
        }
        .into();
        if let Some(name) = selected_name(query) {
            info.name = name;
        }
        // The name of a selector counts for authorization only: the verb stays a list.
        read_selectors(info, query, by_prefix);
        return Ok(());
    }
    if info.name.is_empty() && info.verb == "delete" {
        info.verb = "deletecollection".into();
    }
    read_selectors(info, query, by_prefix);
    Ok(())
}

fn read_selectors(info: &mut RequestInfo, query: &str, by_prefix: bool) {
    // The old watch paths support selectors inconsistently, so upstream does not authorize on them.
    if by_prefix || !matches!(&*info.verb, "list" | "watch" | "deletecollection") || query.is_empty() {
        return;
    }
    if let Some(selector) = query_value(query, "fieldSelector") {
        info.field_selector = selector.into_owned();
    }
    if let Some(selector) = query_value(query, "labelSelector") {
        info.label_selector = selector.into_owned();
    }
}

/// The name that a list is narrowed to by `fieldSelector=metadata.name=x`. As upstream has it, one list option that cannot be
/// read makes it a list of everything.
fn selected_name(query: &str) -> Option<String> {
    let selector = FieldSelector::parse(&query_value(query, "fieldSelector")?).ok()?;
    let name = selector.requires_exact_match("metadata.name")?;
    let is_number = |key| query_value(query, key).is_none_or(|value| value.parse::<i64>().is_ok());
    let labels = query_value(query, "labelSelector");
    if !is_number("limit")
        || !is_number("timeoutSeconds")
        || labels.is_some_and(|text| LabelSelector::parse(&text).is_err())
    {
        return None;
    }
    let is_segment = name != "." && name != ".." && !name.contains(['/', '%']);
    is_segment.then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method, URI, then verb, prefix, group, version, namespace, resource, subresource, name, parts joined.
    #[track_caller]
    fn check(method: &str, uri: &str, expected: [&str; 9]) {
        let info = resolve(&method.parse().unwrap(), &uri.parse().unwrap()).unwrap();
        let parts = info.parts.join("/");
        let got = [
            &*info.verb,
            info.api_prefix,
            &info.group,
            &info.version,
            &info.namespace,
            &info.resource,
            &info.subresource,
            &info.name,
            &parts,
        ];
        assert_eq!(got, expected, "{method} {uri}");
        assert!(info.is_resource);
    }

    #[test]
    fn resources() {
        let list = ["list", "api", "", "v1", "", "pods", "", "", "pods"];
        check("GET", "/api/v1/pods", list);
        check("HEAD", "/api/v1/pods/", list);
        check("GET", "/api/v1/pods?watch=false", list);
        check("GET", "/api/v1/pods?watch=0", list);
        for watch in ["watch=1", "watch=true", "watch=abc", "watch", "watch="] {
            let uri = format!("/api/v1/pods?{watch}");
            check(
                "GET",
                &uri,
                ["watch", "api", "", "v1", "", "pods", "", "", "pods"],
            );
        }
        check(
            "GET",
            "/api/v1/watch/pods",
            ["watch", "api", "", "v1", "", "pods", "", "", "pods"],
        );
        check(
            "GET",
            "/api/v1/watch/namespaces/a/pods/b",
            ["watch", "api", "", "v1", "a", "pods", "", "b", "pods/b"],
        );
        check(
            "GET",
            "/api/v1/proxy/namespaces/a/pods/b/c",
            ["proxy", "api", "", "v1", "a", "pods", "", "b", "pods/b/c"],
        );
        check(
            "GET",
            "/api/v1/namespaces",
            ["list", "api", "", "v1", "", "namespaces", "", "", "namespaces"],
        );
        check(
            "GET",
            "/api/v1/namespaces/a",
            ["get", "api", "", "v1", "a", "namespaces", "", "a", "namespaces/a"],
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            [
                "update",
                "api",
                "",
                "v1",
                "a",
                "namespaces",
                "finalize",
                "a",
                "namespaces/a/finalize",
            ],
        );
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b?watch=1",
            ["get", "api", "", "v1", "a", "pods", "", "b", "pods/b"],
        );
        check(
            "POST",
            "/apis/apps/v1/namespaces/a/deployments",
            [
                "create",
                "apis",
                "apps",
                "v1",
                "a",
                "deployments",
                "",
                "",
                "deployments",
            ],
        );
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            [
                "patch",
                "apis",
                "apps",
                "v1",
                "a",
                "deployments",
                "scale",
                "b",
                "deployments/b/scale",
            ],
        );
        check(
            "DELETE",
            "/api/v1/namespaces/a/pods",
            ["deletecollection", "api", "", "v1", "a", "pods", "", "", "pods"],
        );
        check(
            "DELETE",
            "/api/v1/nodes/a",
            ["delete", "api", "", "v1", "", "nodes", "", "a", "nodes/a"],
        );
        check(
            "OPTIONS",
            "/api/v1/nodes",
            ["", "api", "", "v1", "", "nodes", "", "", "nodes"],
        );
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            [
                "get",
                "apis",
                "rbac.authorization.k8s.io",
                "v1",
                "",
                "clusterroles",
                "",
                "system:node",
                "clusterroles/system:node",
            ],
        );
        check(
            "GET",
            "/api/v1/namespaces/a/services/b/proxy/x/y",
            [
                "get",
                "api",
                "",
                "v1",
                "a",
                "services",
                "proxy",
                "b",
                "services/b/proxy/x/y",
            ],
        );
    }

    #[test]
    fn selectors() {
        let name = |uri: &str| {
            let info = resolve(&Method::GET, &uri.parse().unwrap()).unwrap();
            (info.verb, info.name, info.field_selector)
        };
        let check = |query: &str, expected: &str| {
            let got = name(&format!("/api/v1/pods?{query}"));
            assert_eq!((&*got.0, &*got.1), ("list", expected), "{query}");
        };
        check("fieldSelector=metadata.name%3Da", "a");
        check("fieldSelector=metadata.name==a", "a");
        check("fieldSelector=spec.nodeName=n,metadata.name=a", "a");
        check("fieldSelector=metadata.name!=a", "");
        check("fieldSelector=metadata.name=a%2Fb", "");
        check("fieldSelector=metadata.name=..", "");
        check("fieldSelector=metadata.name", "");
        check("fieldSelector=metadata.name=a&limit=x", "");
        check("fieldSelector=metadata.name=a&limit=5&limit=x", "a");
        check("fieldSelector=metadata.name=a&timeoutSeconds=", "");
        check("fieldSelector=metadata.name=a&labelSelector=b%3Dc", "a");
        check("fieldSelector=metadata.name=a&labelSelector=!!", "");
        check("fieldSelector=metadata.name=b,metadata.name=a", "a");
        check("fieldSelector=metadata.name=a,x!=b%5C", "");
        check("fieldSelector=metadata.name=a,x", "");
        check("FieldSelector=metadata.name=a", "");
        check("fieldSelector=x=y&fieldSelector=metadata.name=a", "");
        // A pair that Go drops narrows nothing, here and in the server behind.
        check("fieldSelector=metadata.name%3Dallowed,x!%3D;", "");
        check("fieldSelector=metadata.name%3Dallowed%zz", "");
        check("watch=1;", "");
        assert_eq!(name("/api/v1/pods?fieldSelector=a%3Db").2, "a=b");
        assert_eq!(name("/api/v1/watch/pods?fieldSelector=a%3Db").2, "");
        assert_eq!(name("/api/v1/pods/x?fieldSelector=a%3Db").2, "");
    }

    #[test]
    fn other_paths() {
        let verb = |method: &str, uri: &str| {
            let info = resolve(&method.parse().unwrap(), &uri.parse().unwrap()).unwrap();
            assert!(!info.is_resource, "{uri}");
            (info.verb, info.path)
        };
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/readyz/ping",
            "/foo/a/b/c",
        ] {
            assert_eq!(verb("GET", path), ("get".into(), path.into()));
        }
        assert_eq!(verb("POST", "/foo%20bar"), ("post".into(), "/foo bar".into()));
    }

    #[test]
    fn faults() {
        let error = |uri: &str| resolve(&Method::GET, &uri.parse().unwrap()).unwrap_err();
        assert_eq!(
            error("/api/v1/watch"),
            InfoError::Incomplete("/api/v1/watch".into())
        );
        assert_eq!(error("/api/v1/pods/%zz"), InfoError::BadEscape);
        assert_eq!(error("/api/v1/pods/%4"), InfoError::BadEscape);
        let many = format!(
            "/api/v1/pods?{}",
            vec!["a"; machinery::limits::QUERY_PAIRS + 1].join("&")
        );
        assert_eq!(error(&many), InfoError::QueryPairs);
    }
}
