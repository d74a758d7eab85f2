//! The configuration: options, checked and typed. Every option is taken apart once, in [`Config::new`], which names each field: an
//! unread option does not compile, and an unread field of [`Config`] is a warning, which the gate refuses. All faults that can be
//! found without opening anything are collected there, each with its flag.

mod features;
mod requests;
mod services;
mod stores;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use generic_server::registry::cache::StoredForm;
use kube_apiserver::{AccessOptions, Cidr, PluginSelection, TokenWebhookOptions};
use storage::EngineKind;

use crate::logging;
use crate::options::{Options, StorageBackend, StorageMediaType, data_directory};

pub(crate) use features::{Controllers, Features};
pub(crate) use requests::Requests;
pub(crate) use stores::{EncryptionFile, Engine, Etcd, Storage};
pub(crate) use trust::KeyFiles;
use trust::{FrontProxy, ServiceAccountTokens};

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
    /// The file with their configuration.
    pub(crate) plugin_configs: Option<PathBuf>,
    pub(crate) service_cidrs: Vec<Cidr>,
    pub(crate) node_ports: RangeInclusive<u16>,
    pub(crate) event_ttl: Duration,
    pub(crate) allow_privileged: bool,
    pub(crate) controllers: Controllers,
    pub(crate) features: Features,
    pub(crate) requests: Requests,
    pub(crate) custom_resource_limits: apiextensions_server::Limits,
    /// The options that are accepted without effect, one line each.
    pub(crate) warnings: Vec<String>,
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
    /// Validates the options and converts them.
    ///
    /// # Errors
    /// Every fault that can be found without opening anything, one line each.
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
            authentication_token_webhook_config_file,
            authentication_token_webhook_version,
            authentication_token_webhook_cache_ttl,
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
            admission_control_config_file,
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
        stores::watch_caches(
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
        let prefix = found.take(stores::prefix(&etcd_prefix));
        let kind = match storage_backend {
            Some(StorageBackend::Memory) => EngineKind::Memory,
            Some(StorageBackend::Sled) => EngineKind::Sled,
            Some(StorageBackend::Redb | StorageBackend::Etcd3) | None => EngineKind::Redb,
        };
        let overrides = found.take(stores::etcd_overrides(&etcd_servers_overrides));
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
        let service_cidrs = found.take(services::service_cidrs(&service_cluster_ip_range));
        let node_ports = services::node_ports(&service_node_port_range).unwrap_or_else(|fault| {
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
                token_webhook: authentication_token_webhook_config_file.map(|config_file| {
                    TokenWebhookOptions {
                        config_file,
                        version: authentication_token_webhook_version.into(),
                        cache_ttl: authentication_token_webhook_cache_ttl,
                    }
                }),
                anonymous: anonymous_auth,
                front_proxy: front_proxy.headers(),
                front_proxy_ca_file: front_proxy.ca_file,
                tokens: tokens.into_options(),
                modes: authorization_mode.into_iter().map(Into::into).collect(),
            },
            proxy_client,
            enable_aggregator_routing,
            plugins,
            plugin_configs: admission_control_config_file,
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
