//! A store of version 1 in the hands of a program that is at version 2, and the way back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::kv::{Kv, Write};
use super::super::kv_memory::MemoryKv;
use super::super::migrate::{Formats, MapStep};
use super::super::record::{self, Header, Location};
use super::super::{FORMATS, MvccStore};
use super::faults::{self, Disk, Failing, Repaired};
use super::{ON_DISK, format_line, options, reopen};
use crate::conformance::Subject;
use crate::{KeyValue, RangeRequest, Revision, StorageError, Store};

const CHANGES: &[u8] = b"m/changes";
const TWO: &[MapStep] = &[whole_seconds];
const BATCH: usize = 7;

/// Version 2 of these tests: times are whole seconds, and the number of changes is noted.
fn whole_seconds(kv: &dyn Kv) -> Result<Vec<Write>, StorageError> {
    let headers = headers(kv)?;
    for some in headers.chunks(BATCH) {
        let whole = |(at, header): &(Location, Header)| {
            let header = Header {
                time_ms: header.time_ms / 1000 * 1000,
                ..header.clone()
            };
            Write::Put(record::header_key(*at), header.encode(*at))
        };
        kv.apply(&some.iter().map(whole).collect::<Vec<_>>())?;
    }
    Ok(vec![record::put_u64(CHANGES, headers.len() as u64)])
}

fn never(_: &dyn Kv) -> Result<Vec<Write>, StorageError> {
    panic!("a step of the past")
}

fn nothing(_: &dyn Kv) -> Result<Vec<Write>, StorageError> {
    Ok(Vec::new())
}

fn headers(kv: &dyn Kv) -> Result<Vec<(Location, Header)>, StorageError> {
    let mut headers = Vec::new();
    let (from, to) = record::header_range(0, None);
    kv.reader()?.scan(&from, &to, &mut |_, stored| {
        headers.extend(Header::decode(stored));
        Ok(true)
    })?;
    Ok(headers)
}

/// The whole store at each of its revisions.
async fn states(store: &dyn Store) -> Vec<Vec<KeyValue>> {
    let newest = store.fresh().await.unwrap().0;
    let mut states = Vec::new();
    for at in 1..=newest {
        let request = RangeRequest {
            at: Some(Revision(at)),
            ..RangeRequest::default()
        };
        states.push(store.range(request).await.unwrap().kvs);
    }
    states
}

async fn fill(s: &Subject) {
    for n in 0..30 {
        // Some of them in chunks.
        s.write(&format!("k{}", n % 11), vec![n as u8; n * 120]).await;
    }
    s.remove("k3").await;
    s.write("k3", "again").await;
}

fn copy(disk: &MemoryKv) -> Arc<MemoryKv> {
    let mut all = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        all.push(Write::Put(key.to_vec(), value.to_vec().into()));
        Ok(true)
    };
    disk.reader().unwrap().scan(b"", &[0xff], visit).unwrap();
    let copy = MemoryKv::default();
    copy.apply(&all).unwrap();
    Arc::new(copy)
}

#[track_caller]
fn newer<T: std::fmt::Debug>(opened: Result<T, StorageError>, known: u32) {
    let Err(StorageError::NewerFormat { found, supported }) = opened else {
        panic!("{opened:?}");
    };
    assert_eq!((found, supported), (known + 1, known));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_is_cut_short_begins_again() {
    let open = |kv: Box<dyn Kv>, steps| MvccStore::start(kv, None, faults::options(), steps);
    let origin = Arc::new(MemoryKv::default());
    let s = Subject::in_process(open(Disk::new(&origin, Repaired), &[]).unwrap());
    fill(&s).await;
    let expected = states(&*s.store).await;
    s.finish().await;
    let changes = headers(&*origin).unwrap().len();
    assert!(changes > 3 * BATCH);

    let mut failures = 0;
    for n in 0.. {
        let disk = copy(&origin);
        // Each batch in turn, with and without having been written.
        let (left, then_writes) = (n / 2, n % 2 == 1);
        let failing = Failing {
            left: AtomicU64::new(left),
            then_writes,
        };
        match open(Disk::new(&disk, failing), TWO) {
            Ok(_) => break,
            Err(error) => assert!(error.to_string().contains("the disk has failed"), "{error:?}"),
        }
        failures += 1;
        let old = || open(Disk::new(&disk, Repaired), &[]);
        if left > 0 || then_writes {
            // Half of it is of a version that it does not know.
            newer(old(), 1);
        } else {
            assert_eq!(states(&*old().unwrap()).await, expected);
        }

        let store = open(Disk::new(&disk, Repaired), TWO).unwrap();
        assert_eq!(states(&*store).await, expected, "batch {left} failed");
        store.shutdown().await;
        let migrated = headers(&*disk).unwrap();
        assert_eq!(migrated.len(), changes);
        assert!(migrated.iter().all(|(_, header)| header.time_ms % 1000 == 0));
        let reader = disk.reader().unwrap();
        let noted = record::read_u64(&*reader, CHANGES).unwrap();
        assert_eq!(noted, Some(changes as u64));
        assert_eq!(reader.get(record::META_BECOMING).unwrap(), None);
        drop(reader);
        newer(old(), 1);

        // From now on that step is done with, and the next one follows.
        let store = open(Disk::new(&disk, Repaired), &[never, nothing]).unwrap();
        assert_eq!(states(&*store).await, expected);
    }
    // The note that it begins, each batch, the end.
    assert_eq!(failures, 2 * (2 + changes.div_ceil(BATCH)));
}

/// Version 2 of these tests calls a file otherwise. It has to be done already, or possible.
fn renamed(dir: &Path) -> Result<(), StorageError> {
    if dir.join("new").exists() {
        return Ok(());
    }
    std::fs::rename(dir.join("old"), dir.join("new"))
        .map_err(|error| crate::directory::failed("cannot rename", dir, error))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_migrated_with_its_content() {
    const NEXT: Formats = Formats {
        directory: &[FORMATS.directory[0], renamed],
        map: &[FORMATS.map[0], whole_seconds],
    };
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let as_next = || MvccStore::open_as(options(engine, dir.path()), NEXT);
        let is_noted = |text: &str| {
            for name in ["FORMAT", "FORMAT.copy"] {
                let line = std::fs::read_to_string(dir.path().join(name)).unwrap();
                assert_eq!(line, format_line(&format!("{text} engine {}", engine.name())));
            }
        };
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        fill(&s).await;
        let expected = states(&*s.store).await;
        s.finish().await;

        let failed = as_next().unwrap_err();
        assert!(failed.to_string().contains("cannot rename"), "{failed:?}");
        is_noted("format 2 becoming 3");
        newer(reopen(engine, dir.path()), 2);

        std::fs::write(dir.path().join("old"), "").unwrap();
        for _ in 0..2 {
            let store = as_next().unwrap();
            assert_eq!(states(&*store).await, expected);
            store.shutdown().await;
            assert!(dir.path().join("new").exists());
            is_noted("format 3");
        }
        newer(reopen(engine, dir.path()), 2);
        // The map alone would do for a refusal, too.
        let directory_alone = Formats {
            directory: NEXT.directory,
            ..FORMATS
        };
        let refused = MvccStore::open_as(options(engine, dir.path()), directory_alone);
        assert!(
            matches!(
                refused,
                Err(StorageError::NewerFormat {
                    found: 3,
                    supported: 2
                })
            ),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_new_store_is_of_the_newest_version() {
    const NEWEST: Formats = Formats {
        directory: &[FORMATS.directory[0], renamed],
        map: &[never],
    };
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let store = MvccStore::open_as(options(engine, dir.path()), NEWEST).unwrap();
            store.shutdown().await;
        }
        newer(reopen(engine, dir.path()), 2);
    }
}
