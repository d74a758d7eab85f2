//! OpenAPI: the documents of group versions (v3), the one document of everything (v2), and the answers made of them.
//!
//! Every server is an [`OpenApiSource`]; [`OpenApi`] joins sources into `/openapi/v3`, `/openapi/v3/apis/GROUP/VERSION` and
//! `/openapi/v2`. A document is made when it is first asked for, away from the threads that serve, and kept as bytes until its
//! hash changes. Mirrors `kube-openapi`'s `handler3`. It knows no kind: what schemas say is [`machinery::openapi`]'s, paths are in
//! [`paths`].

mod answer;
mod paths;
mod roots;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use machinery::openapi::{CustomKind, Descriptions, Dialect, custom_definitions, definitions};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::server::GroupSpec;

/// A document that a source has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRef {
    /// Below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    pub path: String,
    /// Changes whenever the document does.
    pub hash: String,
}

/// A server that publishes OpenAPI documents.
pub trait OpenApiSource: Send + Sync + std::fmt::Debug {
    /// Its documents, at this moment; cheap.
    fn documents(&self) -> Vec<DocumentRef>;
    /// One of them, as JSON; may take its time.
    fn document(&self, path: &str) -> Option<Bytes>;
    /// Its part of the v2 document: definitions and paths; may take its time.
    fn v2(&self, _texts: &Descriptions) -> (Map<String, Value>, Map<String, Value>) {
        (Map::new(), Map::new())
    }
}

pub use roots::RootDocuments;

/// The documents of one or more servers.
#[derive(Debug)]
pub struct OpenApi {
    sources: Vec<Arc<dyn OpenApiSource>>,
    kept: Arc<Mutex<HashMap<String, (String, Bytes)>>>,
}

const V2: &str = "/openapi/v2";

impl OpenApi {
    /// The documents of these sources; of a path that several have, the first one's.
    pub fn new(sources: Vec<Arc<dyn OpenApiSource>>) -> Self {
        OpenApi {
            sources,
            kept: Arc::default(),
        }
    }

    /// Every document's hash, by path.
    fn hashes(&self) -> BTreeMap<String, (usize, String)> {
        let mut all = BTreeMap::new();
        for (index, source) in self.sources.iter().enumerate() {
            for document in source.documents() {
                all.entry(document.path).or_insert((index, document.hash));
            }
        }
        all
    }

    /// A document that is kept under a name as long as its hash is this; made by `make` otherwise, on a thread of its own.
    async fn kept(
        &self,
        name: &str,
        hash: &str,
        make: impl FnOnce() -> Option<Bytes> + Send + 'static,
    ) -> Option<Bytes> {
        if let Some((_, document)) = self.kept.lock().get(name).filter(|(known, _)| known == hash) {
            return Some(document.clone());
        }
        let made = tokio::task::spawn_blocking(make).await.ok().flatten()?;
        self.kept.lock().insert(name.into(), (hash.into(), made.clone()));
        Some(made)
    }

    /// The v3 document of a path, with its hash.
    async fn v3(&self, path: &str) -> Option<(String, Bytes)> {
        let mut hashes = self.hashes();
        let (index, hash) = hashes.remove(path)?;
        let source = self.sources.get(index)?.clone();
        let own = path.to_string();
        let document = self.kept(path, &hash, move || source.document(&own)).await?;
        // What is gone is not kept.
        self.kept
            .lock()
            .retain(|name, _| name == V2 || name == path || hashes.contains_key(name));
        Some((hash, document))
    }

    /// The v2 document, with its hash.
    async fn v2(&self) -> Option<(String, Bytes)> {
        let hashes: Vec<String> = self.hashes().into_values().map(|(_, hash)| hash).collect();
        let hash = digest(hashes.join("\n").as_bytes());
        let sources = self.sources.clone();
        let document = self.kept(V2, &hash, move || Some(join_v2(&sources))).await?;
        Some((hash, document))
    }
}

fn join_v2(sources: &[Arc<dyn OpenApiSource>]) -> Bytes {
    let texts = Descriptions::unpack();
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for source in sources {
        let (more_definitions, more_paths) = source.v2(&texts);
        for (name, definition) in more_definitions {
            definitions.entry(name).or_insert(definition);
        }
        paths.extend(more_paths);
    }
    let document = json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header",
            "description": "Bearer Token authentication",
        }},
        "security": [{"BearerToken": []}],
    });
    document.to_string().into()
}

/// What the documents are of.
const VERSION: &str = "1.36";

/// A hash as documents carry it: SHA-512 in capital hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The documents of a server whose groups are known at start.
#[derive(Debug)]
pub struct StaticDocuments {
    groups: Vec<GroupSpec>,
    schemas: HashMap<(String, String, String), Value>,
}

impl StaticDocuments {
    /// Of these groups.
    pub fn new(groups: Vec<GroupSpec>) -> Self {
        StaticDocuments {
            groups,
            schemas: HashMap::new(),
        }
    }

    /// The schema (an `openAPIV3Schema` as CRDs have it) of a kind that Kubernetes does not bring.
    #[must_use]
    pub fn with_schema(mut self, group: &str, version: &str, kind: &str, schema: Value) -> Self {
        self.schemas
            .insert((group.into(), version.into(), kind.into()), schema);
        self
    }

    fn path(group: &str, version: &str) -> String {
        if group.is_empty() {
            format!("api/{version}")
        } else {
            format!("apis/{group}/{version}")
        }
    }

    /// Definitions of what these paths name, and of custom kinds.
    fn schemas(
        &self,
        dialect: Dialect,
        group: &str,
        version: &str,
        models: &paths::Models,
        texts: &Descriptions,
    ) -> Map<String, Value> {
        let served = [("", "v1"), (group, version)];
        let served = if group.is_empty() && version == "v1" {
            &served[..1]
        } else {
            &served[..]
        };
        let mut out = definitions(dialect, models.names.iter().map(String::as_str), served, texts);
        for custom in &models.custom {
            let key = (group.to_string(), version.to_string(), custom.kind.clone());
            let kind = CustomKind {
                group,
                version,
                kind: &custom.kind,
                list_kind: &custom.list_kind,
                plural: &custom.plural,
                schema: self.schemas.get(&key),
                preserve_unknown: false,
                selectable: &[],
            };
            out.extend(custom_definitions(dialect, &kind, texts));
        }
        out
    }
}

impl OpenApiSource for StaticDocuments {
    fn documents(&self) -> Vec<DocumentRef> {
        let mut all = Vec::new();
        for group in &self.groups {
            for (version, resources) in &group.versions {
                let path = Self::path(&group.group, version);
                let mut of = format!("{}\n{path}", env!("CARGO_PKG_VERSION"));
                for resource in resources {
                    of.push_str(&resource.gvr.resource);
                }
                let hash = digest(of.as_bytes());
                all.push(DocumentRef { path, hash });
            }
        }
        all
    }

    fn document(&self, path: &str) -> Option<Bytes> {
        let versions = self.groups.iter().flat_map(|group| {
            group
                .versions
                .iter()
                .map(move |(version, resources)| (&*group.group, &**version, resources))
        });
        let (group, version, resources) = versions
            .into_iter()
            .find(|(group, version, _)| Self::path(group, version) == path)?;
        let texts = Descriptions::unpack();
        let (paths, models) = paths::write(Dialect::V3, group, version, resources);
        let mut schemas = machinery::openapi::components_for(group, version, &texts);
        schemas.extend(self.schemas(Dialect::V3, group, version, &models, &texts));
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"BearerToken": {
                    "type": "apiKey", "name": "authorization", "in": "header",
                    "description": "Bearer Token authentication",
                }},
            },
        });
        Some(document.to_string().into())
    }

    fn v2(&self, texts: &Descriptions) -> (Map<String, Value>, Map<String, Value>) {
        let (mut all_definitions, mut all_paths) = (Map::new(), Map::new());
        let served = machinery::openapi::registered_versions();
        for group in &self.groups {
            for (version, resources) in &group.versions {
                let (paths, models) = paths::write(Dialect::V2, &group.group, version, resources);
                all_paths.extend(paths);
                let builtin = definitions(
                    Dialect::V2,
                    models.names.iter().map(String::as_str),
                    &served,
                    texts,
                );
                let own = self.schemas(Dialect::V2, &group.group, version, &models, texts);
                for (name, definition) in builtin.into_iter().chain(own) {
                    all_definitions.entry(name).or_insert(definition);
                }
            }
        }
        (all_definitions, all_paths)
    }
}
