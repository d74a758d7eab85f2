//! The command line: upstream's flag names for what exists here, and the few of our own. Parsing binds nothing and reads no
//! file; [`crate::config`] says what the options mean, [`Options::validate`] collects all faults at once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::config::Config;

/// The engine that objects are stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StorageBackend {
    /// Embedded and durable.
    Redb,
    /// Embedded and durable, with the caveats of `docs/storage.md`.
    Sled,
    /// Nothing survives the process.
    Memory,
    /// The servers of `--etcd-servers`.
    Etcd3,
}

/// The form of built-in kinds in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StorageMediaType {
    /// JSON.
    #[value(name = "application/json")]
    Json,
    /// YAML.
    #[value(name = "application/yaml")]
    Yaml,
    /// Protobuf, as upstream stores them.
    #[value(name = "application/vnd.kubernetes.protobuf")]
    Protobuf,
}

/// An authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthorizationMode {
    /// Kubelets may do what the pods of their nodes need.
    #[value(name = "Node")]
    Node,
    /// Roles and bindings decide.
    #[value(name = "RBAC")]
    Rbac,
    /// Everybody may do everything.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nobody may do anything.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A Kubernetes API server: core and built-in groups, custom resources and aggregated APIs in one process.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "kube-apiserver",
    version,
    disable_help_subcommand = true,
    args_override_self = true
)]
pub struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port for HTTPS; 0 picks a free one.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address that members of the cluster reach this server at; the host's own when unset.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,

    /// Where the embedded store, keys and certificates live; a directory of the user's when unset.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// The store: `redb` or `sled` (embedded, durable), `memory` (nothing survives), `etcd3` (needs --etcd-servers).
    #[arg(long, value_enum)]
    pub storage_backend: Option<StorageBackend>,
    /// How long history is kept for exact reads, watches and continue tokens (embedded stores).
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub history_retention: Duration,
    /// Overwritten and deleted values of which history keeps at most this many, however young; each takes about 120 bytes of memory.
    #[arg(long, default_value_t = 500_000)]
    pub history_max_changes: u64,
    /// What overwritten and deleted values may take at most, however young, in MiB of disk.
    #[arg(long, default_value_t = 1024)]
    pub history_max_mib: u64,
    /// Free disk space below which the embedded store refuses writes, in MiB.
    #[arg(long, default_value_t = 64)]
    pub min_free_disk_mib: u64,
    /// Begins an empty store where the data directory says that there was one and it is gone. Without it such a start is refused.
    #[arg(long)]
    pub allow_empty: bool,

    /// etcd servers, comma separated (`https://host:2379`). Turns the etcd engine on.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// The CA of the etcd servers.
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long)]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub etcd_keyfile: Option<PathBuf>,
    /// What all keys begin with.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// etcd servers of single built-in resources, comma separated: `group/resource#servers`, the servers separated by semicolons
    /// (`/events#https://host:2379`).
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,
    /// How often etcd is compacted by one of the replicas; 0 leaves it to somebody else.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
    /// How often the objects of each resource are counted for the metrics; 0 never.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub etcd_count_metric_poll_period: Duration,
    /// How often the store's size is looked up for the metrics; 0 never.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub etcd_db_metric_poll_interval: Duration,
    /// How long the store may take to answer before it counts as unhealthy.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub etcd_healthcheck_timeout: Duration,
    /// How long the store may take to answer before it counts as not ready.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub etcd_readycheck_timeout: Duration,
    /// For how long an etcd lease is given to new objects that live for a while (events), in seconds.
    #[arg(long, default_value_t = 60)]
    pub lease_reuse_duration_seconds: u64,
    /// The form of built-in kinds in the store: `application/json`, `application/yaml` or `application/vnd.kubernetes.protobuf`. On
    /// etcd the last when unset, as upstream's, else the first.
    #[arg(long, value_enum)]
    pub storage_media_type: Option<StorageMediaType>,

    /// Upstream's switch of the watch caches. Accepted; reads are always answered from a cache here, which is there from the first
    /// use of a resource until it is empty and idle.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub watch_cache: bool,
    /// Upstream's size of watch caches. Accepted and without effect: caches hold what there is, and recent events by age and bytes.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true)]
    pub default_watch_cache_size: i64,
    /// The same for single resources, comma separated: `resource[.group]#size`. Checked and without effect.
    #[arg(long, value_delimiter = ',')]
    pub watch_cache_sizes: Vec<String>,

    /// An EncryptionConfiguration (apiserver.config.k8s.io/v1): how values are encrypted in the store.
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Read that file again when it changes.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub encryption_provider_config_automatic_reload: bool,

    /// The serving certificate (PEM, with chain). Made by the server when unset.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CAs of client certificates. The server's own CA when unset; with a file, that one is not trusted any more.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// A CSV file of static tokens: `token,user,uid,"group1,group2"`.
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Whether requests without credentials are `system:anonymous` rather than refused.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub anonymous_auth: bool,

    /// The issuer of service-account tokens. Repeated: the first issues, all are accepted.
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: Vec<String>,
    /// More keys that service-account tokens may be signed with.
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// The key that signs service-account tokens. Made by the server when unset.
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Audiences of tokens; the issuers when unset.
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// CAs of front proxies. The server's own when unset; with a file, that one is not trusted any more.
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that front proxies may have; any when empty.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers that front proxies put the user name in.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers that front proxies put the user's uid in.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers that front proxies put groups in.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    /// What headers with anything else about the user begin with.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// The client certificate shown to aggregated servers. Made by the server when unset.
    #[arg(long, requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Reach aggregated servers at their endpoints rather than their cluster IP.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub enable_aggregator_routing: bool,

    /// Authorizers in order: RBAC, AlwaysAllow, AlwaysDeny.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "RBAC")]
    pub authorization_mode: Vec<AuthorizationMode>,
    /// Admission plugins to turn on besides the default ones, by upstream's names. Those that upstream turns on are on here too.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, by upstream's names.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// The range of cluster IPs.
    #[arg(long, default_value = "10.0.0.0/24")]
    pub service_cluster_ip_range: String,
    /// The range of node ports, `first-last`.
    #[arg(long, default_value = "30000-32767")]
    pub service_node_port_range: String,
    /// How long events live.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub event_ttl: Duration,
    /// Whether containers may be privileged. Upstream's default is false; here PodSecurity is the means unless this says otherwise.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub allow_privileged: bool,

    /// Controllers that run in the server: `*` all, `-name` not that one, `-*` none. A controller manager beside it wants `-*`.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,

    /// Features by upstream's names: `StorageVersionMigrator=true`, `AllowUnsafeMalformedObjectDeletion=true`.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// APIs that are off by default: `storagemigration.k8s.io/v1beta1=true`, or `api/beta=true` and `api/all=true` for all of them.
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,

    /// Requests at once that do not change anything; 0 is no limit.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: usize,
    /// Requests at once that change something; 0 is no limit.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,
    /// How long a request may take.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub request_timeout: Duration,
    /// The least time that watches last, in seconds.
    #[arg(long, default_value_t = 1800)]
    pub min_request_timeout: u64,
    /// How long to go on serving, not ready, after a signal to stop.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,
    /// Whether requests that come while the server stops are answered 429 with `Retry-After`, on new connections too.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub shutdown_send_retry_after: bool,
    /// The share of HTTP/2 requests after which the client is asked to connect anew, 0 to 0.02: spreads clients over replicas.
    #[arg(long, default_value_t = 0.0)]
    pub goaway_chance: f64,
    /// Directives of `Strict-Transport-Security`: `max-age=SECONDS`, `includeSubDomains`, `preload`. No such header when empty.
    #[arg(long, value_delimiter = ',')]
    pub strict_transport_security_directives: Vec<String>,
    /// Origins for CORS, as regular expressions.
    #[arg(long, value_delimiter = ',')]
    pub cors_allowed_origins: Vec<String>,

    /// What custom resources may take. No flag: upstream has none, and tests want less patience.
    #[arg(skip)]
    pub custom_resource_limits: apiextensions_server::Limits,

    /// The log level: a number as upstream's (0 to 10), or a filter such as `info` or `debug,hyper=warn`.
    #[arg(long, short = 'v', default_value = "0")]
    pub v: String,
    /// `text` or `json`.
    #[arg(long, value_enum, default_value = "text")]
    pub logging_format: LogFormat,
}

/// A duration as Go writes it: `1h30m`, `5m`, `10s`, `300ms`.
fn duration(text: &str) -> Result<Duration, String> {
    machinery::time::GoDuration::parse(text)?
        .to_std()
        .ok_or_else(|| format!("`{text}` is negative"))
}

impl Options {
    /// The options of `kube-apiserver` without any flag.
    pub fn defaults() -> Self {
        Options::parse_from(["kube-apiserver"])
    }

    /// Every fault that can be told without opening anything, one line each.
    pub fn validate(&self) -> Vec<String> {
        Config::new(self.clone()).err().unwrap_or_default()
    }

    /// The data directory: the flag's, else `$XDG_DATA_HOME/kube-apiserver`, else `~/.local/share/kube-apiserver`.
    pub fn data_directory(&self) -> Result<PathBuf, String> {
        data_directory(self.data_dir.as_ref())
    }
}

/// The data directory: the given one, else that of the user.
pub(crate) fn data_directory(given: Option<&PathBuf>) -> Result<PathBuf, String> {
    if let Some(dir) = given {
        return Ok(dir.clone());
    }
    let base = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/share")));
    base.map(|dir| dir.join("kube-apiserver"))
        .ok_or_else(|| "there is no home directory to keep data in: name one with --data-dir".into())
}

#[cfg(test)]
mod tests;
