//! A server of a fixed set of groups, as a delegate: built-in kinds and extension servers are served by it.

mod documents;

use std::sync::Arc;

use machinery::ApiError;

use crate::delegate::{Delegate, Handled};
use crate::discovery::{self, DiscoverySource, GroupDiscovery};
use crate::handlers::{self, ServeEnv};
use crate::paths::Paths;
use crate::request::{Authorized, Request};
use crate::resource::ServedResource;

pub use crate::group::GroupSpec;
pub use documents::WithDocuments;

/// The target of a sequence of path segments.
#[derive(Debug)]
enum Route {
    /// A group, whose other versions and resources no server behind this one has.
    Group,
    /// A resource at a version.
    Resource(Arc<ServedResource>),
}

/// Serves groups known at start.
#[derive(Debug)]
pub struct ApiServer {
    groups: Vec<GroupSpec>,
    /// By group; by group, version and resource.
    routes: Paths<Route>,
    discovery: Arc<Vec<Arc<GroupDiscovery>>>,
    changes: tokio::sync::watch::Sender<u64>,
    env: ServeEnv,
}

impl ApiServer {
    /// A server of these groups.
    pub fn new(groups: Vec<GroupSpec>, env: ServeEnv) -> Self {
        let published = groups.iter().map(|group| Arc::new(group_discovery(group)));
        let published = Arc::new(published.collect());
        Self::with_discovery(groups, env, published)
    }

    /// The same with the discovery of these groups, which another server of the same groups has made.
    pub fn with_discovery(
        groups: Vec<GroupSpec>,
        env: ServeEnv,
        discovery: Arc<Vec<Arc<GroupDiscovery>>>,
    ) -> Self {
        let mut routes = Paths::default();
        for group in &groups {
            routes.insert_segments(&[&group.group], Route::Group);
            for (version, resources) in &group.versions {
                for resource in resources {
                    let segments = [&*group.group, version, &*resource.gvr.resource];
                    routes.insert_segments(&segments, Route::Resource(resource.clone()));
                }
            }
        }
        let changes = tokio::sync::watch::Sender::default();
        ApiServer {
            groups,
            routes,
            discovery,
            changes,
            env,
        }
    }

    /// The groups.
    pub fn groups(&self) -> &[GroupSpec] {
        &self.groups
    }

    /// A resource it serves.
    pub fn resource(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<ServedResource>> {
        match self.routes.get_segments(&[group, version, resource])? {
            Route::Resource(resource) => Some(resource),
            Route::Group => None,
        }
    }

    /// Whether a group is this server's.
    fn has(&self, group: &str) -> bool {
        self.routes.get_segments(&[group]).is_some()
    }

    /// The state that its handlers share.
    pub fn env(&self) -> &ServeEnv {
        &self.env
    }
}

fn group_discovery(group: &GroupSpec) -> GroupDiscovery {
    let version = |(version, resources): &(Arc<str>, Vec<Arc<ServedResource>>)| {
        let documents = discovery::resource_documents(resources);
        Arc::new(discovery::version_discovery(
            &group.group,
            version,
            &documents,
            false,
        ))
    };
    GroupDiscovery {
        group: group.group.clone(),
        versions: group.versions.iter().map(version).collect(),
    }
}

impl DiscoverySource for ApiServer {
    fn groups(&self) -> Arc<Vec<Arc<GroupDiscovery>>> {
        self.discovery.clone()
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The group of a path below `/api` or `/apis/GROUP`.
fn group_below(path: &str) -> Option<&str> {
    let (group, below) = match path.strip_prefix("/apis/") {
        Some(rest) => rest.split_once('/')?,
        None => ("", path.strip_prefix("/api/")?),
    };
    (!below.is_empty()).then_some(group)
}

#[async_trait::async_trait]
impl Delegate for ApiServer {
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled {
        let info = authorized.info();
        if !info.is_resource {
            // A version that one of its groups does not have.
            return match group_below(&info.path) {
                Some(group) if self.has(group) => {
                    Handled::Answered(crate::respond::error(&ApiError::no_such_path()))
                }
                _ => Handled::NotMine(request),
            };
        }
        match self.resource(&info.group, &info.version, &info.resource) {
            Some(resource) => {
                Handled::Answered(handlers::serve(resource, &self.env, authorized, request).await)
            }
            // The group is this server's: none behind it serves more of it.
            None if self.has(&info.group) => {
                Handled::Answered(crate::respond::error(&ApiError::no_such_path()))
            }
            None => Handled::NotMine(request),
        }
    }
}
