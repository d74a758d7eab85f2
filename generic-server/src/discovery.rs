//! Discovery: which groups, versions and resources there are, as pieces that are serialised once and joined by concatenation.
//!
//! Every server is a [`DiscoverySource`]; [`Documents`] joins sources into `/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION` and
//! the aggregated (v2) documents, and keeps them until a source changes. Nothing is made on a client's request but the join
//! after a change.

mod document;
mod index;
mod serve;

use std::sync::Arc;

use bytes::Bytes;

pub use document::{ResourceDocument, SubresourceDocument, resource_documents, version_discovery};
pub use index::RootPaths;
pub use serve::Documents;

/// One version of a group, as it is published.
#[derive(Debug, Clone)]
pub struct VersionDiscovery {
    /// The version.
    pub version: Arc<str>,
    /// The `APIResourceList` of `/apis/GROUP/VERSION`.
    pub resource_list: Bytes,
    /// The element of `versions` in `apidiscovery.k8s.io/v2`: `{"version":...,"resources":[...],"freshness":...}`.
    pub aggregated: Bytes,
    /// Its server cannot be reached: the known documents are old, and `aggregated` says `Stale`.
    pub stale: bool,
}

/// A group with its versions, preferred first.
#[derive(Debug, Clone)]
pub struct GroupDiscovery {
    /// The group, empty for core.
    pub group: Arc<str>,
    /// Its versions, preferred first.
    pub versions: Vec<Arc<VersionDiscovery>>,
}

/// A server that publishes groups.
pub trait DiscoverySource: Send + Sync + std::fmt::Debug {
    /// The groups, at this moment; cheap.
    fn groups(&self) -> Arc<Vec<Arc<GroupDiscovery>>>;
    /// Changes whenever `groups` does.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;
    /// A number that grows with every change of `groups`; joined documents are kept until it does.
    fn generation(&self) -> u64 {
        *self.changes().borrow()
    }
}
