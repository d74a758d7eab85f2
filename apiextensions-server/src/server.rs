//! The dynamic server: finds the CRD of a request, and the resource that serves it.
//!
//! Invariants:
//! - A request never reads the store to learn how to serve: it looks into the index, which is brought up to the CRD cache's
//!   newest snapshot first. With an in-process engine that snapshot holds every acknowledged CRD.
//! - With an engine shared with other processes, a resource that is not known is looked for once more when the cache has
//!   caught up with the engine (at most the cache's patience, three seconds): no 404 after another replica's create.
//! - Nothing is compiled for a CRD before it is used.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use generic_server::delegate::{Delegate, Handled};
use generic_server::directory::Versions;
use generic_server::discovery::{DiscoverySource, GroupDiscovery};
use generic_server::handlers;
use generic_server::registry::ObjectStore;
use generic_server::registry::config::StoreConfig;
use generic_server::request::{Authorized, Request};
use generic_server::resource::{ALL_VERBS, Backend, Decoding, Names, Scope, ServedResource, Subresource};
use generic_server::server::{ApiServer, GroupSpec};
use generic_server::{RequestInfo, respond};
use machinery::schema::builtin;
use machinery::{ApiError, GroupResource, GroupVersionKind, GroupVersionResource};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::crd::stored::CrdCodec;
use crate::crd::strategy::{CrdColumns, CrdStatusStrategy, CrdStrategy};
use crate::definition::{Definition, VersionInfo};
use crate::deps::{Deps, GROUP};
use crate::impact::{Definitions, Impact};
use crate::index::{Changed, Index};
use crate::resource;
use crate::versions::{Compiler, CustomVersions};

/// Groups as discovery publishes them.
type Groups = Arc<Vec<Arc<GroupDiscovery>>>;

/// Serves CustomResourceDefinitions and the resources that they define.
pub struct ApiExtensions {
    pub(crate) deps: Deps,
    this: Weak<Self>,
    pub(crate) crds: Arc<ServedResource>,
    /// Serves `apiextensions.k8s.io` itself.
    pub(crate) own: ApiServer,
    index: ArcSwap<Index>,
    /// Held while the index moves.
    moving: Mutex<()>,
    /// The document that was published last, and its state of the index.
    published: Mutex<Option<(Arc<Index>, Groups)>>,
    changes: watch::Sender<u64>,
    /// CRDs that controllers have to look at.
    todo: Mutex<BTreeSet<Arc<str>>>,
    pub(crate) wake: Notify,
}

impl fmt::Debug for ApiExtensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiExtensions")
            .field("revision", &self.index.load().snapshot.revision)
            .finish_non_exhaustive()
    }
}

fn crd_resource(deps: &Deps, server: Weak<ApiExtensions>) -> ServedResource {
    let gvk = GroupVersionKind::new(GROUP, "v1", "CustomResourceDefinition");
    let config = StoreConfig {
        resource: GroupResource::new(GROUP, "customresourcedefinitions"),
        kind: gvk.group_kind(),
        prefix: format!("{}/{GROUP}/customresourcedefinitions", deps.prefix),
        namespaced: false,
        fields: Vec::new(),
        ttl: None,
    };
    let store = deps.storage.open_with(config, Arc::new(CrdCodec));
    let decoding = match builtin().kind(GROUP, "v1", "CustomResourceDefinition") {
        Some(schema) => Decoding::Builtin(schema),
        None => Decoding::Unstructured,
    };
    ServedResource {
        gvr: GroupVersionResource::new(GROUP, "v1", "customresourcedefinitions"),
        // Upstream stores CRDs as v1beta1, and clients compare hashes.
        storage_version_hash: crate::definition::storage_version_hash(GROUP, "v1beta1", &gvk.kind),
        gvk,
        names: Names {
            kind: "CustomResourceDefinition".into(),
            list_kind: "CustomResourceDefinitionList".into(),
            singular: "customresourcedefinition".into(),
            short: vec!["crd".into(), "crds".into()],
            categories: vec!["api-extensions".into()],
        },
        scope: Scope::Cluster,
        decoding,
        strategy: Arc::new(CrdStrategy),
        backend: Backend::Stored(store),
        converter: None,
        subresources: vec![
            ("impact".into(), Subresource::Create(Arc::new(Impact(server)))),
            ("status".into(), Subresource::View(Arc::new(CrdStatusStrategy))),
        ],
        table: Arc::new(CrdColumns::new()),
        verbs: ALL_VERBS,
        deprecation_warning: None,
        custom: false,
    }
}

impl Definitions for ApiExtensions {
    fn find(&self, name: &str) -> Option<Arc<Definition>> {
        self.index().find_by_name(name).cloned()
    }

    fn objects(&self, definition: &Definition) -> Arc<ObjectStore> {
        self.store_of(definition).clone()
    }
}

#[async_trait::async_trait]
impl Compiler for ApiExtensions {
    fn find(&self, group: &str, plural: &str) -> Option<Arc<Definition>> {
        self.index().find(group, plural).cloned()
    }

    async fn compiled(
        &self,
        definition: &Arc<Definition>,
        version: &str,
    ) -> Option<Result<Arc<ServedResource>, ApiError>> {
        self.resource_of(definition, version).await
    }

    fn deps(&self) -> &Deps {
        &self.deps
    }
}

/// Ends the watches of a store that is no longer served, after they have delivered its events.
fn retire(change: &Changed) {
    let store = |d: &Option<Arc<Definition>>| d.as_ref().and_then(|d| d.serving.store.get().cloned());
    let (Some(old), new) = (store(&change.old), store(&change.new)) else {
        return;
    };
    if !new.is_some_and(|new| Arc::ptr_eq(&new, &old))
        && let Some(cache) = old.as_system().started_cache()
    {
        cache.end_feeds();
    }
}

impl ApiExtensions {
    /// A server that knows no CRD yet: [`ApiExtensions::start`] reads them.
    pub fn new(deps: Deps) -> Arc<Self> {
        // The impact check of a CRD looks at the objects that this server stores.
        Arc::new_cyclic(|server| {
            let crds = Arc::new(crd_resource(&deps, server.clone()));
            let this = server.clone();
            deps.directory.register(crds.clone());
            let group = GroupSpec {
                group: GROUP.into(),
                versions: vec![("v1".into(), vec![crds.clone()])],
            };
            ApiExtensions {
                own: ApiServer::new(vec![group], deps.env.clone()),
                deps,
                this,
                crds,
                index: ArcSwap::default(),
                moving: Mutex::default(),
                published: Mutex::default(),
                changes: watch::Sender::default(),
                todo: Mutex::default(),
                wake: Notify::new(),
            }
        })
    }

    /// The store of the CRDs themselves.
    pub(crate) fn crd_store(&self) -> Result<&Arc<ObjectStore>, ApiError> {
        self.crds.store().ok_or_else(ApiError::method_not_allowed)
    }

    /// The index, brought up to the newest snapshot of the CRDs.
    pub(crate) fn index(&self) -> Arc<Index> {
        let index = self.index.load_full();
        let Some(cache) = self.crds.store().and_then(|s| s.as_system().started_cache()) else {
            return index;
        };
        let snapshot = cache.snapshot();
        if Arc::ptr_eq(&snapshot, &index.snapshot) {
            return index;
        }
        let _moving = self.moving.lock();
        let index = self.index.load_full();
        // The previous holder of the lock may have published a newer snapshot.
        let snapshot = cache.snapshot();
        if Arc::ptr_eq(&snapshot, &index.snapshot) {
            return index;
        }
        let (next, changes) = index.advance(snapshot);
        let next = Arc::new(next);
        self.index.store(next.clone());
        if !changes.is_empty() {
            self.announce(&changes);
        }
        next
    }

    /// Notifies the directory, the controllers and the publisher of discovery of changes.
    fn announce(&self, changes: &[Changed]) {
        for change in changes {
            self.register(change);
            retire(change);
        }
        let names = changes.iter().filter_map(|c| c.new.as_ref().or(c.old.as_ref()));
        self.todo.lock().extend(names.map(|d| d.name.clone()));
        self.wake.notify_one();
        self.changes.send_modify(|n| *n += 1);
    }

    fn register(&self, change: &Changed) {
        let served = |d: &&Arc<Definition>| d.established && d.storage_version().is_some();
        match (
            change.old.as_ref().filter(served),
            change.new.as_ref().filter(served),
        ) {
            (Some(old), Some(new)) if old.facts == new.facts => {}
            (_, Some(new)) => {
                let directory = &self.deps.directory;
                let versions = CustomVersions::of(new, self.this.clone());
                let versions = versions.map(|versions| Arc::new(versions) as Arc<dyn Versions>);
                directory.set_versions(&GroupResource::new(&new.group, &new.plural), versions.as_ref());
                directory.register(self.bare_resource(new));
            }
            (Some(old), None) => {
                let key = GroupResource::new(&old.group, &old.plural);
                self.deps.directory.set_versions(&key, None);
                self.deps.directory.remove(&key);
            }
            (None, None) => {}
        }
    }

    /// CRDs that have changed since the last call.
    pub(crate) fn take_todo(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.todo.lock())
    }

    /// Enqueues CRDs for the controllers.
    pub(crate) fn enqueue(&self, names: impl IntoIterator<Item = Arc<str>>) {
        self.todo.lock().extend(names);
        self.wake.notify_one();
    }

    /// The store of a CRD's objects, opened on first use.
    pub(crate) fn store_of<'d>(&self, definition: &'d Definition) -> &'d Arc<ObjectStore> {
        let open = || resource::open_store(definition, &self.deps);
        definition.serving.store.get_or_init(open)
    }

    /// The resource without schema, as deletion needs it.
    pub(crate) fn bare_resource(&self, definition: &Definition) -> Arc<ServedResource> {
        Arc::new(resource::bare(definition, self.store_of(definition).clone()))
    }

    /// A version's resource, compiled when it is not there.
    pub(crate) async fn resource_of(
        &self,
        definition: &Arc<Definition>,
        version: &str,
    ) -> Option<Result<Arc<ServedResource>, ApiError>> {
        let (info, slot) = definition.version(version).filter(|(v, _)| v.served)?;
        Some(slot.get_or_make(self.compile(definition, info)).await)
    }

    /// The resource that serves a request. It comes without the schema where the schema makes no difference, so that listing
    /// or watching a CRD without objects costs next to nothing.
    pub(crate) async fn serving(
        &self,
        definition: &Arc<Definition>,
        info: &RequestInfo,
    ) -> Option<Result<Arc<ServedResource>, ApiError>> {
        if let [only] = &*definition.facts.versions
            && only.served
            && *only.name == *info.version
            && info.subresource.is_empty()
            && matches!(&*info.verb, "get" | "list" | "watch")
            && definition.serving.slots.iter().all(|slot| slot.peek().is_none())
        {
            let store = self.store_of(definition);
            // The read itself reports the error.
            if store
                .as_system()
                .fresh()
                .await
                .is_ok_and(|all| all.objects.is_empty())
            {
                let reader = async { Ok(resource::reader(definition, only, store.clone())) };
                return Some(definition.serving.reader.get_or_make(reader).await);
            }
        }
        self.resource_of(definition, &info.version).await
    }

    async fn compile(
        &self,
        definition: &Arc<Definition>,
        version: &VersionInfo,
    ) -> Result<ServedResource, ApiError> {
        let store = self.store_of(definition).clone();
        resource::compile(definition, version, store, &self.deps).await
    }

    /// Whether a request about a resource of this scope makes sense.
    fn fits(scope: Scope, info: &RequestInfo) -> bool {
        match scope {
            Scope::Cluster => info.namespace.is_empty(),
            Scope::Namespaced => !info.namespace.is_empty() || matches!(&*info.verb, "list" | "watch"),
        }
    }
}

#[async_trait::async_trait]
impl Delegate for ApiExtensions {
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled {
        let info = authorized.info();
        if !info.is_resource {
            return Handled::NotMine(request);
        }
        if info.group == GROUP {
            return self.own.handle(authorized, request).await;
        }
        let Some(definition) = self.find(&info.group, &info.resource).await else {
            return Handled::NotMine(request);
        };
        if !definition.established || !Self::fits(definition.facts.scope, info) {
            return Handled::NotMine(request);
        }
        let resource = match self.serving(&definition, info).await {
            None => return Handled::NotMine(request),
            Some(Err(error)) => return Handled::Answered(respond::error(&error)),
            Some(Ok(resource)) => resource,
        };
        if !info.subresource.is_empty() {
            let name = resource.gvr.group_resource();
            if resource.subresource(&info.subresource).is_none() {
                // Upstream names the object although it is the subresource that is missing.
                let error = ApiError::not_found(&name, &info.name);
                return Handled::Answered(respond::error(&error));
            }
            if !matches!(&*info.verb, "get" | "update" | "patch") {
                let error = ApiError::method_not_supported(&name, &info.verb);
                return Handled::Answered(respond::error(&error));
            }
        }
        let response = handlers::serve(&resource, &self.deps.env, authorized, request).await;
        Handled::Answered(response)
    }
}

impl ApiExtensions {
    /// The CRD of a resource. An engine that others write to is asked whether it knows more before the answer is no.
    async fn find(&self, group: &str, plural: &str) -> Option<Arc<Definition>> {
        if let Some(found) = self.index().find(group, plural) {
            return Some(found.clone());
        }
        if self.deps.storage.engine().published().is_some() {
            return None;
        }
        let cache = self.crds.store()?.as_system().started_cache()?;
        // Too late or unreachable: the state known here is the answer.
        cache.fresh().await.ok()?;
        self.index().find(group, plural).cloned()
    }
}

impl DiscoverySource for ApiExtensions {
    fn groups(&self) -> Arc<Vec<Arc<GroupDiscovery>>> {
        let index = self.index();
        let mut published = self.published.lock();
        if let Some((of, groups)) = &*published
            && Arc::ptr_eq(of, &index)
        {
            return groups.clone();
        }
        let mut groups: Vec<_> = DiscoverySource::groups(&self.own).to_vec();
        groups.extend(crate::discovery::groups(&index));
        let groups = Arc::new(groups);
        *published = Some((index, groups.clone()));
        groups
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
