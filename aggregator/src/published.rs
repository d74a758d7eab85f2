//! Everything that is published, local and remote, as one: discovery and OpenAPI.

use std::collections::BTreeMap;
use std::sync::Arc;

use generic_server::discovery::{
    self, DiscoverySource, GroupDiscovery, VersionDiscovery, resource_documents,
};
use generic_server::openapi::{DocumentRef, OpenApiSource, SwaggerPart};
use generic_server::registry::Synced;
use generic_server::registry::cache::Snapshot;
use generic_server::resource::ServedResource;
use machinery::openapi::Descriptions;

use crate::apiservice;
use crate::backend::Backend;
use crate::local::{Priorities, version_rank};
use crate::remote_discovery;
use crate::routes::Routes;
use crate::transport::TransportSettings;

/// Discovery of everything, local and remote, in order of priority.
#[derive(Debug)]
pub(crate) struct Published {
    /// The aggregator's own resources.
    own: Arc<VersionDiscovery>,
    pub(crate) local: Vec<Arc<dyn DiscoverySource>>,
    /// Absent until the APIServices have been read: until then the remote groups are unknown.
    pub(crate) routes: Synced<Routes>,
    transport: TransportSettings,
    /// Of group versions without an APIService yet.
    priorities: Priorities,
    pub(crate) changes: tokio::sync::watch::Sender<u64>,
}

impl Published {
    /// The published state of these sources and the resource of APIServices; routes are added by [`Published::load`].
    pub(crate) fn new(
        resource: &Arc<ServedResource>,
        local: Vec<Arc<dyn DiscoverySource>>,
        transport: TransportSettings,
        priorities: Priorities,
    ) -> Self {
        let documents = resource_documents(std::slice::from_ref(resource));
        let own = discovery::version_discovery(apiservice::GROUP, apiservice::VERSION, &documents, false);
        Published {
            own: Arc::new(own),
            local,
            routes: Synced::default(),
            transport,
            priorities,
            changes: tokio::sync::watch::Sender::default(),
        }
    }

    /// Takes over the routes that the APIServices of a snapshot say, and gives them.
    pub(crate) fn load(&self, snapshot: &Snapshot) -> Arc<Routes> {
        let before = self.routes.get().unwrap_or_default();
        let routes = Routes::of(snapshot.objects.values(), &before, &self.transport);
        self.routes.set(routes)
    }

    /// Whether a group version is served by this process.
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        group == apiservice::GROUP && version == apiservice::VERSION
            || self.local.iter().any(|source| {
                let groups = source.groups();
                let found = groups.iter().find(|g| *g.group == *group);
                found.is_some_and(|g| g.versions.iter().any(|v| *v.version == *version))
            })
    }

    /// The remote servers, by APIService.
    pub(crate) fn backends(&self) -> Vec<(Arc<Backend>, bool)> {
        let routes = self.routes.get().unwrap_or_default();
        let mut all: Vec<_> = routes
            .iter()
            .filter_map(|(_, _, route)| Some((route.remote.clone()?, route.available)))
            .collect();
        all.sort_by(|a, b| a.0.spec.name.cmp(&b.0.spec.name));
        all
    }
}

/// Where a backend's OpenAPI document is, below `/openapi/v3/`.
fn document_path(backend: &Backend) -> String {
    remote_discovery::path(&backend.spec)
        .trim_start_matches('/')
        .to_string()
}

impl Published {
    fn backend_of(&self, path: &str) -> Option<Arc<Backend>> {
        let mut all = self.backends().into_iter().map(|(backend, _)| backend);
        all.find(|backend| document_path(backend) == path)
    }
}

impl OpenApiSource for Published {
    fn documents(&self) -> Vec<DocumentRef> {
        let one = |(backend, _): (Arc<Backend>, bool)| {
            Some(DocumentRef {
                path: document_path(&backend),
                hash: backend.openapi.load().as_ref()?.hash.clone(),
            })
        };
        self.backends().into_iter().filter_map(one).collect()
    }

    fn document(&self, path: &str) -> Option<bytes::Bytes> {
        let backend = self.backend_of(path)?;
        backend
            .openapi
            .load()
            .as_ref()
            .map(|known| known.document.clone())
    }

    fn swagger_parts(&self) -> Vec<DocumentRef> {
        let one = |(backend, _): (Arc<Backend>, bool)| {
            Some(DocumentRef {
                path: document_path(&backend),
                hash: backend.swagger.load().as_ref()?.hash.clone(),
            })
        };
        self.backends().into_iter().filter_map(one).collect()
    }

    fn swagger(&self, path: &str, _texts: &Descriptions) -> Option<SwaggerPart> {
        let backend = self.backend_of(path)?;
        backend
            .swagger
            .load()
            .as_ref()
            .map(|known| known.document.clone())
    }
}

impl DiscoverySource for Published {
    fn groups(&self) -> Arc<Vec<Arc<GroupDiscovery>>> {
        // Before they have been read there are only local group versions.
        let routes = self.routes.get().unwrap_or_default();
        let mut groups: BTreeMap<Arc<str>, Vec<Arc<VersionDiscovery>>> = BTreeMap::new();
        for source in &self.local {
            for group in source.groups().iter() {
                let versions = groups.entry(group.group.clone()).or_default();
                for version in &group.versions {
                    if !versions.iter().any(|v| v.version == version.version) {
                        versions.push(version.clone());
                    }
                }
            }
        }
        for (group, version, route) in routes.iter() {
            if group == apiservice::GROUP {
                continue;
            }
            let versions = groups.entry(group.into()).or_default();
            let known = versions.iter().position(|v| *v.version == *version);
            let published = match &route.remote {
                // No local version is known, but an APIService names one.
                None if known.is_none() => Arc::new(VersionDiscovery {
                    version: version.into(),
                    resource_list: bytes::Bytes::new(),
                    aggregated: serde_json::json!({"version": version, "freshness": "Current"})
                        .to_string()
                        .into(),
                    stale: false,
                }),
                None => continue,
                Some(backend) => {
                    let last = backend.known.load_full();
                    match last {
                        Some(last) if route.available => last,
                        last => Arc::new(remote_discovery::stale(&backend.spec, last.as_deref())),
                    }
                }
            };
            match known.and_then(|at| versions.get_mut(at)) {
                Some(there) => *there = published,
                None => versions.push(published),
            }
        }
        let mut ordered: Vec<(i32, GroupDiscovery)> = groups
            .into_iter()
            .map(|(group, mut versions)| {
                versions.sort_by(|a, b| {
                    let rank = |v: &VersionDiscovery| routes.priority(&group, &v.version, self.priorities).1;
                    let by_name = || version_rank(&b.version).cmp(&version_rank(&a.version));
                    rank(b).cmp(&rank(a)).then_with(by_name)
                });
                let first = versions
                    .iter()
                    .map(|v| routes.priority(&group, &v.version, self.priorities).0)
                    .max();
                (first.unwrap_or_default(), GroupDiscovery { group, versions })
            })
            .collect();
        ordered.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| left.group.cmp(&right.group)));
        let own = GroupDiscovery {
            group: apiservice::GROUP.into(),
            versions: vec![self.own.clone()],
        };
        let all = std::iter::once(own).chain(ordered.into_iter().map(|(_, group)| group));
        Arc::new(all.map(Arc::new).collect())
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn generation(&self) -> u64 {
        self.local.iter().map(|s| s.generation()).sum::<u64>() + *self.changes.borrow()
    }
}
