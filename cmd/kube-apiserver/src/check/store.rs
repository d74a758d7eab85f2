//! The store, read as a whole: records that fail their checksums, and values that are no objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use storage::{EngineKind, OpenOptions, RangeRequest, StorageError, Store};

use super::Found;
use crate::StartError;
use crate::config::{Config, Engine, Etcd};
use crate::stages::engines;

/// How values begin that are encrypted at rest. Without their keys no more is known of them.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// How values in protobuf begin.
const ENVELOPE: &[u8] = b"k8s\0";
/// How long a cluster may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Keys that are asked of a cluster at a time.
const PAGE: usize = 1_000;

pub(super) async fn look(config: &Config, found: &mut Found) {
    let outcome = match (&config.storage.engine, &config.data_dir) {
        (Engine::Etcd(etcd), _) => of_cluster(etcd, &config.storage.prefix).await,
        (Engine::Embedded { kind, .. }, Some(directory)) if *kind != EngineKind::Memory => {
            if !directory.join(kind.name()).exists() {
                found.tell("there is no store yet; a start makes one");
                return;
            }
            of_directory(directory, *kind).await
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

/// Reads the store of a data directory that no server uses.
pub(super) async fn of_directory(directory: &Path, kind: EngineKind) -> Result<Found, StartError> {
    let options = OpenOptions {
        engine: kind,
        dir: Some(directory.join(kind.name())),
        ..OpenOptions::default()
    };
    let read = tokio::task::spawn_blocking(move || {
        let mut values = Values::default();
        let report = storage::scrub_with(&options, &mut |key, value| values.see(key, value));
        report.map(|report| (report, values))
    });
    let (report, values) = read
        .await
        .map_err(|_| StartError::Check("the check was interrupted".into()))?
        .map_err(|source| StartError::Store {
            place: directory.display().to_string(),
            source,
        })?;
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
        found.tell(format!(
            "{} records can be read in one of two copies only: the disk is not what it should be",
            report.half_headers
        ));
    }
    values.tell(&mut found);
    found.tell(format!(
        "read {} changes, {} bytes, in {}",
        report.records,
        report.bytes,
        directory.display()
    ));
    Ok(found)
}

/// Reads what a cluster has under the prefix.
async fn of_cluster(etcd: &Etcd, prefix: &str) -> Result<Found, StartError> {
    let mut sets: Vec<&[String]> = vec![&etcd.servers];
    sets.extend(etcd.overrides.iter().map(|(_, servers)| servers.as_slice()));
    sets.sort_unstable();
    sets.dedup();
    let mut found = Found::default();
    for servers in sets {
        let engine = engines::open_etcd(etcd, servers)?;
        let read = values_of(&*engine, prefix).await;
        engine.shutdown().await;
        let values = read.map_err(|source| StartError::Store {
            place: servers.join(","),
            source,
        })?;
        found.tell(format!("read {} keys of {}", values.seen, servers.join(",")));
        values.tell(&mut found);
    }
    Ok(found)
}

async fn values_of(engine: &dyn Store, prefix: &str) -> Result<Values, StorageError> {
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
        let page = tokio::time::timeout(PATIENCE, engine.range(request)).await;
        let page = page.map_err(|_| StorageError::Unavailable {
            message: "it does not answer".into(),
            source: None,
        })??;
        at.get_or_insert(page.revision);
        for kv in &page.kvs {
            values.see(&kv.key, Some(&kv.value));
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
    bad: BTreeMap<String, &'static str>,
    encrypted: u64,
    seen: u64,
}

impl Values {
    /// The newest value of a key, `None` when it has been deleted.
    fn see(&mut self, key: &str, value: Option<&Bytes>) {
        self.seen += 1;
        self.encrypted += u64::from(value.is_some_and(|value| value.starts_with(ENCRYPTED)));
        match value.and_then(|value| fault(key, value)) {
            Some(why) => {
                self.bad.insert(key.to_string(), why);
            }
            None if self.bad.is_empty() => {}
            None => {
                self.bad.remove(key);
            }
        }
    }

    fn tell(&self, found: &mut Found) {
        for (key, why) in &self.bad {
            found.fault(format!("{key}: {why}"));
        }
        if self.encrypted > 0 {
            found.tell(format!(
                "{} encrypted values were read and not decrypted",
                self.encrypted
            ));
        }
    }
}

/// Why a value is no object. What is none by its key is not looked at: leases of servers, and the numbers of compactions.
fn fault(key: &str, value: &[u8]) -> Option<&'static str> {
    let object = key.starts_with('/') && !key.contains("/masterleases/");
    if !object || value.starts_with(ENCRYPTED) {
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
    // YAML is text.
    let text = !value.is_empty() && std::str::from_utf8(value).is_ok();
    (!text).then_some("the value is no object: neither protobuf, JSON nor YAML")
}
