//! Tests of the embedded engines: the conformance suite and tests of their own.

mod atomic;
mod backup;
mod clock;
mod crash;
mod damage;
mod directory;
mod faults;
mod frozen;
mod full;
mod gone;
mod growth;
mod linearizable;
mod mended;
mod migration;
mod model;
mod operations;
mod owner;
mod power;
mod restart;
mod sled_blobs;
mod sled_full;
mod sled_writes;
mod torture;

use std::path::Path;
use std::sync::Arc;

use super::kv::Kv;
use super::kv_redb::RedbKv;
use super::kv_sled::SledKv;
use crate::conformance::Subject;
use crate::{EngineKind, OpenOptions, StorageError, Store};

const ON_DISK: [EngineKind; 2] = [EngineKind::Redb, EngineKind::Sled];

fn options(engine: EngineKind, dir: &Path) -> OpenOptions {
    OpenOptions {
        engine,
        dir: Some(dir.to_owned()),
        min_free_bytes: 0,
        ..OpenOptions::default()
    }
}

fn reopen(engine: EngineKind, dir: &Path) -> Result<Arc<dyn Store>, StorageError> {
    crate::open(options(engine, dir))
}

/// A line of `FORMAT`.
fn format_line(text: &str) -> String {
    format!("{text} sum {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The ordered map of a store that is closed.
fn raw(engine: EngineKind, dir: &Path) -> Box<dyn Kv> {
    match engine {
        EngineKind::Sled => Box::new(SledKv::open(&dir.join("sled"), 1 << 20).unwrap()),
        _ => Box::new(RedbKv::open(&dir.join("store.redb"), &OpenOptions::default(), 0).unwrap()),
    }
}

async fn on_disk(engine: EngineKind) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    Subject::in_process(reopen(engine, dir.path()).unwrap()).keeping(dir)
}

mod memory {
    use super::*;
    crate::conformance_tests!(async { Subject::in_process(crate::memory()) });
}

mod redb {
    use super::*;
    crate::conformance_tests!(on_disk(EngineKind::Redb));
}

mod sled {
    use super::*;
    crate::conformance_tests!(on_disk(EngineKind::Sled));
}
