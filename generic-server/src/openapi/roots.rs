//! The documents of paths that are no group version's: the lists of groups and versions, the server's version, its tokens' issuer.

use std::sync::Arc;

use bytes::Bytes;
use machinery::openapi::{Descriptions, Dialect, definitions};
use serde_json::{Value, json};

use super::{DocumentRef, OpenApiSource, SwaggerPart, VERSION, digest, paths_from_v3};
use crate::discovery::DiscoverySource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PRODUCES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// One path below `/openapi/v3/`, what it serves, and what that is called.
const FIXED: [(&str, &str, &str, &str, Option<&str>); 5] = [
    ("api", "/api/", "getCoreAPIVersions", "core", Some("APIVersions")),
    ("apis", "/apis/", "getAPIVersions", "apis", Some("APIGroupList")),
    ("version", "/version/", "getCodeVersion", "version", None),
    (
        ".well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "getServiceAccountIssuerOpenIDConfiguration",
        "WellKnown",
        None,
    ),
    (
        "openid/v1/jwks",
        "/openid/v1/jwks/",
        "getServiceAccountIssuerOpenIDKeyset",
        "openid",
        None,
    ),
];

/// The documents of a whole control plane's paths outside its group versions.
#[derive(Debug)]
pub struct RootDocuments(pub Vec<Arc<dyn DiscoverySource>>);

impl RootDocuments {
    fn groups(&self) -> Vec<Arc<str>> {
        let groups = self.0.iter().flat_map(|source| {
            let groups = source.groups();
            groups.iter().map(|group| group.group.clone()).collect::<Vec<_>>()
        });
        groups.filter(|group| !group.is_empty()).collect()
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

fn document(path: &str, id: &str, tag: &str, model: Option<&str>) -> Bytes {
    let texts = Descriptions::unpack();
    let name = model.map(|model| format!("{META}.{model}"));
    let schema = match &name {
        Some(name) => Dialect::V3.reference(name),
        None => json!({"type": "string"}),
    };
    let media: &[&str] = if name.is_some() { &PRODUCES } else { &PRODUCES[..1] };
    let content: Value = media
        .iter()
        .map(|media| ((*media).to_string(), json!({"schema": schema})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let schemas = definitions(Dialect::V3, name.as_deref(), &[], &texts);
    let get = json!({
        "operationId": id, "tags": [tag],
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
    });
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": {path: {"get": get}},
        "components": {"schemas": schemas},
    });
    document.to_string().into()
}

impl OpenApiSource for RootDocuments {
    fn swagger(&self, path: &str, _texts: &Descriptions) -> Option<SwaggerPart> {
        let document: Value = serde_json::from_slice(&OpenApiSource::document(self, path)?).ok()?;
        let paths = document.get("paths").and_then(Value::as_object)?;
        // What they refer to is in every group version's part.
        Some(SwaggerPart::new(paths_from_v3(paths), serde_json::Map::new()))
    }

    fn documents(&self) -> Vec<DocumentRef> {
        let of_groups = self.groups().into_iter().map(|group| format!("apis/{group}"));
        let paths = FIXED
            .iter()
            .map(|(path, ..)| (*path).to_string())
            .chain(of_groups);
        let one = |path: String| DocumentRef {
            hash: digest(format!("{} {path}", env!("CARGO_PKG_VERSION")).as_bytes()),
            path,
        };
        paths.map(one).collect()
    }

    fn document(&self, path: &str) -> Option<Bytes> {
        if let Some((_, served, id, tag, model)) = FIXED.iter().find(|(own, ..)| *own == path) {
            return Some(document(served, id, tag, *model));
        }
        let group = path.strip_prefix("apis/")?;
        let short = group.strip_suffix(".k8s.io").unwrap_or(group);
        let camel: String = short.split('.').map(capital).collect();
        let mut tag = camel.clone();
        if let Some(first) = tag.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        let id = format!("get{camel}APIGroup");
        Some(document(&format!("/apis/{group}/"), &id, &tag, Some("APIGroup")))
    }
}
