//! The first stage that touches anything: the port is bound, keys and stores are open, and their health is observed.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use generic_server::admission::DynamicMetrics;
use generic_server::client::egress::{EgressMetrics, EgressSelector};
use generic_server::directory::Directory;
use generic_server::directory::figures::ResourceFigures;
use generic_server::directory::integrity::Integrity;
use generic_server::directory::monitor::{self, Probe, StoreMetrics};
use generic_server::encryption::Encryption;
use generic_server::health::{Health, Part};
use generic_server::identity;
use generic_server::lifecycle::Lifecycle;
use generic_server::metrics::Metrics;
use generic_server::pki::{Pki, ServingNames};
use generic_server::registry::{Budget, StorageFactory};
use generic_server::reload::Reload;
use generic_server::serve::Listener;
use generic_server::spawn::Tasks;
use generic_server::startup::STORE_TIMEOUT;
use kube_apiserver::PluginConfigs;
use machinery::GroupResource;
use storage::{DirectoryLock, StorageError};

use super::engines;
use super::own_pki::OwnPki;
use crate::StartError;
use crate::config::{Config, EncryptionFile, Engine, Storage};
use crate::envtest::{self, StandIn};
use crate::guard;
use crate::origin::Origin;

/// Open stores, and what every later stage needs beside them.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) config: Config,
    /// Held before anything in the data directory is read or written; `None` without one.
    pub(super) data_lock: Option<Arc<DirectoryLock>>,
    /// What answers in the place of etcd, if anything does.
    pub(super) stand_in: Option<StandIn>,
    pub(super) listener: Listener,
    /// Where members of the cluster reach this server.
    pub(super) advertise: IpAddr,
    /// The configuration of admission plugins.
    pub(super) plugin_configs: PluginConfigs,
    /// What webhooks and policies cost.
    pub(super) admission_costs: Arc<DynamicMetrics>,
    /// The proxies of the server's own connections.
    pub(super) egress: EgressSelector,
    pub(super) pki: Arc<Pki>,
    /// The task that keeps its files up to date; `None` when it is in memory.
    pub(super) own_pki: Option<OwnPki>,
    pub(super) storage: StorageFactory,
    pub(super) encryption: Option<Arc<Encryption>>,
    /// Filled by the servers.
    pub(super) directory: Arc<Directory>,
    pub(super) lifecycle: Lifecycle,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tasks: Tasks,
    pub(super) reload: Reload,
}

impl Stores {
    /// Binds the port first, because that is the quickest way to find that another server runs already. Files that cannot be used refuse the
    /// start before anything is written.
    pub(super) async fn open(mut config: Config, origin: Option<&Origin>) -> Result<Self, StartError> {
        config.serving = config.serving.or_else(|| config.tls.in_directory());
        let (mut plugin_configs, warnings) = PluginConfigs::read(
            config.plugin_configs.as_deref(),
            &config.plugins,
            config.features.admission_manifests,
        )
        .map_err(StartError::Option)?;
        plugin_configs
            .load_manifests()
            .await
            .map_err(StartError::Option)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let tasks = Tasks::new();
        let shown = std::mem::take(&mut config.metrics).with_manifest();
        let (exposition, warnings) = shown.map_err(StartError::Option)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let metrics = Metrics::shown_by(exposition);
        let egress = egress(&config, &metrics, &tasks)?;
        let address = config.listen;
        let bound = match config.tls.shares_port {
            true => generic_server::serve::bind_shared(address).await,
            false => generic_server::serve::bind(address).await,
        };
        let listener = bound.map_err(|source| StartError::Listen { address, source })?;
        let advertise = config
            .advertise_address
            .unwrap_or_else(|| reachable(listener.address().ip()));
        let stand_in = match &config.storage.engine {
            Engine::Etcd(etcd) => envtest::recognise(etcd).await?,
            Engine::Embedded { .. } => None,
        };
        if let Some(stand_in) = &stand_in {
            config.keep_in(stand_in.directory());
        }
        config.keep_keys_with_certificates();
        let data_lock = match &config.data_dir {
            Some(directory) => Some(
                lock(directory)
                    .await
                    .map_err(|error| taken(error, stand_in.as_ref()))?,
            ),
            None => None,
        };
        if let Some(stand_in) = &stand_in {
            let directory = config.data_dir.as_deref().unwrap_or(Path::new(""));
            tracing::warn!(
                etcd = stand_in.url(),
                directory = %directory.display(),
                "the server of --etcd-servers is a stand-in for etcd: objects are kept in files of this server, for tests"
            );
        }
        let engine = match origin {
            Some(origin) => origin.store.start(),
            None => engines::open(&config, &egress)?,
        };
        let lifecycle = Lifecycle::new();
        let health = Health::new(lifecycle.clone());
        let encryption = open_encryption(config.encryption.as_ref(), &health, &metrics, &tasks).await?;
        let past = config.storage.cache_history_bytes;
        let budget = match origin {
            Some(origin) => origin.seeds.budget(past),
            None => Budget::new(past),
        };
        metrics.register(budget.clone());
        let storage = StorageFactory::new(engine)
            .with_budget(budget)
            .with_seeds(origin.map(|origin| origin.seeds.clone()))
            .with_overrides(engines::open_overrides(&config.storage.engine, &egress)?)
            .with_encryption(encryption.clone())
            .with_unsafe_deletion(config.features.unsafe_deletion);
        let (pki, own_pki) = match origin {
            Some(origin) => {
                config.access.issued_tokens = Arc::new(origin.tokens.copy());
                (origin.pki.clone(), None)
            }
            None => open_pki(&config, advertise, &storage, encryption.as_deref()).await?,
        };
        let mut reload = Reload::default();
        plugin_configs.follow(&mut reload);
        let stores = Stores {
            config,
            data_lock: data_lock.map(Arc::new),
            stand_in,
            listener,
            advertise,
            plugin_configs,
            admission_costs: Arc::default(),
            egress,
            pki,
            own_pki,
            storage,
            encryption,
            directory: Arc::new(Directory::default()),
            lifecycle,
            health,
            metrics,
            tasks,
            reload,
        };
        stores.observe().await;
        Ok(stores)
    }

    /// Keeps known in the background what health checks (under upstream's names) and metrics say of the stores.
    async fn observe(&self) {
        let Storage {
            healthcheck_timeout,
            readycheck_timeout,
            count_every,
            measure_every,
            ..
        } = self.config.storage;
        let (engines, tasks) = (self.storage.engines(), &self.tasks);
        let checks = [
            ("etcd", Part::Everywhere, healthcheck_timeout),
            ("etcd-readiness", Part::Ready, readycheck_timeout),
        ];
        for (name, part, timeout) in checks {
            let probe = Probe::new(self.storage.engine().clone(), timeout);
            probe.poll_once().await;
            let checked = probe.clone();
            self.health.add(name, part, move || checked.outcome());
            tasks.spawn("store-health", probe.run());
        }
        let integrity = Integrity::new(self.directory.clone(), engines.to_vec());
        self.metrics.register(integrity.clone());
        let summary = integrity.clone();
        self.health.note("storage-integrity", move || {
            summary.lost().or_else(|| summary.summary())
        });
        // Upstream has no such check, so that it is there only where it says something.
        if let Some(why) = integrity.lost() {
            tracing::error!(why, "the store is not whole: not ready");
            self.health
                .add("storage-integrity", Part::Ready, move || Err(why.clone()));
        }
        if self.config.storage.scrubs() {
            let scrubbing = integrity.keep_scrubbing(self.config.storage.scrub_every);
            tasks.spawn("scrub", scrubbing);
        }
        let figures = StoreMetrics::new();
        self.metrics.register(figures.clone());
        self.metrics
            .register(Arc::new(ResourceFigures(self.directory.clone())));
        if !count_every.is_zero() {
            let (figures, directory, engines) = (figures.clone(), self.directory.clone(), engines.clone());
            tasks.spawn("store-counts", async move {
                figures.keep_counting(directory, &engines, count_every).await;
            });
        }
        if !measure_every.is_zero() {
            tasks.spawn("store-sizes", figures.keep_measuring(engines, measure_every));
        }
        tasks.spawn("idle-caches", monitor::drop_idle_caches(self.directory.clone()));
    }
}

/// How long a plane of this process that was dropped may take to let go of its directory: its runtime may not be running.
const LAST_PLANE: Duration = Duration::from_secs(30);

/// Locks the data directory, after a plane of this process that was dropped has let go of it.
async fn lock(directory: &Path) -> Result<DirectoryLock, StartError> {
    loop {
        let mut stopping = guard::stopping();
        let some = *stopping.borrow_and_update() > 0;
        match engines::lock(directory) {
            Err(StartError::Data {
                source: StorageError::Locked(_),
                ..
            }) if some
                && matches!(
                    tokio::time::timeout(LAST_PLANE, stopping.changed()).await,
                    Ok(Ok(()))
                ) => {}
            locked => return locked,
        }
    }
}

/// The fault of a locked directory, which a second server on one stand-in for etcd meets.
fn taken(error: StartError, stand_in: Option<&StandIn>) -> StartError {
    match (error, stand_in) {
        (
            StartError::Data {
                source: StorageError::Locked(owner),
                ..
            },
            Some(stand_in),
        ) => StartError::StandIn(format!(
            "the stand-in for etcd at {} has an API server already ({owner}): one cannot serve two, give this one another",
            stand_in.url()
        )),
        (error, _) => error,
    }
}

/// The server's own authorities and certificates, and what renews them: in the data directory, or in memory without one.
async fn open_pki(
    config: &Config,
    advertise: IpAddr,
    storage: &StorageFactory,
    encryption: Option<&Encryption>,
) -> Result<(Arc<Pki>, Option<OwnPki>), StartError> {
    let mut extra = vec![advertise.to_string(), identity::host()];
    // The kubeconfig names the address that the server listens on, so its certificate has to as well.
    let bound = config.listen.ip();
    if !bound.is_unspecified() {
        extra.push(bound.to_string());
    }
    let names = ServingNames {
        extra,
        service_ips: config.service_cidrs.iter().map(|cidr| cidr.nth(1)).collect(),
        ..ServingNames::default()
    };
    let Some(own) = OwnPki::new(config, names.clone(), storage) else {
        return Ok((Arc::new(Pki::in_memory(&names)?), None));
    };
    let used = storage
        .engine()
        .status()
        .await
        .is_ok_and(|status| status.revision.0 > 0);
    if used && !own.is_shared() && !own.exists() {
        tracing::warn!(
            directory = %own.directory().display(),
            "the store has been used, and the certificates and keys beside it are gone: new authorities are created, kubeconfigs and tokens \
             of before are refused"
        );
    }
    if let Some(encryption) = encryption.filter(|_| own.is_shared()) {
        let secrets = [GroupResource::new("", "secrets")];
        encryption.wait_for_keys(&secrets, STORE_TIMEOUT).await;
    }
    Ok((Arc::new(own.open().await?), Some(own)))
}

/// The proxies that a file names, none without one.
fn egress(config: &Config, metrics: &Metrics, tasks: &Tasks) -> Result<EgressSelector, StartError> {
    let Some(file) = &config.egress_file else {
        return Ok(EgressSelector::default());
    };
    let dials = Arc::<EgressMetrics>::default();
    metrics.register(dials.clone());
    kube_apiserver::read_egress(file, &dials, tasks)
        .map_err(|why| StartError::Option(format!("--egress-selector-config-file: {why}")))
}

/// Encryption at rest, when a file says so, with its health checks and metrics.
async fn open_encryption(
    file: Option<&EncryptionFile>,
    health: &Health,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<Option<Arc<Encryption>>, StartError> {
    let Some(EncryptionFile {
        file,
        automatic_reload,
    }) = file
    else {
        return Ok(None);
    };
    let encryption = Encryption::load(file, *automatic_reload, tasks)
        .await
        .map_err(|error| StartError::Option(format!("--encryption-provider-config: {error}")))?;
    for (name, check) in encryption.checks() {
        health.add(&name, Part::Ready, check);
    }
    metrics.register(encryption.clone());
    Ok(Some(encryption))
}

/// An address that others can reach when the server listens on all, or (as upstream has it) on the loopback address.
fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() && !bound.is_loopback() {
        return bound;
    }
    // The kernel says which address a packet to the outside would carry; nothing is sent.
    let probe = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket
            .connect((Ipv4Addr::new(192, 0, 2, 1), 9))
            .and_then(|()| socket.local_addr())
    });
    probe.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}
