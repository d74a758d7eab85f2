//! Where objects are stored, and how.

use std::path::{Path, PathBuf};
use std::time::Duration;

use generic_server::registry::cache::StoredForm;
use machinery::GroupResource;
use storage::EngineKind;

use super::Findings;
use super::trust::KeyFiles;
use crate::options::Options;

/// Where objects are stored.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) engine: Engine,
    /// The prefix of all keys: a slash in front and none behind, however the flag is written; empty for no prefix.
    pub(crate) prefix: String,
    /// How built-in kinds are stored.
    pub(crate) stored_form: StoredForm,
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

/// The prefix of all keys: a slash in front and none behind.
pub(super) fn prefix(flag: &str) -> Result<String, String> {
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
pub(super) fn watch_caches(found: &mut Findings, on: bool, default_size: i64, sizes: &[String]) {
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
pub(super) fn etcd_overrides(texts: &[String]) -> Result<Vec<(GroupResource, Vec<String>)>, String> {
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
