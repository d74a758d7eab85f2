//! The aggregator as a delegate and as the one source of discovery.

use std::sync::Arc;

use generic_server::client::DeprecatedCertificates;
use generic_server::client::egress::Route;
use generic_server::delegate::{Delegate, Handled};
use generic_server::directory::Directory;
use generic_server::discovery::{DiscoverySource, Documents};
use generic_server::handlers::{self, ServeEnv};
use generic_server::metrics::Metrics;
use generic_server::openapi::{OpenApi, OpenApiSource, RootDocuments, StaticDocuments};
use generic_server::registry::cache::Snapshot;
use generic_server::registry::{Event, Reflector, StorageFactory};
use generic_server::request::{Authorized, Request, RequestInfo};
use generic_server::resource::ServedResource;
use generic_server::server::GroupSpec;
use generic_server::spawn::Tasks;
use machinery::ApiError;

use crate::apiservice;
use crate::autoregister::AutoRegister;
use crate::available::Watch;
use crate::backend::Backend;
use crate::content::RemoteContent;
use crate::local::Priorities;
use crate::metrics::BackendMetrics;
use crate::proxy::{self, Proxy};
use crate::published::Published;
use crate::resolve::Resolver;
use crate::transport::{ProxyKey, TransportSettings};

/// How long to wait before something that failed is retried.
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(1);
/// The status of writes that a store has no room for.
const INSUFFICIENT_STORAGE: u16 = 507;

/// Upstream's text for a request that arrives before the APIServices have been read.
const NOT_INSTALLED: &str =
    "the request has been made before all known HTTP paths have been installed, please try again";

/// The parts of an aggregator.
#[derive(Debug)]
pub struct Deps {
    /// Where APIServices are stored.
    pub storage: StorageFactory,
    /// The prefix of keys: `/registry`.
    pub prefix: String,
    /// The servers behind it.
    pub next: Arc<dyn Delegate>,
    /// Their discovery documents.
    pub local: Vec<Arc<dyn DiscoverySource>>,
    /// The priorities of the published group versions.
    pub priorities: Priorities,
    /// Their OpenAPI documents.
    pub openapi: Vec<Arc<dyn OpenApiSource>>,
    /// Where stores are registered.
    pub directory: Arc<Directory>,
    /// The state that its handlers share.
    pub env: ServeEnv,
    /// `host:port`, for `/api`.
    pub server_address: String,
    /// The client certificate for remote servers. Replaced when its files change.
    pub proxy_key: ProxyKey,
    /// The way to remote servers.
    pub egress: Route,
    /// Reach remote servers at their endpoints rather than their service's cluster IP.
    pub endpoint_routing: bool,
    /// Where its metrics are reported.
    pub metrics: Arc<Metrics>,
    /// Where its work in the background runs.
    pub tasks: Tasks,
}

/// The aggregator.
#[derive(Debug)]
pub struct Aggregator {
    resource: Arc<ServedResource>,
    env: ServeEnv,
    next: Arc<dyn Delegate>,
    published: Arc<Published>,
    documents: Documents,
    openapi: OpenApi,
    proxy: Proxy,
    watch: Arc<Watch>,
    register: AutoRegister,
    tasks: Tasks,
}

impl Aggregator {
    /// An aggregator. `None` when its own kind's schema is not built in.
    pub fn new(deps: Deps) -> Option<Arc<Self>> {
        let resource = apiservice::resource(&deps.storage, &deps.prefix)?;
        deps.directory.register(resource.clone());
        // Nothing has been read yet, so that these are the groups that the servers bring.
        let groups = deps.local.iter().flat_map(|source| source.groups().to_vec());
        let mut groups: Vec<Arc<str>> = groups.map(|group| group.group.clone()).collect();
        groups.push(apiservice::GROUP.into());
        let certificates = DeprecatedCertificates::new("kube_aggregator");
        deps.metrics.register(certificates.clone());
        let published = Arc::new(Published::new(
            &resource,
            deps.local.clone(),
            TransportSettings {
                key: deps.proxy_key,
                route: deps.egress,
                certificates,
            },
            deps.priorities,
        ));
        deps.metrics.register(Arc::new(BackendMetrics(published.clone())));
        let proxy = Proxy::new(deps.tasks.clone());
        let remote = RemoteContent::new(published.clone(), proxy.mark());
        deps.directory.set_remote_resources(Arc::new(remote));
        let resolver = Resolver::new(deps.directory, deps.endpoint_routing);
        let watch = Watch::new(
            resolver,
            resource.clone(),
            proxy.mark(),
            published.changes.clone(),
            deps.tasks.clone(),
        );
        let documents = Documents::new(vec![published.clone()], deps.server_address);
        let own = StaticDocuments::new(vec![GroupSpec {
            group: apiservice::GROUP.into(),
            versions: vec![(apiservice::VERSION.into(), vec![resource.clone()])],
        }]);
        let roots = RootDocuments::new(groups);
        let mut openapi: Vec<Arc<dyn OpenApiSource>> =
            vec![published.clone(), Arc::new(own), Arc::new(roots)];
        openapi.extend(deps.openapi);
        let openapi = OpenApi::new(openapi);
        Some(Arc::new(Aggregator {
            register: AutoRegister::new(resource.clone(), deps.local, deps.priorities),
            resource,
            env: deps.env,
            next: deps.next,
            published,
            documents,
            openapi,
            proxy,
            watch,
            tasks: deps.tasks,
        }))
    }

    /// The APIService resource.
    pub fn resource(&self) -> &Arc<ServedResource> {
        &self.resource
    }

    /// The groups of everything, local and remote.
    pub fn discovery(&self) -> Arc<dyn DiscoverySource> {
        self.published.clone()
    }

    /// Reads the APIServices, registers the local group versions, and follows both from then on.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(self: &Arc<Self>) -> Result<(), ApiError> {
        let Some(store) = self.resource.store() else {
            return Ok(());
        };
        let snapshot = store.as_system().fresh().await?;
        self.load(&snapshot);
        match self.register.sync(&snapshot).await {
            // A full store is served as it is; `register` goes on trying.
            Err(error) if error.code() == INSUFFICIENT_STORAGE && !snapshot.objects.is_empty() => {
                tracing::warn!(%error, "the local APIServices cannot be registered yet");
            }
            done => done?,
        }
        self.watch.start();
        let own = self.clone();
        self.tasks.spawn("aggregator", async move { own.follow().await });
        let own = self.clone();
        self.tasks
            .spawn("aggregator registration", async move { own.register().await });
        Ok(())
    }

    /// Keeps the routes as the APIServices say.
    async fn follow(self: Arc<Self>) {
        let Some(store) = self.resource.store() else {
            return;
        };
        let mut reflector = Reflector::new(store.clone());
        let mut changes = Vec::new();
        loop {
            match reflector.next(&mut changes).await {
                Event::Listed(snapshot) => self.load(&snapshot),
                Event::Changed => {
                    if let Some(snapshot) = reflector.newest() {
                        self.load(&snapshot);
                    }
                    self.watch
                        .touched(changes.iter().map(|change| change.entry.name()));
                    changes.clear();
                }
                Event::Failed(error) => tracing::warn!(%error, "cannot read APIServices; retrying"),
            }
        }
    }

    /// Maintains the APIServices of local group versions, as either changes.
    async fn register(self: Arc<Self>) {
        let Some(store) = self.resource.store() else {
            return;
        };
        let mut sources: Vec<_> = self
            .published
            .local
            .iter()
            .map(|source| source.changes())
            .collect();
        let mut routes = self.published.changes.subscribe();
        loop {
            let outcome = match store.as_system().fresh().await {
                Ok(snapshot) => self.register.sync(&snapshot).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "cannot register the local APIServices");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            let moved = sources.iter_mut().map(|source| Box::pin(source.changed()));
            let any = async {
                let (outcome, index, _) = futures_util::future::select_all(moved).await;
                (outcome.is_err(), index)
            };
            let gone = tokio::select! {
                gone = any => Some(gone),
                // Its owner lives in this very object.
                _ = routes.changed() => None,
            };
            if let Some((true, index)) = gone {
                // A source that will not change any more.
                sources.remove(index);
                if sources.is_empty() {
                    return;
                }
            }
        }
    }

    fn load(&self, snapshot: &Snapshot) {
        self.watch.update_routes(&self.published.load(snapshot));
        self.published.changes.send_modify(|n| *n += 1);
    }

    /// The remote server of a request, with whether it is available.
    ///
    /// # Errors
    /// 503 before the APIServices have been read, in upstream's words.
    fn remote(&self, info: &RequestInfo) -> Result<Option<(Arc<Backend>, bool)>, ApiError> {
        let asked = match info.is_resource {
            true => Some((info.group.as_str(), info.version.as_str())),
            false => group_version(&info.path),
        };
        let Some((group, version)) =
            asked.filter(|(group, _)| !group.is_empty() && *group != apiservice::GROUP)
        else {
            return Ok(None);
        };
        let Some(routes) = &*self.published.routes.peek() else {
            return Err(ApiError::unavailable(NOT_INSTALLED).with_retry_after(5));
        };
        let route = routes.get(group, version);
        Ok(route.and_then(|route| Some((route.remote.clone()?, route.available))))
    }
}

/// Group and version of a path at or below `/apis/GROUP/VERSION`.
fn group_version(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.strip_prefix("/apis/")?.split('/');
    let (group, version) = (parts.next()?, parts.next()?);
    (!group.is_empty() && !version.is_empty()).then_some((group, version))
}

#[async_trait::async_trait]
impl Delegate for Aggregator {
    async fn handle(&self, authorized: &Authorized, request: Request) -> Handled {
        let info = authorized.info();
        let remote = match self.remote(info) {
            Ok(remote) => remote,
            Err(error) => return Handled::Answered(generic_server::respond::error(&error)),
        };
        if let Some((backend, available)) = remote {
            return Handled::Answered(if available {
                // Boxed, so that the requests of this server do not hold its room.
                Box::pin(self.proxy.serve(&backend, authorized, request)).await
            } else {
                proxy::unavailable()
            });
        }
        if !info.is_resource {
            if let Some((group, version)) = group_version(&info.path)
                && !self.published.serves(group, version)
            {
                if group == apiservice::GROUP {
                    return Handled::Answered(generic_server::respond::error(&ApiError::no_such_path()));
                }
                return self.next.handle(authorized, request).await;
            }
            let (head, body) = request.into_parts();
            if let Some(answer) = self.documents.answer(&head) {
                return Handled::Answered(answer);
            }
            if let Some(answer) = self.openapi.answer(&head).await {
                return Handled::Answered(answer);
            }
            return self
                .next
                .handle(authorized, Request::from_parts(head, body))
                .await;
        }
        if info.group == apiservice::GROUP {
            if info.version == apiservice::VERSION && info.resource == "apiservices" {
                return Handled::Answered(
                    handlers::serve(&self.resource, &self.env, authorized, request).await,
                );
            }
            return Handled::Answered(generic_server::respond::error(&ApiError::no_such_path()));
        }
        self.next.handle(authorized, request).await
    }
}
