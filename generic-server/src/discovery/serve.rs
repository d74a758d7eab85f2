//! The joined documents, and the answers made of them.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Method, StatusCode, header, request::Parts};
use machinery::ApiError;
use serde_json::json;

use super::{DiscoverySource, GroupDiscovery};
use crate::negotiate::{self, DocumentForm};
use crate::paths::Paths;
use crate::request::{Response, empty};

const MEDIA_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The discovery documents of one or more servers.
#[derive(Debug)]
pub struct Documents {
    sources: Vec<Arc<dyn DiscoverySource>>,
    joined: ArcSwapOption<Joined>,
    server_address: String,
}

/// All documents, of one state of the sources.
#[derive(Debug)]
struct Joined {
    /// The change counters that this was made at.
    at: Vec<u64>,
    core: Aggregated,
    groups: Aggregated,
    /// The documents by path, without a final slash.
    documents: Paths<Document>,
}

/// The document at a path.
#[derive(Debug)]
struct Document {
    json: Bytes,
    /// Which aggregated document there is beside it.
    aggregated: Option<Root>,
}

/// The paths that aggregated documents are at.
#[derive(Debug, Clone, Copy)]
enum Root {
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
}

#[derive(Debug)]
struct Aggregated {
    body: Bytes,
    etag: String,
}

impl Documents {
    /// The documents of these sources. Their groups are listed in the order of the sources; a group or version that an
    /// earlier source has is not taken from a later one, but its versions are joined. `server_address` (`host:port`) is the
    /// address in `/api`.
    pub fn new(sources: Vec<Arc<dyn DiscoverySource>>, server_address: String) -> Self {
        Documents {
            sources,
            joined: ArcSwapOption::empty(),
            server_address,
        }
    }

    /// The groups of all sources, joined.
    pub fn groups(&self) -> Vec<Arc<GroupDiscovery>> {
        let mut out: Vec<Arc<GroupDiscovery>> = Vec::new();
        let mut index: HashMap<Arc<str>, usize> = HashMap::new();
        for source in &self.sources {
            for group in source.groups().iter() {
                match index.get(&group.group) {
                    None => {
                        index.insert(group.group.clone(), out.len());
                        out.push(group.clone());
                    }
                    Some(at) => {
                        let mut both = GroupDiscovery::clone(&out[*at]);
                        for version in &group.versions {
                            if !both.versions.iter().any(|v| v.version == version.version) {
                                both.versions.push(version.clone());
                            }
                        }
                        out[*at] = Arc::new(both);
                    }
                }
            }
        }
        out
    }

    fn joined(&self) -> Arc<Joined> {
        let at: Vec<u64> = self.sources.iter().map(|s| s.generation()).collect();
        if let Some(joined) = self.joined.load_full().filter(|j| j.at == at) {
            return joined;
        }
        let joined = Arc::new(Joined::of(&self.groups(), at, &self.server_address));
        self.joined.store(Some(joined.clone()));
        joined
    }

    /// Answers a discovery path, or `None` when the path is not one. Unknown groups and versions are `None` too.
    pub fn answer(&self, head: &Parts) -> Option<Response> {
        let path = head.uri.path().trim_end_matches('/');
        let joined = self.joined();
        let document = joined.documents.get(path)?;
        let aggregated = document.aggregated.map(|root| match root {
            Root::Core => &joined.core,
            Root::Groups => &joined.groups,
        });
        if head.method != Method::GET {
            return Some(crate::respond::error(&ApiError::method_not_allowed()));
        }
        Some(respond(head, &document.json, aggregated, speaks_cbor(head, path)))
    }
}

/// Whether a document is offered as CBOR: upstream offers the resources of a built-in group version so, and neither the roots and groups
/// nor custom resources.
fn speaks_cbor(head: &Parts, path: &str) -> bool {
    negotiate::serves_cbor(head)
        && match path.strip_prefix("/apis/").and_then(|rest| rest.split_once('/')) {
            Some((group, _)) => machinery::schema::builtin()
                .kinds()
                .any(|(known, ..)| known == group),
            None => path == "/api/v1",
        }
}

fn respond(head: &Parts, document: &Bytes, aggregated: Option<&Aggregated>, cbor: bool) -> Response {
    match negotiate::document(&head.headers, aggregated.is_some(), cbor) {
        Err(error) => crate::respond::error(&error),
        Ok(DocumentForm::AggregatedDiscovery) => match aggregated {
            Some(aggregated) => aggregated_response(head, aggregated),
            None => crate::respond::error(&ApiError::not_acceptable(negotiate::BUILTIN_TYPES)),
        },
        Ok(form) => crate::respond::in_form(head, form, document),
    }
}

fn aggregated_response(head: &Parts, document: &Aggregated) -> Response {
    let known = head
        .headers
        .get(header::IF_NONE_MATCH)
        .and_then(|v| v.to_str().ok());
    let fresh = known == Some(document.etag.as_str());
    let mut response = if fresh {
        Response::new(empty())
    } else {
        crate::respond::maybe_gzip(&head.headers, document.body.clone())
    };
    let headers = response.headers_mut();
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(MEDIA_V2));
    }
    let headers = response.headers_mut();
    if let Ok(etag) = header::HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(header::VARY, header::HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("public"));
    response
}

impl Joined {
    fn of(groups: &[Arc<GroupDiscovery>], at: Vec<u64>, address: &str) -> Self {
        let (core, named): (Vec<_>, Vec<_>) = groups.iter().partition(|g| g.group.is_empty());
        let mut documents = Paths::default();
        let mut put = |path: &str, json: Bytes, aggregated| {
            documents.insert(path, Document { json, aggregated });
        };
        for group in groups {
            let root = match &*group.group {
                "" => "/api".to_string(),
                group => format!("/apis/{group}"),
            };
            for version in &group.versions {
                let path = format!("{root}/{}", version.version);
                put(&path, version.resource_list.clone(), None);
            }
        }
        let versions: Vec<&str> = core
            .iter()
            .flat_map(|g| g.versions.iter().map(|v| &*v.version))
            .collect();
        let versions = json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        });
        let api_groups: Vec<serde_json::Value> = named.iter().filter_map(|g| api_group(g)).collect();
        for group in &api_groups {
            let mut document = group.clone();
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            let name = group["name"].as_str().unwrap_or_default();
            put(&format!("/apis/{name}"), document.to_string().into(), None);
        }
        let group_list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": api_groups});
        put("/api", versions.to_string().into(), Some(Root::Core));
        put("/apis", group_list.to_string().into(), Some(Root::Groups));
        Joined {
            at,
            core: aggregated(&core),
            groups: aggregated(&named),
            documents,
        }
    }
}

fn api_group(group: &GroupDiscovery) -> Option<serde_json::Value> {
    let version =
        |version: &str| json!({"groupVersion": format!("{}/{version}", group.group), "version": version});
    let preferred = group.versions.first()?;
    Some(json!({
        "name": &*group.group,
        "versions": group.versions.iter().map(|v| version(&v.version)).collect::<Vec<_>>(),
        "preferredVersion": version(&preferred.version),
    }))
}

/// The v2 document: a concatenation of the versions' pieces.
fn aggregated(groups: &[&Arc<GroupDiscovery>]) -> Aggregated {
    let mut body = Vec::from(
        &br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":["#
            [..],
    );
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(br#"{"metadata":{"#);
        if !group.group.is_empty() {
            body.extend_from_slice(br#""name":"#);
            body.extend_from_slice(machinery::go::quote(&group.group).as_bytes());
        }
        body.extend_from_slice(br#"},"versions":["#);
        for (index, version) in group.versions.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&version.aggregated);
        }
        body.extend_from_slice(b"]}");
    }
    body.extend_from_slice(b"]}\n");
    let digest = ring::digest::digest(&ring::digest::SHA512, &body);
    let etag = digest.as_ref().iter().fold(String::from("\""), |mut out, byte| {
        out.push_str(&format!("{byte:02X}"));
        out
    }) + "\"";
    Aggregated {
        body: body.into(),
        etag,
    }
}
