//! A server of a fixed set of groups, as a delegate: built-in kinds and extension servers are served by it.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::ApiError;

use crate::delegate::{Delegate, Handled};
use crate::discovery::{self, DiscoverySource, GroupDiscovery};
use crate::handlers::{self, ServeEnv};
use crate::request::{Authorized, Request};
use crate::resource::ServedResource;

/// A group that a server brings.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// The group, empty for core.
    pub group: Arc<str>,
    /// Its versions with their resources, preferred first.
    pub versions: Vec<(Arc<str>, Vec<Arc<ServedResource>>)>,
}

/// The resources of a group version, by name.
type Table = HashMap<Arc<str>, Arc<ServedResource>>;

/// Serves groups known at start.
#[derive(Debug)]
pub struct ApiServer {
    groups: Vec<GroupSpec>,
    /// By group and version.
    routes: HashMap<Arc<str>, HashMap<Arc<str>, Table>>,
    discovery: Arc<Vec<Arc<GroupDiscovery>>>,
    changes: tokio::sync::watch::Sender<u64>,
    env: ServeEnv,
}

impl ApiServer {
    /// A server of these groups.
    pub fn new(groups: Vec<GroupSpec>, env: ServeEnv) -> Self {
        let mut routes: HashMap<Arc<str>, HashMap<Arc<str>, Table>> = HashMap::new();
        let mut published = Vec::new();
        for group in &groups {
            let mut versions = Vec::new();
            for (version, resources) in &group.versions {
                let table = resources
                    .iter()
                    .map(|r| (r.gvr.resource.clone(), r.clone()))
                    .collect();
                routes
                    .entry(group.group.clone())
                    .or_default()
                    .insert(version.clone(), table);
                let documents = discovery::resource_documents(resources);
                versions.push(Arc::new(discovery::version_discovery(
                    &group.group,
                    version,
                    &documents,
                    false,
                )));
            }
            published.push(Arc::new(GroupDiscovery {
                group: group.group.clone(),
                versions,
            }));
        }
        let changes = tokio::sync::watch::Sender::default();
        ApiServer {
            groups,
            routes,
            discovery: Arc::new(published),
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
        self.routes.get(group)?.get(version)?.get(resource)
    }

    /// What its handlers share.
    pub fn env(&self) -> &ServeEnv {
        &self.env
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
                Some(group) if self.routes.contains_key(group) => {
                    Handled::Answered(crate::respond::error(&ApiError::no_such_path()))
                }
                _ => Handled::NotMine(request),
            };
        }
        let Some(versions) = self.routes.get(info.group.as_str()) else {
            return Handled::NotMine(request);
        };
        let found = versions
            .get(info.version.as_str())
            .and_then(|table| table.get(info.resource.as_str()));
        Handled::Answered(match found {
            Some(resource) => handlers::serve(resource, &self.env, authorized, request).await,
            // The group is this server's: nobody behind it knows better.
            None => crate::respond::error(&ApiError::no_such_path()),
        })
    }
}
