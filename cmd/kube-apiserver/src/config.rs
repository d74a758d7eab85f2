//! The configuration: options, checked and typed. Every option is taken apart once, into [`Flags`], which names each field: an
//! unread option does not compile, and an unread field of [`Config`] is a warning, which the gate refuses. All faults that can be
//! found without opening anything are collected there, each with its flag.

mod apis;
mod audit;
mod authorization;
mod features;

mod flags;
mod gates;
mod kubelet;
mod metrics;
mod requests;
mod services;
mod serving;
mod stores;
mod summary;
mod trust;
mod unread;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use generic_server::audit::AuditOptions;
use kube_apiserver::{AccessOptions, Cidr, KubeletOptions, PluginSelection, TolerationSeconds};

use crate::logging;
use crate::options::{CommandLine, Options, StorageBackend, data_directory};

use flags::Flags;

pub(crate) use features::{Controllers, Features};
pub(crate) use metrics::MetricsConfig;
pub(crate) use requests::Requests;
pub(crate) use serving::{NamedFiles, TlsConfig};
pub(crate) use stores::{EncryptionFile, Engine, Etcd, Storage};
pub(crate) use trust::KeyFiles;

/// The options, checked and in the form that the parts of the server take.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) advertise_address: Option<IpAddr>,
    /// The host that discovery names as this server's.
    pub(crate) external_hostname: Option<String>,
    pub(crate) serving: Option<KeyFiles>,
    pub(crate) tls: TlsConfig,
    /// Where keys, certificates and the embedded store live; none when nothing is kept.
    pub(crate) data_dir: Option<PathBuf>,
    /// Whether the options name it.
    data_dir_is_given: bool,
    pub(crate) storage: Storage,
    pub(crate) encryption: Option<EncryptionFile>,
    pub(crate) access: AccessOptions,
    pub(crate) audit: AuditOptions,
    pub(crate) proxy_client: Option<KeyFiles>,
    pub(crate) enable_aggregator_routing: bool,
    pub(crate) plugins: PluginSelection,
    pub(crate) tolerations: TolerationSeconds,
    /// The file with their configuration.
    pub(crate) plugin_configs: Option<PathBuf>,
    pub(crate) service_cidrs: Vec<Cidr>,
    /// Whether the endpoints of the Service `kubernetes` are kept.
    pub(crate) keeps_endpoints: bool,
    pub(crate) node_ports: RangeInclusive<u16>,
    pub(crate) event_ttl: Duration,
    /// Whether the status page is served.
    pub(crate) enable_ui: bool,
    /// Whether webhooks are passed by what brings their backends back.
    pub(crate) webhook_break_glass: bool,
    pub(crate) allow_privileged: bool,
    /// Names the proxies of the server's own connections.
    pub(crate) egress_file: Option<PathBuf>,
    pub(crate) kubelet: KubeletOptions,
    pub(crate) controllers: Controllers,
    /// Whether the options name any.
    controllers_are_given: bool,
    pub(crate) features: Features,
    /// Which metrics are shown.
    pub(crate) metrics: MetricsConfig,
    /// Whether what is for debugging is served.
    pub(crate) profiling: bool,
    /// The flags of the command line, where there is one.
    pub(crate) command_line: CommandLine,
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

/// A list without a value (`--disable-admission-plugins=`) is empty, as upstream has it; the parser makes it a list of one empty text.
fn drop_empty_values(options: &mut Options) {
    let lists = [
        &mut options.feature_gates,
        &mut options.runtime_config,
        &mut options.enable_admission_plugins,
        &mut options.disable_admission_plugins,
        &mut options.watch_cache_sizes,
        &mut options.etcd_servers_overrides,
        &mut options.api_audiences,
    ];
    for list in lists {
        if matches!(list.as_slice(), [value] if value.is_empty()) {
            list.clear();
        }
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
    pub(crate) fn new(mut options: Options) -> Result<Self, Vec<String>> {
        let mut found = Findings::default();
        drop_empty_values(&mut options);
        found.warnings.extend(unread::flags(&options));
        let (faults, warnings) = (&mut found.faults, &mut found.warnings);
        options
            .unserved
            .judge(|fault| faults.push(fault), |warning| warnings.push(warning));
        let flags = Flags::from(options);
        found.faults.extend(logging::filter(&flags.verbosity).err());
        let in_memory = flags.storage.backend == Some(StorageBackend::Memory);
        let storage = flags.storage.read(&mut found);
        let data_dir_is_given = flags.data_dir.is_some();
        let data_dir = match storage.keeps_nothing() {
            true => flags.data_dir,
            false => Some(found.take(data_directory(flags.data_dir.as_ref()))),
        };
        let encryption = EncryptionFile::read(
            &mut found,
            flags.encryption_provider_config,
            flags.encryption_provider_config_automatic_reload,
        );
        let mut access = flags.access.read(&mut found, flags.proxy_client.is_some());
        let tls = flags.tls.read(&mut found);
        let audit = flags.audit.read(&mut found);
        let plugins = features::plugins(
            &mut found,
            (&flags.enable_admission_plugins, &flags.disable_admission_plugins),
            &flags.feature_gates,
        );
        let service_cidrs = found.take(services::service_cidrs(&flags.service_cluster_ip_range));
        let advertise_address =
            services::advertise_address(&mut found, flags.advertise_address, &service_cidrs);
        let node_ports = services::node_ports(&flags.service_node_port_range).unwrap_or_else(|fault| {
            found.fault(fault);
            0..=0
        });
        let features = Features::read(&mut found, &flags.feature_gates, &flags.runtime_config, in_memory);
        access.authorization.features = features.kinds;
        let controllers_are_given = !flags.controllers.is_empty();
        let controllers = Controllers::read(&mut found, flags.controllers, flags.enable_garbage_collector);
        let keeps_endpoints = services::keeps_endpoints(&mut found, &flags.endpoint_reconciler_type);
        let gates = features::gates(&flags.feature_gates);
        let metrics = metrics::read(&mut found, flags.metrics, gates);
        let requests = flags.requests.read(&mut found);
        let kubelet = kubelet::read(&mut found, flags.kubelet);
        if !found.faults.is_empty() {
            return Err(found.faults);
        }
        Ok(Config {
            listen: SocketAddr::new(flags.bind_address, flags.secure_port),
            advertise_address,
            external_hostname: flags.external_hostname.filter(|host| !host.is_empty()),
            serving: flags.serving,
            tls,
            data_dir,
            data_dir_is_given,
            storage,
            encryption,
            access,
            audit,
            proxy_client: flags.proxy_client,
            enable_aggregator_routing: flags.enable_aggregator_routing,
            plugins,
            tolerations: flags.tolerations,
            plugin_configs: flags.admission_control_config_file,
            service_cidrs,
            keeps_endpoints,
            node_ports,
            event_ttl: flags.event_ttl,
            enable_ui: flags.enable_ui,
            webhook_break_glass: flags.webhook_break_glass,
            allow_privileged: flags.allow_privileged,
            egress_file: flags
                .egress_selector_config_file
                .filter(|file| !file.as_os_str().is_empty()),
            kubelet,
            controllers,
            controllers_are_given,
            features,
            metrics,
            profiling: flags.profiling,
            command_line: flags.command_line,
            requests,
            custom_resource_limits: flags.custom_resource_limits,
            warnings: found.warnings,
        })
    }

    /// Keeps everything in the directory of a stand-in for etcd, or in the data directory where the options name one. Unless the options say
    /// otherwise no controllers run: tests for envtest are written for an API server alone, delete namespaces by hand, and make objects
    /// whose owners do not exist.
    pub(crate) fn keep_in(&mut self, directory: PathBuf) {
        if !self.controllers_are_given {
            self.controllers = Controllers::none();
        }
        self.storage.embed(self.data_dir_is_given);
        if !self.data_dir_is_given {
            self.data_dir = Some(directory);
        }
    }

    /// Keeps keys and certificates below `--cert-dir`, as upstream does, when objects are in etcd and no data directory is named: several servers
    /// of one user do not meet in the default one.
    pub(crate) fn keep_keys_with_certificates(&mut self) {
        if matches!(self.storage.engine, Engine::Etcd(_))
            && !self.data_dir_is_given
            && let Some(directory) = self.tls.own_directory()
        {
            self.data_dir = Some(directory);
        }
    }

    /// Whether a client can use a kubeconfig with the server's own certificates: the server shows its own and trusts its own CA.
    pub(crate) fn own_certificates(&self) -> bool {
        self.serving.is_none() && self.access.client_ca_file.is_none()
    }
}
