//! The command line: upstream's flag names for what exists here, and the few of our own. Parsing binds nothing and reads no
//! file; [`crate::config`] says what the options mean, [`Options::validate`] collects all faults at once.

mod audit;
mod authentication;
mod authorization;
mod command_line;
mod kubelet;
mod metrics;
mod service_accounts;
mod serving;
mod unserved;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Arg, ArgAction, Parser, ValueEnum};

use crate::logging::LogFormat;

pub use audit::{AuditFlags, AuditLogFlags, AuditLogFormat, AuditMode, AuditVersion, AuditWebhookFlags};
pub use authentication::{AuthenticationFlags, TokenReviewVersion};
pub use authorization::{AuthorizationFlags, AuthorizationMode, SubjectAccessReviewVersion};
pub use command_line::CommandLine;
pub use kubelet::KubeletFlags;
pub use metrics::MetricsFlags;
pub use service_accounts::OwnTokenFlags;
pub use serving::TlsFlags;
pub use unserved::UnservedFlags;

// The headings of `--help`: upstream's, and one of our own.
const GENERIC: &str = "Generic flags";
const ETCD: &str = "Etcd flags";
const STORE: &str = "Embedded store flags";
const SERVING: &str = "Secure serving flags";
const AUDITING: &str = "Auditing flags";
const AUTHENTICATION: &str = "Authentication flags";
const AUTHORIZATION: &str = "Authorization flags";
const APIS: &str = "API enablement flags";
const ADMISSION: &str = "Admission flags";
const METRICS: &str = "Metrics flags";
const FEATURES: &str = "Features flags";
const LOGS: &str = "Logs flags";
const EGRESS: &str = "Egress selector flags";
const MISC: &str = "Misc flags";
const GLOBAL: &str = "Global flags";

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

/// A Kubernetes API server: core and built-in groups, custom resources and aggregated APIs in one process.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "kube-apiserver",
    version = generic_server::version::KUBERNETES,
    disable_help_subcommand = true,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    args = global_flags()
)]
pub struct Options {
    /// What was given. The first field: those below take their values out of what is parsed.
    #[command(flatten)]
    pub command_line: CommandLine,
    /// The address that members of the cluster reach this server at; by default the host's own.
    #[arg(long, help_heading = GENERIC, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,
    /// The host that the discovery of /api names as this server's address; by default --advertise-address.
    #[arg(long, help_heading = GENERIC, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// Features by upstream's names: StorageVersionMigrator=true, AllowUnsafeMalformedObjectDeletion=true.
    #[arg(long, value_delimiter = ',', help_heading = GENERIC, value_name = "LIST")]
    pub feature_gates: Vec<String>,
    /// Limit of concurrent read requests; 0 is no limit.
    #[arg(long, default_value_t = 400, help_heading = GENERIC, value_name = "NUMBER")]
    pub max_requests_inflight: usize,
    /// Limit of concurrent mutating requests; 0 is no limit.
    #[arg(long, default_value_t = 200, help_heading = GENERIC, value_name = "NUMBER")]
    pub max_mutating_requests_inflight: usize,
    /// Queues requests past the limits and serves them by priority and in fair turns; the limits are added up for it.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = GENERIC, value_name = "BOOL", hide_possible_values = true)]
    pub enable_priority_and_fairness: bool,
    /// Timeout of requests other than watches and streams.
    #[arg(long, default_value = "1m", value_parser = duration, help_heading = GENERIC, value_name = "DURATION")]
    pub request_timeout: Duration,
    /// Minimum duration of watches, in seconds.
    #[arg(long, default_value_t = 1800, help_heading = GENERIC, value_name = "NUMBER")]
    pub min_request_timeout: u64,
    /// How long to keep serving, not ready, after a stop signal.
    #[arg(long, default_value = "0s", value_parser = duration, help_heading = GENERIC, value_name = "DURATION")]
    pub shutdown_delay_duration: Duration,
    /// How long watches may go on when the server stops; 0s ends them at once.
    #[arg(long, default_value = "0s", value_parser = duration, help_heading = GENERIC, value_name = "DURATION")]
    pub shutdown_watch_termination_grace_period: Duration,
    /// Answers requests with 429 and Retry-After while the server stops, on new connections too.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = GENERIC, value_name = "BOOL", hide_possible_values = true)]
    pub shutdown_send_retry_after: bool,
    /// The share of HTTP/2 requests after which the client is asked to reconnect, 0 to 0.02: spreads clients over replicas.
    #[arg(long, default_value_t = 0.0, help_heading = GENERIC, value_name = "SHARE")]
    pub goaway_chance: f64,
    /// Directives of Strict-Transport-Security: max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, value_delimiter = ',', help_heading = GENERIC, value_name = "LIST")]
    pub strict_transport_security_directives: Vec<String>,
    /// Origins for CORS, as regular expressions.
    #[arg(long, value_delimiter = ',', help_heading = GENERIC, value_name = "LIST")]
    pub cors_allowed_origins: Vec<String>,

    /// The store: redb or sled (embedded, durable), memory (not durable), etcd3 (needs --etcd-servers).
    #[arg(long, value_enum, help_heading = ETCD, value_name = "ENGINE", hide_possible_values = true)]
    pub storage_backend: Option<StorageBackend>,
    /// etcd servers (https://host:2379), comma separated. Turns the etcd engine on.
    #[arg(long, value_delimiter = ',', help_heading = ETCD, value_name = "LIST")]
    pub etcd_servers: Vec<String>,
    /// The CA of the etcd servers.
    #[arg(long, help_heading = ETCD, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, help_heading = ETCD, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of the client certificate for etcd.
    #[arg(long, help_heading = ETCD, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,
    /// The prefix of all keys.
    #[arg(long, default_value = "/registry", help_heading = ETCD, value_name = "STRING")]
    pub etcd_prefix: String,
    /// etcd servers of single built-in resources: group/resource#servers, the servers separated by semicolons.
    #[arg(long, value_delimiter = ',', help_heading = ETCD, value_name = "LIST")]
    pub etcd_servers_overrides: Vec<String>,
    /// How often one of the replicas compacts etcd; 0 leaves it to others.
    #[arg(long, default_value = "5m", value_parser = duration, help_heading = ETCD, value_name = "DURATION")]
    pub etcd_compaction_interval: Duration,
    /// How often the objects of each resource are counted for the metrics; 0 never.
    #[arg(long, default_value = "1m", value_parser = duration, help_heading = ETCD, value_name = "DURATION")]
    pub etcd_count_metric_poll_period: Duration,
    /// How often the store's size is read for the metrics; 0 never.
    #[arg(long, default_value = "30s", value_parser = duration, help_heading = ETCD, value_name = "DURATION")]
    pub etcd_db_metric_poll_interval: Duration,
    /// How long the store may take to answer before it counts as unhealthy.
    #[arg(long, default_value = "2s", value_parser = duration, help_heading = ETCD, value_name = "DURATION")]
    pub etcd_healthcheck_timeout: Duration,
    /// How long the store may take to answer before it counts as not ready.
    #[arg(long, default_value = "2s", value_parser = duration, help_heading = ETCD, value_name = "DURATION")]
    pub etcd_readycheck_timeout: Duration,
    /// How long one etcd lease is given to new objects with a lifetime (events), in seconds.
    #[arg(long, default_value_t = 60, help_heading = ETCD, value_name = "NUMBER")]
    pub lease_reuse_duration_seconds: u64,
    /// Deletes what an owner left behind; false turns the garbage collector off.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = ETCD, value_name = "BOOL", hide_possible_values = true)]
    pub enable_garbage_collector: bool,
    /// The form of built-in kinds in the store; by default application/vnd.kubernetes.protobuf on etcd, else application/json.
    #[arg(long, value_enum, help_heading = ETCD, value_name = "TYPE")]
    pub storage_media_type: Option<StorageMediaType>,
    /// Accepted without effect: reads are always answered from a cache.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = ETCD, value_name = "BOOL", hide_possible_values = true)]
    pub watch_cache: bool,
    /// Accepted without effect: caches hold all objects, and recent events by age and bytes.
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, help_heading = ETCD, value_name = "NUMBER")]
    pub default_watch_cache_size: i64,
    /// Checked, without effect: resource[.group]#size, comma separated.
    #[arg(long, value_delimiter = ',', help_heading = ETCD, value_name = "LIST")]
    pub watch_cache_sizes: Vec<String>,
    /// An EncryptionConfiguration (apiserver.config.k8s.io/v1): how values are encrypted in the store.
    #[arg(long, help_heading = ETCD, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Reads the EncryptionConfiguration again when it changes.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = ETCD, value_name = "BOOL", hide_possible_values = true)]
    pub encryption_provider_config_automatic_reload: bool,

    /// Where the embedded store, keys and certificates are kept; by default a directory of the user.
    #[arg(long, help_heading = STORE, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How long history is kept for exact reads, watches and continue tokens; 1s at least.
    #[arg(long, default_value = "5m", value_parser = duration, help_heading = STORE, value_name = "DURATION")]
    pub history_retention: Duration,
    /// Maximum number of overwritten and deleted values in the history; each takes about 120 bytes of memory.
    #[arg(long, default_value_t = 500_000, help_heading = STORE, value_name = "NUMBER")]
    pub history_max_changes: u64,
    /// Maximum disk space of overwritten and deleted values, in MiB.
    #[arg(long, default_value_t = 1024, help_heading = STORE, value_name = "NUMBER")]
    pub history_max_mib: u64,
    /// Memory limit of past states for exact and paged lists and of recent events, for all resources, in MiB.
    #[arg(long, default_value_t = 128, help_heading = STORE, value_name = "NUMBER")]
    pub watch_cache_history_mib: u64,
    /// How often an embedded store is read through in the background, slowly, to find damage; 0 never.
    #[arg(long, default_value = "24h", value_parser = duration, help_heading = STORE, value_name = "DURATION")]
    pub scrub_interval: Duration,
    /// Free disk space below which writes are refused, in MiB; 0 refuses none, and sets nothing aside for deletions on a full disk.
    #[arg(long, default_value_t = 64, help_heading = STORE, value_name = "NUMBER")]
    pub min_free_disk_mib: u64,
    /// Creates an empty store where the data directory records one that is gone; without it such a start is refused.
    #[arg(long, help_heading = STORE)]
    pub allow_empty: bool,

    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0", value_parser = listening_address, help_heading = SERVING, value_name = "IP")]
    pub bind_address: IpAddr,
    /// The port for HTTPS; 0 picks a free one.
    #[arg(long, default_value_t = 6443, value_parser = port, help_heading = SERVING, value_name = "NUMBER")]
    pub secure_port: u16,
    /// The serving certificate (PEM, with chain); by default one of the server's own.
    #[arg(long, requires = "tls_private_key_file", help_heading = SERVING, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of the serving certificate.
    #[arg(long, requires = "tls_cert_file", help_heading = SERVING, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// How TLS is spoken.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// What is recorded of requests, and where.
    #[command(flatten)]
    pub audit: AuditFlags,

    /// CAs of client certificates; by default the server's own, which a file replaces.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// A CSV file of static tokens: token,user,uid,"group1,group2".
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// A kubeconfig of the webhook that authenticates tokens: https, with a certificate authority.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// The version of TokenReviews sent to and expected from the webhook.
    #[arg(long, value_enum, default_value = "v1beta1", help_heading = AUTHENTICATION, value_name = "VERSION")]
    pub authentication_token_webhook_version: TokenReviewVersion,
    /// How long answers of the webhook are kept.
    #[arg(long, default_value = "2m", value_parser = duration, help_heading = AUTHENTICATION, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// The configuration of JWT authenticators and of anonymous requests.
    #[command(flatten)]
    pub authentication: AuthenticationFlags,
    /// The issuer of service-account tokens. Repeated: the first issues, all are accepted.
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local", help_heading = AUTHENTICATION, value_name = "LIST")]
    pub service_account_issuer: Vec<String>,
    /// More keys that service-account tokens may be signed with.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Audiences of tokens; by default the issuers.
    #[arg(long, value_delimiter = ',', help_heading = AUTHENTICATION, value_name = "LIST")]
    pub api_audiences: Vec<String>,
    /// Tokens that this server issues or keeps.
    #[command(flatten)]
    pub own_tokens: OwnTokenFlags,
    /// CAs of front proxies; by default the server's own, which a file replaces.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that front proxies may have; any when empty.
    #[arg(long, value_delimiter = ',', help_heading = AUTHENTICATION, value_name = "LIST")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers in which front proxies give the user name.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-User", help_heading = AUTHENTICATION, value_name = "LIST")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers in which front proxies give the user's uid.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Uid", help_heading = AUTHENTICATION, value_name = "LIST")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers in which front proxies give the user's groups.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Group", help_heading = AUTHENTICATION, value_name = "LIST")]
    pub requestheader_group_headers: Vec<String>,
    /// The prefix of headers with extra attributes of the user.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Extra-", help_heading = AUTHENTICATION, value_name = "LIST")]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// The authorizers.
    #[command(flatten)]
    pub authorization: AuthorizationFlags,

    /// API versions and resources to turn on or off: apps/v1=false, batch/v1/jobs=false, v1=true, api/beta=true, api/all=true.
    #[arg(long, value_delimiter = ',', help_heading = APIS, value_name = "LIST")]
    pub runtime_config: Vec<String>,

    /// A file that names the proxies for the server's own connections: to the control plane, to the cluster and to etcd.
    #[arg(long, help_heading = EGRESS, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
    /// Admission plugins to turn on besides the default ones, by upstream's names.
    #[arg(long, value_delimiter = ',', help_heading = ADMISSION, value_name = "LIST")]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, by upstream's names.
    #[arg(long, value_delimiter = ',', help_heading = ADMISSION, value_name = "LIST")]
    pub disable_admission_plugins: Vec<String>,
    /// Seconds that pods stay on a node that is not ready, unless they say otherwise (DefaultTolerationSeconds).
    #[arg(long, default_value_t = 300, allow_negative_numbers = true, help_heading = ADMISSION, value_name = "NUMBER")]
    pub default_not_ready_toleration_seconds: i64,
    /// Seconds that pods stay on a node that cannot be reached, unless they say otherwise (DefaultTolerationSeconds).
    #[arg(long, default_value_t = 300, allow_negative_numbers = true, help_heading = ADMISSION, value_name = "NUMBER")]
    pub default_unreachable_toleration_seconds: i64,
    /// An AdmissionConfiguration (apiserver.config.k8s.io/v1): the configuration of admission plugins that have one.
    #[arg(long, help_heading = ADMISSION, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,

    /// Which metrics are served.
    #[command(flatten)]
    pub metrics: MetricsFlags,

    /// Serves /debug/flags/v, and /debug/pprof/ with the reasons why there are no profiles.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = FEATURES, value_name = "BOOL", hide_possible_values = true)]
    pub profiling: bool,

    /// Flags of upstream for what is not there.
    #[command(flatten)]
    pub unserved: UnservedFlags,

    /// The log level: a number as upstream's (0 to 10), or a filter such as info or debug,hyper=warn.
    #[arg(long, short = 'v', default_value = "0", help_heading = LOGS, value_name = "LEVEL")]
    pub v: String,
    /// The form of log lines.
    #[arg(long, value_enum, default_value = "text", help_heading = LOGS, value_name = "FORMAT")]
    pub logging_format: LogFormat,

    /// The key that signs service-account tokens; by default the server's own.
    #[arg(long, help_heading = MISC, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// The socket of a program that signs service-account tokens and says which keys are trusted; @name is an abstract one.
    #[arg(long, help_heading = MISC, value_name = "SOCKET")]
    pub service_account_signing_endpoint: Option<String>,
    /// The client certificate presented to aggregated servers; by default the server's own.
    #[arg(long, requires = "proxy_client_key_file", help_heading = MISC, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// The key of the client certificate presented to aggregated servers.
    #[arg(long, requires = "proxy_client_cert_file", help_heading = MISC, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Reaches aggregated servers at their endpoints rather than their cluster IP.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = MISC, value_name = "BOOL", hide_possible_values = true)]
    pub enable_aggregator_routing: bool,
    /// The range of cluster IPs, or one of each family, comma separated.
    #[arg(long, default_value = "10.0.0.0/24", help_heading = MISC, value_name = "RANGE")]
    pub service_cluster_ip_range: String,
    /// Who keeps the endpoints of the Service `kubernetes`: lease (the replicas, here), or none.
    #[arg(long, default_value = "lease", help_heading = MISC, value_name = "TYPE")]
    pub endpoint_reconciler_type: String,
    /// The range of node ports, first-last.
    #[arg(long, default_value = "30000-32767", help_heading = MISC, value_name = "RANGE")]
    pub service_node_port_range: String,
    /// How long events are kept.
    #[arg(long, default_value = "1h", value_parser = duration, help_heading = MISC, value_name = "DURATION")]
    pub event_ttl: Duration,
    /// Serves a status page at /ui/ and /debug/status for it; the page shows what its user may read.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = MISC, value_name = "BOOL", hide_possible_values = true)]
    pub enable_ui: bool,
    /// Lets the writes that bring a webhook's own backend back go past the webhook while nothing of the backend is up.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = MISC, value_name = "BOOL", hide_possible_values = true)]
    pub webhook_break_glass: bool,
    /// Containers may be privileged. Upstream: false; here PodSecurity decides unless this is false.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = MISC, value_name = "BOOL", hide_possible_values = true)]
    pub allow_privileged: bool,
    /// How kubelets are reached.
    #[command(flatten)]
    pub kubelet: KubeletFlags,
    /// Controllers to run in the server: * is all, -name turns one off, -* turns off all (beside a controller manager). By default all, and
    /// none with the stand-in for etcd of envtest, whose tests expect those of upstream's API server.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, help_heading = MISC, value_name = "LIST")]
    pub controllers: Vec<String>,

    /// The limits of custom resources. No flag: upstream has none, and tests need shorter times.
    #[arg(skip)]
    pub custom_resource_limits: apiextensions_server::Limits,
}

/// `--help` and `--version`. Those that clap makes by itself have no heading.
fn global_flags() -> [Arg; 2] {
    [
        Arg::new("help")
            .long("help")
            .short('h')
            // The other form takes four lines for each flag.
            .action(ArgAction::HelpShort)
            .help("Prints these flags"),
        Arg::new("version")
            .long("version")
            .short('V')
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL|raw")
            .value_parser(["true", "false", "raw"])
            .hide_possible_values(true)
            .help("Prints the version of Kubernetes that this server is compatible with; raw prints its structure"),
    ]
    .map(|flag| flag.help_heading(GLOBAL))
}

fn listening_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "it is an address such as 127.0.0.1 or ::, not a name".into())
}

fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| "it is a port from 1 to 65535, or 0 for a free one".into())
}

/// A duration as Go writes it: `1h30m`, `5m`, `10s`, `300ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    machinery::time::GoDuration::parse(text)?
        .to_std()
        .ok_or_else(|| format!("`{text}` is negative"))
}

impl Options {
    /// The options of `kube-apiserver` without any flag.
    pub fn defaults() -> Self {
        // Every plane of a process asks for them, and the parser builds all flags each time.
        static DEFAULTS: LazyLock<Options> = LazyLock::new(|| Options {
            // There is none: what is set in code would not be in it.
            command_line: CommandLine::default(),
            ..Options::parse_from(["kube-apiserver"])
        });
        DEFAULTS.clone()
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
