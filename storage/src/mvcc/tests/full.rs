//! Disks without room: the operations that still work, and the return of writes.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use test_tools::eventually;

use super::super::MvccStore;
use super::super::kv::{Kv, Write};
use super::super::kv_memory::MemoryKv;
use super::super::kv_redb::{RedbKv, Reserve};
use super::super::record;
use super::directory::filled;
use super::faults::{self, Between, Disk};
use super::options;
use crate::conformance::{DEADLINE, Subject};
use crate::{EngineKind, OpenOptions, Outcome, RangeRequest, StorageError, Txn};

#[tokio::test]
async fn a_full_disk_refuses_writes_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    filled(EngineKind::Redb, dir.path()).await;
    let full = OpenOptions {
        min_free_bytes: u64::MAX,
        ..options(EngineKind::Redb, dir.path())
    };
    let s = Subject::in_process(crate::open(full).unwrap());
    let put = Txn {
        guards: vec![],
        ops: vec![s.put("more", "x")],
    };
    let refused = s.store.commit(put).await;
    assert!(
        matches!(&refused, Err(StorageError::NoSpace(why)) if why.contains("kept in reserve")),
        "{refused:?}"
    );
    assert_eq!(s.list("k", None).await.len(), 200);
    // Deletions are allowed.
    let delete = Txn {
        guards: vec![],
        ops: vec![s.delete("k0")],
    };
    assert!(matches!(s.store.commit(delete).await, Ok(Outcome::Committed(_))));
    assert_eq!(s.list("k", None).await.len(), 199);
    s.finish().await;
}

const BLOCK: u64 = 4096;

/// A file on a disk of few blocks.
#[derive(Debug, Clone, Default)]
struct SmallDisk(Arc<Mutex<Blocks>>);

#[derive(Debug, Default)]
struct Blocks {
    data: Vec<u8>,
    taken: BTreeSet<u64>,
    left: u64,
}

impl SmallDisk {
    fn leave(&self, blocks: u64) {
        self.0.lock().left = blocks;
    }
}

const ASIDE: u64 = 64;

/// Blocks of it that are set aside.
struct SetAside(SmallDisk, AtomicBool);

impl Reserve for SetAside {
    fn keep(&self) {}
    fn release(&self) -> bool {
        let first = !self.1.swap(true, Ordering::Relaxed);
        self.0.0.lock().left += if first { ASIDE } else { 0 };
        first
    }
}

impl redb::StorageBackend for SmallDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().data.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        let inner = self.0.lock();
        let found = inner.data.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().data.resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock();
        for block in offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK) {
            if !inner.taken.contains(&block) {
                inner.left = inner.left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
                inner.taken.insert(block);
            }
        }
        inner.data[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn put(s: &Subject, name: &str) -> Txn {
    Txn {
        guards: vec![],
        ops: vec![s.put(name, vec![7; 3000])],
    }
}

/// Writes once there is room: deleted values are swept in the background.
async fn written_in_time(s: &Subject, name: &str) {
    eventually("that there is room", || async {
        s.store.commit(put(s, name)).await.ok()
    })
    .await;
}

/// Writes until there is no room. Gives the names that were written.
async fn fill_up(s: &Subject) -> Vec<String> {
    let mut written = Vec::new();
    for n in 0.. {
        let name = format!("k{n}");
        match s.store.commit(put(s, &name)).await {
            Ok(_) => written.push(name),
            Err(StorageError::NoSpace(_)) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_goes_on_where_there_was_no_room_for_a_write() {
    let disk = SmallDisk::default();
    disk.leave(400);
    let kv = RedbKv::on(disk.clone(), 1 << 20).unwrap();
    let s = Subject::in_process(MvccStore::start(Box::new(kv), None, faults::options(), &[]).unwrap());
    let written = fill_up(&s).await;
    assert!(written.len() > 50);
    for _ in 0..3 {
        // Nothing happened, and everything else goes on.
        let refused = s.store.commit(put(&s, "more")).await;
        assert!(matches!(refused, Err(StorageError::NoSpace(_))), "{refused:?}");
        assert_eq!(s.list("", None).await.len(), written.len());
        assert!(s.store.status().await.is_ok());
    }
    // Space freed by others is used at once.
    disk.leave(100);
    s.write("more", "x").await;
    s.finish().await;
    let kv = RedbKv::on(disk, 1 << 20).unwrap();
    let s = Subject::in_process(MvccStore::start(Box::new(kv), None, faults::options(), &[]).unwrap());
    assert_eq!(s.list("", None).await.len(), written.len() + 1);
    s.finish().await;
}

/// A value that is damaged where the disk is full: the store is reopened in place all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_does_not_end_a_store_without_room() {
    let disk = SmallDisk::default();
    disk.leave(400);
    let kv = RedbKv::on(disk.clone(), 1 << 20).unwrap();
    let s = Subject::in_process(MvccStore::start(Box::new(kv), None, faults::options(), &[]).unwrap());
    s.write("damaged", vec![0xd3; 3000]).await;
    let written = fill_up(&s).await;
    super::mended::damage_value(&mut disk.0.lock().data, 0xd3);
    for _ in 0..3 {
        let refused = s.store.commit(put(&s, "more")).await;
        assert!(matches!(refused, Err(StorageError::NoSpace(_))), "{refused:?}");
        let listed = s.store.range(RangeRequest::default()).await.unwrap().kvs;
        assert_eq!(listed.len(), written.len() + 1);
        let bad: Vec<_> = listed.iter().filter(|kv| kv.damage.is_some()).collect();
        assert_eq!(bad.iter().map(|kv| s.name(kv)).collect::<Vec<_>>(), ["damaged"]);
    }
    disk.leave(100);
    s.remove("damaged").await;
    s.write("more", "x").await;
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_deletes_with_no_block_left() {
    let disk = SmallDisk::default();
    disk.leave(400);
    let aside = SetAside(disk.clone(), AtomicBool::new(false));
    let kv = RedbKv::on(disk.clone(), 1 << 20).unwrap().reserving(aside);
    let s = Subject::in_process(MvccStore::start(Box::new(kv), None, faults::options(), &[]).unwrap());
    let written = fill_up(&s).await;
    disk.leave(0);
    for name in &written {
        s.remove(name).await;
    }
    let newest = s.store.fresh().await.unwrap();
    s.store.compact(newest).await.unwrap();
    // A little room is enough for writes to go on into what was deleted.
    disk.leave(100);
    for name in &written[..written.len() / 4] {
        written_in_time(&s, name).await;
    }
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_free_room_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let roomy = options(EngineKind::Redb, dir.path());
    let s = Subject::in_process(crate::open(roomy.clone()).unwrap());
    for n in 0..60 {
        s.write(&format!("k{n}"), vec![n; 200_000]).await;
    }
    s.finish().await;
    // No disk has as much left as is asked for here.
    let full = OpenOptions {
        min_free_bytes: u64::MAX,
        ..roomy
    };
    let s = Subject::in_process(crate::open(full).unwrap());
    let names: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    for name in &names {
        s.remove(name).await;
    }
    // The retention does not count: history is dropped first.
    written_in_time(&s, "again").await;
    s.finish().await;
}

/// An engine that cannot be closed, as sled when it cannot write.
#[derive(Debug)]
struct Stuck(Arc<AtomicBool>);

impl Between for Stuck {
    fn apply(&self, _: &MemoryKv, batch: &[Write]) -> Result<(), StorageError> {
        match batch
            .iter()
            .any(|write| matches!(write, Write::Put(key, _) if key[0] == b'h'))
        {
            true => Err(StorageError::NoSpace("the disk is full".into())),
            false => Ok(()),
        }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        while !self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_engine_that_does_not_close_is_given_up() {
    let ends = Arc::new(AtomicBool::new(false));
    let disk: Arc<MemoryKv> = Arc::default();
    disk.apply(&[
        record::put_u32(record::META_FORMAT, 1),
        record::put_u32(record::META_CHUNK, 100),
    ])
    .unwrap();
    let kv = Disk::new(&disk, Stuck(ends.clone()));
    let s = Subject::in_process(MvccStore::start(kv, None, faults::options(), &[]).unwrap());
    let failed = s.store.commit(put(&s, "a")).await;
    assert!(matches!(failed, Err(StorageError::Uncertain(_))), "{failed:?}");
    tokio::time::timeout(DEADLINE, s.finish())
        .await
        .expect("it stops");
    ends.store(true, Ordering::Relaxed);
}
