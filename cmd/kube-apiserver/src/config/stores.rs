//! Where objects are stored, and how.

use std::path::{Path, PathBuf};
use std::time::Duration;

use generic_server::registry::cache::StoredForm;
use machinery::GroupResource;
use storage::EngineKind;

use super::Findings;
use super::trust::KeyFiles;
use crate::options::{Options, StorageBackend, StorageMediaType};

/// The shortest history: caches are filled by lists of several pages, which end when their revision is compacted in between.
const MIN_HISTORY_RETENTION: Duration = Duration::from_secs(1);

/// Where objects are stored.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) engine: Engine,
    /// The prefix of all keys: a slash in front and none behind, however the flag is written; empty for no prefix.
    pub(crate) prefix: String,
    /// How built-in kinds are stored.
    pub(crate) stored_form: StoredForm,
    /// Whether the options say so.
    form_is_given: bool,
    /// The memory that past states in caches may take.
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
        /// Whether commits survive the machine, not only the process.
        fsync: bool,
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

impl Storage {
    /// Whether nothing survives the process.
    pub(super) fn keeps_nothing(&self) -> bool {
        matches!(
            self.engine,
            Engine::Embedded {
                kind: EngineKind::Memory,
                ..
            }
        )
    }

    /// Keeps objects in the data directory rather than in etcd, with the default settings of embedded engines. Without `fsync` it is the
    /// store of a test, which writes also while the disk is nearly full.
    pub(super) fn embed(&mut self, fsync: bool) {
        let settings = storage::OpenOptions::default();
        self.engine = Engine::Embedded {
            kind: settings.engine,
            retention: settings.retention,
            max_history: settings.max_history,
            max_history_bytes: settings.max_history_bytes,
            min_free_bytes: if fsync { settings.min_free_bytes } else { 0 },
            allow_empty: false,
            fsync,
        };
        if !self.form_is_given {
            self.stored_form = StoredForm::Json;
        }
    }

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

/// The options about where and how objects are stored.
pub(super) struct StorageFlags {
    pub(super) backend: Option<StorageBackend>,
    pub(super) media_type: Option<StorageMediaType>,
    pub(super) prefix: String,
    pub(super) embedded: EmbeddedFlags,
    pub(super) etcd: EtcdFlags,
    pub(super) watch_cache: bool,
    pub(super) default_watch_cache_size: i64,
    pub(super) watch_cache_sizes: Vec<String>,
    pub(super) watch_cache_history_mib: u64,
    pub(super) scrub_interval: Duration,
    pub(super) count_metric_poll_period: Duration,
    pub(super) db_metric_poll_interval: Duration,
    pub(super) healthcheck_timeout: Duration,
    pub(super) readycheck_timeout: Duration,
}

/// Those of embedded engines.
pub(super) struct EmbeddedFlags {
    pub(super) history_retention: Duration,
    pub(super) history_max_changes: u64,
    pub(super) history_max_mib: u64,
    pub(super) min_free_disk_mib: u64,
    pub(super) allow_empty: bool,
}

/// Those of etcd.
pub(super) struct EtcdFlags {
    pub(super) servers: Vec<String>,
    pub(super) cafile: Option<PathBuf>,
    pub(super) certfile: Option<PathBuf>,
    pub(super) keyfile: Option<PathBuf>,
    pub(super) servers_overrides: Vec<String>,
    pub(super) compaction_interval: Duration,
    pub(super) lease_reuse_seconds: u64,
}

impl StorageFlags {
    pub(super) fn read(self, found: &mut Findings) -> Storage {
        watch_caches(
            found,
            self.watch_cache,
            self.default_watch_cache_size,
            &self.watch_cache_sizes,
        );
        let on_etcd = !self.etcd.servers.is_empty();
        if let Some(backend) = self.backend.filter(|backend| *backend != StorageBackend::Etcd3)
            && on_etcd
        {
            let backend = format!("{backend:?}").to_lowercase();
            found.fault(format!(
                "--etcd-servers does not go with --storage-backend={backend}"
            ));
        }
        if self.backend == Some(StorageBackend::Etcd3) && !on_etcd {
            found.fault("--storage-backend=etcd3 needs --etcd-servers");
        }
        if self.healthcheck_timeout.is_zero() || self.readycheck_timeout.is_zero() {
            found.fault("--etcd-healthcheck-timeout and --etcd-readycheck-timeout must be more than zero");
        }
        let etcd = self.etcd.read(found);
        let stored_form = match self.media_type {
            Some(StorageMediaType::Json) => StoredForm::Json,
            Some(StorageMediaType::Yaml) => StoredForm::Yaml,
            Some(StorageMediaType::Protobuf) => StoredForm::Protobuf,
            // On etcd as upstream has it: others may share it.
            None if on_etcd => StoredForm::Protobuf,
            None => StoredForm::Json,
        };
        Storage {
            engine: match on_etcd {
                true => Engine::Etcd(etcd),
                false => self.embedded.read(found, self.backend),
            },
            prefix: found.take(prefix(&self.prefix)),
            stored_form,
            form_is_given: self.media_type.is_some(),
            cache_history_bytes: usize::try_from(self.watch_cache_history_mib.saturating_mul(1 << 20))
                .unwrap_or(usize::MAX),
            scrub_every: self.scrub_interval,
            count_every: self.count_metric_poll_period,
            measure_every: self.db_metric_poll_interval,
            healthcheck_timeout: self.healthcheck_timeout,
            readycheck_timeout: self.readycheck_timeout,
        }
    }
}

impl EmbeddedFlags {
    fn read(self, found: &mut Findings, backend: Option<StorageBackend>) -> Engine {
        if self.history_retention < MIN_HISTORY_RETENTION {
            let least = MIN_HISTORY_RETENTION.as_secs();
            found.fault(format!("--history-retention must be at least {least}s"));
        }
        let bounds = [
            ("--history-max-changes", self.history_max_changes),
            ("--history-max-mib", self.history_max_mib),
        ];
        for (flag, _) in bounds.iter().filter(|(_, most)| *most == 0) {
            found.fault(format!("{flag} must be more than zero"));
        }
        Engine::Embedded {
            kind: match backend {
                Some(StorageBackend::Memory) => EngineKind::Memory,
                Some(StorageBackend::Sled) => EngineKind::Sled,
                Some(StorageBackend::Redb | StorageBackend::Etcd3) | None => EngineKind::Redb,
            },
            retention: self.history_retention,
            max_history: self.history_max_changes,
            max_history_bytes: self.history_max_mib.saturating_mul(1 << 20),
            min_free_bytes: self.min_free_disk_mib.saturating_mul(1 << 20),
            allow_empty: self.allow_empty,
            fsync: true,
        }
    }
}

impl EtcdFlags {
    fn read(self, found: &mut Findings) -> Etcd {
        if self.certfile.is_some() != self.keyfile.is_some() {
            found.fault("--etcd-certfile and --etcd-keyfile go together");
        }
        if !self.servers_overrides.is_empty() && self.servers.is_empty() {
            found.fault("--etcd-servers-overrides needs --etcd-servers");
        }
        Etcd {
            servers: self.servers,
            ca_file: self.cafile,
            client: KeyFiles::of(self.certfile, self.keyfile),
            overrides: found.take(etcd_overrides(&self.servers_overrides)),
            compaction_interval: self.compaction_interval,
            lease_reuse: Duration::from_secs(self.lease_reuse_seconds),
        }
    }
}

impl EncryptionFile {
    pub(super) fn read(found: &mut Findings, file: Option<PathBuf>, automatic_reload: bool) -> Option<Self> {
        if automatic_reload && file.is_none() {
            found.fault(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
            );
        }
        let file = file?;
        Some(EncryptionFile {
            file,
            automatic_reload,
        })
    }
}

/// The prefix of all keys: a slash in front and none behind.
fn prefix(flag: &str) -> Result<String, String> {
    let prefix = match flag.trim_matches('/') {
        "" => return Ok(String::new()),
        prefix => format!("/{prefix}"),
    };
    if prefix.contains("//") || prefix.split('/').any(|part| part == "..") {
        return Err(format!("--etcd-prefix: `{flag}` is not a path"));
    }
    Ok(prefix)
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
            "{flag} has no effect: watch caches grow and shrink with their content"
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
