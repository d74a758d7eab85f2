//! A disk whose Nth operation fails: acknowledged writes survive, and answers meanwhile are correct.
//!
//! Every 97th operation here; `STORAGE_OPERATIONS=1` takes each.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::kv_redb::RedbKv;
use super::super::{FORMATS, MvccStore};
use super::faults;
use crate::conformance::Subject;
use crate::{Outcome, RangeRequest, StorageError, Store, Txn};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The disk is gone from then on.
    Gone,
    /// One operation fails, with an error of the device.
    Device,
    /// One operation finds no room.
    Full,
}

#[derive(Debug, Clone)]
pub(super) struct FaultyFile(Arc<Mutex<Faulty>>);

#[derive(Debug)]
struct Faulty {
    data: Vec<u8>,
    left: u64,
    fault: Option<Fault>,
    hit: bool,
}

impl FaultyFile {
    pub(super) fn new(data: Vec<u8>, left: u64, fault: Option<Fault>) -> FaultyFile {
        FaultyFile(Arc::new(Mutex::new(Faulty {
            data,
            left,
            fault,
            hit: false,
        })))
    }

    /// What is in the file, and whether the fault has occurred, which is over now.
    pub(super) fn after_fault(&self) -> (Vec<u8>, bool) {
        let mut inner = self.0.lock();
        inner.fault = None;
        (inner.data.clone(), inner.hit)
    }

    fn with<T>(&self, writes: bool, act: impl FnOnce(&mut Vec<u8>) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        if let Some(fault) = inner.fault
            && (writes || fault != Fault::Full)
        {
            if inner.left == 0 {
                inner.hit = true;
                if fault != Fault::Gone {
                    inner.fault = None;
                }
                return Err(match fault {
                    Fault::Full => io::ErrorKind::StorageFull.into(),
                    Fault::Gone | Fault::Device => io::Error::from_raw_os_error(5),
                });
            }
            inner.left -= 1;
        }
        act(&mut inner.data)
    }
}

impl redb::StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.with(false, |data| Ok(data.len() as u64))
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(false, |data| {
            let from = offset as usize;
            let found = data.get(from..from + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(true, |data| {
            data.resize(len as usize, 0);
            Ok(())
        })
    }
    fn sync_data(&self) -> io::Result<()> {
        self.with(true, |_| Ok(()))
    }
    fn write(&self, offset: u64, written: &[u8]) -> io::Result<()> {
        self.with(true, |data| {
            data[offset as usize..offset as usize + written.len()].copy_from_slice(written);
            Ok(())
        })
    }
}

fn open(file: &FaultyFile) -> Result<Arc<MvccStore>, StorageError> {
    // Little cache, so that reads are operations, too.
    let kv = RedbKv::on(file.clone(), 1 << 12)?;
    MvccStore::start(Box::new(kv), None, faults::options(), FORMATS.map)
}

type State = BTreeMap<String, Option<Bytes>>;

/// The values that each key may hold after a write with an unknown outcome.
type Possible = BTreeMap<String, Vec<Option<Bytes>>>;

pub(super) async fn listed(store: &dyn Store) -> Result<BTreeMap<String, Bytes>, StorageError> {
    let listed = store.range(RangeRequest::default()).await?;
    let pairs = listed.kvs.into_iter().map(|kv| {
        assert_eq!(kv.damage, None);
        (kv.key.to_string(), kv.value)
    });
    Ok(pairs.collect())
}

fn check(found: &BTreeMap<String, Bytes>, possible: &Possible, what: &str) {
    for (key, values) in possible {
        assert!(
            values.contains(&found.get(key).cloned()),
            "{what}: {key} is {:?}",
            found.get(key)
        );
    }
    assert!(found.keys().all(|key| possible.contains_key(key)), "{what}");
}

async fn work(s: &Subject, possible: &mut Possible, what: &str) {
    for n in 0..14u64 {
        let name = format!("k{}", n * 7 % 12);
        let value = (n % 5 != 4).then(|| Bytes::from(vec![n as u8; 5000]));
        let op = match &value {
            Some(value) => s.put(&name, value.clone()),
            None => s.delete(&name),
        };
        let txn = Txn {
            guards: vec![],
            ops: vec![op],
        };
        let values = possible.entry(s.key(&name)).or_insert_with(|| vec![None]);
        match s.store.commit(txn).await {
            Ok(Outcome::Committed(_)) => *values = vec![value],
            Ok(conflict) => panic!("{conflict:?}"),
            Err(StorageError::Uncertain(_)) => values.push(value),
            Err(StorageError::NoSpace(_) | StorageError::Unavailable { .. }) => {}
            Err(error) => panic!("{what}: {error:?}"),
        }
        if n == 7 {
            let newest = s.store.fresh().await.unwrap();
            // It may be refused.
            let _ = s.store.compact(newest).await;
        }
        if n % 4 == 0
            && let Ok(found) = listed(&*s.store).await
        {
            check(&found, possible, what);
        }
    }
}

async fn base() -> (Vec<u8>, State) {
    let file = FaultyFile::new(Vec::new(), 0, None);
    let s = Subject::in_process(open(&file).unwrap());
    let mut state = State::new();
    for n in 0..10u8 {
        let value = Bytes::from(vec![n; 4000]);
        s.write(&format!("k{n}"), value.clone()).await;
        state.insert(s.key(&format!("k{n}")), Some(value));
    }
    s.finish().await;
    let data = file.0.lock().data.clone();
    (data, state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nth_operation_may_fail() {
    let every: usize = std::env::var("STORAGE_OPERATIONS")
        .ok()
        .map_or(97, |text| text.parse().unwrap());
    let (data, state) = base().await;
    for fault in [Fault::Gone, Fault::Device, Fault::Full] {
        let mut hits = 0u64;
        for n in (0..).step_by(every) {
            let what = format!("{fault:?} at operation {n}");
            let file = FaultyFile::new(data.clone(), n, Some(fault));
            let mut possible: Possible = state
                .iter()
                .map(|(key, value)| (key.clone(), vec![value.clone()]))
                .collect();
            if let Ok(store) = open(&file) {
                let s = Subject::in_process(store);
                work(&s, &mut possible, &what).await;
                s.finish().await;
            }
            let (left, hit) = file.after_fault();
            let s = Subject::in_process(
                open(&FaultyFile::new(left, 0, None)).unwrap_or_else(|error| panic!("{what}: {error:?}")),
            );
            check(&listed(&*s.store).await.unwrap(), &possible, &what);
            s.finish().await;
            if !hit {
                break;
            }
            hits += 1;
        }
        assert!(hits * every as u64 > 30, "{fault:?}: {hits}");
        println!("{fault:?}: {hits} operations failed, no acknowledged write lost");
    }
}
