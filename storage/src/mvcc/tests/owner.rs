//! One owner: of the directory, of the data in it under any name, and of one engine.

use std::path::Path;

use super::super::kv_redb::RedbKv;
use super::super::kv_sled::SledKv;
use super::{ON_DISK, options, reopen};
use crate::conformance::Subject;
use crate::{EngineKind, RestoreOptions, StorageError, restore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_lock_file_the_data_is_locked_all_the_same() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        s.write("a", "1").await;
        std::fs::remove_file(dir.path().join("LOCK")).unwrap();
        let second = reopen(engine, dir.path());
        assert!(matches!(second, Err(StorageError::Locked(_))), "{second:?}");
        s.write("a", "2").await;

        // By another name.
        let elsewhere = tempfile::tempdir_in(dir.path()).unwrap();
        let refused = match engine {
            EngineKind::Sled => {
                std::os::unix::fs::symlink(dir.path().join("sled"), elsewhere.path().join("sled")).unwrap();
                SledKv::open(&elsewhere.path().join("sled"), 1 << 20).map(drop)
            }
            _ => {
                let link = elsewhere.path().join("link");
                std::fs::hard_link(dir.path().join("store.redb"), &link).unwrap();
                RedbKv::open(&link, &crate::OpenOptions::default(), 0).map(drop)
            }
        };
        assert!(matches!(refused, Err(StorageError::Locked(_))), "{refused:?}");
        drop(elsewhere);
        s.finish().await;
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert_eq!(s.read("a", None).await.unwrap().value, "2");
        s.finish().await;
    }
}

#[tokio::test]
async fn a_second_engine_does_not_begin_beside_the_first() {
    for (first, second) in [
        (EngineKind::Redb, EngineKind::Sled),
        (EngineKind::Sled, EngineKind::Redb),
    ] {
        let names_both = |refused: Result<_, StorageError>| {
            let why = refused
                .map(|_: std::sync::Arc<dyn crate::Store>| ())
                .unwrap_err()
                .to_string();
            assert!(
                why.ends_with(&format!(
                    "was written by the engine `{}`, not `{}`",
                    first.name(),
                    second.name()
                )),
                "{why}"
            );
        };
        let parent = tempfile::tempdir().unwrap();
        let (its, other) = (
            parent.path().join(first.name()),
            parent.path().join(second.name()),
        );
        reopen(first, &its).unwrap().shutdown().await;
        names_both(reopen(second, &other));
        assert!(!other.exists());
        // In the same directory, also without the files that say so.
        names_both(reopen(second, &its));
        for name in ["FORMAT", "FORMAT.copy"] {
            std::fs::remove_file(its.join(name)).unwrap();
        }
        names_both(reopen(second, &other));
        names_both(reopen(second, &its));
        reopen(first, &its).unwrap().shutdown().await;
    }
}

/// A restore does not make a second engine beside the first one, whose data a server would not look at any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_does_not_begin_beside_another_engine() {
    for [first, second] in [ON_DISK, [ON_DISK[1], ON_DISK[0]]] {
        let parent = tempfile::tempdir().unwrap();
        let (its, other) = (
            parent.path().join(first.name()),
            parent.path().join(second.name()),
        );
        let snapshot = parent.path().join("snapshot");
        let s = Subject::in_process(reopen(first, &its).unwrap());
        s.write("a", "x").await;
        s.store.backup(&snapshot).await.unwrap();
        s.finish().await;
        let refused = restore(&snapshot, &RestoreOptions::new(options(second, &other))).map(drop);
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(first.name()) && why.contains(second.name()), "{why}");
        assert!(!other.exists());
        // In its place it may begin.
        std::fs::remove_dir_all(&its).unwrap();
        restore(&snapshot, &RestoreOptions::new(options(second, &other))).unwrap();
        reopen(second, &other).unwrap().shutdown().await;
    }
}

/// Files of before the last stop, beside the others as they are now: a start refuses them, and a scrub says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_names_data_that_is_older_than_its_mark() {
    for (engine, folder) in [(EngineKind::Redb, ""), (EngineKind::Sled, "sled")] {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let round = async |key: &str| {
            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            s.write(key, "x").await;
            s.finish().await;
        };
        let files = |from: &Path, to: &Path| {
            for entry in std::fs::read_dir(from).unwrap().flatten() {
                let name = entry.file_name();
                let is_mark = ["REVISION", "FORMAT", "FORMAT.copy", "LOCK"]
                    .iter()
                    .any(|mark| name == *mark);
                if entry.file_type().unwrap().is_file() && !is_mark {
                    std::fs::copy(entry.path(), to.join(name)).unwrap();
                }
            }
        };
        round("a").await;
        files(&dir.path().join(folder), copy.path());
        assert!(crate::scrub(&options(engine, dir.path())).unwrap().is_clean());
        round("b").await;
        for entry in std::fs::read_dir(dir.path().join(folder)).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("snap.") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        files(copy.path(), &dir.path().join(folder));
        let report = crate::scrub(&options(engine, dir.path())).unwrap();
        let why = report.engine.expect("a reason");
        assert!(why.contains("its data ends at"), "{why}");
        assert!(reopen(engine, dir.path()).is_err());
    }
}
