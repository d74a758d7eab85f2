//! The OpenAPI documents of CRDs: one per group version (v3), and a part per version of each CRD (v2).
//!
//! Documents are joined from [`super::pieces`] when they are asked for; nothing is kept here.

use std::sync::Arc;

use bytes::Bytes;
use generic_server::openapi::{DocumentRef, OpenApiSource, StaticDocuments, SwaggerPart, digest};
use machinery::openapi::{Descriptions, Dialect};

use super::pieces::{self, Members};
use crate::definition::{Definition, VersionInfo};
use crate::deps::GROUP;
use crate::index::{Group, Published};
use crate::server::ApiExtensions;

/// The part of the v2 document with the parameters that those of CRDs refer to.
const PARAMETERS: &str = "parameters";

/// The facts that the documents of a CRD depend on.
fn state(definition: &Definition) -> String {
    let facts = &definition.facts;
    format!("{} {} {}", facts.uid, facts.generation, definition.accepted)
}

/// The served CRDs of a version.
fn served<'g>(
    group: &'g Group,
    version: &'g str,
) -> impl Iterator<Item = (&'g Arc<Definition>, &'g VersionInfo)> {
    let of = move |definition: &'g Arc<Definition>| {
        let (info, _) = definition.version(version).filter(|_| definition.established)?;
        info.served.then_some((definition, info))
    };
    group.crds.values().filter_map(of)
}

/// The documents of a group; made once for each state of the group.
pub(crate) fn published(name: &str, group: &Group) -> Published {
    let mut out = Published::default();
    let mut versions: Vec<&VersionInfo> = Vec::new();
    for definition in group.crds.values().filter(|d| d.established) {
        for info in definition.facts.versions.iter().filter(|v| v.served) {
            if !versions.iter().any(|known| known.name == info.name) {
                versions.push(info);
            }
        }
    }
    for version in versions {
        let path = format!("apis/{name}/{}", version.name);
        let mut of = format!("{}\n{path}", env!("CARGO_PKG_VERSION"));
        for (definition, _) in served(group, &version.name) {
            let state = state(definition);
            of.push_str(&format!("\n{} {state}", definition.plural));
            out.parts.push(DocumentRef {
                path: format!("{path}#{}", definition.plural),
                hash: state,
            });
        }
        let hash = digest(of.as_bytes());
        out.documents.push(DocumentRef { path, hash });
    }
    out
}

/// The v3 document of a version; `None` when nothing of it is served.
fn document(group: &Group, version: &str) -> Option<Bytes> {
    let (mut paths, mut schemas) = (Members::new(), Members::new());
    let mut with_scale = false;
    for (definition, info) in served(group, version) {
        paths.extend(pieces::paths(Dialect::V3, definition, info));
        schemas.extend(pieces::schemas(Dialect::V3, definition, info));
        with_scale |= info.scale.is_some();
    }
    if schemas.is_empty() {
        return None;
    }
    let mut out = String::from(r#"{"components":{"schemas":{"#);
    out.push_str(pieces::common_components(with_scale));
    for (name, schema) in &schemas {
        out.push(',');
        member(&mut out, name, schema);
    }
    out.push_str(
        r#"}},"info":{"title":"Kubernetes CRD Swagger","version":"v0.1.0"},"openapi":"3.0.0","paths":{"#,
    );
    for (at, (path, what)) in paths.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        member(&mut out, path, what);
    }
    out.push_str("}}");
    Some(out.into())
}

fn member(out: &mut String, name: &str, value: &Bytes) {
    out.push_str(&serde_json::Value::from(name).to_string());
    out.push(':');
    // It was made of text.
    out.push_str(std::str::from_utf8(value).unwrap_or("null"));
}

/// Group, version and what follows them.
fn split(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    match version.split_once('#') {
        Some((version, plural)) => Some((group, version, Some(plural))),
        None => Some((group, version, None)),
    }
}

impl ApiExtensions {
    fn own_documents(&self) -> StaticDocuments {
        StaticDocuments::new(self.own.groups().to_vec())
    }

    /// The OpenAPI v3 document of a group version that CRDs define.
    pub fn openapi_v3(&self, group: &str, version: &str) -> Option<Bytes> {
        document(self.index().groups.get(group)?, version)
    }

    fn published(
        &self,
        of: impl Fn(&Published) -> &Vec<DocumentRef>,
        mut all: Vec<DocumentRef>,
    ) -> Vec<DocumentRef> {
        for (name, group) in &self.index().groups {
            let published = group.openapi.get_or_init(|| published(name, group));
            all.extend_from_slice(of(published));
        }
        all
    }
}

impl OpenApiSource for ApiExtensions {
    fn documents(&self) -> Vec<DocumentRef> {
        self.published(|group| &group.documents, self.own_documents().documents())
    }

    fn document(&self, path: &str) -> Option<Bytes> {
        let (group, version, _) = split(path)?;
        if group == GROUP {
            return self.own_documents().document(path);
        }
        self.openapi_v3(group, version)
    }

    fn swagger_parts(&self) -> Vec<DocumentRef> {
        let mut own = self.own_documents().swagger_parts();
        own.push(DocumentRef {
            path: PARAMETERS.into(),
            hash: env!("CARGO_PKG_VERSION").into(),
        });
        self.published(|group| &group.parts, own)
    }

    fn swagger(&self, path: &str, texts: &Descriptions) -> Option<SwaggerPart> {
        if path == PARAMETERS {
            return Some(pieces::shared_parameters());
        }
        let (group, version, plural) = split(path)?;
        if group == GROUP {
            return self.own_documents().swagger(path, texts);
        }
        let index = self.index();
        let definition = index.find(group, plural?)?;
        let (info, _) = definition.version(version)?;
        let paths = pieces::paths(Dialect::V2, definition, info);
        Some(SwaggerPart::of_texts(
            paths,
            pieces::schemas(Dialect::V2, definition, info),
        ))
    }
}
