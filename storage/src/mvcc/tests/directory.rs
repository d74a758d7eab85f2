//! Directories that cannot be opened, or written to.

use std::path::Path;

use super::super::record;
use super::{ON_DISK, options, raw, reopen};
use crate::conformance::Subject;
use crate::{EngineKind, OpenOptions, StorageError};

#[track_caller]
fn refused(options: OpenOptions, expected: impl Fn(&StorageError) -> bool) {
    match crate::open(options) {
        Ok(store) => panic!("opened {store:?}"),
        Err(error) => assert!(expected(&error), "{error:?}"),
    }
}

pub(super) async fn filled(engine: EngineKind, dir: &Path) {
    let s = Subject::in_process(reopen(engine, dir).unwrap());
    for n in 0..200 {
        s.write(&format!("k{n}"), vec![n as u8; 2000]).await;
    }
    s.finish().await;
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let store = reopen(engine, dir.path()).unwrap();
        let owner = format!("process {}", std::process::id());
        refused(
            options(engine, dir.path()),
            |error| matches!(error, StorageError::Locked(by) if *by == owner),
        );
        store.shutdown().await;
        // Given up although the handle is still there.
        reopen(engine, dir.path()).unwrap().shutdown().await;
    }
}

#[tokio::test]
async fn only_the_owner_may_look() {
    use std::os::unix::fs::PermissionsExt;
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let s = Subject::in_process(reopen(engine, &data).unwrap());
        let backup = dir.path().join("backup");
        s.store.backup(&backup).await.unwrap();
        s.finish().await;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&data), mode(&backup)), (0o700, 0o600));
        if engine == EngineKind::Redb {
            assert_eq!(mode(&data.join("store.redb")), 0o600);
        }
    }
}

#[tokio::test]
async fn dropping_the_handle_gives_the_directory_up() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        drop(reopen(engine, dir.path()).unwrap());
        drop(reopen(engine, dir.path()).unwrap());
    }
}

#[tokio::test]
async fn newer_formats_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("FORMAT"), "format 2 engine redb\n").unwrap();
    let newer = |error: &StorageError| {
        matches!(
            error,
            StorageError::NewerFormat {
                found: 2,
                supported: 1
            }
        )
    };
    refused(options(EngineKind::Redb, dir.path()), newer);
    std::fs::write(dir.path().join("FORMAT"), "format 1 becoming 2 engine redb\n").unwrap();
    refused(options(EngineKind::Redb, dir.path()), newer);

    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        reopen(engine, dir.path()).unwrap().shutdown().await;
        for noted in [record::META_BECOMING, record::META_FORMAT] {
            let kv = raw(engine, dir.path());
            kv.apply(&[record::put_u32(noted, 3)]).unwrap();
            drop(kv);
            refused(options(engine, dir.path()), |error| {
                matches!(
                    error,
                    StorageError::NewerFormat {
                        found: 3,
                        supported: 2
                    }
                )
            });
        }
    }
}

#[tokio::test]
async fn a_directory_is_of_one_engine() {
    let dir = tempfile::tempdir().unwrap();
    reopen(EngineKind::Sled, dir.path()).unwrap().shutdown().await;
    refused(options(EngineKind::Redb, dir.path()), |error| {
        error
            .to_string()
            .ends_with("was written by the engine `sled`, not `redb`")
    });
    refused(OpenOptions::default(), |error| {
        error.to_string().contains("needs a data directory")
    });
}

#[tokio::test]
async fn unusable_directories_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let named = |error: &StorageError| matches!(error, StorageError::Engine { message, source: Some(_) } if message.contains("/file"));
    refused(options(EngineKind::Redb, &file), named);
    refused(options(EngineKind::Redb, &file.join("below")), named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_are_reported() {
    let corrupt = |error: &StorageError| matches!(error, StorageError::Corrupt(_));
    let dir = tempfile::tempdir().unwrap();
    for damaged in [
        "nonsense",
        "format 1 becoming engine redb",
        "format 0 engine redb",
    ] {
        std::fs::write(dir.path().join("FORMAT"), damaged).unwrap();
        refused(options(EngineKind::Redb, dir.path()), corrupt);
    }

    let dir = tempfile::tempdir().unwrap();
    filled(EngineKind::Redb, dir.path()).await;
    let path = dir.path().join("store.redb");
    let whole = std::fs::read(&path).unwrap();
    let zeros = vec![0; whole.len()];
    let text = b"this is not the file you are looking for".repeat(whole.len() / 40);
    for content in [&zeros[..], &text[..], &whole[..100], &whole[..5000]] {
        std::fs::write(&path, content).unwrap();
        refused(options(EngineKind::Redb, dir.path()), corrupt);
    }
    std::fs::write(&path, &whole).unwrap();
    let store = reopen(EngineKind::Redb, dir.path()).unwrap();
    assert_eq!(store.status().await.unwrap().keys, Some(200));
}
