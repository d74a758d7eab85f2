//! OpenAPI: the documents of group versions (v3), the one document of everything (v2), and the answers made of them.
//!
//! Every server is an [`OpenApiSource`]; [`OpenApi`] joins sources into `/openapi/v3`, `/openapi/v3/apis/GROUP/VERSION` and
//! `/openapi/v2`. A document is made when it is first asked for, away from the threads that serve, and kept as bytes until its
//! hash changes. Mirrors `kube-openapi`'s `handler3`. It knows no kind: schemas are rendered by [`machinery::openapi`], paths are
//! in `paths`.

mod answer;
mod gnostic;
pub mod parameters;
mod paths;
mod roots;
mod swagger;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use machinery::openapi::{CustomKind, Descriptions, Dialect, META, custom_definitions, definitions};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::group::GroupSpec;
use crate::resource::ServedResource;
use swagger::Swagger;

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
    /// Its parts of the v2 document, with a hash each; cheap. A path may go on with `#` and a name, for several parts of
    /// one group version. All parts of a group version come from one source.
    fn swagger_parts(&self) -> Vec<DocumentRef> {
        self.documents()
    }
    /// Its part of the v2 document for one of these; may take its time.
    fn swagger(&self, _path: &str, _texts: &Descriptions) -> Option<SwaggerPart> {
        None
    }
}

pub use roots::RootDocuments;
pub use swagger::{SwaggerPart, paths_from_v3};

/// The form of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Json,
    /// gnostic's messages.
    Protobuf,
}

/// The documents of one or more servers.
#[derive(Debug)]
pub struct OpenApi {
    sources: Vec<Arc<dyn OpenApiSource>>,
    kept: Arc<Mutex<HashMap<(String, Form), Kept>>>,
    /// One is made at a time: other requests for it wait meanwhile.
    swagger: Arc<tokio::sync::Mutex<KeptSwagger>>,
    /// A task that drops unused documents is running.
    swept: Arc<AtomicBool>,
}

/// A v3 document.
#[derive(Debug)]
struct Kept {
    hash: String,
    document: Bytes,
    asked: Instant,
}

/// Documents without a request in this time are dropped; rebuilding them costs less than keeping them.
const IDLE: Duration = Duration::from_secs(300);

/// The v2 document and what it was made of.
#[derive(Debug, Default)]
struct KeptSwagger {
    hash: String,
    /// By path, with their hash.
    parts: HashMap<String, (String, SwaggerPart)>,
    joined: Option<Swagger>,
    protobuf: Option<Bytes>,
    asked: Option<Instant>,
}

const V2: &str = "/openapi/v2";

impl OpenApi {
    /// The documents of these sources; of a path that several have, the first one's.
    pub fn new(sources: Vec<Arc<dyn OpenApiSource>>) -> Self {
        OpenApi {
            sources,
            kept: Arc::default(),
            swagger: Arc::default(),
            swept: Arc::default(),
        }
    }

    /// Sees to it that what was made is dropped when it has become idle. One task at most, which ends when nothing is kept.
    fn sweep(&self) {
        if self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let (kept, swagger, swept) = (
            Arc::downgrade(&self.kept),
            Arc::downgrade(&self.swagger),
            self.swept.clone(),
        );
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE).await;
                let (Some(kept), Some(swagger)) = (kept.upgrade(), swagger.upgrade()) else {
                    return;
                };
                let mut swagger = swagger.lock().await;
                let mut kept = kept.lock();
                if swagger.asked.is_some_and(|asked| asked.elapsed() >= IDLE) {
                    *swagger = KeptSwagger::default();
                }
                kept.retain(|_, one| one.asked.elapsed() < IDLE);
                if kept.is_empty() && swagger.asked.is_none() {
                    // Under both locks, so that a later insertion sees that no sweep is running.
                    swept.store(false, Ordering::Release);
                    return;
                }
            }
        });
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

    /// The v3 document of a path, with its hash.
    async fn v3(&self, path: &str, form: Form) -> Option<(String, Bytes)> {
        let mut hashes = self.hashes();
        let (index, hash) = hashes.remove(path)?;
        let known = |form: Form| {
            let mut kept = self.kept.lock();
            let known = kept
                .get_mut(&(path.to_string(), form))
                .filter(|k| k.hash == hash)?;
            known.asked = Instant::now();
            Some(known.document.clone())
        };
        if let Some(document) = known(form) {
            return Some((hash, document));
        }
        let source = self.sources.get(index)?.clone();
        let (own, json) = (path.to_string(), known(Form::Json));
        let (json, document) = tokio::task::spawn_blocking(move || {
            let json = match json {
                Some(json) => json,
                None => source.document(&own)?,
            };
            let document = match form {
                Form::Json => json.clone(),
                Form::Protobuf => gnostic::v3(&serde_json::from_slice(&json).ok()?).into(),
            };
            Some((json, document))
        })
        .await
        .ok()??;
        let mut kept = self.kept.lock();
        for (form, document) in [(Form::Json, json), (form, document.clone())] {
            let (hash, asked) = (hash.clone(), Instant::now());
            let one = Kept {
                hash,
                document,
                asked,
            };
            kept.insert((path.into(), form), one);
        }
        self.sweep();
        // Removed documents are dropped.
        kept.retain(|(name, _), _| name == path || hashes.contains_key(name));
        Some((hash, document))
    }

    /// The v2 document, with its hash.
    async fn v2(&self, form: Form) -> Option<(String, Bytes)> {
        let mut wanted: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let mut owners: HashMap<String, usize> = HashMap::new();
        for (index, source) in self.sources.iter().enumerate() {
            for part in source.swagger_parts() {
                let version = part.path.split('#').next().unwrap_or_default();
                let owner = match owners.get(version) {
                    Some(owner) => *owner,
                    None => *owners.entry(version.into()).or_insert(index),
                };
                if owner == index {
                    wanted.entry(part.path).or_insert((index, part.hash));
                }
            }
        }
        let hashes: Vec<&str> = wanted.values().map(|(_, hash)| hash.as_str()).collect();
        let hash = digest(hashes.join("\n").as_bytes());
        let mut kept = self.swagger.lock().await;
        if kept.joined.is_none() || kept.hash != hash {
            let (sources, old) = (self.sources.clone(), std::mem::take(&mut kept.parts));
            let made = tokio::task::spawn_blocking(move || make_swagger(&sources, wanted, old));
            let (parts, joined) = made.await.ok()?;
            *kept = KeptSwagger {
                hash: hash.clone(),
                parts,
                joined: Some(joined),
                protobuf: None,
                asked: None,
            };
            self.sweep();
        }
        kept.asked = Some(Instant::now());
        let joined = kept.joined.as_ref()?;
        let document = match (form, &kept.protobuf) {
            (Form::Json, _) => joined.json.clone(),
            (Form::Protobuf, Some(document)) => document.clone(),
            (Form::Protobuf, None) => {
                let joined = joined.clone();
                let made = tokio::task::spawn_blocking(move || joined.protobuf());
                let document = made.await.ok()?;
                kept.protobuf = Some(document.clone());
                document
            }
        };
        Some((hash, document))
    }
}

type Parts = HashMap<String, (String, SwaggerPart)>;

/// Makes the parts that are not known yet, and the document of all.
fn make_swagger(
    sources: &[Arc<dyn OpenApiSource>],
    wanted: BTreeMap<String, (usize, String)>,
    mut old: Parts,
) -> (Parts, Swagger) {
    let mut texts = None;
    let (mut names, mut parts) = (Vec::new(), Vec::new());
    for (path, (index, hash)) in wanted {
        let part = match old.remove(&path) {
            Some((known, part)) if known == hash => part,
            _ => {
                let texts = texts.get_or_insert_with(Descriptions::unpack);
                let made = sources.get(index).and_then(|source| source.swagger(&path, texts));
                made.unwrap_or_default()
            }
        };
        names.push((path, hash));
        parts.push(part);
    }
    let joined = swagger::join(
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "securityDefinitions": security(),
            "security": [{"BearerToken": []}],
        }),
        &mut parts,
    );
    let parts = names
        .into_iter()
        .zip(parts)
        .map(|((path, hash), part)| (path, (hash, part)))
        .collect();
    (parts, joined)
}

/// How requests are authenticated, as all documents say it.
fn security() -> Value {
    json!({"BearerToken": {
        "type": "apiKey", "name": "authorization", "in": "header",
        "description": "Bearer Token authentication",
    }})
}

/// The Kubernetes version of the documents.
const VERSION: &str = crate::version::MAJOR_MINOR;

/// A hash as documents carry it: SHA-512 in capital hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    let halves = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(DIGITS[usize::from(half)])).collect()
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

    /// The group version of a document.
    fn find(&self, path: &str) -> Option<(&str, &str, &[Arc<ServedResource>])> {
        let mut versions = self.groups.iter().flat_map(|group| {
            let versions = group.versions.iter();
            versions.map(move |(version, resources)| (&*group.group, &**version, &**resources))
        });
        versions.find(|(group, version, _)| Self::path(group, version) == path)
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
                preserve_unknown: false,
                selectable: &[],
            };
            out.extend(custom_definitions(
                dialect,
                &kind,
                self.schemas.get(&key).cloned(),
            ));
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
        let (group, version, resources) = self.find(path)?;
        let texts = Descriptions::unpack();
        let (mut paths, mut models) = paths::write(group, version, resources);
        paths.extend([paths::root(group, version)]);
        models.names.insert(format!("{META}.APIResourceList"));
        let schemas = self.schemas(Dialect::V3, group, version, &models, &texts);
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": security(),
            },
        });
        Some(document.to_string().into())
    }

    fn swagger(&self, path: &str, texts: &Descriptions) -> Option<SwaggerPart> {
        let (group, version, resources) = self.find(path)?;
        let (paths, mut models) = paths::write(group, version, resources);
        models.names.insert(format!("{META}.APIResourceList"));
        let mut paths = paths_from_v3(&paths, &paths::ANY);
        let root = Map::from_iter([paths::root(group, version)]);
        paths.extend(paths_from_v3(&root, &paths::PRODUCES));
        let served = machinery::openapi::registered_versions();
        let names = models.names.iter().map(String::as_str);
        let mut all = definitions(Dialect::V2, names, &served, texts);
        for (name, definition) in self.schemas(Dialect::V2, group, version, &models, texts) {
            all.entry(name).or_insert(definition);
        }
        Some(SwaggerPart::new(paths, all))
    }
}
