//! Damage of a redb file that was not closed: the store opens at the newest state that was acknowledged, and names what it lost.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use super::super::kv::Kv;
use super::super::kv_redb::RedbKv;
use super::super::{FORMATS, MvccStore};
use super::operations::{Fault, FaultyFile, listed};
use super::{faults, options, reopen};
use crate::conformance::Subject;
use crate::{EngineKind, OpenOptions, RangeRequest, Revision, StorageError, Store, scrub};

const PAGE: usize = 4096;
const KEYS: u8 = 60;
/// Larger than a page.
const LARGE: u8 = 33;

fn start(kv: RedbKv) -> Result<Arc<MvccStore>, StorageError> {
    MvccStore::start(Box::new(kv), None, faults::options(), FORMATS.map)
}

fn open(data: &[u8], acknowledged: Revision) -> Result<Arc<MvccStore>, StorageError> {
    let file = FaultyFile::new(data.to_vec(), 0, None);
    start(RedbKv::on_with(file, 1 << 20, acknowledged.0)?)
}

/// The value of a key: bytes that are its own.
fn value(n: u8) -> Bytes {
    let len = if n == LARGE { 50_000 } else { 700 };
    vec![0x80 + n; len].into()
}

/// A file as a process leaves it that is killed after lone writes, the last of which are acknowledged: the state, and its revision.
async fn crashed() -> (Vec<u8>, BTreeMap<String, Bytes>, Revision) {
    let file = FaultyFile::new(Vec::new(), 0, None);
    let s = Subject::in_process(start(RedbKv::on(file.clone(), 1 << 20).unwrap()).unwrap());
    let mut state = BTreeMap::new();
    let mut newest = Revision(0);
    for n in 0..KEYS {
        newest = s.write(&format!("k{n:02}"), value(n)).await;
        state.insert(s.key(&format!("k{n:02}")), value(n));
    }
    let (data, _) = file.after_fault();
    s.finish().await;
    (data, state, newest)
}

/// Changes bytes of the value that consists of this one, more of them than can be found by trying.
pub(super) fn damage_value(data: &mut [u8], byte: u8) {
    let runs = data.windows(64).enumerate();
    let places: Vec<usize> = runs
        .filter(|(_, run)| run.iter().all(|found| *found == byte))
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty());
    // Copies of before are there, too.
    for at in places {
        for n in [3, 5, 11, 30] {
            data[at + n] = 0x55;
        }
    }
}

/// The keys that cannot be read, where all others are as they were written.
async fn unreadable(store: &dyn Store, state: &BTreeMap<String, Bytes>) -> Vec<String> {
    let all = store.range(RangeRequest::default()).await.unwrap().kvs;
    assert!(all.iter().map(|kv| &*kv.key).eq(state.keys().map(String::as_str)));
    let mut bad = Vec::new();
    for kv in all {
        match kv.damage {
            Some(_) => bad.push(kv.key.to_string()),
            None => assert_eq!(kv.value, state[&*kv.key], "{}", kv.key),
        }
    }
    bad
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_byte_is_put_right_wherever_it_is() {
    let (data, state, newest) = crashed().await;
    let used: Vec<usize> = (0..data.len() / PAGE)
        .filter(|page| matches!(data[page * PAGE], 1 | 2))
        .collect();
    let mut random = super::model::Random(7);
    // The commit slots, heads of pages, and anywhere.
    let slots = (64..320).step_by(7);
    let heads = used.iter().step_by(5).map(|page| page * PAGE + 2 + page % 40);
    let anywhere = (0..60).map(|_| {
        let page = used[random.below(used.len() as u64) as usize];
        page * PAGE + random.below(PAGE as u64) as usize
    });
    for at in slots.chain(heads).chain(anywhere) {
        let mut damaged = data.clone();
        damaged[at] ^= 1 << (at % 8);
        let store = open(&damaged, newest).unwrap_or_else(|error| panic!("byte {at}: {error:?}"));
        assert_eq!(store.status().await.unwrap().revision, newest, "byte {at}");
        let bad = unreadable(&*store, &state).await;
        assert!(
            bad.is_empty() || bad == [format!("/registry/k{LARGE}")],
            "byte {at}: {bad:?}"
        );
        store.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wider_damage_of_a_value_is_named() {
    let (data, state, newest) = crashed().await;
    // In pages that both commits share, and in those of the last one alone.
    for n in [0, 17, LARGE, KEYS - 1] {
        let mut damaged = data.clone();
        damage_value(&mut damaged, 0x80 + n);
        let file = FaultyFile::new(damaged, 0, None);
        for _ in 0..2 {
            let kv = RedbKv::on_with(file.clone(), 1 << 20, newest.0).unwrap();
            let s = Subject::in_process(start(kv).unwrap());
            assert_eq!(
                unreadable(&*s.store, &state).await,
                [format!("/registry/k{n:02}")]
            );
            s.finish().await;
        }
        // Writes go on, and the object can be written again.
        let kv = RedbKv::on_with(file.clone(), 1 << 20, newest.0).unwrap();
        let s = Subject::in_process(start(kv).unwrap());
        s.write(&format!("k{n:02}"), value(n)).await;
        s.write("k00", value(0)).await;
        assert_eq!(unreadable(&*s.store, &state).await, [""; 0]);
        s.finish().await;
    }
}

/// A commit that is damaged and was not acknowledged is taken back, as one that a crash tore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unacknowledged_commit_may_be_torn() {
    let (mut data, mut state, newest) = crashed().await;
    damage_value(&mut data, 0x80 + KEYS - 1);
    let before = Revision(newest.0 - 1);
    let store = open(&data, before).unwrap();
    assert_eq!(store.status().await.unwrap().revision, before);
    state.pop_last();
    assert_eq!(listed(&*store).await.unwrap(), state);
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_amid_mending_leaves_it_to_the_next_start() {
    let (data, state, newest) = crashed().await;
    let mut wide = data.clone();
    damage_value(&mut wide, 0x80 + LARGE);
    let mut slot = data.clone();
    slot[64 + 20] ^= 4;
    slot[192 + 20] ^= 4;
    for damaged in [wide, slot] {
        // Only writes count, and the first one that fails ends it.
        for left in 0.. {
            let file = FaultyFile::new(damaged.clone(), left, Some(Fault::Full));
            let opened = RedbKv::on_with(file.clone(), 1 << 20, newest.0);
            let (data, hit) = file.after_fault();
            if !hit {
                assert!(opened.is_ok() && left > 3, "{left} writes");
                break;
            }
            drop(opened);
            let store = open(&data, newest).unwrap_or_else(|error| panic!("write {left}: {error:?}"));
            let bad = unreadable(&*store, &state).await;
            assert!(bad.len() <= 1, "write {left}: {bad:?}");
            store.shutdown().await;
        }
    }
}

/// The header and the commit slots, of a store that was killed and of one that was closed: a bit of each byte, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_bit_in_the_head_is_put_right() {
    let (crashed, state, newest) = crashed().await;
    let file = FaultyFile::new(crashed.clone(), 0, None);
    start(RedbKv::on(file.clone(), 1 << 20).unwrap())
        .unwrap()
        .shutdown()
        .await;
    let closed = file.after_fault().0;
    for (name, data) in [("crashed", crashed), ("closed", closed)] {
        for bit in (0..320 * 8).step_by(7) {
            let mut damaged = data.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let dir = directory_of(&damaged, Some(newest.0));
            let store = reopen(EngineKind::Redb, dir.path())
                .unwrap_or_else(|error| panic!("{name}, bit {} of byte {}: {error:?}", bit % 8, bit / 8));
            assert_eq!(listed(&*store).await.unwrap(), state, "{name}, byte {}", bit / 8);
            store.shutdown().await;
        }
    }
}

/// A sector or a page that is gone takes the values that were in it, by name. Pages that lead to others and the log's headers are
/// refused, with nothing changed, but in the newest commit where an older one has what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_page_takes_the_values_in_it() {
    let (data, state, newest) = crashed().await;
    let used = (0..data.len() / PAGE).filter(|page| matches!(data[page * PAGE], 1 | 2));
    let (mut emptied, mut refused) = (0, 0);
    for page in used.step_by(2).map(|page| page * PAGE..(page + 1) * PAGE) {
        for lost in [
            page.clone(),
            page.start..page.start + 512,
            page.end - 512..page.end,
        ] {
            let mut damaged = data.clone();
            damaged[lost.clone()].fill(0);
            let file = FaultyFile::new(damaged.clone(), 0, None);
            let kv = match RedbKv::on_with(file.clone(), 1 << 20, newest.0) {
                Ok(kv) => kv,
                Err(StorageError::Corrupt(_)) => {
                    assert!(file.after_fault().0[PAGE..] == damaged[PAGE..], "{lost:?}");
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{lost:?}: {error:?}"),
            };
            let s = Subject::in_process(start(kv).unwrap());
            assert_eq!(s.store.status().await.unwrap().revision, newest, "{lost:?}");
            let bad = unreadable(&*s.store, &state).await;
            assert!(bad.len() <= 6, "{lost:?}: {bad:?}");
            emptied += usize::from(bad.len() > 2);
            // They can be written again, and the store is whole then.
            for key in &bad {
                let name = key.strip_prefix("/registry/").unwrap();
                s.write(name, state[key].clone()).await;
            }
            let newest = Revision(s.store.status().await.unwrap().revision.0);
            s.store.compact(newest).await.unwrap();
            s.finish().await;
            let kv = RedbKv::on_with(file, 1 << 20, newest.0).unwrap();
            let store = start(kv).unwrap();
            assert_eq!(listed(&*store).await.unwrap(), state, "{lost:?}");
            store.shutdown().await;
        }
    }
    assert!(
        emptied > 5 && refused < 40,
        "{emptied} emptied, {refused} refused"
    );
}

/// A page that another was written over is not taken for the one of its place: its values are lost, by name, and where it said which
/// objects there are the file is refused, with nothing changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_in_place_of_another_is_known() {
    let (crashed, state, newest) = crashed().await;
    let file = FaultyFile::new(crashed.clone(), 0, None);
    start(RedbKv::on(file.clone(), 1 << 20).unwrap())
        .unwrap()
        .shutdown()
        .await;
    let closed = file.after_fault().0;
    let (mut refused, mut named) = (0, 0);
    for (name, data) in [("crashed", crashed), ("closed", closed)] {
        let used: Vec<usize> = (0..data.len() / PAGE)
            .filter(|page| matches!(data[page * PAGE], 1 | 2))
            .collect();
        for (n, page) in used.iter().enumerate() {
            let other = used[(n * 7 + 3) % used.len()];
            let mut damaged = data.clone();
            damaged.copy_within(other * PAGE..(other + 1) * PAGE, page * PAGE);
            let file = FaultyFile::new(damaged.clone(), 0, None);
            let kv = match RedbKv::on_with(file.clone(), 1 << 20, newest.0) {
                Ok(kv) => kv,
                Err(StorageError::Corrupt(_)) => {
                    assert!(
                        file.after_fault().0[PAGE..] == damaged[PAGE..],
                        "{name}: {other} over {page}"
                    );
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{name}: {other} over {page}: {error:?}"),
            };
            let s = Subject::in_process(start(kv).unwrap());
            assert_eq!(
                s.store.status().await.unwrap().revision,
                newest,
                "{other} over {page}"
            );
            let bad = unreadable(&*s.store, &state).await;
            assert!(bad.len() <= 6, "{name}: {other} over {page}: {bad:?}");
            named += usize::from(!bad.is_empty());
            s.finish().await;
        }
    }
    assert!(refused > 3 && named > 3, "{refused} refused, {named} named");
}

/// What leads to most of the store and cannot be put right is refused, and nothing is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_is_too_wide_is_refused() {
    let (mut data, _, newest) = crashed().await;
    let pages: Vec<usize> = (0..data.len() / PAGE)
        .filter(|page| matches!(data[page * PAGE], 1 | 2))
        .collect();
    for page in pages {
        data[page * PAGE..page * PAGE + 512].fill(0x77);
    }
    let file = FaultyFile::new(data.clone(), 0, None);
    for _ in 0..2 {
        let refused = RedbKv::on_with(file.clone(), 1 << 20, newest.0).map(drop);
        assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
    }
    assert!(file.after_fault().0[PAGE..] == data[PAGE..]);
}

/// A branch whose keys are gone leads writes astray, also where all links in it are sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_without_its_keys_is_refused() {
    let (data, _, newest) = crashed().await;
    let branches: Vec<usize> = (0..data.len() / PAGE)
        .filter(|page| data[page * PAGE] == 2)
        .collect();
    let mut refused = 0;
    for page in branches {
        let mut damaged = data.clone();
        let bytes = &mut damaged[page * PAGE..(page + 1) * PAGE];
        let keys = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        // Behind the checksums, the links and the ends of the keys.
        let begin = 8 + 24 * (keys + 1) + 4 * keys;
        if begin + 8 > PAGE || bytes[begin..begin + 8].iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[begin..].fill(0);
        let file = FaultyFile::new(damaged, 0, None);
        let before = file.after_fault().0;
        match RedbKv::on_with(file.clone(), 1 << 20, newest.0).map(drop) {
            Err(StorageError::Corrupt(_)) => {
                refused += 1;
                assert!(file.after_fault().0 == before, "nothing is written");
            }
            // One that no commit uses any more.
            opened => opened.unwrap(),
        }
    }
    assert!(refused > 0);
}

/// A data directory with this file and this mark.
fn directory_of(data: &[u8], mark: Option<u64>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.redb"), data).unwrap();
    if let Some(mark) = mark {
        let line = format!("revision {mark}");
        let sum = crc32fast::hash(line.as_bytes());
        std::fs::write(dir.path().join("REVISION"), format!("{line} sum {sum:08x}\n")).unwrap();
    }
    dir
}

/// A wrong byte in a page of the newest commit alone is put right, for a mark of any age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_mark_does_not_take_a_commit_back() {
    let (data, state, newest) = crashed().await;
    let value = 0x80 + KEYS - 1;
    let mut damaged = data.clone();
    // One byte of each copy.
    for at in 1..data.len() - 600 {
        if data[at - 1] != value && data[at..at + 600].iter().all(|found| *found == value) {
            damaged[at + 5] ^= 4;
        }
    }
    assert_ne!(damaged, data);
    for mark in [0, newest.0 - 1, newest.0] {
        let store = open(&damaged, Revision(mark)).unwrap();
        assert_eq!(store.status().await.unwrap().revision, newest, "mark {mark}");
        assert_eq!(listed(&*store).await.unwrap(), state, "mark {mark}");
        store.shutdown().await;
    }
    for mark in [None, Some(newest.0 - 1)] {
        let dir = directory_of(&damaged, mark);
        let store = reopen(EngineKind::Redb, dir.path()).unwrap();
        assert_eq!(listed(&*store).await.unwrap(), state, "mark {mark:?}");
        store.shutdown().await;
    }
}

/// Where an empty store is allowed, too, the state that was acknowledged comes first, and an older one where it cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_store_is_allowed_and_the_last_write_kept() {
    let (data, mut state, newest) = crashed().await;
    let mut damaged = data.clone();
    damage_value(&mut damaged, 0x80 + KEYS - 1);
    let allowed = |dir: &tempfile::TempDir| OpenOptions {
        allow_empty: true,
        ..options(EngineKind::Redb, dir.path())
    };
    let dir = directory_of(&damaged, Some(newest.0));
    let store = crate::open(allowed(&dir)).unwrap();
    assert_eq!(store.status().await.unwrap().revision, newest);
    let last = format!("/registry/k{:02}", KEYS - 1);
    assert_eq!(unreadable(&*store, &state).await, [last]);
    store.shutdown().await;

    let dir = directory_of(&damaged, Some(newest.0 + 1));
    let refused = reopen(EngineKind::Redb, dir.path()).map(drop);
    assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
    assert_eq!(
        std::fs::read(dir.path().join("store.redb")).unwrap()[..PAGE],
        damaged[..PAGE]
    );
    let store = crate::open(allowed(&dir)).unwrap();
    assert!(store.status().await.unwrap().revision > newest);
    state.pop_last();
    assert_eq!(listed(&*store).await.unwrap(), state);
    store.shutdown().await;
}

/// Two damaged values, of which the older commit has one: it has less damage, and not what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn less_damage_does_not_outweigh_what_was_acknowledged() {
    let (data, state, newest) = crashed().await;
    for shared in [0, 17, LARGE] {
        let mut damaged = data.clone();
        damage_value(&mut damaged, 0x80 + shared);
        damage_value(&mut damaged, 0x80 + KEYS - 1);
        let names = [shared, KEYS - 1].map(|n| format!("/registry/k{n:02}"));
        let store = open(&damaged, newest).unwrap();
        assert_eq!(store.status().await.unwrap().revision, newest);
        assert_eq!(unreadable(&*store, &state).await, names);
        store.shutdown().await;
        // No commit has this: nothing is written.
        let file = FaultyFile::new(damaged, 0, None);
        let before = file.after_fault().0;
        let refused = RedbKv::on_with(file.clone(), 1 << 20, newest.0 + 1).map(drop);
        assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
        assert!(file.after_fault().0[PAGE..] == before[PAGE..]);
        let store = start(RedbKv::on_with(file, 1 << 20, newest.0).unwrap()).unwrap();
        assert_eq!(unreadable(&*store, &state).await, names);
        store.shutdown().await;
    }
}

/// redb looks at no page of a file that was closed. Those of a small one are put right as it is opened; of a large one those that lead to values
/// are: lists, searches and writes go by them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_put_right_as_a_closed_store_opens() {
    let (data, state, newest) = crashed().await;
    let file = FaultyFile::new(data, 0, None);
    start(RedbKv::on(file.clone(), 1 << 20).unwrap())
        .unwrap()
        .shutdown()
        .await;
    let closed = file.after_fault().0;
    let used = (0..closed.len() / PAGE).filter(|page| matches!(closed[page * PAGE], 1 | 2));
    let places = used.flat_map(|page| [0, 2, 4, 9, 30, 200].map(|byte| (page, byte)));
    let mut mended = [0, 0];
    for (n, (page, byte)) in places.enumerate() {
        let is_large = n % 2;
        let name = format!("page {page}, byte {byte}, large: {is_large}");
        let mut damaged = closed.clone();
        damaged[page * PAGE + byte] ^= 0x10;
        let file = FaultyFile::new(damaged, 0, None);
        let verified = if is_large == 1 { 0 } else { u64::MAX };
        let open = || RedbKv::on_verified(file.clone(), 1 << 20, verified, 0);
        let mut kv = open().unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let is_mended = kv
            .verify()
            .is_err_and(|error| error.to_string().contains("put right"));
        mended[is_large] += usize::from(is_mended);
        let s = Subject::in_process(start(kv).unwrap_or_else(|error| panic!("{name}: {error:?}")));
        assert_eq!(s.store.status().await.unwrap().revision, newest, "{name}");
        let bad = unreadable(&*s.store, &state).await;
        if closed[page * PAGE] == 1 && is_large == 1 && !is_mended {
            // A leaf of values, which says itself what is damaged, or one that no commit uses any more.
            s.finish().await;
            continue;
        }
        // One value is on pages of its own, which are too large to try all bytes of.
        assert!(
            bad.is_empty() || bad == [format!("/registry/k{LARGE}")],
            "{name}: {bad:?}"
        );
        // Nothing is written where it does not belong.
        let mut after = state.clone();
        for n in 0..3 {
            s.write(&format!("k{n:02}"), value(n)).await;
            s.write(&format!("l{n:02}"), value(n)).await;
            after.insert(s.key(&format!("l{n:02}")), value(n));
        }
        s.finish().await;
        let store = start(open().unwrap()).unwrap();
        assert_eq!(unreadable(&*store, &after).await, bad, "{name}");
        store.shutdown().await;
    }
    assert!(mended[1] > 0 && mended[1] < mended[0], "{mended:?}");
}

/// A scrub names what a start would be left with after mending, and leaves the file as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_mends_nothing() {
    let (crashed, state, _) = crashed().await;
    let file = FaultyFile::new(crashed.clone(), 0, None);
    let store = start(RedbKv::on(file.clone(), 1 << 20).unwrap()).unwrap();
    store.shutdown().await;
    let closed = file.after_fault().0;
    for (name, data) in [("crashed", crashed), ("closed", closed)] {
        let dir = directory_of(&data, None);
        let clean = scrub(&options(EngineKind::Redb, dir.path())).unwrap();
        assert!(clean.is_clean(), "{name}: {clean:?}");
        assert_eq!(clean.records, u64::from(KEYS), "{name}");

        let mut damaged = data.clone();
        damage_value(&mut damaged, 0x80 + 17);
        // The head of a leaf: a start puts it right, a reader sees fewer records.
        let leaf = (0..damaged.len() / PAGE)
            .rfind(|page| damaged[page * PAGE] == 1)
            .unwrap();
        damaged[leaf * PAGE + 2] ^= 1;
        let dir = directory_of(&damaged, None);
        let report = scrub(&options(EngineKind::Redb, dir.path())).unwrap();
        let keys: Vec<_> = report
            .damaged
            .iter()
            .map(|damage| damage.key.as_deref())
            .collect();
        assert_eq!(keys, [Some("/registry/k17")], "{name}");
        let engine = report.engine.unwrap_or_default();
        assert!(engine.contains("checksums"), "{name}: {engine}");
        let after = std::fs::read(dir.path().join("store.redb")).unwrap();
        assert!(after == damaged, "{name}: nothing is written");

        let store = reopen(EngineKind::Redb, dir.path()).unwrap();
        assert_eq!(unreadable(&*store, &state).await, ["/registry/k17"], "{name}");
        store.shutdown().await;
    }
}

/// Wrong bytes that a large store meets while it runs are put right by the start after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_after_damage_was_met_mends_it() {
    let (data, state, newest) = crashed().await;
    let file = FaultyFile::new(data, 0, None);
    let store = start(RedbKv::on(file.clone(), 1 << 20).unwrap()).unwrap();
    store.shutdown().await;
    let mut damaged = file.after_fault().0;
    let value = vec![0x80 + 17; 64];
    let at = damaged.windows(64).position(|run| run == value).unwrap();
    damaged[at + 40] ^= 2;
    damage_value(&mut damaged, 0x80 + 30);
    let dir = directory_of(&damaged, Some(newest.0));
    let large = OpenOptions {
        verified_bytes: 0,
        ..options(EngineKind::Redb, dir.path())
    };
    for bad in [
        &["/registry/k17", "/registry/k30"][..],
        &["/registry/k30"],
        &["/registry/k30"],
    ] {
        let store = crate::open(large.clone()).unwrap();
        assert_eq!(unreadable(&*store, &state).await, bad);
        assert!(!dir.path().join("DAMAGED").exists());
        store.shutdown().await;
        assert!(dir.path().join("DAMAGED").exists());
    }
}

/// What a running store has in its cache says nothing of the disk: a scrub beside the traffic reads that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_of_a_running_store_reads_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let s = Subject::in_process(reopen(EngineKind::Redb, dir.path()).unwrap());
    for n in 0..KEYS {
        s.write(&format!("k{n:02}"), value(n)).await;
    }
    let report = s.store.scrub(u64::MAX).await.unwrap();
    assert!(
        report.is_clean() && report.records == u64::from(KEYS),
        "{report:?}"
    );

    let path = dir.path().join("store.redb");
    let data = std::fs::read(&path).unwrap();
    let mut damaged = data.clone();
    damage_value(&mut damaged, 0x80 + 17);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&damaged, 0).unwrap();
    let report = s.store.scrub(u64::MAX).await.unwrap();
    let keys: Vec<_> = report
        .damaged
        .iter()
        .map(|damage| damage.key.as_deref())
        .collect();
    assert_eq!(keys, [Some("/registry/k17")]);
    let engine = report.engine.as_deref().unwrap_or_default();
    assert!(engine.contains("checksums"), "{engine}");

    // A page that leads to others is gone: what the cache has of it is read, and the file is named.
    let mut damaged = data.clone();
    let branches = (0..data.len() / PAGE).filter(|page| data[page * PAGE] == 2);
    for page in branches {
        damaged[page * PAGE..(page + 1) * PAGE].fill(0);
    }
    file.write_all_at(&damaged, 0).unwrap();
    let report = s.store.scrub(u64::MAX).await.unwrap();
    assert_eq!(report.records, u64::from(KEYS));
    let engine = report.engine.unwrap_or_default();
    assert!(engine.contains("cannot be read"), "{engine}");

    file.write_all_at(&data, 0).unwrap();
    let report = s.store.scrub(u64::MAX).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    s.finish().await;
}
