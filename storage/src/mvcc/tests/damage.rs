//! Damaged records: each is an error of its own object, for every reader.

use std::sync::Arc;

use bytes::Bytes;

use super::super::kv::{Kv, Write};
use super::super::kv_memory::MemoryKv;
use super::super::record::{self, Header, Location};
use super::super::{FORMATS, MvccStore};
use super::faults::{self, Disk, Repaired};
use super::{ON_DISK, format_line, options, raw, reopen};
use crate::conformance::{Recorder, Subject};
use crate::{
    EngineKind, Guard, KeyValue, Op, Outcome, RangeRequest, RestoreOptions, Revision, StorageError, Store,
    Txn, drop_lost, restore, scrub,
};

const KEYS: u64 = 80;

/// A store with one value of each kind of length, and one of them overwritten. Gives the revision of `k7`.
async fn filled(s: &Subject) -> Revision {
    let mut seventh = Revision(0);
    for n in 0..KEYS {
        // Some in chunks, some empty.
        let len = [2000, 0, 250_000, 17][n as usize % 4];
        let written = s.write(&format!("k{n}"), vec![n as u8; len]).await;
        if n == 7 {
            seventh = written;
        }
    }
    seventh
}

/// Changes a byte of what is stored under a key that begins with this.
fn damage(kv: &dyn Kv, prefix: &[u8], bytes: &[usize]) {
    let mut hit = None;
    let visit = &mut |key: &[u8], stored: &[u8]| {
        let mut stored = stored.to_vec();
        for at in bytes {
            stored[*at] ^= 0x10;
        }
        hit = Some(Write::Put(key.to_vec(), stored.into()));
        Ok(false)
    };
    kv.reader().unwrap().scan(prefix, &[0xff; 32], visit).unwrap();
    kv.apply(&[hit.unwrap()]).unwrap();
}

fn value_of(at: Revision) -> Vec<u8> {
    [b"v", &at.0.to_be_bytes()[..]].concat()
}

fn header_of(at: Revision) -> Vec<u8> {
    record::header_key(Location { rev: at.0, seq: 0 })
}

#[track_caller]
fn only(s: &Subject, name: &str, at: Revision) {
    let damaged = s.store.damaged();
    let reported: Vec<_> = damaged
        .iter()
        .map(|damage| (damage.key.as_deref().map(str::to_owned), damage.revision))
        .collect();
    assert_eq!(reported, [(Some(s.key(name)), at)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_is_an_error_of_that_value_alone() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let at = filled(&s).await;
        s.finish().await;
        let kv = raw(engine, dir.path());
        damage(&*kv, &value_of(at), &[5]);
        drop(kv);

        // Offline, as at a start, the log shows it.
        let report = scrub(&options(engine, dir.path())).unwrap();
        assert_eq!((report.records, report.damaged.len()), (KEYS, 1));
        assert_eq!(report.damaged[0].key.as_deref(), Some("/registry/k7"));

        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert!(s.store.damaged().is_empty());
        let (found, _) = s.store.get(&s.key("k7"), None).await.unwrap();
        let found = found.unwrap();
        let why = found.readable().unwrap_err().to_string();
        assert_eq!(
            why,
            format!("the value written at revision {at} fails its checksum")
        );
        assert_eq!((&found.value[..], found.mod_revision), (KeyValue::UNREADABLE, at));
        only(&s, "k7", at);

        // Lists, short and long, have all of them.
        for prefix in ["", "k7"] {
            let request = RangeRequest {
                prefix: s.key(prefix),
                ..RangeRequest::default()
            };
            let listed = s.store.range(request).await.unwrap().kvs;
            let bad: Vec<_> = listed.iter().filter(|kv| kv.damage.is_some()).collect();
            assert_eq!(
                bad.iter().map(|kv| s.name(kv)).collect::<Vec<_>>(),
                ["k7"],
                "{prefix}"
            );
            for kv in listed.iter().filter(|kv| kv.damage.is_none()) {
                let n: u64 = s.name(kv)[1..].parse().unwrap();
                assert!(kv.value.iter().all(|byte| *byte == n as u8));
            }
        }
        // A watch from before it goes past it.
        let seen = Recorder::new();
        let watch = s
            .store
            .watch(&s.key(""), Revision(0), seen.clone())
            .await
            .unwrap();
        seen.look(|seen| {
            let bad = seen.events.iter().filter(|event| event.kv.damage.is_some());
            assert_eq!(bad.map(|event| s.name(&event.kv)).collect::<Vec<_>>(), ["k7"]);
            assert_eq!(seen.events.len() as u64, KEYS);
        });
        // A guard reports it, and holds.
        let guards = vec![s.guard("k7", Revision(1))];
        let txn = Txn {
            guards,
            ops: vec![s.delete("k7")],
        };
        let Outcome::Conflict {
            current: Some(current),
            ..
        } = s.store.commit(txn).await.unwrap()
        else {
            panic!("another revision");
        };
        assert!(current.damage.is_some() && current.mod_revision == at);

        // A backup goes around it.
        let backup = dir.path().with_extension("backup");
        let info = s.store.backup(&backup).await.unwrap();
        assert_eq!((info.keys, info.damaged), (KEYS - 1, 1));
        let restored = options(engine, &dir.path().join("restored"));
        restore(&backup, &RestoreOptions::new(restored)).unwrap();
        std::fs::remove_file(&backup).unwrap();

        let report = s.store.scrub(u64::MAX).await.unwrap();
        assert_eq!((report.records, report.damaged.len()), (KEYS, 1));
        assert_eq!(report.half_headers, 0);

        // It can be deleted, and is forgotten when it is swept.
        let gone = s.commit(vec![s.guard("k7", at)], vec![s.delete("k7")]).await;
        seen.look(|seen| {
            let last = seen.events.last().unwrap();
            assert!(last.prev.as_ref().unwrap().damage.is_some());
        });
        drop(watch);
        s.store.compact(gone).await.unwrap();
        s.write("k8", "new").await;
        let request = RangeRequest {
            prefix: s.key(""),
            ..RangeRequest::default()
        };
        let listed = s.store.range(request).await.unwrap();
        assert!(listed.kvs.iter().all(|kv| kv.damage.is_none()));
        s.finish().await;
        assert!(scrub(&options(engine, dir.path())).unwrap().is_clean());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_byte_of_a_header_changes_nothing() {
    let disk = Arc::new(MemoryKv::default());
    let open = || MvccStore::start(Disk::new(&disk, Repaired), None, faults::options(), FORMATS.map);
    let s = Subject::in_process(open().unwrap());
    s.write("k6", "six").await;
    let at = s.write("k7", "seven").await;
    s.write("k8", "eight").await;
    let whole = s.list("", None).await;
    s.finish().await;
    let key = header_of(at);
    let stored = disk.reader().unwrap().get(&key).unwrap().unwrap();
    for byte in 0..stored.len() {
        damage(&*disk, &key, &[byte]);
        let s = Subject::in_process(open().unwrap());
        assert_eq!(s.list("", None).await, whole, "byte {byte}");
        assert!(s.store.damaged().is_empty());
        let report = s.store.scrub(u64::MAX).await.unwrap();
        assert_eq!((report.half_headers, report.damaged.len()), (1, 0));
        s.finish().await;
        disk.apply(&[Write::Put(key.clone(), stored.clone())]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_header_renames_nothing_and_ends_the_past() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let at = filled(&s).await;
        let expected: Vec<_> = s
            .list("", None)
            .await
            .into_iter()
            .filter(|(name, _)| name != "k7")
            .collect();
        s.finish().await;
        let kv = raw(engine, dir.path());
        // In both copies.
        let stored = kv.reader().unwrap().get(&header_of(at)).unwrap().unwrap();
        damage(&*kv, &header_of(at), &[60, stored.len() - 20]);
        drop(kv);

        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert_eq!(s.list("", None).await, expected);
        let damaged = s.store.damaged();
        assert_eq!(damaged.len(), 1);
        assert_eq!((&damaged[0].key, damaged[0].revision), (&None, at));
        assert_eq!(s.store.lost(), damaged);
        // That change cannot be delivered, so no watch resumes from before it.
        let refused = s.store.watch("", Revision(at.0 - 1), Recorder::new()).await;
        assert!(
            matches!(refused, Err(StorageError::Compacted { oldest, .. }) if oldest == at),
            "{refused:?}"
        );
        let seen = Recorder::new();
        let _watch = s.store.watch("", at, seen.clone()).await.unwrap();
        assert!(s.write("k7", "again").await.0 > KEYS);
        s.finish().await;
    }
}

/// Damages both copies of a header, its key among the rest.
fn lose(kv: &dyn Kv, at: Revision) {
    let stored = kv.reader().unwrap().get(&header_of(at)).unwrap().unwrap();
    let key = stored.len() / 2 - 6;
    damage(kv, &header_of(at), &[key, stored.len() - 20]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_change_is_lost_until_it_is_dropped() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let seventh = filled(&s).await;
        let newest = s.write("some-binding", vec![7; 200_000]).await;
        s.finish().await;
        let kv = raw(engine, dir.path());
        for at in [seventh, newest] {
            lose(&*kv, at);
        }
        drop(kv);

        let lost = |store: &dyn Store| -> Vec<_> {
            let lost = store.lost();
            lost.iter().map(|damage| damage.revision).collect()
        };
        for round in 0..3 {
            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            assert_eq!(lost(&*s.store), [seventh, newest], "{round}");
            // Neither is the same key, written again, nor what is compacted.
            let again = s.write("some-binding", "again").await;
            s.store.compact(again).await.unwrap();
            s.write("k0", "swept").await;
            // Forks and backups are without them, too.
            let fork = s.store.freeze().await.unwrap().start();
            assert_eq!(lost(&*fork), [seventh, newest]);
            let backup = dir.path().with_extension("backup");
            let info = s.store.backup(&backup).await.unwrap();
            assert_eq!(info.damaged, 2);
            std::fs::remove_file(&backup).unwrap();
            s.finish().await;
        }
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let (before, revision) = (s.list("", None).await, s.store.fresh().await.unwrap());
        let in_use = drop_lost(&options(engine, dir.path()));
        assert!(matches!(in_use, Err(StorageError::Locked(_))), "{in_use:?}");
        s.finish().await;

        let dropped = drop_lost(&options(engine, dir.path())).unwrap();
        let hints: Vec<_> = dropped.iter().map(ToString::to_string).collect();
        assert!(hints[0].contains("revision 8 is damaged"), "{hints:?}");
        assert!(
            hints[1].ends_with("is damaged, its key may have been `/regis?ry/some-bindi?g`"),
            "{hints:?}"
        );
        assert!(drop_lost(&options(engine, dir.path())).unwrap().is_empty());
        assert!(scrub(&options(engine, dir.path())).unwrap().is_clean());
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert!(s.store.lost().is_empty() && s.store.damaged().is_empty());
        assert_eq!(s.list("", None).await, before);
        assert_eq!(s.store.fresh().await.unwrap(), revision);
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_of_dropped_changes_are_not_given_again() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        s.write("a", "1").await;
        let newest = s.write("b", "2").await;
        s.finish().await;
        lose(&*raw(engine, dir.path()), newest);
        assert_eq!(drop_lost(&options(engine, dir.path())).unwrap().len(), 1);
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let refused = s.store.watch("", Revision(newest.0 - 1), Recorder::new()).await;
        assert!(
            matches!(refused, Err(StorageError::Compacted { .. })),
            "{refused:?}"
        );
        assert_eq!(s.write("b", "3").await, Revision(newest.0 + 1));
        s.finish().await;
    }
    let nothing = drop_lost(&options(
        EngineKind::Redb,
        &tempfile::tempdir().unwrap().path().join("x"),
    ));
    assert!(matches!(nothing, Err(StorageError::Gone(_))), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_change_is_not_lost_and_goes_with_the_past() {
    for engine in ON_DISK {
        for delete in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            s.write("k", "first").await;
            let at = s.write("k", vec![7; 200_000]).await;
            let op = match delete {
                true => s.delete("k"),
                false => s.put("k", "third"),
            };
            s.commit(vec![], vec![op]).await;
            let expected = s.list("", None).await;
            s.finish().await;
            lose(&*raw(engine, dir.path()), at);

            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            assert_eq!(s.list("", None).await, expected);
            assert!(s.store.lost().is_empty());
            only(&s, "k", at);
            let newest = s.write("k", "fourth").await;
            s.store.compact(newest).await.unwrap();
            s.write("other", "swept").await;
            assert!(s.store.damaged().is_empty(), "{:?}", s.store.damaged());
            s.finish().await;
            assert!(scrub(&options(engine, dir.path())).unwrap().is_clean());
            assert!(drop_lost(&options(engine, dir.path())).unwrap().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_comes_later_ends_a_watch_of_the_past_alone() {
    let disk = Arc::new(MemoryKv::default());
    let kv = Disk::new(&disk, Repaired);
    let s = Subject::in_process(MvccStore::start(kv, None, faults::options(), FORMATS.map).unwrap());
    let at = filled(&s).await;
    let stored = disk.reader().unwrap().get(&header_of(at)).unwrap().unwrap();
    damage(&*disk, &header_of(at), &[3, stored.len() / 2 + 3]);
    let refused = s.store.watch("", Revision(2), Recorder::new()).await;
    assert!(
        matches!(refused, Err(StorageError::Compacted { oldest, .. }) if oldest == at),
        "{refused:?}"
    );
    assert!(s.read("k7", None).await.is_some());
    let _watch = s.store.watch("", at, Recorder::new()).await.unwrap();
    assert_eq!(s.store.damaged().len(), 1);
    s.finish().await;
}

/// A store as f8e8d36 wrote it: headers and settings stand alone.
fn version_one(kv: &dyn Kv, keys: u64) {
    let mut batch = vec![
        record::put_u32_v1(record::META_FORMAT, 1),
        record::put_u32_v1(record::META_CHUNK, 96 * 1024),
        record::put_u64_v1(record::META_OLDEST, 1),
    ];
    for n in 1..=keys {
        let at = Location { rev: n, seq: 0 };
        let value = Bytes::from(vec![n as u8; n as usize % 50]);
        let header = Header {
            delete: false,
            time_ms: 1_700_000_000_000 + n,
            create: n,
            prev: None,
            expires_ms: 0,
            len: value.len() as u32,
            crc: crc32fast::hash(&value),
            key: format!("/registry/k{n:05}"),
        };
        record::put_record(&mut batch, at, &header, &value, 96 * 1024);
        for write in &mut batch {
            if let Write::Put(key, stored) = write
                && *key == record::header_key(at)
            {
                *stored = header.encode_v1();
            }
        }
        if batch.len() > 500 {
            kv.apply(&batch).unwrap();
            batch.clear();
        }
    }
    kv.apply(&batch).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_checksums_is_given_them() {
    // More headers than go into one batch of the step.
    const KEYS: u64 = 5000;
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("FORMAT"),
            format!("format 1 engine {}\n", engine.name()),
        )
        .unwrap();
        let kv = raw(engine, dir.path());
        version_one(&*kv, KEYS);
        // One that version 1 could not read either.
        let lost = Location { rev: 9, seq: 0 };
        kv.apply(&[Write::Put(record::header_key(lost), Bytes::from_static(b"\x07"))])
            .unwrap();
        drop(kv);
        for _ in 0..2 {
            let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
            assert_eq!(s.store.fresh().await.unwrap(), Revision(KEYS));
            let listed = s.list("", None).await;
            assert_eq!(listed.len() as u64, KEYS - 1);
            assert_eq!(s.read("k00070", None).await.unwrap().value, vec![70; 20]);
            let damaged = s.store.damaged();
            assert_eq!((damaged.len(), damaged[0].revision), (1, Revision(9)));
            s.finish().await;
            for name in ["FORMAT", "FORMAT.copy"] {
                let line = std::fs::read_to_string(dir.path().join(name)).unwrap();
                assert_eq!(line, format_line(&format!("format 2 engine {}", engine.name())));
            }
        }
        let kv = raw(engine, dir.path());
        let reader = kv.reader().unwrap();
        assert_eq!(record::read_u32(&*reader, record::META_FORMAT).unwrap(), Some(2));
        let place = Location { rev: 70, seq: 0 };
        let header = reader.get(&record::header_key(place)).unwrap().unwrap();
        assert_eq!(Header::decode_at(place, &header).unwrap().key, "/registry/k00070");
        assert_eq!(Header::decode_at(lost, &header), None);
    }
}

#[tokio::test]
async fn settings_survive_a_damaged_byte() {
    for setting in [
        record::META_FORMAT,
        record::META_CHUNK,
        record::META_OLDEST,
        record::META_REVISION,
    ] {
        let disk = Arc::new(MemoryKv::default());
        disk.apply(&[
            record::put_u32(record::META_FORMAT, 2),
            record::put_u32(record::META_CHUNK, 77),
            record::put_u64(record::META_OLDEST, 5),
            record::put_u64(record::META_REVISION, 9),
        ])
        .unwrap();
        let open = || MvccStore::start(Disk::new(&disk, Repaired), None, faults::options(), FORMATS.map);
        let whole = disk.reader().unwrap().get(setting).unwrap().unwrap();
        for byte in 0..whole.len() {
            damage(&*disk, setting, &[byte]);
            let store = open().unwrap();
            let status = store.status().await.unwrap();
            assert_eq!((status.oldest, status.revision), (Revision(5), Revision(9)));
            assert_eq!(store.shared.chunk_len, 77);
            disk.apply(&[Write::Put(setting.to_vec(), whole.clone())])
                .unwrap();
        }
        damage(&*disk, setting, &[0, whole.len() - 1]);
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("is damaged"), "{refused}");
    }
    // And they are not recreated for a log that is there.
    let disk = Arc::new(MemoryKv::default());
    version_one(&*disk, 3);
    disk.apply(&[Write::Delete(record::META_FORMAT.to_vec())])
        .unwrap();
    let refused = MvccStore::start(Disk::new(&disk, Repaired), None, faults::options(), FORMATS.map);
    assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_takes_its_time_beside_writes() {
    let dir = tempfile::tempdir().unwrap();
    let s = Subject::in_process(reopen(EngineKind::Redb, dir.path()).unwrap());
    filled(&s).await;
    let writing = async {
        for n in 0..200u64 {
            let op = Op::Put {
                key: s.key("k0"),
                value: vec![n as u8; 3000].into(),
                ttl: None,
            };
            let guards: Vec<Guard> = vec![];
            s.commit(guards, vec![op]).await;
            if n % 20 == 0 {
                let newest = s.store.fresh().await.unwrap();
                s.store.compact(newest).await.unwrap();
            }
        }
    };
    let (report, ()) = tokio::join!(s.store.scrub(200 << 20), writing);
    assert!(report.unwrap().is_clean());
    s.finish().await;
}
