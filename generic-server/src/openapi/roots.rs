//! The documents of paths that are no group version's: the lists of groups and versions, the server's version, its tokens' issuer.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use machinery::openapi::{Descriptions, Dialect, capital, definitions};
use serde_json::{Map, Value, json};

use super::paths::{PRODUCES, document};
use super::{DocumentRef, OpenApiSource, SwaggerPart, VERSION, digest, paths_from_v3, security};

/// A document whose path is fixed.
struct Fixed {
    /// Below `/openapi/v3/`.
    document: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    text: &'static str,
    model: Option<&'static str>,
    media: &'static [&'static str],
    /// What the v2 document says that it takes, though nothing is sent.
    consumes: &'static [&'static str],
}

const FIXED: [Fixed; 5] = [
    Fixed {
        document: "api",
        path: "/api/",
        id: "getCoreAPIVersions",
        tag: "core",
        text: "get available API versions",
        model: Some("apis.meta.v1.APIVersions"),
        media: &PRODUCES,
        consumes: &PRODUCES,
    },
    Fixed {
        document: "apis",
        path: "/apis/",
        id: "getAPIVersions",
        tag: "apis",
        text: "get available API versions",
        model: Some("apis.meta.v1.APIGroupList"),
        media: &PRODUCES,
        consumes: &PRODUCES,
    },
    Fixed {
        document: "version",
        path: "/version/",
        id: "getCodeVersion",
        tag: "version",
        text: "get the version of this server",
        model: Some("version.Info"),
        media: &JSON,
        consumes: &JSON,
    },
    Fixed {
        document: ".well-known/openid-configuration",
        path: "/.well-known/openid-configuration/",
        id: "getServiceAccountIssuerOpenIDConfiguration",
        tag: "WellKnown",
        text: "get the OpenID configuration of the issuer of service account tokens",
        model: None,
        media: &JSON,
        consumes: &[],
    },
    Fixed {
        document: "openid/v1/jwks",
        path: "/openid/v1/jwks/",
        id: "getServiceAccountIssuerOpenIDKeyset",
        tag: "openid",
        text: "get the public keys of the issuer of service account tokens (JSON Web Key Set)",
        model: None,
        media: &["application/jwk-set+json"],
        consumes: &[],
    },
];
const JSON: [&str; 1] = ["application/json"];

/// The documents of a whole control plane's paths outside its group versions.
#[derive(Debug)]
pub struct RootDocuments(Vec<Arc<str>>);

impl RootDocuments {
    /// Of a control plane with these groups of its own. Those of CRDs and of aggregated servers have no document here, as with
    /// upstream.
    pub fn new(groups: impl IntoIterator<Item = Arc<str>>) -> Self {
        let named = groups.into_iter().filter(|group| !group.is_empty());
        RootDocuments(named.collect())
    }
}

/// A path and its description.
struct Root<'a> {
    path: Cow<'a, str>,
    id: Cow<'a, str>,
    tag: Cow<'a, str>,
    text: &'a str,
    model: Option<&'a str>,
    media: &'a [&'a str],
    consumes: &'a [&'a str],
}

impl Root<'_> {
    /// The document at a path below `/openapi/v3/`.
    fn at(path: &str) -> Option<Root<'_>> {
        if let Some(fixed) = FIXED.iter().find(|fixed| fixed.document == path) {
            return Some(Root {
                path: fixed.path.into(),
                id: fixed.id.into(),
                tag: fixed.tag.into(),
                text: fixed.text,
                model: fixed.model,
                media: fixed.media,
                consumes: fixed.consumes,
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
            text: "get information of a group",
            model: Some("apis.meta.v1.APIGroup"),
            media: &PRODUCES,
            consumes: &PRODUCES,
        })
    }

    fn model_name(&self) -> Option<String> {
        self.model.map(|model| format!("io.k8s.apimachinery.pkg.{model}"))
    }

    /// The path with what is at it, as v3 says it.
    fn paths(&self) -> Map<String, Value> {
        let schema = match self.model_name() {
            Some(name) => Dialect::V3.reference(&name),
            None => json!({"type": "string"}),
        };
        let (id, tag) = (self.id.to_string(), self.tag.to_string());
        let get = document(id, tag, self.text, self.media, schema);
        Map::from_iter([(self.path.to_string(), json!({"get": get}))])
    }

    fn definitions(&self, dialect: Dialect, texts: &Descriptions) -> Map<String, Value> {
        definitions(dialect, self.model_name().as_deref(), &[], texts)
    }
}

impl OpenApiSource for RootDocuments {
    fn swagger(&self, path: &str, texts: &Descriptions) -> Option<SwaggerPart> {
        let root = Root::at(path)?;
        let paths = paths_from_v3(&root.paths(), root.consumes);
        Some(SwaggerPart::new(paths, root.definitions(Dialect::V2, texts)))
    }

    fn documents(&self) -> Vec<DocumentRef> {
        let of_groups = self.0.iter().map(|group| format!("apis/{group}"));
        let paths = FIXED
            .iter()
            .map(|fixed| fixed.document.to_owned())
            .chain(of_groups);
        let one = |path: String| DocumentRef {
            hash: digest(format!("{} {path}", env!("CARGO_PKG_VERSION")).as_bytes()),
            path,
        };
        paths.map(one).collect()
    }

    fn document(&self, path: &str) -> Option<Bytes> {
        let root = Root::at(path)?;
        let mut components = json!({"securitySchemes": security()});
        let schemas = root.definitions(Dialect::V3, &Descriptions::unpack());
        if !schemas.is_empty() {
            components["schemas"] = schemas.into();
        }
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": root.paths(),
            "components": components,
        });
        Some(document.to_string().into())
    }
}
