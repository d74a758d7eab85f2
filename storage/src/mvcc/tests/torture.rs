//! Flipped bytes, anywhere in what a store has on disk: a clear refusal, or no more than an object.
//!
//! Each flip is tried in a process of its own kind, which is the test binary again: engines that meet damage may do worse than fail.
//! A hundred flips per engine here; `STORAGE_FLIPS` sets another number.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;

use super::model::Random;
use super::{options, reopen};
use crate::conformance::Subject;
use crate::{EngineKind, RangeRequest, StorageError, Store, Txn};

const DIR: &str = "STORAGE_TORTURE_DIR";
const ENGINE: &str = "STORAGE_TORTURE_ENGINE";
const FROM: &str = "STORAGE_TORTURE_FROM";
const TO: &str = "STORAGE_TORTURE_TO";
const KEYS: u64 = 150;

fn value(n: u64) -> Bytes {
    // Some larger than a page of the engine, some larger than a chunk.
    let len = match n % 50 {
        7 => 120_000,
        8 => 9_000,
        9 => 0,
        _ => 700,
    };
    vec![n as u8 | 1; len].into()
}

/// A store with history: values that were replaced, and keys that were deleted.
async fn fill(engine: EngineKind, dir: &Path) {
    let s = Subject::in_process(reopen(engine, dir).unwrap());
    for n in 0..KEYS {
        s.write(&format!("k{n:04}"), value(n + 1)).await;
    }
    for n in (0..KEYS).step_by(3) {
        s.write(&format!("k{n:04}"), value(n)).await;
    }
    for n in (0..KEYS).step_by(10) {
        s.remove(&format!("k{n:04}")).await;
    }
    s.finish().await;
}

fn expected() -> BTreeMap<String, Bytes> {
    let live = (0..KEYS).filter(|n| n % 10 != 0);
    live.map(|n| {
        let last = if n.is_multiple_of(3) { n } else { n + 1 };
        (format!("/registry/k{n:04}"), value(last))
    })
    .collect()
}

fn files(dir: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => files(&path, into),
            false => into.push(path),
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).unwrap()),
        }
    }
}

/// Changes a byte somewhere. Gives where.
fn flip(dir: &Path, random: &mut Random) -> String {
    let mut all = Vec::new();
    files(dir, &mut all);
    all.retain(|path| path.metadata().unwrap().len() > 0 && !path.ends_with("LOCK"));
    all.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    // Most of them in the largest file, which is the data.
    let file = match random.below(5) {
        0 => &all[random.below(all.len() as u64) as usize],
        _ => &all[0],
    };
    let mut bytes = std::fs::read(file).unwrap();
    // Rather where something is.
    let mut at = random.below(bytes.len() as u64) as usize;
    for _ in 0..64 {
        if bytes[at] != 0 {
            break;
        }
        at = random.below(bytes.len() as u64) as usize;
    }
    bytes[at] ^= 1 << random.below(8);
    std::fs::write(file, &bytes).unwrap();
    format!("{}@{at}", file.file_name().unwrap().to_string_lossy())
}

/// How many objects cannot be read, or what is wrong: an object that is not what was written and does not say so.
async fn look(store: &dyn Store, expected: &BTreeMap<String, Bytes>) -> Result<usize, String> {
    let listed = store.range(RangeRequest::default()).await;
    let listed = match listed {
        Ok(listed) => listed.kvs,
        Err(StorageError::Corrupt(why)) => return Err(format!("the whole list fails: {why}")),
        Err(error) => return Err(format!("{error:?}")),
    };
    let mut found: BTreeMap<&str, _> = listed.iter().map(|kv| (&*kv.key, kv)).collect();
    let mut bad = 0;
    for (key, value) in expected {
        match found.remove(&**key) {
            None => return Err(format!("{key} is missing")),
            Some(kv) if kv.damage.is_some() => bad += 1,
            Some(kv) if kv.value != *value => return Err(format!("{key} is another")),
            Some(_) => {}
        }
    }
    match found.keys().next() {
        Some(key) => Err(format!("{key} was never written")),
        None => Ok(bad),
    }
}

async fn one(engine: EngineKind, dir: &Path) -> String {
    let mut expected = expected();
    let mut worst = 0;
    for round in 0..2 {
        let store = match reopen(engine, dir) {
            Ok(store) => store,
            Err(error) => return format!("refused {error}"),
        };
        let s = Subject::in_process(store);
        // A header that nobody can read is told of, and is one object.
        let lost = s.store.damaged().iter().any(|damage| damage.key.is_none());
        match look(&*s.store, &expected).await {
            Ok(bad) => worst = worst.max(bad + usize::from(lost)),
            Err(_) if lost => worst = worst.max(1),
            Err(wrong) => return format!("WRONG {wrong} in round {round}"),
        }
        // Writes neither fail quietly nor spread it.
        for n in 0..3 {
            let name = format!("new{round}-{n}");
            let txn = Txn {
                guards: vec![],
                ops: vec![s.put(&name, value(1))],
            };
            if s.store.commit(txn).await.is_ok() {
                expected.insert(s.key(&name), value(1));
            }
        }
        s.finish().await;
    }
    format!("lost {worst}")
}

/// Not a test of its own: the process that may go down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tortured_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let engine: EngineKind = std::env::var(ENGINE).unwrap().parse().unwrap();
    for n in number(FROM)..number(TO) {
        let target = Path::new(&dir).join(format!("flip{n}"));
        copy(&Path::new(&dir).join("whole"), &target);
        let place = flip(&target, &mut Random(n));
        let say = |what: String| {
            let line = format!("flip {n} {place} {what}\n");
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        };
        say("begins".into());
        say(one(engine, &target).await);
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// `most` is how many objects a flip may take.
async fn torture(engine: EngineKind, most: usize) {
    let flips: u64 = std::env::var("STORAGE_FLIPS")
        .ok()
        .map_or(100, |text| text.parse().unwrap());
    // In memory where that is possible: durability is not what is at stake here.
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    fill(engine, &dir.path().join("whole")).await;
    let whole = Subject::in_process(reopen(engine, &dir.path().join("whole")).unwrap());
    assert_eq!(look(&*whole.store, &expected()).await, Ok(0));
    whole.finish().await;

    let mut next = 0;
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    while next < flips {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mvcc::tests::torture::tortured_process", "--nocapture"])
            .env(DIR, dir.path())
            .env(ENGINE, engine.name())
            .env(FROM, next.to_string())
            .env(TO, flips.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut begun = None;
        for line in lines {
            let line = line.unwrap();
            let Some(said) = line.find("flip ").map(|at| &line[at..]) else {
                continue;
            };
            let words: Vec<&str> = said.splitn(4, ' ').collect();
            next = words[1].parse::<u64>().unwrap() + 1;
            match words[3].split(' ').next().unwrap() {
                "begins" => begun = Some(said.to_owned()),
                "WRONG" => {
                    begun = None;
                    wrong.push(said.to_owned());
                }
                "lost" => {
                    begun = None;
                    *outcomes.entry(words[3].to_owned()).or_default() += 1;
                    let lost: usize = words[3]["lost ".len()..].parse().unwrap();
                    if lost > most {
                        wrong.push(said.to_owned());
                    }
                }
                _ => {
                    begun = None;
                    *outcomes.entry("refused".into()).or_default() += 1;
                }
            }
        }
        let status = process.wait().unwrap();
        if let Some(begun) = begun {
            wrong.push(format!("{begun} and ends with {status}"));
        } else {
            assert!(status.success(), "{status}");
        }
    }
    println!("{engine:?}: {flips} flips: {outcomes:?}");
    assert!(
        wrong.is_empty(),
        "{engine:?}, {} of {flips} flips: {wrong:#?}\n{outcomes:?}",
        wrong.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_loses_no_more_than_was_hit() {
    torture(EngineKind::Redb, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_loses_no_more_than_a_node() {
    // It checks whole nodes of its tree, not single values.
    torture(EngineKind::Sled, 16).await;
}

/// Larger damage: a run of zeros, and one of noise. Never a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zeroed_run_is_refused_or_told() {
    let engine = EngineKind::Redb;
    let dir = tempfile::tempdir().unwrap();
    fill(engine, dir.path()).await;
    let path = dir.path().join("store.redb");
    let whole = std::fs::read(&path).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for (at, len) in [(4096, used), (used / 2, 1 << 20), (used / 3, 8192), (0, 4096)] {
        let mut bytes = whole.clone();
        let end = (at + len).min(bytes.len());
        bytes[at..end].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        match crate::open(options(engine, dir.path())) {
            Ok(store) => {
                // What is gone is named: no list is short.
                let listed = store.range(RangeRequest::default()).await;
                if let Ok(listed) = listed {
                    assert_eq!(listed.kvs.len(), expected().len());
                }
                store.shutdown().await;
            }
            Err(error) => assert!(
                matches!(error, StorageError::Corrupt(_) | StorageError::Gone(_)),
                "{error:?}"
            ),
        }
    }
}
