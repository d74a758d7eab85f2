//! Stores whose directory is gone while what is beside it stays: they are not begun anew unless that is asked for, and then no
//! revision means two things.

use std::path::{Path, PathBuf};

use super::{ON_DISK, options, reopen};
use crate::conformance::{Recorder, Subject};
use crate::{EngineKind, OpenOptions, RestoreOptions, Revision, StorageError, had_store, restore};

/// A data directory with a store of some writes, closed, and its newest revision.
async fn filled(engine: EngineKind) -> (tempfile::TempDir, PathBuf, Revision) {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join(engine.name());
    let s = Subject::in_process(reopen(engine, &dir).unwrap());
    for n in 0..30 {
        s.write(&format!("k{n}"), vec![n as u8; 300]).await;
    }
    let newest = s.store.status().await.unwrap().revision;
    s.finish().await;
    (data, dir, newest)
}

fn allowed(engine: EngineKind, dir: &Path) -> OpenOptions {
    OpenOptions {
        allow_empty: true,
        ..options(engine, dir)
    }
}

fn empty(dir: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
}

/// Checks that a store begins past all revisions that another had, for readers and watchers, too.
async fn begins_past(options: OpenOptions, reached: Revision) -> Revision {
    let s = Subject::in_process(crate::open(options).unwrap());
    let status = s.store.status().await.unwrap();
    assert!(status.revision > reached, "{status:?}");
    for before in [Revision(1), reached, Revision(reached.0 + 1000)] {
        let read = s.store.get("k1", Some(before)).await;
        assert!(matches!(read, Err(StorageError::Compacted { .. })), "{read:?}");
        let watch = s.store.watch("", before, Recorder::new()).await;
        assert!(matches!(watch, Err(StorageError::Compacted { .. })), "{watch:?}");
    }
    let next = s.write("new", "1").await;
    assert_eq!(next.0, status.revision.0 + 1);
    s.finish().await;
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_removed_or_emptied_is_not_begun_anew() {
    let remove = |dir: &Path| std::fs::remove_dir_all(dir).unwrap();
    for engine in ON_DISK {
        for lose in [remove as fn(&Path), empty] {
            let (data, dir, reached) = filled(engine).await;
            assert!(had_store(&dir, engine));
            lose(&dir);
            assert!(had_store(&dir, engine));
            // A refused start does not change the answer of the next.
            for _ in 0..2 {
                let refused = reopen(engine, &dir).map(drop);
                let Err(StorageError::Gone(why)) = refused else {
                    panic!("{engine:?}: {refused:?}");
                };
                assert!(why.contains("STORE` says that there was one"), "{why}");
            }
            assert!(crate::scrub(&options(engine, &dir)).is_err());
            let newest = begins_past(allowed(engine, &dir), reached).await;
            // From then on it is a store as any other.
            let s = Subject::in_process(reopen(engine, &dir).unwrap());
            assert_eq!(s.list("", None).await.len(), 1);
            s.finish().await;
            drop(data);
            assert!(newest > reached);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_the_other_engine_is_not_forgotten() {
    for (gone, other) in [
        (EngineKind::Redb, EngineKind::Sled),
        (EngineKind::Sled, EngineKind::Redb),
    ] {
        let (data, dir, reached) = filled(gone).await;
        std::fs::remove_dir_all(&dir).unwrap();
        let beside = data.path().join(other.name());
        let refused = reopen(other, &beside).map(drop);
        assert!(matches!(refused, Err(StorageError::Gone(_))), "{refused:?}");
        begins_past(allowed(other, &beside), reached).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_note_still_says_that_there_was_a_store() {
    for engine in ON_DISK {
        let (data, dir, reached) = filled(engine).await;
        std::fs::write(data.path().join("STORE"), "nonsense").unwrap();
        // A store that is there is opened, and the note written again.
        reopen(engine, &dir).unwrap().shutdown().await;
        let note = std::fs::read_to_string(data.path().join("STORE")).unwrap();
        assert!(
            note.starts_with(&format!("engine {} revision ", engine.name())),
            "{note}"
        );
        std::fs::write(data.path().join("STORE"), "nonsense").unwrap();
        empty(&dir);
        let refused = reopen(engine, &dir).map(drop);
        assert!(matches!(refused, Err(StorageError::Gone(_))), "{refused:?}");
        // How far it was is unknown; no store has written as much.
        begins_past(allowed(engine, &dir), reached).await;
    }
}

/// Files of before, in place of all of the directory: a start refuses them, and where they are allowed they begin past what is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_directory_is_refused() {
    for engine in ON_DISK {
        let (data, dir, _) = filled(engine).await;
        let copy = data.path().join("copy");
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([&dir, &copy])
            .status();
        assert!(copied.unwrap().success());
        let s = Subject::in_process(reopen(engine, &dir).unwrap());
        s.write("lost", "1").await;
        let reached = s.store.status().await.unwrap().revision;
        s.finish().await;
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::rename(&copy, &dir).unwrap();
        let refused = reopen(engine, &dir).map(drop);
        let Err(StorageError::Gone(why)) = refused else {
            panic!("{engine:?}: {refused:?}");
        };
        assert!(why.contains(&format!("it was at revision {reached}")), "{why}");
        begins_past(allowed(engine, &dir), reached).await;
        let s = Subject::in_process(reopen(engine, &dir).unwrap());
        assert_eq!(s.list("", None).await.len(), 31, "what is there is kept");
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_restore_of_a_snapshot_begins_past_the_first() {
    for engine in ON_DISK {
        let (data, dir, _) = filled(engine).await;
        let snapshot = data.path().join("snapshot");
        let s = Subject::in_process(reopen(engine, &dir).unwrap());
        s.store.backup(&snapshot).await.unwrap();
        s.finish().await;
        let mut before = Revision(0);
        for _ in 0..2 {
            std::fs::remove_dir_all(&dir).unwrap();
            restore(&snapshot, &RestoreOptions::new(options(engine, &dir))).unwrap();
            let s = Subject::in_process(reopen(engine, &dir).unwrap());
            let revision = s.write("more", "1").await;
            assert!(revision > before, "{revision} after {before}");
            before = Revision(revision.0 + 1000);
            s.finish().await;
        }
    }
}

/// A store whose process was killed, and whose data then ends before what was acknowledged: an engine takes a damaged end of its log for
/// the torn end of a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_lost_after_a_crash_are_missed() {
    for engine in ON_DISK {
        let (data, dir, _) = filled(engine).await;
        let (early, late) = (data.path().join("early"), data.path().join("late"));
        let copy = |to: &Path| {
            let copied = std::process::Command::new("cp")
                .arg("-a")
                .args([&dir, to])
                .status();
            assert!(copied.unwrap().success());
        };
        let s = Subject::in_process(reopen(engine, &dir).unwrap());
        s.write("kept", "1").await;
        copy(&early);
        let lost = s.write("lost", "1").await;
        copy(&late);
        // As after `kill -9`: everything acknowledged is there.
        let open = Subject::in_process(reopen(engine, &late).unwrap());
        assert_eq!(open.store.status().await.unwrap().revision, lost);
        open.finish().await;
        std::fs::copy(dir.join("REVISION"), early.join("REVISION")).unwrap();
        let refused = reopen(engine, &early).map(drop);
        let Err(StorageError::Gone(why)) = refused else {
            panic!("{engine:?}: {refused:?}");
        };
        assert_eq!(
            why,
            format!("it was at revision {lost}, its data ends at {}", lost.0 - 1)
        );
        s.finish().await;
    }
}

/// Marks as earlier versions wrote them: lines without a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_earlier_versions_are_read_and_replaced() {
    for engine in ON_DISK {
        let (data, dir, reached) = filled(engine).await;
        let files = [dir.join("REVISION"), data.path().join("STORE")];
        let write = |revision: u64| {
            let lines = [
                format!("revision {revision}"),
                format!("engine {} revision {revision}", engine.name()),
            ];
            for (file, line) in files.iter().zip(lines) {
                std::fs::write(file, super::format_line(&line)).unwrap();
            }
        };
        write(reached.0 + 1);
        let refused = reopen(engine, &dir).map(drop);
        assert!(matches!(refused, Err(StorageError::Gone(_))), "{refused:?}");
        write(reached.0);
        let s = Subject::in_process(reopen(engine, &dir).unwrap());
        s.write("more", "1").await;
        s.finish().await;
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            let copies: Vec<_> = text.lines().collect();
            assert_eq!((copies.len(), copies[0]), (2, copies[1]), "{text}");
            assert!(
                copies[0].contains(&format!("revision {}", reached.0 + 1)),
                "{text}"
            );
        }
    }
}
