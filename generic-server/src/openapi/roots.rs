//! The documents of paths that are no group version's: the lists of groups and versions, the server's version, its tokens' issuer.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use machinery::openapi::{Descriptions, Dialect, META, capital, definitions};
use serde_json::{Map, Value, json};

use super::paths::PRODUCES;
use super::{DocumentRef, OpenApiSource, SwaggerPart, VERSION, digest, paths_from_v3};
use crate::discovery::DiscoverySource;

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

/// A path and its description.
struct Root<'a> {
    path: Cow<'a, str>,
    id: Cow<'a, str>,
    tag: Cow<'a, str>,
    model: Option<&'a str>,
}

impl Root<'_> {
    /// The document at a path below `/openapi/v3/`.
    fn at(path: &str) -> Option<Root<'_>> {
        if let Some((_, served, id, tag, model)) = FIXED.iter().find(|(own, ..)| *own == path) {
            return Some(Root {
                path: (*served).into(),
                id: (*id).into(),
                tag: (*tag).into(),
                model: *model,
            });
        }
        let group = path.strip_prefix("apis/")?;
        let short = group.strip_suffix(".k8s.io").unwrap_or(group);
        let camel: String = short.split('.').map(capital).collect();
        let mut tag = camel.clone();
        if let Some(first) = tag.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        Some(Root {
            path: format!("/apis/{group}/").into(),
            id: format!("get{camel}APIGroup").into(),
            tag: tag.into(),
            model: Some("APIGroup"),
        })
    }

    fn model_name(&self) -> Option<String> {
        self.model.map(|model| format!("{META}.{model}"))
    }

    /// The path with what is at it, as v3 says it.
    fn paths(&self) -> Map<String, Value> {
        let schema = match self.model_name() {
            Some(name) => Dialect::V3.reference(&name),
            None => json!({"type": "string"}),
        };
        let media: &[&str] = match self.model {
            Some(_) => &PRODUCES,
            None => &PRODUCES[..1],
        };
        let content: Map<String, Value> = media
            .iter()
            .map(|media| ((*media).to_string(), json!({"schema": schema})))
            .collect();
        let get = json!({
            "operationId": self.id, "tags": [self.tag],
            "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
        });
        Map::from_iter([(self.path.to_string(), json!({"get": get}))])
    }
}

impl OpenApiSource for RootDocuments {
    fn swagger(&self, path: &str, _texts: &Descriptions) -> Option<SwaggerPart> {
        // Their references are in every group version's part.
        Some(SwaggerPart::new(
            paths_from_v3(&Root::at(path)?.paths()),
            Map::new(),
        ))
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
        let root = Root::at(path)?;
        let schemas = definitions(
            Dialect::V3,
            root.model_name().as_deref(),
            &[],
            &Descriptions::unpack(),
        );
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": root.paths(),
            "components": {"schemas": schemas},
        });
        Some(document.to_string().into())
    }
}
