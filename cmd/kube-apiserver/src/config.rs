//! What the options mean. Every option is taken apart once, in [`Config::new`], which names each field: an option that nobody
//! takes does not compile, and a field of [`Config`] that nobody reads is a warning, which the gate refuses. All faults that can
//! be told without opening anything are collected there, each with its flag.

mod features;
mod requests;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use generic_server::registry::cache::StoredForm;
use kube_apiserver::{AccessOptions, Cidr, PluginSelection};
use machinery::GroupResource;
use storage::EngineKind;

use crate::logging;
use crate::options::{Options, StorageBackend, StorageMediaType, data_directory};

pub(crate) use features::{Controllers, Features};
pub(crate) use requests::Requests;
pub(crate) use trust::KeyFiles;
use trust::{FrontProxy, ServiceAccountTokens};

/// Bits of a range of cluster IPs, at most. Upstream's figure.
const CIDR_BITS: u8 = 20;

/// The options, checked and in the form that the parts of the server take.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) advertise_address: Option<IpAddr>,
    pub(crate) serving: Option<KeyFiles>,
    /// Where keys, certificates and the embedded store live; none when nothing is kept.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) storage: Storage,
    pub(crate) encryption: Option<EncryptionFile>,
    pub(crate) access: AccessOptions,
    pub(crate) proxy_client: Option<KeyFiles>,
    pub(crate) enable_aggregator_routing: bool,
    pub(crate) plugins: PluginSelection,
    pub(crate) service_cidrs: Vec<Cidr>,
    pub(crate) node_ports: RangeInclusive<u16>,
    pub(crate) event_ttl: Duration,
    pub(crate) allow_privileged: bool,
    pub(crate) controllers: Controllers,
    pub(crate) features: Features,
    pub(crate) requests: Requests,
    pub(crate) custom_resource_limits: apiextensions_server::Limits,
    /// What is accepted without effect, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Where objects are stored.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) engine: Engine,
    /// What all keys begin with: a slash in front and none behind, whatever the flag has; empty for no prefix.
    pub(crate) prefix: String,
    /// How built-in kinds are stored.
    pub(crate) stored_form: StoredForm,
    /// What past states in caches may take.
    pub(crate) cache_history_bytes: usize,
    /// How often an embedded store is read through; zero never.
    pub(crate) scrub_every: Duration,
    /// How often objects are counted for the metrics; zero never.
    pub(crate) count_every: Duration,
    /// How often the store's size is looked up for the metrics; zero never.
    pub(crate) measure_every: Duration,
    pub(crate) healthcheck_timeout: Duration,
    pub(crate) readycheck_timeout: Duration,
}

/// The engine and its own settings.
#[derive(Debug)]
pub(crate) enum Engine {
    Embedded {
        kind: EngineKind,
        retention: Duration,
        max_history: u64,
        max_history_bytes: u64,
        min_free_bytes: u64,
        /// Whether an empty store may begin where there was one.
        allow_empty: bool,
    },
    Etcd(Etcd),
}

/// How etcd is reached.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) servers: Vec<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) client: Option<KeyFiles>,
    /// Resources with servers of their own.
    pub(crate) overrides: Vec<(GroupResource, Vec<String>)>,
    pub(crate) compaction_interval: Duration,
    pub(crate) lease_reuse: Duration,
}

/// The EncryptionConfiguration.
#[derive(Debug)]
pub(crate) struct EncryptionFile {
    pub(crate) file: PathBuf,
    pub(crate) automatic_reload: bool,
}

/// Faults and warnings that are being collected.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// The value, or its default beside a fault.
    fn take<T: Default>(&mut self, outcome: Result<T, String>) -> T {
        outcome.unwrap_or_else(|fault| {
            self.fault(fault);
            T::default()
        })
    }
}

impl Options {
    /// Every fault that can be found without opening anything, one line each.
    pub fn validate(&self) -> Vec<String> {
        Config::new(self.clone()).err().unwrap_or_default()
    }
}

impl Config {
    /// Checks the options and turns them into what they mean.
    ///
    /// # Errors
    /// Every fault that can be told without opening anything, one line each.
    pub(crate) fn new(options: Options) -> Result<Self, Vec<String>> {
        // No `..`: a new option has to say here what becomes of it.
        let Options {
            bind_address,
            secure_port,
            advertise_address,
            data_dir,
            storage_backend,
            history_retention,
            history_max_changes,
            history_max_mib,
            watch_cache_history_mib,
            scrub_interval,
            min_free_disk_mib,
            allow_empty,
            etcd_servers,
            etcd_cafile,
            etcd_certfile,
            etcd_keyfile,
            etcd_prefix,
            etcd_servers_overrides,
            etcd_compaction_interval,
            etcd_count_metric_poll_period,
            etcd_db_metric_poll_interval,
            etcd_healthcheck_timeout,
            etcd_readycheck_timeout,
            lease_reuse_duration_seconds,
            storage_media_type,
            watch_cache,
            default_watch_cache_size,
            watch_cache_sizes,
            encryption_provider_config,
            encryption_provider_config_automatic_reload,
            tls_cert_file,
            tls_private_key_file,
            client_ca_file,
            token_auth_file,
            anonymous_auth,
            service_account_issuer,
            service_account_key_file,
            service_account_signing_key_file,
            api_audiences,
            requestheader_client_ca_file,
            requestheader_allowed_names,
            requestheader_username_headers,
            requestheader_uid_headers,
            requestheader_group_headers,
            requestheader_extra_headers_prefix,
            proxy_client_cert_file,
            proxy_client_key_file,
            enable_aggregator_routing,
            authorization_mode,
            enable_admission_plugins,
            disable_admission_plugins,
            service_cluster_ip_range,
            service_node_port_range,
            event_ttl,
            allow_privileged,
            controllers,
            feature_gates,
            runtime_config,
            max_requests_inflight,
            max_mutating_requests_inflight,
            request_timeout,
            min_request_timeout,
            shutdown_delay_duration,
            shutdown_send_retry_after,
            goaway_chance,
            strict_transport_security_directives,
            cors_allowed_origins,
            custom_resource_limits,
            v,
            // Read by `logging::init` before there is a configuration: only a process has a log of its own.
            logging_format: _,
        } = options;

        let mut found = Findings::default();
        found.faults.extend(logging::filter(&v).err());
        watch_caches(
            &mut found,
            watch_cache,
            default_watch_cache_size,
            &watch_cache_sizes,
        );

        let etcd = !etcd_servers.is_empty();
        if let Some(backend) = storage_backend.filter(|backend| *backend != StorageBackend::Etcd3)
            && etcd
        {
            let backend = format!("{backend:?}").to_lowercase();
            found.fault(format!(
                "--etcd-servers does not go with --storage-backend={backend}"
            ));
        }
        if storage_backend == Some(StorageBackend::Etcd3) && !etcd {
            found.fault("--storage-backend=etcd3 needs --etcd-servers");
        }
        if etcd_certfile.is_some() != etcd_keyfile.is_some() {
            found.fault("--etcd-certfile and --etcd-keyfile go together");
        }
        if !etcd_servers_overrides.is_empty() && !etcd {
            found.fault("--etcd-servers-overrides needs --etcd-servers");
        }
        if etcd_healthcheck_timeout.is_zero() || etcd_readycheck_timeout.is_zero() {
            found.fault("--etcd-healthcheck-timeout and --etcd-readycheck-timeout must be more than zero");
        }
        let prefix = match etcd_prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        };
        if prefix.contains("//") || prefix.split('/').any(|part| part == "..") {
            found.fault(format!("--etcd-prefix: `{etcd_prefix}` is not a path"));
        }
        let kind = match storage_backend {
            Some(StorageBackend::Memory) => EngineKind::Memory,
            Some(StorageBackend::Sled) => EngineKind::Sled,
            Some(StorageBackend::Redb | StorageBackend::Etcd3) | None => EngineKind::Redb,
        };
        let overrides = found.take(etcd_overrides(&etcd_servers_overrides));
        let engine = match etcd {
            true => Engine::Etcd(Etcd {
                servers: etcd_servers,
                ca_file: etcd_cafile,
                client: KeyFiles::of(etcd_certfile, etcd_keyfile),
                overrides,
                compaction_interval: etcd_compaction_interval,
                lease_reuse: Duration::from_secs(lease_reuse_duration_seconds),
            }),
            false => Engine::Embedded {
                kind,
                retention: history_retention,
                max_history: history_max_changes,
                max_history_bytes: history_max_mib.saturating_mul(1 << 20),
                min_free_bytes: min_free_disk_mib.saturating_mul(1 << 20),
                allow_empty,
            },
        };
        let data_dir = match !etcd && kind == EngineKind::Memory {
            true => data_dir,
            false => Some(found.take(data_directory(data_dir.as_ref()))),
        };
        if encryption_provider_config_automatic_reload && encryption_provider_config.is_none() {
            found.fault(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
            );
        }
        let proxy_client = KeyFiles::of(proxy_client_cert_file, proxy_client_key_file);
        let front_proxy = FrontProxy {
            ca_file: requestheader_client_ca_file,
            allowed_names: requestheader_allowed_names,
            username_headers: requestheader_username_headers,
            uid_headers: requestheader_uid_headers,
            group_headers: requestheader_group_headers,
            extra_prefixes: requestheader_extra_headers_prefix,
        };
        front_proxy.check(&mut found, client_ca_file.as_deref(), proxy_client.is_some());
        let tokens = ServiceAccountTokens {
            issuers: service_account_issuer,
            audiences: api_audiences,
            key_files: service_account_key_file,
            signing_key_file: service_account_signing_key_file,
        };
        tokens.check(&mut found);
        let plugins = match PluginSelection::new(&enable_admission_plugins, &disable_admission_plugins) {
            Ok((plugins, warnings)) => {
                found.warnings.extend(warnings);
                plugins
            }
            Err(faults) => {
                found.faults.extend(faults);
                PluginSelection::default()
            }
        };
        let service_cidrs = found.take(service_cidrs(&service_cluster_ip_range));
        let node_ports = node_ports(&service_node_port_range).unwrap_or_else(|fault| {
            found.fault(fault);
            0..=0
        });
        let features = Features::read(&mut found, &feature_gates, &runtime_config);
        let controllers = Controllers::read(&mut found, controllers);
        let requests = Requests {
            max_inflight: max_requests_inflight,
            max_mutating_inflight: max_mutating_requests_inflight,
            timeout: request_timeout,
            min_timeout: Duration::from_secs(min_request_timeout),
            shutdown_delay: shutdown_delay_duration,
            shutdown_send_retry_after,
            goaway_chance,
            hsts: requests::hsts(&mut found, &strict_transport_security_directives),
            cors: requests::cors(&mut found, &cors_allowed_origins),
        };
        requests.check(&mut found);
        if !found.faults.is_empty() {
            return Err(found.faults);
        }
        Ok(Config {
            listen: SocketAddr::new(bind_address, secure_port),
            advertise_address,
            serving: KeyFiles::of(tls_cert_file, tls_private_key_file),
            data_dir,
            storage: Storage {
                engine,
                prefix,
                stored_form: match storage_media_type {
                    Some(StorageMediaType::Json) => StoredForm::Json,
                    Some(StorageMediaType::Yaml) => StoredForm::Yaml,
                    Some(StorageMediaType::Protobuf) => StoredForm::Protobuf,
                    // On etcd as upstream has it: others may share it.
                    None if etcd => StoredForm::Protobuf,
                    None => StoredForm::Json,
                },
                cache_history_bytes: usize::try_from(watch_cache_history_mib.saturating_mul(1 << 20))
                    .unwrap_or(usize::MAX),
                scrub_every: scrub_interval,
                count_every: etcd_count_metric_poll_period,
                measure_every: etcd_db_metric_poll_interval,
                healthcheck_timeout: etcd_healthcheck_timeout,
                readycheck_timeout: etcd_readycheck_timeout,
            },
            encryption: encryption_provider_config.map(|file| EncryptionFile {
                file,
                automatic_reload: encryption_provider_config_automatic_reload,
            }),
            access: AccessOptions {
                client_ca_file,
                token_auth_file,
                anonymous: anonymous_auth,
                front_proxy: front_proxy.headers(),
                front_proxy_ca_file: front_proxy.ca_file,
                tokens: tokens.into_options(),
                modes: authorization_mode.into_iter().map(Into::into).collect(),
            },
            proxy_client,
            enable_aggregator_routing,
            plugins,
            service_cidrs,
            node_ports,
            event_ttl,
            allow_privileged,
            controllers,
            features,
            requests,
            custom_resource_limits,
            warnings: found.warnings,
        })
    }

    /// Whether a client can use a kubeconfig with the server's own certificates: the server shows its own and trusts its own CA.
    pub(crate) fn own_certificates(&self) -> bool {
        self.serving.is_none() && self.access.client_ca_file.is_none()
    }
}

impl Storage {
    /// Whether the store is read through in the background: one that is in files of this server.
    pub(crate) fn scrubs(&self) -> bool {
        let in_files = matches!(self.engine, Engine::Embedded { kind, .. } if kind != EngineKind::Memory);
        in_files && !self.scrub_every.is_zero()
    }
}

impl Etcd {
    /// The options of one set of servers.
    pub(crate) fn options(&self, servers: &[String]) -> storage::EtcdOptions {
        let path = |of: fn(&KeyFiles) -> &Path| self.client.as_ref().map(|files| of(files).to_path_buf());
        storage::EtcdOptions {
            endpoints: servers.to_vec(),
            ca_file: self.ca_file.clone(),
            cert_file: path(|files| &files.certificate),
            key_file: path(|files| &files.key),
            compaction_interval: self.compaction_interval,
            lease_reuse: self.lease_reuse,
            ..storage::EtcdOptions::default()
        }
    }
}

/// Checks the sizes of watch caches in upstream's words. Caches hold what there is: the flags have no effect.
fn watch_caches(found: &mut Findings, on: bool, default_size: i64, sizes: &[String]) {
    let fault = |text: &String| {
        let Some((_, size)) = text.split_once('#').filter(|(_, size)| !size.contains('#')) else {
            return Some(format!("invalid value of watch cache size: {text}"));
        };
        match size.parse::<i64>() {
            Err(_) => Some(format!("invalid size of watch cache size: {text}")),
            Ok(size) if size < 0 => Some(format!("watch cache size cannot be negative: {text}")),
            Ok(_) => None,
        }
    };
    if on {
        found.faults.extend(sizes.iter().filter_map(fault));
    }
    let default = Options::defaults().default_watch_cache_size;
    let flags = [
        ("--watch-cache", !on),
        ("--default-watch-cache-size", default_size != default),
        ("--watch-cache-sizes", !sizes.is_empty()),
    ];
    for (flag, _) in flags.iter().filter(|(_, given)| *given) {
        found.warn(format!(
            "{flag} has no effect: watch caches follow what they hold"
        ));
    }
}

/// The resources with servers of their own.
fn etcd_overrides(texts: &[String]) -> Result<Vec<(GroupResource, Vec<String>)>, String> {
    let parse = |text: &String| {
        let (resource, servers) = text
            .split_once('#')
            .filter(|(_, servers)| !servers.contains('#'))?;
        let (group, resource) = resource.split_once('/').filter(|(_, rest)| !rest.contains('/'))?;
        let servers: Vec<String> = servers.split(';').map(str::to_string).collect();
        let whole = !servers.iter().any(String::is_empty);
        whole.then(|| (GroupResource::new(group, resource), servers))
    };
    let all: Option<Vec<_>> = texts.iter().map(parse).collect();
    all.ok_or_else(|| {
        "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
            .into()
    })
}

fn service_cidrs(text: &str) -> Result<Vec<Cidr>, String> {
    const FLAG: &str = "--service-cluster-ip-range";
    let ranges = text.split(',').map(str::trim);
    let all: Vec<Cidr> = ranges
        .map(|range| {
            let parsed = range.parse();
            parsed.map_err(|_| format!("{FLAG}: `{range}` is not a CIDR such as 10.0.0.0/16"))
        })
        .collect::<Result<_, _>>()?;
    for cidr in &all {
        let bits = if cidr.is_v6() { 128 } else { 32 };
        let least = bits - CIDR_BITS;
        if cidr.bits() < least {
            return Err(format!(
                "specified {FLAG} is too large; for {bits}-bit addresses, the mask must be >= {least}"
            ));
        }
    }
    match all.as_slice() {
        [_] => Ok(all),
        [one, other] if one.is_v6() != other.is_v6() => Ok(all),
        [_, _] => Err(format!("{FLAG}[0] and {FLAG}[1] must be of different IP family")),
        _ => Err(format!("{FLAG} must not contain more than two entries")),
    }
}

fn node_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
    range
        .filter(|range: &RangeInclusive<u16>| !range.is_empty())
        .ok_or_else(|| format!("--service-node-port-range: `{text}` is not a range such as 30000-32767"))
}
