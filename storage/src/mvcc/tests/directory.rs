//! Directories that cannot be opened, or written to.

use std::path::Path;

use super::super::record;
use super::{ON_DISK, format_line, options, raw, reopen};
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
    let note = |text: &str| std::fs::write(dir.path().join("FORMAT"), format_line(text)).unwrap();
    note("format 3 engine redb");
    let newer = |error: &StorageError| {
        matches!(
            error,
            StorageError::NewerFormat {
                found: 3,
                supported: 2
            }
        )
    };
    refused(options(EngineKind::Redb, dir.path()), newer);
    note("format 2 becoming 3 engine redb");
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

/// Each bit of either copy in turn, then both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_of_the_format_is_written_again() {
    const COPIES: [&str; 2] = ["FORMAT", "FORMAT.copy"];
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        s.write("a", "1").await;
        s.finish().await;
        let line = format_line(&format!("format 2 engine {}", engine.name()));
        let damaged = |at: usize| {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1 << (at % 8);
            bytes
        };
        let is_whole = || {
            for name in COPIES {
                assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), line.as_bytes());
            }
        };
        is_whole();
        for name in COPIES {
            let path = dir.path().join(name);
            for at in (0..line.len()).step_by(5) {
                std::fs::write(&path, damaged(at)).unwrap();
                let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
                assert_eq!(s.read("a", None).await.unwrap().value, "1");
                s.finish().await;
                is_whole();
            }
            std::fs::remove_file(&path).unwrap();
            reopen(engine, dir.path()).unwrap().shutdown().await;
            is_whole();
        }
        // The other engine is refused by what is left.
        let other = ON_DISK.into_iter().find(|other| *other != engine).unwrap();
        std::fs::write(dir.path().join("FORMAT"), "").unwrap();
        refused(options(other, dir.path()), |error| {
            error.to_string().contains("was written by the engine")
        });
        for name in COPIES {
            std::fs::write(dir.path().join(name), damaged(3)).unwrap();
        }
        refused(
            options(engine, dir.path()),
            |error| matches!(error, StorageError::Corrupt(why) if COPIES.iter().all(|name| why.contains(name))),
        );
    }
}

/// A directory as a program of version 1 left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_format_without_a_copy_is_given_one() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        s.write("a", "1").await;
        s.finish().await;
        let line = format_line(&format!("format 2 engine {}", engine.name()));
        let old = format!("format 1 engine {}\n", engine.name());
        let becoming = format_line(&format!("format 1 becoming 2 engine {}", engine.name()));
        // Also where a crash came between any two of its writes.
        for [first, second] in [
            [Some(&old), None],
            [Some(&becoming), None],
            [Some(&becoming), Some(&becoming)],
            [Some(&line), Some(&becoming)],
        ] {
            for (name, text) in [("FORMAT", first), ("FORMAT.copy", second)] {
                let path = dir.path().join(name);
                match text {
                    Some(text) => std::fs::write(path, text).unwrap(),
                    None => std::fs::remove_file(path).unwrap(),
                }
            }
            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            assert_eq!(s.read("a", None).await.unwrap().value, "1");
            s.finish().await;
            for name in ["FORMAT", "FORMAT.copy"] {
                assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), line);
            }
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
