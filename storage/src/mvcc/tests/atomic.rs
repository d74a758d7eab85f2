//! A kill at every step of a first start, a restore and a backup: the old state or the new one, and nothing left behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::super::MvccStore;
use super::{ON_DISK, options, reopen};
use crate::conformance::Subject;
use crate::{
    EngineKind, RestoreOptions, StorageError, Store, crash, inspect_backup, remove_partial_backups, restore,
};

/// No work here has more steps.
const MOST: u64 = 10_000;

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// Checks that a store's directory holds the expected files and nothing else.
#[track_caller]
fn tidy(engine: EngineKind, dir: &Path) {
    let data = match engine {
        EngineKind::Sled => "sled",
        _ => "store.redb",
    };
    let expected = ["FORMAT", "FORMAT.copy", "LOCK", "REVISION", data].map(str::to_owned);
    assert_eq!(names(dir), BTreeSet::from(expected), "no litter");
    let beside = [engine.name(), "STORE"].map(str::to_owned);
    assert_eq!(names(dir.parent().unwrap()), BTreeSet::from(beside));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_is_all_or_nothing() {
    for engine in ON_DISK {
        let mut steps = 0;
        while steps < MOST {
            let data = tempfile::tempdir().unwrap();
            let dir = data.path().join(engine.name());
            let (opened, killed) = crash::until(steps, || reopen(engine, &dir));
            // A process that is killed has no time to close its store, but one that has opened it has it.
            drop(opened);
            let s = Subject::in_process(
                reopen(engine, &dir).unwrap_or_else(|error| panic!("killed at step {steps}: {error:?}")),
            );
            s.write("a", "1").await;
            s.finish().await;
            tidy(engine, &dir);
            if !killed {
                break;
            }
            steps += 1;
        }
        assert!((8..MOST).contains(&steps), "{steps}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_is_all_or_nothing() {
    let origin = Subject::in_process(crate::memory());
    for n in 0..20 {
        origin.write(&format!("k{n}"), vec![n as u8; 3000]).await;
    }
    let place = tempfile::tempdir().unwrap();
    let backup = place.path().join("backup");
    origin.store.backup(&backup).await.unwrap();
    let whole = origin.list("", None).await;
    origin.finish().await;
    for engine in ON_DISK {
        let mut steps = 0;
        while steps < MOST {
            let data = tempfile::tempdir().unwrap();
            let dir = data.path().join(engine.name());
            let target = RestoreOptions::new(options(engine, &dir));
            let (restored, killed) = crash::until(steps, || restore(&backup, &target));
            assert_eq!(restored.is_err(), killed, "{restored:?}");
            match reopen(engine, &dir) {
                // Before anything was noted, or when it was complete.
                Ok(store) => {
                    let s = Subject::in_process(store);
                    let found = s.list("", None).await;
                    // The first steps note that a restore has begun; before that nothing has.
                    assert!(
                        found == whole || (killed && found.is_empty() && steps < 4),
                        "step {steps}: {} keys",
                        found.len()
                    );
                    s.finish().await;
                    tidy(engine, &dir);
                }
                Err(StorageError::Corrupt(why)) => {
                    assert!(killed && why.contains("restore again"), "step {steps}: {why}");
                    restore(&backup, &target).unwrap();
                    let s = Subject::in_process(reopen(engine, &dir).unwrap());
                    assert_eq!(s.list("", None).await, whole);
                    s.finish().await;
                    tidy(engine, &dir);
                }
                Err(error) => panic!("step {steps}: {error:?}"),
            }
            if !killed {
                break;
            }
            steps += 1;
        }
        assert!((8..MOST).contains(&steps), "{steps}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_all_or_nothing() {
    let store = MvccStore::memory();
    let s = Subject::in_process(store.clone());
    for n in 0..5 {
        s.write(&format!("k{n}"), vec![n as u8; 300]).await;
    }
    let mut steps = 0;
    while steps < MOST {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".backup-1");
        let (made, killed) = crash::until(steps, || store.shared.backup(&file));
        if killed {
            assert!(made.is_err());
            if file.exists() {
                inspect_backup(&file).unwrap();
            } else {
                // Leftovers of a killed process do no harm.
                std::fs::write(dir.path().join(".backup-1.partial"), "half").unwrap();
                s.store.backup(&file).await.unwrap();
            }
        }
        assert_eq!(inspect_backup(&file).unwrap().keys, 5);
        assert_eq!(names(dir.path()).len(), 1, "{:?}", names(dir.path()));
        if !killed {
            break;
        }
        steps += 1;
    }
    assert!((20..MOST).contains(&steps), "{steps}");
    s.finish().await;
}

#[test]
fn leftovers_of_interrupted_backups_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".backup-1", ".backup-2.partial", ".backup-3.partial", "other"] {
        std::fs::write(dir.path().join(name), "half").unwrap();
    }
    let busy = crate::directory::claim_file(&dir.path().join(".backup-3.partial")).unwrap();
    assert_eq!(remove_partial_backups(dir.path(), ".backup-").unwrap(), 2);
    assert_eq!(
        names(dir.path()),
        BTreeSet::from([".backup-3.partial".into(), "other".into()])
    );
    drop(busy);
    assert_eq!(remove_partial_backups(dir.path(), ".backup-").unwrap(), 1);
}

#[track_caller]
fn gone(engine: EngineKind, dir: &Path) {
    let refused = reopen(engine, dir);
    assert!(
        matches!(refused, Err(StorageError::Gone(_) | StorageError::Corrupt(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_is_not_recreated() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        for n in 0..50 {
            s.write(&format!("k{n}"), vec![n as u8; 3000]).await;
        }
        s.finish().await;
        let file = match engine {
            EngineKind::Sled => dir.path().join("sled/db"),
            _ => dir.path().join("store.redb"),
        };
        let whole = std::fs::read(&file).unwrap();
        for len in [0, 100, 4096, whole.len() / 2, whole.len().saturating_sub(4096)] {
            std::fs::write(&file, &whole[..len]).unwrap();
            // The engine may have kept more elsewhere, but then all of it has to be there.
            match reopen(engine, dir.path()) {
                Ok(store) => {
                    let s = Subject::in_process(store);
                    assert_eq!(s.list("", None).await.len(), 50, "{engine:?} cut to {len}");
                    s.finish().await;
                }
                Err(error) => assert!(
                    matches!(error, StorageError::Gone(_) | StorageError::Corrupt(_)),
                    "{engine:?} cut to {len}: {error:?}"
                ),
            }
        }
        // Another store in its place, which is younger.
        let other = tempfile::tempdir().unwrap();
        reopen(engine, other.path()).unwrap().shutdown().await;
        match engine {
            EngineKind::Sled => {
                std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
                std::fs::rename(other.path().join("sled"), dir.path().join("sled")).unwrap();
            }
            _ => std::fs::rename(other.path().join("store.redb"), &file).unwrap(),
        }
        gone(engine, dir.path());
        if engine == EngineKind::Sled {
            std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        gone(engine, dir.path());

        let empty = crate::OpenOptions {
            allow_empty: true,
            ..options(engine, dir.path())
        };
        let store: Arc<dyn Store> = crate::open(empty).unwrap();
        assert_eq!(store.status().await.unwrap().keys, Some(0));
        store.shutdown().await;
        reopen(engine, dir.path()).unwrap().shutdown().await;
    }
}
