//! Flipped bytes, anywhere in what a store has on disk: a clear refusal, or no more than an object. Some flips are sectors and pages full
//! of zeros, which take what was in them.
//!
//! Each flip is tried in a process of its own kind, which is the test binary again: engines that meet damage may do worse than fail.
//! A hundred flips per engine here; `STORAGE_FLIPS` sets another number. In [`crashed`] the store was not closed before.

mod crashed;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;

use super::model::Random;
use super::{options, reopen};
use crate::conformance::Subject;
use crate::{Damage, EngineKind, RangeRequest, ScrubReport, StorageError, Store, Txn};

const DIR: &str = "STORAGE_TORTURE_DIR";
const ENGINE: &str = "STORAGE_TORTURE_ENGINE";
const FROM: &str = "STORAGE_TORTURE_FROM";
const TO: &str = "STORAGE_TORTURE_TO";
const KEYS: u64 = 150;

fn value(n: u64) -> Bytes {
    // Some larger than a page of the engine, some larger than a chunk.
    let len = match (n, n % 50) {
        (7, _) => 120_000,
        (_, 7) => 20_000,
        (_, 8) => 9_000,
        (_, 9) => 0,
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

/// Runs of bytes of a file that serve one purpose.
#[derive(Debug)]
struct Structure {
    name: &'static str,
    file: PathBuf,
    /// Beginnings and lengths.
    runs: Vec<(u64, u64)>,
    /// The runs hold written values: most of the flips are here.
    is_data: bool,
}

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;
const WIPED_PAGE: &str = "wiped page";
const WIPED_SECTOR: &str = "wiped sector";
const SEGMENT: u64 = 512 * 1024;

/// Everything that a store has on disk, by purpose: the documented formats of the engines, and the files beside.
fn structures(dir: &Path) -> Vec<Structure> {
    let mut all = Vec::new();
    files(dir, &mut all);
    let mut found: Vec<Structure> = Vec::new();
    for file in all {
        let bytes = std::fs::read(&file).unwrap();
        let mut add = |name, from: u64, len: u64| {
            let len = len.min((bytes.len() as u64).saturating_sub(from));
            let run = &bytes[from as usize..(from + len) as usize];
            // Rather where something is.
            if name == "unused" || len == 0 || (name != "reserve" && run.iter().all(|byte| *byte == 0)) {
                return;
            }
            match found.iter_mut().find(|structure| structure.name == name) {
                Some(structure) => structure.runs.push((from, len)),
                None => found.push(Structure {
                    name,
                    file: file.clone(),
                    runs: vec![(from, len)],
                    is_data: matches!(name, "leaf" | "other page" | "log"),
                }),
            }
        };
        let len = bytes.len() as u64;
        match file.file_name().unwrap().to_str().unwrap() {
            "LOCK" => {}
            "FORMAT" => add("FORMAT", 0, len),
            "FORMAT.copy" => add("FORMAT copy", 0, len),
            "REVISION" => add("REVISION", 0, len),
            "store.redb.reserve" => add("reserve", 0, len),
            "store.redb" => {
                add("file header", 0, 64);
                add("commit slots", 64, 256);
                for from in (PAGE..len).step_by(PAGE as usize) {
                    let name = match bytes[from as usize] {
                        1 => "leaf",
                        2 => "branch",
                        // Further pages of large values, the allocator's.
                        _ => "other page",
                    };
                    add(name, from, PAGE);
                }
            }
            "db" => {
                for from in (0..len).step_by(SEGMENT as usize) {
                    add("segment header", from, 20);
                    // In pieces, so that empty ones do not count.
                    for piece in (from + 20..(from + SEGMENT).min(len)).step_by(512) {
                        add("log", piece, 512.min(from + SEGMENT - piece));
                    }
                }
            }
            "conf" => add("conf", 0, len),
            name if name.starts_with("snap.") => add("snapshot", 0, len),
            other => panic!("a file that nobody knows: {other}"),
        }
    }
    found
}

/// Changes a bit of the nth flip's structure, or fills a sector or a page of it with zeros. Gives which and where.
fn flip(structures: &[Structure], from: &Path, to: &Path, n: u64) -> (&'static str, u64) {
    let mut random = Random(n);
    // Two thirds of them in the data, the others in everything in turn.
    let data: Vec<&Structure> = structures.iter().filter(|structure| structure.is_data).collect();
    let structure = match n % 3 {
        0 => &structures[(n / 3) as usize % structures.len()],
        _ => {
            let mut run = random.below(data.iter().map(|structure| structure.runs.len() as u64).sum());
            let mut hit = data.iter();
            loop {
                let structure = hit.next().unwrap();
                match run.checked_sub(structure.runs.len() as u64) {
                    Some(rest) => run = rest,
                    None => break *structure,
                }
            }
        }
    };
    let (begin, len) = structure.runs[random.below(structure.runs.len() as u64) as usize];
    let is_wiped = structure.name == "leaf" && n % 12 == 7;
    let file = to.join(structure.file.strip_prefix(from).unwrap());
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    if is_wiped {
        let (name, at, len) = match n % 24 {
            7 => (WIPED_PAGE, begin, PAGE),
            _ => (WIPED_SECTOR, begin + random.below(PAGE / SECTOR) * SECTOR, SECTOR),
        };
        file.write_all_at(&vec![0; len as usize], at).unwrap();
        return (name, at);
    }
    let mut byte = [0];
    let mut at = begin;
    for _ in 0..64 {
        at = begin + random.below(len);
        file.read_exact_at(&mut byte, at).unwrap();
        if byte[0] != 0 {
            break;
        }
    }
    byte[0] ^= 1 << random.below(8);
    file.write_all_at(&byte, at).unwrap();
    (structure.name, at)
}

/// The differences from the written state: objects that report damage, and errors of those that do not.
async fn look(store: &dyn Store, expected: &BTreeMap<String, Bytes>) -> Result<(usize, Vec<String>), String> {
    let listed = store.range(RangeRequest::default()).await;
    let listed = match listed {
        Ok(listed) => listed.kvs,
        Err(StorageError::Corrupt(why)) => return Err(format!("the whole list fails: {why}")),
        Err(error) => return Err(format!("{error:?}")),
    };
    let mut found: BTreeMap<&str, _> = listed.iter().map(|kv| (&*kv.key, kv)).collect();
    let mut bad = 0;
    let mut wrong = Vec::new();
    for (key, value) in expected {
        match found.remove(&**key) {
            None => wrong.push(format!("{key} is missing")),
            Some(kv) if kv.damage.is_some() => bad += 1,
            Some(kv) if kv.value != *value => wrong.push(format!("{key} is another")),
            Some(_) => {}
        }
    }
    wrong.extend(found.keys().map(|key| format!("{key} was never written")));
    Ok((bad, wrong))
}

/// The damage that a store knows of and a scrub before its start does not name.
fn unnamed(store: &dyn Store, scrubbed: &Result<ScrubReport, StorageError>) -> Vec<Arc<Damage>> {
    let mut known = store.damaged();
    match scrubbed {
        Ok(report) => known.retain(|damage| {
            let same = |named: &Arc<Damage>| (named.revision, named.place) == (damage.revision, damage.place);
            !report.damaged.iter().any(same)
        }),
        Err(_) => known.clear(),
    }
    known
}

/// What becomes of a damaged store that was in one of these states.
async fn one(engine: EngineKind, dir: &Path, mut states: Vec<BTreeMap<String, Bytes>>) -> String {
    let scrubbed = crate::scrub(&options(engine, dir));
    let mut uncertain = Vec::new();
    let mut taken = [0; 2];
    for (round, taken) in taken.iter_mut().enumerate() {
        let store = match reopen(engine, dir) {
            Ok(store) => store,
            Err(StorageError::Corrupt(_) | StorageError::Gone(_)) => {
                return "refused".into();
            }
            Err(error) => return format!("WRONG {error:?}"),
        };
        let s = Subject::in_process(store);
        let mut expected = states.pop().unwrap_or_default();
        let mut looked = look(&*s.store, &expected).await;
        for other in states.drain(..) {
            let again = look(&*s.store, &other).await;
            let differences = |looked: &Result<(usize, Vec<String>), String>| {
                looked.as_ref().map_or(usize::MAX, |(_, wrong)| wrong.len())
            };
            if differences(&again) < differences(&looked) {
                (looked, expected) = (again, other);
            }
        }
        match looked {
            Ok((bad, mut wrong)) => {
                // A write that met the damage may have happened.
                wrong.retain(|what| !uncertain.contains(what));
                // An unreadable header is reported, and counts as one object.
                let unnamed = unnamed(&*s.store, &scrubbed);
                if round == 0 && !unnamed.is_empty() {
                    return format!("WRONG {unnamed:?} is not named by a scrub");
                }
                let lost = s
                    .store
                    .damaged()
                    .iter()
                    .filter(|damage| damage.key.is_none())
                    .count();
                if wrong.len() > lost {
                    return format!("WRONG {wrong:?} in round {round}");
                }
                *taken = bad + lost;
            }
            Err(wrong) => return format!("WRONG {wrong} in round {round}"),
        }
        // Writes neither fail quietly nor spread it.
        for n in 0..3 {
            let name = format!("new{round}-{n}");
            let txn = Txn {
                guards: vec![],
                ops: vec![s.put(&name, value(1))],
            };
            match s.store.commit(txn).await {
                Ok(_) => drop(expected.insert(s.key(&name), value(1))),
                Err(StorageError::Uncertain(_)) => {
                    uncertain.push(format!("{} was never written", s.key(&name)))
                }
                Err(_) => {}
            }
        }
        states.push(expected);
        s.finish().await;
    }
    let [first, then] = taken;
    format!("lost {first} then {then}")
}

/// Not a test of its own: the process that may go down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tortured_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let engine: EngineKind = std::env::var(ENGINE).unwrap().parse().unwrap();
    let whole = Path::new(&dir).join("whole");
    let structures = structures(&whole);
    for n in number(FROM)..number(TO) {
        let target = Path::new(&dir).join(format!("flip{n}"));
        copy(&whole, &target);
        let (structure, at) = flip(&structures, &whole, &target, n);
        let structure = structure.replace(' ', "-");
        let say = |what: String| {
            let line = format!("flip {n} {structure}@{at} {what}\n");
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        };
        say("begins".into());
        let states = crashed::states(Path::new(&dir)).unwrap_or_else(|| vec![expected()]);
        say(one(engine, &target, states).await);
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// A flip in the head of an engine's page may take what the page leads to, by name.
pub(super) const PAGE_OBJECTS: usize = 64;

/// Structures that can be made of something else.
const WITH_COPIES: &[&str] = &["FORMAT", "FORMAT-copy", "REVISION", "reserve"];

fn wanted() -> u64 {
    std::env::var("STORAGE_FLIPS").map_or(100, |text| text.parse().unwrap())
}

/// In memory where that is possible: durability is not what is at stake here.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// `most` is how many objects a flip in data may take.
async fn torture(engine: EngineKind, most: usize) {
    let dir = directory();
    fill(engine, &dir.path().join("whole")).await;
    let whole = Subject::in_process(reopen(engine, &dir.path().join("whole")).unwrap());
    assert_eq!(look(&*whole.store, &expected()).await, Ok((0, vec![])));
    whole.finish().await;
    assert!(structures(&dir.path().join("whole")).len() > 4, "they are known");
    let mut seen = Outcomes::default();
    seen.flip(engine, dir.path(), 0..wanted(), most);
    seen.judge(engine);
}

/// What came of flips.
#[derive(Debug, Default)]
struct Outcomes {
    flips: u64,
    /// By structure and what came of it.
    by: BTreeMap<String, BTreeMap<String, u64>>,
    wrong: Vec<String>,
    /// Flips that took more than they may mostly.
    wide: u64,
    /// Those of them that still did after another start.
    stay: u64,
}

impl Outcomes {
    /// Flips bits of copies of the store in `dir`, and looks at each in another process.
    fn flip(&mut self, engine: EngineKind, dir: &Path, flips: std::ops::Range<u64>, most: usize) {
        let mut next = flips.start;
        self.flips += flips.end - flips.start;
        while next < flips.end {
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mvcc::tests::torture::tortured_process", "--nocapture"])
                .env(DIR, dir)
                .env(ENGINE, engine.name())
                .env(FROM, next.to_string())
                .env(TO, flips.end.to_string())
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
                begun = match words[3] {
                    "begins" => Some(said.to_owned()),
                    _ => None,
                };
                let lost = words[3].strip_prefix("lost ").map(|lost| {
                    let (first, then) = lost.split_once(" then ").unwrap();
                    [first, then].map(|lost| lost.parse::<usize>().unwrap())
                });
                let most_of = |lost: [usize; 2]| lost[0].max(lost[1]);
                if words[3].starts_with("WRONG") || lost.is_some_and(|lost| most_of(lost) > PAGE_OBJECTS) {
                    self.wrong.push(said.to_owned());
                }
                if let Some([first, then]) = lost.filter(|_| !words[2].starts_with("wiped")) {
                    self.wide += u64::from(first.max(then) > most);
                    self.stay += u64::from(then > most);
                }
                if begun.is_none() {
                    let structure = words[2].split('@').next().unwrap().to_owned();
                    let what = words[3].split(' ').take(2).collect::<Vec<_>>().join(" ");
                    *self.by.entry(structure).or_default().entry(what).or_default() += 1;
                }
            }
            let status = process.wait().unwrap();
            if let Some(begun) = begun {
                self.wrong.push(format!("{begun} and ends with {status}"));
            } else {
                assert!(status.success(), "{status}");
            }
        }
    }

    fn judge(&self, engine: EngineKind) {
        let Outcomes {
            flips,
            by,
            wrong,
            wide,
            stay,
        } = self;
        println!("{engine:?}: {flips} flips: {by:#?}");
        for structure in WITH_COPIES {
            for outcome in by.get(*structure).into_iter().flatten() {
                assert_eq!(outcome.0, "lost 0", "in {structure}");
            }
        }
        println!("{wide} took more at first, {stay} after another start");
        // Few hit what an engine finds its way by.
        assert!(*wide <= flips.div_ceil(1000), "{wide} took more: {by:#?}");
        assert!(
            wrong.is_empty(),
            "{engine:?}, {} of {flips} flips: {wrong:#?}\n{by:#?}",
            wrong.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_loses_no_more_than_was_hit() {
    // One wrong byte is put right; pages of large values are named.
    torture(EngineKind::Redb, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_loses_no_more_than_a_node() {
    // It checks whole nodes of its tree, not single values.
    torture(EngineKind::Sled, 16).await;
}

/// Larger damage: a run of zeros, and one of noise. Never a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zeroed_run_is_refused_or_reported() {
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
                // Lost objects are reported: no list is short.
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
