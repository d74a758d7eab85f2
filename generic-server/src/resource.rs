//! A resource as it is served: one resource at one version, with everything that the handlers need to answer for it.

mod env;
mod subresource;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use machinery::schema::KindSchema;
use machinery::table::Ages;
use machinery::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::registry::strategy::Strategy;
use crate::registry::{Entry, ObjectStore};
use crate::request::Authorized;

pub use subresource::{
    Admitted, Answer, Connect, ConnectCall, CreateCall, NamedCreate, ScalePaths, Subresource,
};
pub(crate) use subresource::{Outcome, Validation};

pub use crate::decoding::Decoding;
pub use env::{MIN_REQUEST_TIMEOUT, ServeEnv};

/// Namespaced or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects live in the cluster.
    Cluster,
}

/// The names a resource goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// `Deployment`.
    pub kind: Arc<str>,
    /// `DeploymentList`.
    pub list_kind: Arc<str>,
    /// `deployment`.
    pub singular: Arc<str>,
    /// `deploy`.
    pub short: Vec<String>,
    /// `all`.
    pub categories: Vec<String>,
}

/// Converts objects between the served version and the stored one, by a rule known here.
#[expect(
    clippy::wrong_self_convention,
    reason = "the converter is not the value that is converted"
)]
pub trait Converter: Send + Sync + Debug {
    /// From the stored version to the served one. `None` from [`Converter::splice`] asks for this.
    fn from_stored(&self, object: Value) -> Result<Value, ApiError>;
    /// From the served version to the stored one.
    fn to_stored(&self, object: Value) -> Result<Value, ApiError>;
    /// When the versions differ in `apiVersion` alone: that string, so that stored bytes can be served by replacing it.
    fn splice(&self) -> Option<&str> {
        None
    }
}

/// Converts objects between the served version and the stored one by a webhook, which takes time and can fail.
#[async_trait::async_trait]
#[expect(
    clippy::wrong_self_convention,
    reason = "the converter is not the value that is converted"
)]
pub trait RemoteConverter: Send + Sync + Debug {
    /// Stored objects as JSON in the served version, in the same order. Asks about all of them together, and about none
    /// whose answer is known.
    async fn from_stored(&self, entries: &[Arc<Entry>]) -> Result<Vec<Bytes>, ApiError>;
    /// From the served version to the stored one.
    async fn to_stored(&self, object: Value) -> Result<Value, ApiError>;
}

/// The converter between the served version and the stored one.
#[derive(Debug, Clone)]
pub enum Conversion {
    /// A rule: at once.
    Rule(Arc<dyn Converter>),
    /// A conversion webhook.
    Remote(Arc<dyn RemoteConverter>),
}

/// A column of the Table view. `name|type|format|description|priority` as in `metav1.TableColumnDefinition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// `name` for the name column, else usually empty.
    pub format: String,
    /// For people.
    pub description: String,
    /// Zero is always shown.
    pub priority: i32,
}

/// Makes Table rows. Every row has one cell per column.
pub trait TableConvertor: Send + Sync + Debug {
    /// The columns.
    fn columns(&self) -> &[Column];
    /// The cells of one object of the served version. They are kept until the object changes, so that nothing in them may depend on
    /// anything else: how long ago something was is written by `ages`.
    /// Versions of a built-in kind that share a store are printed as they are stored.
    fn cells(&self, object: &Value, ages: &Ages) -> Vec<Value>;
    /// The `conditions` of the row of an object: `Completed` for one that has run.
    fn conditions(&self, _object: &Value) -> Option<Value> {
        None
    }
}

/// Where objects come from.
#[derive(Debug, Clone)]
pub enum Backend {
    /// The generic registry.
    Stored(Arc<ObjectStore>),
    /// Computed: reviews, component statuses, bindings.
    Virtual(Arc<dyn VirtualResource>),
}

/// A resource without storage. Implement the verbs it offers.
#[async_trait::async_trait]
pub trait VirtualResource: Send + Sync + Debug {
    /// The implemented verbs: `create`, `get`, `list`.
    fn verbs(&self) -> &'static [&'static str];

    /// Answers a create, as [`NamedCreate::create`] does.
    ///
    /// # Errors
    /// The error for the client.
    async fn create(&self, _call: &CreateCall<'_>, _object: Value) -> Result<Answer, ApiError> {
        Err(ApiError::method_not_allowed())
    }

    /// Answers a get.
    async fn get(&self, _authorized: &Authorized, _namespace: &str, _name: &str) -> Result<Value, ApiError> {
        Err(ApiError::method_not_allowed())
    }

    /// Answers a list: the items; selectors are applied by the caller.
    async fn list(&self, _authorized: &Authorized, _namespace: &str) -> Result<Vec<Value>, ApiError> {
        Err(ApiError::method_not_allowed())
    }
}

/// One resource at one version.
#[derive(Debug)]
pub struct ServedResource {
    /// Group, version and resource.
    pub gvr: GroupVersionResource,
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// Its names.
    pub names: Names,
    /// Namespaced or not.
    pub scope: Scope,
    /// How bodies are read.
    pub decoding: Decoding,
    /// Its strategy.
    pub strategy: Arc<dyn Strategy>,
    /// Where its objects are.
    pub backend: Backend,
    /// From and to the stored version; `None` when this is it.
    pub converter: Option<Conversion>,
    /// By name, sorted.
    pub subresources: Vec<(String, Subresource)>,
    /// The Table view.
    pub table: Arc<dyn TableConvertor>,
    /// Verbs of the stored resource, sorted; all eight unless the kind has fewer.
    pub verbs: &'static [&'static str],
    /// A warning for every request (deprecated versions).
    pub deprecation_warning: Option<String>,
    /// `storageVersionHash` for discovery: base64 of the first 8 bytes of SHA-256 of `group/version/kind`; empty when not stored.
    pub storage_version_hash: String,
    /// Whether list answers carry `continue: ""`, as upstream's do for custom resources.
    pub custom: bool,
}

/// Every verb of a stored resource, sorted.
pub const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

impl ServedResource {
    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|(n, _)| n == name).map(|(_, s)| s)
    }

    /// The schema, where there is one.
    pub fn schema(&self) -> Option<&KindSchema> {
        self.decoding.schema()
    }

    /// The rule that converts, where one does.
    pub fn rule(&self) -> Option<&dyn Converter> {
        match &self.converter {
            Some(Conversion::Rule(converter)) => Some(&**converter),
            Some(Conversion::Remote(_)) | None => None,
        }
    }

    /// The webhook that converts, where one does.
    pub fn remote(&self) -> Option<&Arc<dyn RemoteConverter>> {
        match &self.converter {
            Some(Conversion::Remote(converter)) => Some(converter),
            Some(Conversion::Rule(_)) | None => None,
        }
    }

    /// Whether stored objects are served as they are, but for the `apiVersion`.
    pub fn served_as_stored(&self) -> bool {
        match &self.converter {
            None => true,
            Some(Conversion::Rule(converter)) => converter.splice().is_some(),
            Some(Conversion::Remote(_)) => false,
        }
    }

    /// The store, for stored resources.
    pub fn store(&self) -> Option<&Arc<ObjectStore>> {
        match &self.backend {
            Backend::Stored(store) => Some(store),
            Backend::Virtual(_) => None,
        }
    }
}
