//! The store, read as a whole: records that fail their checksums, and values that are no objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use generic_server::client::egress::EgressSelector;
use generic_server::encryption::Encryption;
use generic_server::spawn::Tasks;
use serde_json::Value;
use storage::{EngineKind, OpenOptions, RangeRequest, StorageError, Store};

use super::Found;
use crate::StartError;
use crate::config::{Config, Engine, Etcd};
use crate::stages::engines;

/// How values begin that are encrypted at rest.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// How values in protobuf begin.
const ENVELOPE: &[u8] = b"k8s\0";
/// How long a cluster may take to say that it is there.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys that are asked of a cluster at a time.
const PAGE: usize = 1_000;

/// The keys that stored values are encrypted with, where a configuration names them.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Option<Arc<Encryption>>);

/// A stored value after decryption.
#[derive(Debug)]
enum Opened {
    Plain(Bytes),
    Decrypted(Bytes),
    /// There are no keys.
    Sealed,
    /// None of the keys reads it.
    Unreadable(String),
}

impl Keys {
    async fn open(&self, key: &str, stored: &Bytes) -> Opened {
        match (&self.0, stored.starts_with(ENCRYPTED)) {
            (_, false) => Opened::Plain(stored.clone()),
            (None, true) => Opened::Sealed,
            (Some(encryption), true) => match encryption.decrypt(key, stored).await {
                Ok(plain) => Opened::Decrypted(plain),
                Err(error) => Opened::Unreadable(error.to_string()),
            },
        }
    }
}

pub(super) async fn look(config: &Config, egress: &EgressSelector, found: &mut Found) {
    let tasks = Tasks::new();
    let encryption = match &config.encryption {
        // An unusable file is reported with the other files.
        Some(file) => Encryption::load(&file.file, false, &tasks).await.ok(),
        None => None,
    };
    look_with(config, egress, Keys(encryption), found).await;
    tasks.stop(Duration::ZERO).await;
}

async fn look_with(config: &Config, egress: &EgressSelector, keys: Keys, found: &mut Found) {
    let outcome = match (&config.storage.engine, &config.data_dir) {
        (Engine::Etcd(etcd), _) => of_cluster(etcd, egress, &config.storage.prefix, &keys).await,
        (Engine::Embedded { kind, .. }, Some(directory)) if *kind != EngineKind::Memory => {
            let store = directory.join(kind.name());
            if !store.exists() && !storage::had_store(&store, *kind) {
                found.note("there is no store yet; a start makes one");
                return;
            }
            of_directory(directory, *kind, keys).await
        }
        _ => return,
    };
    match outcome {
        Ok(mut store) => {
            found.lines.append(&mut store.lines);
            found.faults.append(&mut store.faults);
        }
        Err(error) => found.fault(error.to_string()),
    }
}

/// Drops the lost changes of a store that no server uses. Gives a line for each.
pub(super) async fn drop_lost(directory: &Path, kind: EngineKind) -> Result<Vec<String>, StartError> {
    let _lock = directory.exists().then(|| engines::lock(directory)).transpose()?;
    let options = of(directory, kind);
    let dropping = tokio::task::spawn_blocking(move || storage::drop_lost(&options));
    let dropped = dropping
        .await
        .map_err(|_| StartError::Check("dropping lost changes was interrupted".into()))?
        .map_err(store_error(directory))?;
    Ok(dropped
        .iter()
        .map(|damage| format!("dropped: {damage}"))
        .collect())
}

fn of(directory: &Path, kind: EngineKind) -> OpenOptions {
    OpenOptions {
        engine: kind,
        dir: Some(directory.join(kind.name())),
        ..OpenOptions::default()
    }
}

fn store_error(directory: &Path) -> impl FnOnce(StorageError) -> StartError {
    let place = directory.display().to_string();
    move |source| StartError::Store { place, source }
}

/// Reads the store of a data directory that no server uses.
pub(super) async fn of_directory(
    directory: &Path,
    kind: EngineKind,
    keys: Keys,
) -> Result<Found, StartError> {
    // Nothing is made where there is no directory.
    let _lock = directory.exists().then(|| engines::lock(directory)).transpose()?;
    let options = of(directory, kind);
    let runtime = tokio::runtime::Handle::current();
    let read = tokio::task::spawn_blocking(move || {
        let mut values = Values::default();
        let report = storage::scrub_with(&options, &mut |key, value| {
            values.see(key, value.map(|value| runtime.block_on(keys.open(key, value))));
        });
        report.map(|report| (report, values))
    });
    let (report, values) = read
        .await
        .map_err(|_| StartError::Check("the check was interrupted".into()))?
        .map_err(store_error(directory))?;
    let mut found = Found::default();
    for damage in &report.damaged {
        let key = damage.key.as_deref().unwrap_or("a key that cannot be read");
        found.fault(format!("{key}: {damage}"));
    }
    if let Some(what) = &report.engine {
        found.fault(format!("{}: {what}", kind.name()));
    }
    if report.half_headers > 0 {
        // Nothing is lost.
        found.note(format!(
            "{} records can be read in one of two copies only: the disk may be failing",
            report.half_headers
        ));
    }
    values.report(&mut found);
    found.note(format!(
        "read {} changes, {} bytes, in {}",
        report.records,
        report.bytes,
        directory.display()
    ));
    Ok(found)
}

/// Reads what a cluster has under the prefix.
async fn of_cluster(
    etcd: &Etcd,
    egress: &EgressSelector,
    prefix: &str,
    keys: &Keys,
) -> Result<Found, StartError> {
    let mut sets: Vec<&[String]> = vec![&etcd.servers];
    sets.extend(etcd.overrides.iter().map(|(_, servers)| servers.as_slice()));
    sets.sort_unstable();
    sets.dedup();
    let mut found = Found::default();
    for servers in sets {
        let engine = engines::open_etcd(etcd, servers, egress)?;
        let read = values_of(&*engine, prefix, keys).await;
        engine.shutdown().await;
        let values = read.map_err(|source| StartError::Store {
            place: servers.join(","),
            source,
        })?;
        found.note(format!("read {} keys of {}", values.seen, servers.join(",")));
        values.report(&mut found);
    }
    Ok(found)
}

async fn values_of(engine: &dyn Store, prefix: &str, keys: &Keys) -> Result<Values, StorageError> {
    let mut values = Values::default();
    let mut start = None;
    let mut at = None;
    loop {
        let request = RangeRequest {
            prefix: format!("{prefix}/"),
            start: start.take(),
            limit: PAGE,
            at,
            count_only: false,
        };
        let page = tokio::time::timeout(READ_TIMEOUT, engine.range(request)).await;
        let page = page.map_err(|_| StorageError::Unavailable {
            message: "it does not answer".into(),
            source: None,
        })??;
        at.get_or_insert(page.revision);
        for kv in &page.kvs {
            values.see(&kv.key, Some(keys.open(&kv.key, &kv.value).await));
        }
        match page.kvs.last().filter(|_| page.kvs.len() >= PAGE) {
            Some(last) => start = Some(format!("{}\0", last.key)),
            None => return Ok(values),
        }
    }
}

/// The kinds of values that are no objects, by key.
#[derive(Debug, Default)]
struct Values {
    bad: BTreeMap<String, String>,
    decrypted: u64,
    sealed: u64,
    seen: u64,
}

impl Values {
    /// The newest value of a key, `None` when it has been deleted.
    fn see(&mut self, key: &str, value: Option<Opened>) {
        self.seen += 1;
        let fault = match value {
            None => None,
            Some(Opened::Plain(value)) => fault(key, &value).map(String::from),
            Some(Opened::Decrypted(value)) => {
                self.decrypted += 1;
                fault(key, &value).map(String::from)
            }
            Some(Opened::Sealed) => {
                self.sealed += 1;
                None
            }
            Some(Opened::Unreadable(why)) => Some(format!("the value cannot be decrypted: {why}")),
        };
        match fault {
            Some(why) => {
                self.bad.insert(key.to_string(), why);
            }
            None if self.bad.is_empty() => {}
            None => {
                self.bad.remove(key);
            }
        }
    }

    fn report(&self, found: &mut Found) {
        for (key, why) in &self.bad {
            found.fault(format!("{key}: {why}"));
        }
        if self.decrypted > 0 {
            found.note(format!("{} encrypted values were decrypted", self.decrypted));
        }
        if self.sealed > 0 {
            found.note(format!(
                "{} encrypted values were read and not decrypted, since there are no keys: `check` takes them from --encryption-provider-config",
                self.sealed
            ));
        }
    }
}

/// Why a value is no object. Keys that hold none are not looked at: leases of servers, and the numbers of compactions.
fn fault(key: &str, value: &[u8]) -> Option<&'static str> {
    let object = key.starts_with('/') && !key.contains("/masterleases/");
    if !object {
        return None;
    }
    if value.starts_with(ENVELOPE) {
        let sound = machinery::codec::protobuf::open(value).is_ok();
        return (!sound).then_some("the value is no object: its protobuf envelope cannot be read");
    }
    if value.starts_with(b"{") {
        let sound = serde_json::from_slice::<Value>(value).is_ok();
        return (!sound).then_some("the value is no object: its JSON cannot be read");
    }
    let sound =
        machinery::codec::yaml::decode(value).is_ok_and(|decoded| decoded.value.get("kind").is_some());
    (!sound).then_some("the value is no object: neither protobuf, JSON nor YAML")
}
