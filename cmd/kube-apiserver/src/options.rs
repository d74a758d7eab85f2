//! The command line: upstream's flag names for what exists here, and the few of our own. Parsing binds nothing and reads no
//! file; [`Options::validate`] collects all faults at once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use generic_server::registry::cache::StoredForm;
use machinery::GroupResource;

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
    #[arg(long, value_parser = ["redb", "sled", "memory", "etcd3"])]
    pub storage_backend: Option<String>,
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
    #[arg(long, value_parser = [JSON, YAML, PROTOBUF])]
    pub storage_media_type: Option<String>,

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
    /// CAs of client certificates. The server's own CA when unset.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// A CSV file of static tokens: `token,user,uid,"group1,group2"`.
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Whether requests without credentials are `system:anonymous` rather than refused.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub anonymous_auth: bool,

    /// The issuer of service-account tokens.
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: String,
    /// More keys that service-account tokens may be signed with.
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// The key that signs service-account tokens. Made by the server when unset.
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Audiences of tokens; the issuer when unset.
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// CAs of front proxies.
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that front proxies may have; any when empty.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
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
    #[arg(long, value_delimiter = ',', default_value = "RBAC", value_parser = ["RBAC", "AlwaysAllow", "AlwaysDeny"])]
    pub authorization_mode: Vec<String>,
    /// Admission plugins to turn on besides the default ones.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off.
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
    /// Whether containers may be privileged.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
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
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    pub logging_format: String,
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A duration as Go writes it: `1h30m`, `5m`, `10s`, `300ms`.
fn duration(text: &str) -> Result<Duration, String> {
    machinery::time::GoDuration::parse(text)?
        .to_std()
        .ok_or_else(|| format!("`{text}` is negative"))
}

/// The feature gate of storage version migrations.
const STORAGE_MIGRATION: &str = "StorageVersionMigrator";
/// The feature gate of deleting objects that cannot be read.
const UNSAFE_DELETION: &str = "AllowUnsafeMalformedObjectDeletion";

/// The last value of a key in a list of `key=bool`; a key alone is true.
fn setting(list: &[String], key: &str) -> Option<Result<bool, String>> {
    let mut values = list.iter().filter_map(|item| match item.split_once('=') {
        Some((name, value)) => (name == key).then_some(value),
        None => (item == key).then_some("true"),
    });
    let value = values.next_back()?;
    Some(match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Ok(true),
        "false" | "f" | "0" => Ok(false),
        _ => Err(format!("invalid value of {key}={value}: it is true or false")),
    })
}

impl Options {
    /// The options of `kube-apiserver` without any flag.
    pub fn defaults() -> Self {
        Options::parse_from(["kube-apiserver"])
    }

    /// Whether objects that cannot be read may be deleted (KEP-3926), by its feature gate.
    pub fn unsafe_deletion(&self) -> bool {
        setting(&self.feature_gates, UNSAFE_DELETION)
            .and_then(Result::ok)
            .unwrap_or_default()
    }

    /// Whether a controller of this name runs.
    pub fn runs_controller(&self, name: &str) -> bool {
        let mut all = false;
        for item in &self.controllers {
            match item.strip_prefix('-') {
                Some("*") => all = false,
                Some(off) if off == name => return false,
                Some(_) => {}
                None if item == "*" => all = true,
                None if item == name => return true,
                None => {}
            }
        }
        all
    }

    /// Whether StorageVersionMigrations are served: its feature gate and its API version are both on.
    pub fn storage_migration(&self) -> bool {
        let apis = ["storagemigration.k8s.io/v1beta1", "api/beta", "api/all"];
        // The more special key decides.
        let served = apis
            .iter()
            .find_map(|key| setting(&self.runtime_config, key).and_then(Result::ok));
        let gate = setting(&self.feature_gates, STORAGE_MIGRATION).and_then(Result::ok);
        served.unwrap_or_default() && gate.unwrap_or_default()
    }

    fn setting_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for item in &self.feature_gates {
            let key = item.split_once('=').map_or(item.as_str(), |(key, _)| key);
            match setting(&self.feature_gates, key) {
                Some(Err(why)) => faults.push(format!("--feature-gates: {why}")),
                _ if ![STORAGE_MIGRATION, UNSAFE_DELETION].contains(&key) => {
                    faults.push(format!("--feature-gates: unrecognized feature gate: {key}"));
                }
                _ => {}
            }
        }
        for item in &self.runtime_config {
            let key = item.split_once('=').map_or(item.as_str(), |(key, _)| key);
            if let Some(Err(why)) = setting(&self.runtime_config, key) {
                faults.push(format!("--runtime-config: {why}"));
            }
        }
        faults
    }

    /// Every fault that can be told without opening anything, one line each.
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let backend = self.storage_backend.as_deref();
        if !self.etcd_servers.is_empty() && !matches!(backend, None | Some("etcd3")) {
            faults.push(format!(
                "--etcd-servers does not go with --storage-backend={}",
                backend.unwrap_or_default()
            ));
        }
        if backend == Some("etcd3") && self.etcd_servers.is_empty() {
            faults.push("--storage-backend=etcd3 needs --etcd-servers".into());
        }
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            faults.push("--etcd-certfile and --etcd-keyfile go together".into());
        }
        if self.encryption_provider_config_automatic_reload && self.encryption_provider_config.is_none() {
            faults.push(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                    .into(),
            );
        }
        if let Err(fault) = self.etcd_overrides() {
            faults.push(fault);
        }
        if !self.etcd_servers_overrides.is_empty() && self.etcd_servers.is_empty() {
            faults.push("--etcd-servers-overrides needs --etcd-servers".into());
        }
        if self.storage_prefix().contains("//") || self.storage_prefix().split('/').any(|part| part == "..") {
            faults.push(format!("--etcd-prefix: `{}` is not a path", self.etcd_prefix));
        }
        if self.etcd_healthcheck_timeout.is_zero() || self.etcd_readycheck_timeout.is_zero() {
            faults.push(
                "--etcd-healthcheck-timeout and --etcd-readycheck-timeout must be more than zero".into(),
            );
        }
        faults.extend(self.setting_faults());
        faults.extend(self.watch_cache_faults());
        if self.request_timeout.is_zero() {
            faults.push("--request-timeout must be more than zero".into());
        }
        faults
    }

    /// What all keys begin with: a slash in front and none behind, whatever the flag has; empty for no prefix.
    pub fn storage_prefix(&self) -> String {
        match self.etcd_prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        }
    }

    /// How built-in kinds are stored.
    pub fn stored_form(&self) -> StoredForm {
        match self.storage_media_type.as_deref() {
            Some(YAML) => StoredForm::Yaml,
            Some(PROTOBUF) => StoredForm::Protobuf,
            None if !self.etcd_servers.is_empty() => StoredForm::Protobuf,
            _ => StoredForm::Json,
        }
    }

    /// Faults of the sizes of watch caches, in upstream's words.
    fn watch_cache_faults(&self) -> Vec<String> {
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
        match self.watch_cache {
            true => self.watch_cache_sizes.iter().filter_map(fault).collect(),
            false => Vec::new(),
        }
    }

    /// Whether a flag asks for a size of watch caches, or for none, that there is no such thing as here.
    pub(crate) fn sizes_watch_caches(&self) -> bool {
        let default = Options::defaults().default_watch_cache_size;
        !self.watch_cache || self.default_watch_cache_size != default || !self.watch_cache_sizes.is_empty()
    }

    /// The resources with servers of their own.
    ///
    /// # Errors
    /// With upstream's words when one is malformed.
    pub fn etcd_overrides(&self) -> Result<Vec<(GroupResource, Vec<String>)>, String> {
        let parse = |text: &String| {
            let (resource, servers) = text
                .split_once('#')
                .filter(|(_, servers)| !servers.contains('#'))?;
            let (group, resource) = resource.split_once('/').filter(|(_, rest)| !rest.contains('/'))?;
            let servers: Vec<String> = servers.split(';').map(str::to_string).collect();
            let whole = !servers.iter().any(String::is_empty);
            whole.then(|| (GroupResource::new(group, resource), servers))
        };
        let all: Option<Vec<_>> = self.etcd_servers_overrides.iter().map(parse).collect();
        all.ok_or_else(|| {
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
                .into()
        })
    }

    /// The data directory: the flag's, else `$XDG_DATA_HOME/kube-apiserver`, else `~/.local/share/kube-apiserver`.
    pub fn data_directory(&self) -> Result<PathBuf, String> {
        if let Some(dir) = &self.data_dir {
            return Ok(dir.clone());
        }
        let base = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .or_else(|| std::env::home_dir().map(|home| home.join(".local/share")));
        base.map(|dir| dir.join("kube-apiserver"))
            .ok_or_else(|| "there is no home directory to keep data in: name one with --data-dir".into())
    }
}

#[cfg(test)]
mod tests;
