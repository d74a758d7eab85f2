//! From options to a running control plane: every part made once, in the order in which they need each other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::{Aggregator, ProxyKey};
use apiextensions_server::ApiExtensions;
use arc_swap::ArcSwap;
use generic_server::admission::AdmissionChain;
use generic_server::authz::rbac::Escalation;
use generic_server::chain::{self, ChainConfig};
use generic_server::delegate::InOrder;
use generic_server::discovery::{DiscoverySource, RootPaths};
use generic_server::encryption::Encryption;
use generic_server::filters::cors::Cors;
use generic_server::filters::max_in_flight::MaxInFlight;
use generic_server::handlers::ServeEnv;
use generic_server::health::{Health, Part, StaticJson};
use generic_server::lifecycle::{Lifecycle, Timeline};
use generic_server::metrics::Metrics;
use generic_server::openapi::StaticDocuments;
use generic_server::pki::{Pki, ServingNames};
use generic_server::registry::monitor::{self, Probe, StoreMetrics};
use generic_server::registry::{Directory, StorageFactory};
use generic_server::serve::{CertifiedKey, Server, Tls, TlsOptions, certified_key};
use generic_server::server::ApiServer;
use generic_server::spawn::Tasks;
use kube_apiserver::Cidr;
use machinery::{ApiError, GroupResource};
use storage::{EngineKind, EtcdOptions, OpenOptions, Store};

use crate::backup::{self, Backups};
use crate::reload::Reload;
use crate::{ControlPlane, Options, StartError, access};

/// How long a store may be too slow for the start.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The largest request body, as upstream has it.
const MAX_BODY: usize = 3 * 1024 * 1024;

pub(crate) async fn start(options: Options) -> Result<ControlPlane, StartError> {
    let faults = options.validate();
    if !faults.is_empty() {
        return Err(StartError::Option(faults.join("; ")));
    }
    if options.sizes_watch_caches() {
        tracing::warn!(
            "watch caches follow what they hold: the flags that size them or turn them off have no effect"
        );
    }
    let cidrs = service_cidrs(&options)?;
    let address = SocketAddr::new(options.bind_address, options.secure_port);
    let listener = generic_server::serve::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })?;
    let address = listener.address();
    let advertise = options
        .advertise_address
        .unwrap_or_else(|| reachable(address.ip()));

    let (engine, directory_path) = open_store(&options)?;
    let prefix = options.storage_prefix();
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
    let encryption = open_encryption(&options, &health, &metrics, &tasks).await?;
    let stores = StorageFactory::new(engine)
        .with_overrides(open_overrides(&options)?)
        .with_encryption(encryption.clone())
        .with_unsafe_deletion(options.unsafe_deletion());
    let directory = Arc::new(Directory::default());

    let mut access = access::build(&options, &pki, &directory)?;
    let deps = kube_apiserver::Deps {
        storage: stores.clone(),
        prefix: prefix.clone(),
        stored_form: options.stored_form(),
        directory: directory.clone(),
        authorizer: access.authorizer.clone(),
        token_authenticator: access.tokens.clone(),
        token_issuer: access.issuer.clone(),
        service_cidrs: cidrs,
        node_ports: node_ports(&options)?,
        event_ttl: options.event_ttl,
        storage_migration: options.storage_migration(),
        advertise: (advertise, address.port()),
    };
    let engines = stores.engines();
    watch_over(&options, &engines, &directory, &health, &metrics, &tasks).await;
    let groups = kube_apiserver::groups(&deps);
    let mut plugins = kube_apiserver::admission_plugins(&deps);
    if let Some(rbac) = &access.rbac {
        let authorizer = access.authorizer.clone();
        plugins.push(Arc::new(Escalation {
            rbac: rbac.clone(),
            authorizer,
        }));
    }
    let dynamic = crate::dynamic_admission::plugins(&directory, &access.authorizer, &tasks);
    plugins.extend(dynamic);
    plugins.extend(kube_apiserver::late_admission_plugins(&deps));
    let admission = AdmissionChain::new(plugins);
    let env = ServeEnv {
        admission,
        authorizer: access.authorizer.clone(),
        max_body: MAX_BODY,
        min_request_timeout: Duration::from_secs(options.min_request_timeout),
    };
    let kube = Arc::new(ApiServer::new(groups, env.clone()));
    let crds = ApiExtensions::new(apiextensions_server::Deps {
        storage: stores.clone(),
        prefix: prefix.clone(),
        directory: directory.clone(),
        env: env.clone(),
        limits: options.custom_resource_limits,
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
        proxy_key: proxy_key(&options, &pki, &mut access.reload)?,
        endpoint_routing: options.enable_aggregator_routing,
        metrics: metrics.clone(),
        tasks: tasks.clone(),
    })
    .ok_or(StartError::Build("the facts table has no APIService"))?;

    let mut config = ChainConfig::new(access.authenticator, access.authorizer, aggregator.clone());
    config.lifecycle = lifecycle.clone();
    config.metrics = metrics.clone();
    config.request_timeout = options.request_timeout;
    config.cors = Cors::new(&options.cors_allowed_origins)
        .map_err(|error| StartError::Option(format!("--cors-allowed-origins: {error}")))?;
    config.admit = Arc::new(MaxInFlight::new(
        options.max_requests_inflight,
        options.max_mutating_requests_inflight,
    ));
    health.install(&mut config.endpoints);
    config.endpoints.add("/metrics", metrics.clone());
    let version = StaticJson::version().map_err(|_| StartError::Build("the version cannot be written"))?;
    config.endpoints.add("/version", version.clone());
    if options.etcd_servers.is_empty() {
        let dir = directory_path.clone().unwrap_or_else(std::env::temp_dir);
        let engine = stores.engine().clone();
        config
            .endpoints
            .add(backup::PATH, Arc::new(Backups { engine, dir }));
    }
    for (path, document) in access.endpoints {
        config.endpoints.add(path, document);
    }
    let index = Arc::new(RootPaths {
        others: config.endpoints.paths(),
        groups: aggregator.discovery(),
    });
    for path in ["/", "/index.html"] {
        config.endpoints.add(path, index.clone());
    }
    config.endpoints.add("/version/", version);
    let chain = chain::build(config);

    let timeline = Timeline {
        delay: options.shutdown_delay_duration,
        requests: options.request_timeout,
        ..Timeline::default()
    };
    let server = Arc::new(Server::new(chain.clone()));
    let tls = Arc::new(Tls::new(TlsOptions::new(serving_key(&options, &pki)?))?);
    let mut reload = access.reload;
    reload.encryption(encryption);
    watch_serving_key(&mut reload, &options, &tls);
    {
        let (server, stop) = (server.clone(), lifecycle.not_accepting().clone());
        tasks.spawn(
            "listener",
            async move { server.run(listener, Some(tls), stop).await },
        );
    }
    let facts = kube_apiserver::Facts {
        directory: directory.clone(),
        advertise: (advertise, address.port()),
        masters: kube_apiserver::Masters::new(engines[0].clone(), &prefix, advertise),
        service_cidrs: deps.service_cidrs.clone(),
        authorities: access.cluster_authorities,
        front_proxy_names: access.front_proxy_names,
    };
    // Together, so that their writes share commits.
    let bootstrap = patiently(|| kube_apiserver::bootstrap(&facts));
    let aggregation = patiently(|| aggregator.start());
    let (complete, ()) = tokio::try_join!(bootstrap, aggregation).map_err(StartError::Bootstrap)?;
    if !complete {
        tasks.spawn("bootstrap", kube_apiserver::bootstrap_later(facts.clone()));
    }
    tasks.spawn("cluster authentication trust", kube_apiserver::keep_trust(&facts));
    let endpoints = kube_apiserver::keep_endpoints(facts, tasks.stopping().clone().cancelled_owned());
    tasks.spawn_to_end("kubernetes-endpoints", endpoints);
    tasks.spawn("node ports", kube_apiserver::keep_node_ports(deps.clone()));
    if let Some(rbac) = access.rbac {
        for task in access::follow_rbac(rbac, &directory).await? {
            tasks.spawn("rbac", task);
        }
    }
    let mut controllers = kube_apiserver::controllers(&deps, pki.ca.certificate.clone());
    if deps.storage_migration {
        let api = aggregator.clone();
        controllers.push(kube_apiserver::storage_migration_controller(&deps, api));
    }
    for controller in controllers {
        if options.runs_controller(controller.name) {
            tasks.spawn(controller.name, controller.run);
        }
    }
    let reload = Arc::new(reload);
    tasks.spawn("files", reload.clone().follow());
    lifecycle.set_ready();

    let kubeconfig_file = match &directory_path {
        Some(dir) => {
            let file = dir.join("admin.kubeconfig");
            pki.write_kubeconfig(&file, &local_url(address))?;
            Some(file)
        }
        None => None,
    };
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

/// The serving certificate that the options name, else the server's own.
fn serving_key(options: &Options, pki: &Pki) -> Result<Arc<CertifiedKey>, StartError> {
    match (&options.tls_cert_file, &options.tls_private_key_file) {
        (Some(certificate), Some(key)) => Ok(certified_key(certificate, key)?),
        _ => Ok(pki.serving_key()?),
    }
}

/// The client certificate that vouches for this server to extension servers: the one that the options name, else its own.
fn proxy_key(options: &Options, pki: &Pki, reload: &mut Reload) -> Result<ProxyKey, StartError> {
    let (Some(certificate), Some(key)) = (&options.proxy_client_cert_file, &options.proxy_client_key_file)
    else {
        return Ok(Arc::new(ArcSwap::new(pki.front_proxy_client.certified_key()?)));
    };
    let current = Arc::new(ArcSwap::new(certified_key(certificate, key)?));
    let (files, kept) = ([certificate.clone(), key.clone()], current.clone());
    reload.watch("proxy client certificate", files.clone(), move || {
        let read = certified_key(&files[0], &files[1]);
        read.map(|key| kept.store(key)).map_err(|error| error.to_string())
    });
    Ok(current)
}

fn watch_serving_key(reload: &mut Reload, options: &Options, tls: &Arc<Tls>) {
    let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file) else {
        return;
    };
    let (files, tls) = ((certificate.clone(), key.clone()), tls.clone());
    reload.watch(
        "serving certificate",
        [certificate.clone(), key.clone()],
        move || {
            let key = certified_key(&files.0, &files.1).map_err(|error| error.to_string())?;
            tls.reload(TlsOptions::new(key))
                .map_err(|error| error.to_string())
        },
    );
}

fn open_store(options: &Options) -> Result<(Arc<dyn Store>, Option<PathBuf>), StartError> {
    if !options.etcd_servers.is_empty() {
        let directory = options.data_directory().map_err(StartError::Option)?;
        return Ok((open_etcd(options, &options.etcd_servers)?, Some(directory)));
    }
    let kind = match options.storage_backend.as_deref() {
        Some("memory") => EngineKind::Memory,
        Some("sled") => EngineKind::Sled,
        _ => EngineKind::Redb,
    };
    let directory = match kind {
        EngineKind::Memory => options.data_dir.clone(),
        EngineKind::Redb | EngineKind::Sled => Some(options.data_directory().map_err(StartError::Option)?),
    };
    let open = OpenOptions {
        engine: kind,
        dir: directory.as_ref().map(|directory| directory.join(kind.name())),
        retention: options.history_retention,
        max_history: options.history_max_changes,
        max_history_bytes: options.history_max_mib.saturating_mul(1 << 20),
        min_free_bytes: options.min_free_disk_mib.saturating_mul(1 << 20),
        ..OpenOptions::default()
    };
    let place = directory.as_deref().unwrap_or(Path::new("memory"));
    let engine = storage::open(open).map_err(|source| StartError::Store {
        place: place.display().to_string(),
        source,
    })?;
    Ok((engine, directory))
}

/// Encryption at rest, when a file says so, with its health check and figures.
async fn open_encryption(
    options: &Options,
    health: &Health,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<Option<Arc<Encryption>>, StartError> {
    let Some(file) = &options.encryption_provider_config else {
        return Ok(None);
    };
    let automatic = options.encryption_provider_config_automatic_reload;
    let encryption = Encryption::load(file, automatic, tasks)
        .await
        .map_err(|error| StartError::Option(format!("--encryption-provider-config: {error}")))?;
    for (name, ask) in encryption.checks() {
        health.add(&name, Part::Ready, ask);
    }
    metrics.register(encryption.clone());
    Ok(Some(encryption))
}

fn open_etcd(options: &Options, servers: &[String]) -> Result<Arc<dyn Store>, StartError> {
    let etcd = EtcdOptions {
        endpoints: servers.to_vec(),
        ca_file: options.etcd_cafile.clone(),
        cert_file: options.etcd_certfile.clone(),
        key_file: options.etcd_keyfile.clone(),
        compaction_interval: options.etcd_compaction_interval,
        lease_reuse: Duration::from_secs(options.lease_reuse_duration_seconds),
        ..EtcdOptions::default()
    };
    storage::open_etcd(&etcd).map_err(|source| StartError::Store {
        place: servers.join(","),
        source,
    })
}

/// The engines of resources with servers of their own; those that name the same servers share one.
fn open_overrides(options: &Options) -> Result<HashMap<GroupResource, Arc<dyn Store>>, StartError> {
    let mut engines: HashMap<Vec<String>, Arc<dyn Store>> = HashMap::new();
    let mut overrides = HashMap::new();
    for (resource, servers) in options.etcd_overrides().map_err(StartError::Option)? {
        let engine = match engines.get(&servers) {
            Some(engine) => engine.clone(),
            None => engines
                .entry(servers.clone())
                .or_insert(open_etcd(options, &servers)?)
                .clone(),
        };
        overrides.insert(resource, engine);
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
    options: &Options,
    engines: &[Arc<dyn Store>],
    directory: &Arc<Directory>,
    health: &Health,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    let checks = [
        ("etcd", Part::Everywhere, options.etcd_healthcheck_timeout),
        ("etcd-readiness", Part::Ready, options.etcd_readycheck_timeout),
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
    if !options.etcd_count_metric_poll_period.is_zero() {
        let counting = figures
            .clone()
            .keep_counting(directory.clone(), options.etcd_count_metric_poll_period);
        tasks.spawn("store-counts", counting);
    }
    if !options.etcd_db_metric_poll_interval.is_zero() {
        let measuring = figures.keep_measuring(engines.to_vec(), options.etcd_db_metric_poll_interval);
        tasks.spawn("store-sizes", measuring);
    }
    tasks.spawn("idle-caches", monitor::drop_idle_caches(directory.clone()));
}

fn service_cidrs(options: &Options) -> Result<Vec<Cidr>, StartError> {
    let ranges = options.service_cluster_ip_range.split(',').map(str::trim);
    ranges
        .map(|range| {
            range.parse().map_err(|_| {
                StartError::Option(format!(
                    "--service-cluster-ip-range: `{range}` is not a CIDR such as 10.0.0.0/16"
                ))
            })
        })
        .collect()
}

fn node_ports(options: &Options) -> Result<std::ops::RangeInclusive<u16>, StartError> {
    let text = &options.service_node_port_range;
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
    range
        .filter(|r: &std::ops::RangeInclusive<u16>| !r.is_empty())
        .ok_or_else(|| {
            StartError::Option(format!(
                "--service-node-port-range: `{text}` is not a range such as 30000-32767"
            ))
        })
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
