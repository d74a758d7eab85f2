//! A real process that writes, and is killed with SIGKILL at a random moment.
//!
//! The test runs its own binary again as the writer, which reports each acknowledged write on its standard output. After
//! the kill, every reported write has to be there, and the log has to be without a hole. A few rounds here;
//! `STORAGE_CRASH_ROUNDS` sets another number.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::model::Random;
use super::reopen;
use crate::conformance::{Recorder, Subject};
use crate::{EngineKind, Guard, Op, Outcome, Revision, Txn};

const DIR: &str = "STORAGE_CRASH_DIR";
const ENGINE: &str = "STORAGE_CRASH_ENGINE";
const CLIENTS: usize = 24;
const KEYS: usize = 8;

fn value(n: u64) -> Vec<u8> {
    // Now and then one that is cut into chunks.
    let len = if n.is_multiple_of(97) { 150_000 } else { 1500 };
    let mut value = n.to_le_bytes().to_vec();
    value.resize(len, n as u8);
    value
}

fn number(value: &[u8]) -> u64 {
    let n = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, self::value(n));
    n
}

/// Not a test of its own: the process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let engine: EngineKind = std::env::var(ENGINE).unwrap().parse().unwrap();
    let store = reopen(engine, Path::new(&dir)).unwrap();
    let clients = (0..CLIENTS).map(|client| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0u64.. {
                let key = format!("/c{client:02}/{}", n % KEYS as u64);
                let (current, _) = store.get(&key, None).await.unwrap();
                let next = current.as_ref().map_or(0, |pair| number(&pair.value) + 1);
                let held = current.map_or(Revision(0), |pair| pair.mod_revision);
                let txn = Txn {
                    guards: vec![Guard {
                        key: key.clone(),
                        mod_revision: held,
                    }],
                    ops: vec![Op::Put {
                        key: key.clone(),
                        value: value(next).into(),
                        ttl: None,
                    }],
                };
                let Outcome::Committed(revision) = store.commit(txn).await.unwrap() else {
                    panic!("nobody else writes {key}");
                };
                let line = format!("ack {key} {next} {revision}\n");
                std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            }
        })
    });
    futures_util::future::join_all(clients).await;
}

/// When a writer is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// So long after its first acknowledged write.
    Writing(Duration),
    /// The delay after its start: most likely during recovery from the kill before.
    Starting(Duration),
}

/// Runs a writer for a while and kills it. Adds what it reported.
fn kill_a_writer(
    engine: EngineKind,
    dir: &Path,
    kill: Kill,
    acked: &mut HashMap<String, (u64, u64)>,
) -> usize {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "mvcc::tests::crash::writer_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .env(ENGINE, engine.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap());
    let (mut kill_at, mut count) = (None, 0);
    if let Kill::Starting(after) = kill {
        // A moment that nothing announces is what this is about.
        std::thread::sleep(after);
        writer.kill().unwrap();
    }
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        // A line that the kill cut off was acknowledged, but its content is unknown. Output of the test harness may precede it.
        let whole = line
            .strip_suffix('\n')
            .and_then(|line| line.find("ack ").map(|at| &line[at..]));
        if let Some(["ack", key, n, revision]) =
            whole.map(|line| line.split(' ').collect::<Vec<_>>()).as_deref()
        {
            acked.insert((*key).to_owned(), (n.parse().unwrap(), revision.parse().unwrap()));
            count += 1;
            if let Kill::Writing(after) = kill {
                let kill_at = *kill_at.get_or_insert_with(|| Instant::now() + after);
                if Instant::now() >= kill_at {
                    writer.kill().unwrap();
                }
            }
        }
        line.clear();
    }
    writer.wait().unwrap();
    count
}

async fn survives(engine: EngineKind) {
    let rounds: u64 = std::env::var("STORAGE_CRASH_ROUNDS")
        .ok()
        .map_or(3, |text| text.parse().unwrap());
    // Data in the kernel's cache survives a kill on any file system, and one in memory allows more rounds. The tests in
    // `faults` show that acknowledged writes survive a loss of power, too.
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let mut random = Random(u64::from(std::process::id()));
    let mut acked = HashMap::new();
    let mut writes = 0;
    for round in 0..rounds {
        let kill = match round % 4 {
            2 => Kill::Starting(Duration::from_micros(random.below(60_000))),
            _ => Kill::Writing(Duration::from_micros(random.below(400_000))),
        };
        let count = kill_a_writer(engine, dir.path(), kill, &mut acked);
        assert!(
            count > 0 || matches!(kill, Kill::Starting(_)),
            "the writer of round {round} wrote nothing"
        );
        writes += count;

        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let newest = s.store.fresh().await.unwrap();
        for (key, (n, revision)) in &mut acked {
            assert!(
                *revision <= newest.0,
                "{engine:?} round {round}: revision {revision} is lost"
            );
            let found = s.store.get(key, None).await.unwrap().0;
            let found = found.unwrap_or_else(|| panic!("{engine:?} round {round}: {key} is lost"));
            // One more may have been on its way.
            let there = number(&found.value);
            assert!(
                there == *n || there == *n + 1,
                "{engine:?} round {round}: {key} is {there}, acked {n}"
            );
            // A value that was read must stay.
            (*n, *revision) = (there, found.mod_revision.0);
        }
        let seen = Recorder::new();
        let oldest = s.store.status().await.unwrap().oldest;
        let _watch = s.store.watch("", oldest, seen.clone()).await.unwrap();
        seen.look(|seen| {
            let revisions = seen.events.iter().map(|event| event.kv.mod_revision.0);
            assert!(
                revisions.eq(oldest.0 + 1..=newest.0),
                "{engine:?} round {round}: the log has a hole"
            );
        });
        if round % 4 == 3 {
            // Keeps the log short, and leaves something to sweep to the next rounds.
            s.store.compact(newest).await.unwrap();
        }
        s.finish().await;
    }
    println!("{engine:?}: {rounds} rounds, {writes} acknowledged writes, none lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_survives_kill() {
    survives(EngineKind::Redb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_survives_kill() {
    survives(EngineKind::Sled).await;
}
