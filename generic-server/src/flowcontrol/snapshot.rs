//! The schemas and levels that are in force: immutable, replaced as a whole.

use std::fmt::{self, Debug};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};

use super::level::Level;
use super::matching::Rules;
use super::objects::{Distinguisher, FlowSchema};
use super::queue_set::Queuing;
use super::series::FlowSeries;
use crate::request::{RequestInfo, User};

const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// What requests are classified by.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// In the order in which they are tried.
    schemas: Vec<Schema>,
    /// For requests that no schema matches.
    fallback: Schema,
}

/// A schema with its level.
#[derive(Clone)]
pub(crate) struct Schema {
    rules: Arc<Rules>,
    pub(crate) distinguisher: Option<Distinguisher>,
    /// Requests are told apart.
    hashes: bool,
    name_hash: Context,
    pub(crate) level: Arc<Level>,
    pub(crate) exempt: bool,
    pub(crate) series: Arc<FlowSeries>,
    pub(crate) headers: FlowHeaders,
}

/// The headers that name the schema and the level of a request, by uid: names are not shown to clients.
#[derive(Debug, Clone)]
pub(crate) struct FlowHeaders(Arc<Uids>);

#[derive(Debug)]
struct Uids {
    schema: HeaderValue,
    level: HeaderValue,
}

impl FlowHeaders {
    /// Of a schema and a level with these uids.
    fn new(schema: &str, level: &str) -> Self {
        let header = |uid: &str| HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""));
        FlowHeaders(Arc::new(Uids {
            schema: header(schema),
            level: header(level),
        }))
    }

    /// Names the schema and the level of a request in its answer.
    pub(crate) fn insert(&self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA, self.0.schema.clone());
        headers.insert(LEVEL, self.0.level.clone());
    }
}

impl Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("name", &self.series.schema)
            .field("level", &self.series.level)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// A schema at its level, whose uid and queues are these.
    pub(crate) fn new(
        object: &FlowSchema,
        level: &Arc<Level>,
        level_uid: &str,
        queuing: Queuing,
        series: Arc<FlowSeries>,
    ) -> Self {
        let mut name_hash = Context::new(&SHA256);
        name_hash.update(object.name.as_bytes());
        name_hash.update(&[0]);
        Schema {
            rules: Arc::new(Rules::compile(&object.spec)),
            distinguisher: object.spec.distinguisher_method.as_ref().map(|method| method.by),
            hashes: queuing != Queuing::Exempt,
            name_hash,
            level: level.clone(),
            exempt: queuing == Queuing::Exempt,
            series,
            headers: FlowHeaders::new(&object.uid, level_uid),
        }
    }

    /// The hash of a request's flow, which deals it its queues: upstream's.
    pub(crate) fn hash(&self, user: &User, info: &RequestInfo) -> u64 {
        if !self.hashes {
            return 0;
        }
        let mut hash = self.name_hash.clone();
        hash.update(distinguish(self.distinguisher, user, info).as_bytes());
        let digest = hash.finish();
        let first = digest.as_ref().first_chunk::<8>().copied();
        first.map(u64::from_le_bytes).unwrap_or_default()
    }
}

/// What tells a request's flow from others of its schema.
pub(crate) fn distinguish<'a>(by: Option<Distinguisher>, user: &'a User, info: &'a RequestInfo) -> &'a str {
    match by {
        Some(Distinguisher::ByUser) => &user.name,
        Some(Distinguisher::ByNamespace) => &info.namespace,
        None => "",
    }
}

impl Snapshot {
    /// The schemas in the order in which they are tried.
    pub(crate) fn new(schemas: Vec<Schema>, fallback: Schema) -> Self {
        Snapshot { schemas, fallback }
    }

    /// The schema of a request: the first that matches.
    pub(crate) fn classify(&self, user: &User, info: &RequestInfo) -> &Schema {
        let found = self
            .schemas
            .iter()
            .find(|schema| schema.rules.matches(user, info));
        found.unwrap_or(&self.fallback)
    }

    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<&str> {
        self.schemas.iter().map(|schema| &*schema.series.schema).collect()
    }
}
