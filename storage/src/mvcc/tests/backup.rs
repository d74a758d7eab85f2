//! Snapshots taken while writes go on, and stores made from them.

use std::time::Duration;

use super::{ON_DISK, on_disk, options};
use crate::conformance::{Recorder, Subject};
use crate::{EngineKind, Op, RestoreOptions, Revision, StorageError, inspect_backup, restore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_one_moment_and_comes_back_whole() {
    for (from, to) in [
        (EngineKind::Redb, EngineKind::Sled),
        (EngineKind::Sled, EngineKind::Redb),
    ] {
        let s = on_disk(from).await;
        s.commit(
            vec![],
            (0..40)
                .map(|n| s.put(&format!("txn/{n}"), format!("{n}")))
                .collect(),
        )
        .await;
        s.write("big", vec![3; 500_000]).await;
        s.write("empty", "").await;
        s.write("gone", "x").await;
        s.remove("gone").await;
        let long = Op::Put {
            key: s.key("ttl"),
            value: "x".into(),
            ttl: Some(Duration::from_millis(1500)),
        };
        s.commit(vec![], vec![long]).await;
        s.commit(vec![], ["n/a", "n/b"].map(|name| s.put(name, "0")).to_vec())
            .await;

        // Both counters move in one transaction: a backup that mixes moments shows.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backup");
        let writing = async {
            for n in 1..60 {
                s.commit(
                    vec![],
                    ["n/a", "n/b"].map(|name| s.put(name, format!("{n}"))).to_vec(),
                )
                .await;
                if n % 10 == 0 {
                    let newest = s.store.fresh().await.unwrap();
                    s.store.compact(newest).await.unwrap();
                }
            }
        };
        let (info, ()) = tokio::join!(s.store.backup(&file), writing);
        let info = info.unwrap();
        assert_eq!(inspect_backup(&file).unwrap(), info);
        assert_eq!(
            (info.keys, info.bytes),
            (45, std::fs::metadata(&file).unwrap().len())
        );
        let lost = s.store.fresh().await.unwrap();
        let before = s.list("txn/", None).await;

        let target = options(to, &dir.path().join("restored"));
        let options = RestoreOptions {
            margin: 1000,
            ..RestoreOptions::new(target.clone())
        };
        assert_eq!(restore(&file, &options).unwrap(), info);
        let r = Subject::in_process(crate::open(target).unwrap());
        let newest = r.store.fresh().await.unwrap();
        assert_eq!(newest, Revision(info.revision.0 + 1000));
        assert!(newest > lost);
        assert_eq!(r.list("txn/", None).await, before);
        assert_eq!(r.read("txn/7", None).await, s.read("txn/7", None).await);
        assert_eq!(r.read("big", None).await.unwrap().value, vec![3; 500_000]);
        assert_eq!(r.read("empty", None).await.unwrap().value.len(), 0);
        assert_eq!(r.read("gone", None).await, None);
        let (a, b) = (
            r.read("n/a", None).await.unwrap(),
            r.read("n/b", None).await.unwrap(),
        );
        assert_eq!((a.value, a.mod_revision), (b.value, b.mod_revision));

        // No watch resumes from a lost revision.
        for after in [info.revision, lost] {
            let refused = r.store.watch(&r.key(""), after, Recorder::new()).await;
            assert!(
                matches!(refused, Err(StorageError::Compacted { .. })),
                "{refused:?}"
            );
            let refused = r.store.get(&r.key("big"), Some(after)).await;
            assert!(
                matches!(refused, Err(StorageError::Compacted { .. })),
                "{refused:?}"
            );
        }
        let seen = Recorder::new();
        let _watch = r.store.watch(&r.key(""), newest, seen.clone()).await.unwrap();
        seen.wait(|seen| seen.events.iter().any(|event| r.name(&event.kv) == "ttl"))
            .await;
        assert!(r.write("n/a", "new").await > newest);
        r.finish().await;
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_backups_and_occupied_directories_are_refused() {
    let s = Subject::in_process(crate::memory());
    for n in 0..20 {
        s.write(&format!("k{n}"), vec![n as u8; 100]).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    s.store.backup(&file).await.unwrap();
    let exists = s.store.backup(&file).await.unwrap_err();
    assert!(
        matches!(&exists, StorageError::Engine { message, .. } if message.contains("/backup")),
        "{exists:?}"
    );

    let whole = std::fs::read(&file).unwrap();
    let damaged = dir.path().join("damaged");
    let corrupt = |content: &[u8]| {
        std::fs::write(&damaged, content).unwrap();
        let error = inspect_backup(&damaged).unwrap_err();
        assert!(matches!(error, StorageError::Corrupt(_)), "{error:?}");
    };
    for len in [0, 10, 30, 100, whole.len() - 1] {
        corrupt(&whole[..len]);
    }
    corrupt(&[&whole[..], b"\0"].concat());
    for at in [0, 25, 45, 70, 90, whole.len() - 2] {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        corrupt(&changed);
    }
    let mut newer = whole.clone();
    newer[20] = 9;
    std::fs::write(&damaged, newer).unwrap();
    assert!(matches!(
        inspect_backup(&damaged),
        Err(StorageError::NewerFormat {
            found: 9,
            supported: 1
        })
    ));
    assert!(inspect_backup(&dir.path().join("absent")).is_err());

    for engine in ON_DISK {
        let occupied = RestoreOptions::new(options(engine, dir.path()));
        let error = restore(&file, &occupied).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }
    let memory = RestoreOptions::new(options(EngineKind::Memory, dir.path()));
    assert!(restore(&file, &memory).is_err());
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_restored_store_is_not_opened() {
    use super::super::kv::{Kv, Write};
    use super::super::{kv_redb, record};
    let dir = tempfile::tempdir().unwrap();
    let target = options(EngineKind::Redb, dir.path());
    let kv =
        kv_redb::RedbKv::open(&dir.path().join("store.redb"), &crate::OpenOptions::default(), 0).unwrap();
    kv.apply(&[Write::Put(record::META_RESTORING.to_vec(), bytes::Bytes::new())])
        .unwrap();
    drop(kv);
    let refused = crate::open(target).unwrap_err();
    assert!(
        matches!(&refused, StorageError::Corrupt(why) if why.contains("restore")),
        "{refused:?}"
    );
}
