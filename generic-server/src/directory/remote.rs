//! Content of other servers for the same clients: the remote half of what works across resources.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use machinery::{ApiError, GroupResource, GroupVersionKind};
use serde_json::Value;

/// A resource of another server, at the version that it is asked in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteResource {
    /// Its kind.
    pub kind: GroupVersionKind,
    /// Its plural name.
    pub resource: Arc<str>,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// Objects can be listed, watched and deleted.
    pub followable: bool,
}

impl RemoteResource {
    /// Without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource {
            group: self.kind.group.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// Where a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindLocation {
    /// By another server, which is available.
    Served(Arc<RemoteResource>),
    /// If anywhere, by another server, which is away.
    Away,
    /// By no other server.
    Nowhere,
}

/// A request to another server about one object.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteAsk {
    /// Its metadata.
    Get,
    /// A JSON merge patch.
    Patch(Value),
    /// Its deletion, with these options.
    Delete(Value),
}

/// A list and the events after it, of metadata alone: each item is a watch event, `{"type": ..., "object": ...}`. Existing
/// objects come as `ADDED`, then one `BOOKMARK` when all of it has come, then changes. Ends when it has to be restarted.
pub type RemoteLines = BoxStream<'static, Result<Value, String>>;

/// The content of other servers for the same clients.
#[async_trait::async_trait]
pub trait RemoteResources: Send + Sync + std::fmt::Debug {
    /// Deletes what they keep in a namespace, and returns the objects that remain and the failures.
    async fn empty(&self, namespace: &str) -> RemainingContent;
    /// Group versions whose servers cannot be asked, as `group/version: why`.
    fn undiscovered(&self) -> Vec<String>;
    /// Where a kind is served.
    fn locate(&self, kind: &GroupVersionKind) -> KindLocation;
    /// The resources of servers that are available, each once.
    fn resources(&self) -> Vec<Arc<RemoteResource>>;
    /// Sends a request about one object; gives the object, or the error of the server.
    ///
    /// # Errors
    /// As the server has it; 503 when it cannot be asked.
    async fn request(
        &self,
        resource: &RemoteResource,
        namespace: &str,
        name: &str,
        ask: RemoteAsk,
    ) -> Result<Value, ApiError>;
    /// Follows a resource.
    fn follow(&self, resource: &Arc<RemoteResource>) -> RemoteLines;
    /// Fires when a server comes or goes, or says something else of itself.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
}

/// The remaining content of a namespace on other servers.
#[derive(Debug, Default)]
pub struct RemainingContent {
    /// Group versions whose servers cannot be asked, as `group/version: why`.
    pub undiscovered: Vec<String>,
    /// Lists and deletions that failed, and why.
    pub failures: Vec<String>,
    /// Objects that are still there, by resource.
    pub resources: Vec<(GroupResource, usize)>,
    /// The same by finalizer.
    pub finalizers: Vec<(String, usize)>,
}
