//! The same flips in stores that were not closed: their process was killed amid lone writes.
//!
//! After a crash an engine has to find out which of its writes were torn, and takes damage for that where it cannot tell. Every
//! acknowledged write is there, or named, or the start is refused with a reason; none is missing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;

use super::{DIR, ENGINE, Outcomes, Random, Subject, directory, reopen, value, wanted};
use crate::EngineKind;

/// The number of the last acknowledged write, in a file beside the copies.
const ACKNOWLEDGED: &str = "acknowledged";
const KEYS: u64 = 45;
/// Flips of one crash.
const FLIPS: u64 = 25;

/// The nth write: a key, and its value unless it is a deletion.
fn nth(n: u64) -> (String, Option<Bytes>) {
    (
        format!("k{:04}", n * 7 % KEYS),
        (n % 9 != 8).then(|| value(n % 151)),
    )
}

fn state(last: u64) -> BTreeMap<String, Bytes> {
    let mut state = BTreeMap::new();
    for n in 0..=last {
        let (key, value) = nth(n);
        let key = format!("/registry/{key}");
        match value {
            Some(value) => state.insert(key, value),
            None => state.remove(&key),
        };
    }
    state
}

/// What the store in a directory may hold, if its process was killed: one more write may have been on its way.
pub(super) fn states(dir: &Path) -> Option<Vec<BTreeMap<String, Bytes>>> {
    let last: u64 = std::fs::read_to_string(dir.join(ACKNOWLEDGED))
        .ok()?
        .parse()
        .unwrap();
    Some(vec![state(last), state(last + 1)])
}

/// Not a test of its own: the process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let engine: EngineKind = std::env::var(ENGINE).unwrap().parse().unwrap();
    let s = Subject::in_process(reopen(engine, &Path::new(&dir).join("whole")).unwrap());
    for n in 0.. {
        match nth(n) {
            (key, Some(value)) => drop(s.write(&key, value).await),
            (key, None) => drop(s.remove(&key).await),
        }
        let line = format!("ack {n} done\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// Lets a process write and kills it after so many writes, at any moment of the next ones. Gives the last that it acknowledged.
fn kill_a_writer(engine: EngineKind, dir: &Path, after: u64) -> u64 {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "mvcc::tests::torture::crashed::writer_process",
            "--nocapture",
        ])
        .env(DIR, dir)
        .env(ENGINE, engine.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap());
    let (mut line, mut last) = (String::new(), None);
    while lines.read_line(&mut line).unwrap() > 0 {
        let words = line.find("ack ").map(|at| line[at..].split_whitespace());
        if let Some(["ack", n, "done"]) = words.map(Iterator::collect::<Vec<_>>).as_deref() {
            last = Some(n.parse().unwrap());
            if last == Some(after) {
                writer.kill().unwrap();
            }
        }
        line.clear();
    }
    writer.wait().unwrap();
    last.expect("it has written")
}

async fn torture(engine: EngineKind, most: usize) {
    let mut seen = Outcomes::default();
    let mut random = Random(u64::from(std::process::id()));
    let (mut crashes, mut acknowledged) = (0u64, 0);
    while seen.flips < wanted() {
        let dir = directory();
        let after = 1 + random.below(120);
        let last = kill_a_writer(engine, dir.path(), after);
        std::fs::write(dir.path().join(ACKNOWLEDGED), last.to_string()).unwrap();
        let from = seen.flips;
        seen.flip(engine, dir.path(), from..wanted().min(from + FLIPS), most);
        crashes += 1;
        acknowledged += last + 1;
    }
    println!("{engine:?}: {crashes} crashes, {acknowledged} acknowledged writes");
    seen.judge(engine);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_loses_no_more_than_was_hit() {
    torture(EngineKind::Redb, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_loses_nothing_silently() {
    torture(EngineKind::Sled, 16).await;
}
