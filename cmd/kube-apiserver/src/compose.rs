//! From options to a running control plane: every part made once, in the order in which they need each other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::{Aggregator, ProxyKey};
use apiextensions_server::ApiExtensions;
use arc_swap::ArcSwap;
use generic_server::admission::{AdmissionChain, AdmissionPlugin};
use generic_server::chain::{self, ChainConfig};
use generic_server::delegate::InOrder;
use generic_server::directory::Directory;
use generic_server::directory::monitor::{self, Probe, StoreMetrics};
use generic_server::discovery::{DiscoverySource, RootPaths};
use generic_server::encryption::Encryption;
use generic_server::filters::max_in_flight::MaxInFlight;
use generic_server::handlers::ServeEnv;
use generic_server::health::{Health, Part, StaticJson};
use generic_server::lifecycle::{Lifecycle, Timeline};
use generic_server::metrics::Metrics;
use generic_server::openapi::StaticDocuments;
use generic_server::pki::{Pki, ServingNames};
use generic_server::registry::StorageFactory;
use generic_server::serve::{CertifiedKey, Server, Tls, TlsOptions, certified_key};
use generic_server::server::ApiServer;
use generic_server::spawn::Tasks;
use kube_apiserver::rbac::Escalation;
use machinery::{ApiError, GroupResource, limits};
use storage::{OpenOptions, Store};

use crate::backup::{self, Backups};
use crate::config::{Config, EncryptionFile, Engine, Etcd, FrontProxy, KeyFiles, Storage};
use crate::readiness::{Readiness, Stage};
use crate::reload::Reload;
use crate::{ControlPlane, Options, StartError, access};

/// How long a store may be too slow for the start.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long the start waits for admission configuration that cannot be read, before it serves without being ready: reads work, and
/// whoever mends the configuration has to get in.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

/// The first of these that is on comes after the checks that nobody can turn off.
const BEFORE_WEBHOOKS: [&str; 5] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

pub(crate) async fn start(options: Options) -> Result<ControlPlane, StartError> {
    let mut config = Config::new(options).map_err(|faults| StartError::Option(faults.join("; ")))?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let cidrs = config.service_cidrs.clone();
    let address = config.listen;
    let listener = generic_server::serve::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })?;
    let address = listener.address();
    let advertise = config
        .advertise_address
        .unwrap_or_else(|| reachable(address.ip()));

    let engine = open_store(&config)?;
    let directory_path = config.data_dir.clone();
    let prefix = config.storage.prefix.clone();
    let names = ServingNames {
        extra: vec![advertise.to_string(), host_name()],
        service_ips: cidrs.iter().map(|cidr| cidr.nth(1)).collect(),
        ..ServingNames::default()
    };
    let pki = Arc::new(match &directory_path {
        Some(dir) => Pki::open(&dir.join("pki"), &names)?,
        None => Pki::in_memory(&names)?,
    });

    let lifecycle = Lifecycle::new();
    let tasks = Tasks::new();
    let metrics = Metrics::new();
    let health = Health::new(lifecycle.clone());
    let encryption = open_encryption(config.encryption.as_ref(), &health, &metrics, &tasks).await?;
    let stores = StorageFactory::new(engine)
        .with_overrides(open_overrides(&config.storage.engine)?)
        .with_encryption(encryption.clone())
        .with_unsafe_deletion(config.features.unsafe_deletion);
    let directory = Arc::new(Directory::default());

    let mut access = access::build(&config, &pki, &directory)?;
    let deps = kube_apiserver::Deps {
        storage: stores.clone(),
        prefix: prefix.clone(),
        stored_form: config.storage.stored_form,
        directory: directory.clone(),
        authorizer: access.authorizer.clone(),
        token_authenticator: access.tokens.clone(),
        token_issuer: access.issuer.clone(),
        service_cidrs: cidrs,
        node_ports: config.node_ports.clone(),
        event_ttl: config.event_ttl,
        storage_migration: config.features.storage_migration,
        advertise: (advertise, address.port()),
    };
    let engines = stores.engines();
    watch_over(&config.storage, &engines, &directory, &health, &metrics, &tasks).await;
    let groups = kube_apiserver::groups(&deps);
    let admission = admission(&config, &deps, &access, &tasks);
    let readiness = Readiness::new(&health, admission.clone());
    let env = ServeEnv {
        admission: admission.clone(),
        authorizer: access.authorizer.clone(),
        max_body: limits::BODY_BYTES,
        min_request_timeout: config.requests.min_timeout,
    };
    let kube = Arc::new(ApiServer::new(groups, env.clone()));
    let crds = ApiExtensions::new(apiextensions_server::Deps {
        storage: stores.clone(),
        prefix: prefix.clone(),
        directory: directory.clone(),
        env: env.clone(),
        limits: config.custom_resource_limits,
    });
    if let Some(encryption) = &encryption {
        let needed = [
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("apiregistration.k8s.io", "apiservices"),
            ("", "namespaces"),
            ("", "configmaps"),
            ("rbac.authorization.k8s.io", "clusterroles"),
        ];
        let needed = needed.map(|(group, resource)| GroupResource::new(group, resource));
        encryption.wait_for_keys(&needed, START_PATIENCE).await;
    }
    let started = patiently(|| crds.start(&tasks)).await;
    started.map_err(StartError::Bootstrap)?;
    readiness.finish(Stage::CustomResources);
    metrics.register(Arc::new(apiextensions_server::CostMetrics(crds.clone())));
    let aggregator = Aggregator::new(aggregator::Deps {
        storage: stores.clone(),
        prefix: prefix.clone(),
        next: Arc::new(InOrder(vec![kube.clone(), crds.clone()])),
        openapi: vec![
            Arc::new(StaticDocuments::new(kube.groups().to_vec())),
            crds.clone(),
        ],
        local: vec![kube.clone() as Arc<dyn DiscoverySource>, crds],
        directory: directory.clone(),
        env,
        server_address: SocketAddr::new(advertise, address.port()).to_string(),
        proxy_key: proxy_key(&config, &pki, &mut access.reload)?,
        endpoint_routing: config.enable_aggregator_routing,
        metrics: metrics.clone(),
        tasks: tasks.clone(),
    })
    .ok_or(StartError::Build("the facts table has no APIService"))?;

    let mut layers = ChainConfig::new(access.authenticator, access.authorizer, aggregator.clone());
    layers.lifecycle = lifecycle.clone();
    layers.metrics = metrics.clone();
    layers.request_timeout = config.requests.timeout;
    layers.goaway_chance = config.requests.goaway_chance;
    layers.hsts = config.requests.hsts.clone();
    layers.cors = std::mem::take(&mut config.requests.cors);
    layers.shutdown_send_retry_after = config.requests.shutdown_send_retry_after;
    layers.front_proxy_headers = front_proxy_headers(&config.front_proxy);
    layers.admit = Arc::new(MaxInFlight::new(
        config.requests.max_inflight,
        config.requests.max_mutating_inflight,
    ));
    health.install(&mut layers.endpoints);
    layers.endpoints.add("/metrics", metrics.clone());
    let version = StaticJson::version().map_err(|_| StartError::Build("the version cannot be written"))?;
    layers.endpoints.add("/version", version.clone());
    if let Engine::Embedded { .. } = config.storage.engine {
        let dir = directory_path.clone().unwrap_or_else(std::env::temp_dir);
        let engine = stores.engine().clone();
        layers
            .endpoints
            .add(backup::PATH, Arc::new(Backups { engine, dir }));
    }
    for (path, document) in access.endpoints {
        layers.endpoints.add(path, document);
    }
    let index = Arc::new(RootPaths {
        others: layers.endpoints.paths(),
        groups: aggregator.discovery(),
    });
    for path in ["/", "/index.html"] {
        layers.endpoints.add(path, index.clone());
    }
    layers.endpoints.add("/version/", version);
    let chain = chain::build(layers);

    let timeline = Timeline {
        delay: config.requests.shutdown_delay,
        requests: config.requests.timeout,
        ..Timeline::default()
    };
    let server = Arc::new(Server::new(chain.clone()));
    let tls = Arc::new(Tls::new(TlsOptions::new(serving_key(&config, &pki)?))?);
    let mut reload = access.reload;
    reload.encryption(encryption);
    watch_serving_key(&mut reload, config.serving.as_ref(), &tls);
    let facts = kube_apiserver::Facts {
        directory: directory.clone(),
        advertise: (advertise, address.port()),
        masters: kube_apiserver::Masters::new(engines[0].clone(), &prefix, advertise),
        service_cidrs: deps.service_cidrs.clone(),
        authorities: access.cluster_authorities,
        front_proxy_names: config.front_proxy.names(),
    };
    // Together, so that their writes share commits.
    let bootstrap = patiently(|| kube_apiserver::bootstrap(&facts));
    let aggregation = patiently(|| aggregator.start());
    let (complete, ()) = tokio::try_join!(bootstrap, aggregation).map_err(StartError::Bootstrap)?;
    readiness.finish(Stage::Bootstrap);
    readiness.finish(Stage::Aggregation);
    // The roles and bindings that were just written count too.
    let followers = match access.rbac {
        Some(rbac) => access::follow_rbac(rbac, &directory).await?,
        None => Vec::new(),
    };
    let node_followers = match access.nodes {
        Some(nodes) => patiently(|| kube_apiserver::authorization::node::follow(nodes.clone(), &directory))
            .await
            .map_err(StartError::Bootstrap)?,
        None => Vec::new(),
    };
    readiness.finish(Stage::Rbac);
    admission.wait_until_synced(SYNC_PATIENCE).await;
    readiness.finish(Stage::Admission);
    if let [_, ..] = admission.unsynced()[..] {
        tracing::error!(
            plugins = admission.unsynced().join(" "),
            "admission configuration cannot be read: not ready, and writes are refused"
        );
    }
    let kubeconfig_file = write_kubeconfig(&config, &pki, &local_url(address))?;
    // Requests are served from here on: whatever they are decided on has been read.
    {
        // With 429 for new requests, connections are taken until watches end.
        let stop = match config.requests.shutdown_send_retry_after {
            true => lifecycle.end_watches(),
            false => lifecycle.not_accepting(),
        };
        let (server, stop) = (server.clone(), stop.clone());
        tasks.spawn(
            "listener",
            async move { server.run(listener, Some(tls), stop).await },
        );
    }
    if health.is_ready() {
        lifecycle.set_ready();
    }
    if !complete {
        tasks.spawn("bootstrap", kube_apiserver::bootstrap_later(facts.clone()));
    }
    tasks.spawn("cluster authentication trust", kube_apiserver::keep_trust(&facts));
    let endpoints = kube_apiserver::keep_endpoints(facts, tasks.stopping().clone().cancelled_owned());
    tasks.spawn_to_end("kubernetes-endpoints", endpoints);
    tasks.spawn("node ports", kube_apiserver::keep_node_ports(deps.clone()));
    for follower in followers {
        tasks.spawn("rbac", follower);
    }
    for follower in node_followers {
        tasks.spawn("node authorizer", follower);
    }
    let mut controllers = kube_apiserver::controllers(&deps, pki.ca.certificate.clone());
    if deps.storage_migration {
        let api = aggregator.clone();
        controllers.push(kube_apiserver::storage_migration_controller(&deps, api));
    }
    for controller in controllers {
        if config.controllers.runs(controller.name) {
            tasks.spawn(controller.name, controller.run);
        }
    }
    let reload = Arc::new(reload);
    tasks.spawn("files", reload.clone().follow());

    Ok(ControlPlane {
        address,
        pki,
        chain,
        directory,
        engines,
        lifecycle,
        server,
        tasks,
        timeline,
        kubeconfig_file,
        reload,
    })
}

/// The admission chain: the plugins that are on, in upstream's order, and what nobody can turn off.
fn admission(
    config: &Config,
    deps: &kube_apiserver::Deps,
    access: &access::Access,
    tasks: &Tasks,
) -> AdmissionChain {
    let mut plugins = kube_apiserver::admission_plugins(deps);
    for (plugin, follow) in crate::dynamic_admission::plugins(&deps.directory, &access.authorizer) {
        if config.plugins.has(plugin.name()) {
            tasks.spawn("admission configuration", follow);
        }
        plugins.push(plugin);
    }
    let mut plugins = config.plugins.choose(plugins);
    // Upstream checks these where it stores objects, before webhooks see them.
    let mut always: Vec<Arc<dyn AdmissionPlugin>> = Vec::new();
    if !config.allow_privileged {
        always.push(kube_apiserver::forbid_privileged());
    }
    if let Some(rbac) = &access.rbac {
        always.push(Arc::new(Escalation {
            rbac: rbac.clone(),
            authorizer: access.authorizer.clone(),
        }));
    }
    let first = plugins
        .iter()
        .position(|plugin| BEFORE_WEBHOOKS.contains(&plugin.name()))
        .unwrap_or(plugins.len());
    plugins.splice(first..first, always);
    AdmissionChain::new(plugins)
}

/// The administrator's kubeconfig in the data directory, before anybody is told that the server is ready. None when the server's own
/// certificates are not those that it shows and trusts: then one of an earlier start goes, it leads nowhere.
fn write_kubeconfig(config: &Config, pki: &Pki, url: &str) -> Result<Option<PathBuf>, StartError> {
    let Some(file) = config.data_dir.as_ref().map(|dir| dir.join("admin.kubeconfig")) else {
        return Ok(None);
    };
    if config.own_certificates() {
        pki.write_kubeconfig(&file, url)?;
        return Ok(Some(file));
    }
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "a kubeconfig that does not work any more cannot be removed");
        }
        _ => {}
    }
    Ok(None)
}

/// The configured headers about users, which nobody behind the chain sees.
fn front_proxy_headers(front_proxy: &FrontProxy) -> (Vec<String>, Vec<String>) {
    let headers = front_proxy.headers();
    let names = [
        headers.username_headers,
        headers.uid_headers,
        headers.group_headers,
    ];
    (names.concat(), headers.extra_prefixes)
}

/// A certificate and key that a flag names.
fn named_key(flag: &str, files: &KeyFiles) -> Result<Arc<CertifiedKey>, StartError> {
    certified_key(&files.certificate, &files.key).map_err(|error| {
        let mut text = format!("{flag}: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        StartError::Option(text)
    })
}

/// The serving certificate that the options name, else the server's own.
fn serving_key(config: &Config, pki: &Pki) -> Result<Arc<CertifiedKey>, StartError> {
    match &config.serving {
        Some(files) => named_key("--tls-cert-file, --tls-private-key-file", files),
        None => Ok(pki.serving_key()?),
    }
}

/// The client certificate that vouches for this server to extension servers: the one that the options name, else its own.
fn proxy_key(config: &Config, pki: &Pki, reload: &mut Reload) -> Result<ProxyKey, StartError> {
    let Some(files) = config.proxy_client.clone() else {
        return Ok(Arc::new(ArcSwap::new(pki.front_proxy_client.certified_key()?)));
    };
    let key = named_key("--proxy-client-cert-file, --proxy-client-key-file", &files)?;
    let current = Arc::new(ArcSwap::new(key));
    let kept = current.clone();
    reload.watch("proxy client certificate", files.both(), move || {
        let read = certified_key(&files.certificate, &files.key);
        read.map(|key| kept.store(key)).map_err(|error| error.to_string())
    });
    Ok(current)
}

fn watch_serving_key(reload: &mut Reload, files: Option<&KeyFiles>, tls: &Arc<Tls>) {
    let Some(files) = files.cloned() else { return };
    let tls = tls.clone();
    reload.watch("serving certificate", files.both(), move || {
        let key = certified_key(&files.certificate, &files.key).map_err(|error| error.to_string())?;
        tls.reload(TlsOptions::new(key))
            .map_err(|error| error.to_string())
    });
}

fn open_store(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    let (kind, open) = match &config.storage.engine {
        Engine::Etcd(etcd) => return open_etcd(etcd, &etcd.servers),
        Engine::Embedded {
            kind,
            retention,
            max_history,
            max_history_bytes,
            min_free_bytes,
            allow_empty,
        } => {
            let open = OpenOptions {
                engine: *kind,
                dir: config
                    .data_dir
                    .as_ref()
                    .map(|directory| directory.join(kind.name())),
                retention: *retention,
                max_history: *max_history,
                max_history_bytes: *max_history_bytes,
                min_free_bytes: *min_free_bytes,
                allow_empty: *allow_empty,
                ..OpenOptions::default()
            };
            (kind, open)
        }
    };
    let place = config.data_dir.as_deref().unwrap_or(Path::new(kind.name()));
    let store = storage::open(open).map_err(|source| StartError::Store {
        place: place.display().to_string(),
        source,
    })?;
    // The store's lock says that no other server is writing one here.
    if let Some(directory) = &config.data_dir {
        match storage::remove_partial_backups(directory, backup::UNFINISHED) {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed what interrupted backups had left"),
            Err(error) => tracing::warn!(%error, "cannot remove what interrupted backups have left"),
        }
    }
    Ok(store)
}

/// Encryption at rest, when a file says so, with its health check and figures.
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
    for (name, ask) in encryption.checks() {
        health.add(&name, Part::Ready, ask);
    }
    metrics.register(encryption.clone());
    Ok(Some(encryption))
}

fn open_etcd(etcd: &Etcd, servers: &[String]) -> Result<Arc<dyn Store>, StartError> {
    storage::open_etcd(&etcd.options(servers)).map_err(|source| StartError::Store {
        place: servers.join(","),
        source,
    })
}

/// The engines of resources with servers of their own; those that name the same servers share one.
fn open_overrides(engine: &Engine) -> Result<HashMap<GroupResource, Arc<dyn Store>>, StartError> {
    let mut engines: HashMap<&[String], Arc<dyn Store>> = HashMap::new();
    let mut overrides = HashMap::new();
    let Engine::Etcd(etcd) = engine else {
        return Ok(overrides);
    };
    for (resource, servers) in &etcd.overrides {
        let engine = match engines.get(servers.as_slice()) {
            Some(engine) => engine.clone(),
            None => engines
                .entry(servers)
                .or_insert(open_etcd(etcd, servers)?)
                .clone(),
        };
        overrides.insert(resource.clone(), engine);
    }
    Ok(overrides)
}

/// Tries what a store that is merely slow has refused until it is done, within reason. It has to be idempotent.
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let deadline = tokio::time::Instant::now() + START_PATIENCE;
    loop {
        match attempt().await {
            Err(error) if error.retry_after().is_some() && tokio::time::Instant::now() < deadline => {
                tracing::warn!(%error, "the store is slow, the start waits for it");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            done => return done,
        }
    }
}

/// What is kept known of the stores in the background: health checks under upstream's names, figures for the metrics.
async fn watch_over(
    config: &Storage,
    engines: &[Arc<dyn Store>],
    directory: &Arc<Directory>,
    health: &Health,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    let checks = [
        ("etcd", Part::Everywhere, config.healthcheck_timeout),
        ("etcd-readiness", Part::Ready, config.readycheck_timeout),
    ];
    for (name, part, timeout) in checks {
        let probe = Probe::new(engines[0].clone(), timeout);
        probe.look().await;
        let asked = probe.clone();
        health.add(name, part, move || asked.outcome());
        tasks.spawn("store-health", probe.run());
    }
    let figures = StoreMetrics::new();
    metrics.register(figures.clone());
    if !config.count_every.is_zero() {
        let counting = figures
            .clone()
            .keep_counting(directory.clone(), config.count_every);
        tasks.spawn("store-counts", counting);
    }
    if !config.measure_every.is_zero() {
        let measuring = figures.keep_measuring(engines.to_vec(), config.measure_every);
        tasks.spawn("store-sizes", measuring);
    }
    tasks.spawn("idle-caches", monitor::drop_idle_caches(directory.clone()));
}

/// An address that others can reach when the server listens on all, or (as upstream has it) on the loopback address.
fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() && !bound.is_loopback() {
        return bound;
    }
    // Asks the kernel which address a packet to the outside would carry; nothing is sent.
    let probe = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket
            .connect((Ipv4Addr::new(192, 0, 2, 1), 9))
            .and_then(|()| socket.local_addr())
    });
    probe.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .unwrap_or_default()
}

/// The URL of a listening address, from this machine. One that stands for all addresses takes IPv4 too.
pub(crate) fn local_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}
