//! sled whose disk refuses writes, from the Nth on or past the Nth part of its log: acknowledged writes survive.
//!
//! sled opens its files itself, so nothing can be put between it and the disk. The test runs its own binary again as a process that
//! gives itself a limit of file sizes (`RLIMIT_FSIZE`) at the moment in question: the kernel then fails its writes with an error that is
//! not lack of space (`EFBIG`), and cuts off one that crosses the limit. Every seventh write here; `STORAGE_OPERATIONS=1` takes each.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::reopen;
use crate::conformance::Subject;
use crate::{EngineKind, Txn};

const DIR: &str = "STORAGE_LIMIT_DIR";
const AFTER: &str = "STORAGE_LIMIT_AFTER";
const LIMIT: &str = "STORAGE_LIMIT";
const KEYS: u64 = 7;
/// Writes that are tried, the limited ones among them.
const WRITES: u64 = 40;

/// The limits: no writes from the Nth on, or none past a length of the log, which cuts one off.
const LIMITS: [&str; 2] = ["nothing", "length"];
/// About what one write takes of the log, and no length of a block.
const PART: u64 = 5_501;

fn value(n: u64) -> Vec<u8> {
    // Now and then one that is cut into chunks.
    let len = if n.is_multiple_of(5) { 20_000 } else { 900 };
    let mut value = n.to_le_bytes().to_vec();
    value.resize(len, n as u8);
    value
}

fn number(value: &[u8]) -> u64 {
    let n = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, self::value(n), "the value is torn");
    n
}

fn limit(most: u64) {
    // The soft limit of this process, for writes from now on.
    let set = Command::new("prlimit")
        .args([
            "--pid",
            &std::process::id().to_string(),
            &format!("--fsize={most}:"),
        ])
        .status();
    assert!(set.unwrap().success());
}

/// Not a test of its own: the process whose writes are limited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_with_a_limit() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let kind = std::env::var(LIMIT).unwrap();
    let after: u64 = std::env::var(AFTER).unwrap().parse().unwrap();
    match kind.as_str() {
        "length" => limit(700 + after * PART),
        _ if after == 0 => limit(0),
        _ => {}
    }
    let store = match reopen(EngineKind::Sled, Path::new(&dir)) {
        Ok(store) => store,
        Err(error) => {
            println!("\nrefused {error}");
            return;
        }
    };
    let s = Subject::in_process(store);
    let mut acked = BTreeMap::new();
    for n in 1..=WRITES {
        if n == after && kind == "nothing" {
            limit(0);
        }
        let key = format!("k{}", n % KEYS);
        let ops = vec![s.put(&key, value(n))];
        match s.store.commit(Txn { guards: vec![], ops }).await {
            Ok(_) => {
                println!("\nacked {key} {n}");
                acked.insert(key, n);
            }
            Err(error) => {
                println!("\nfailed {n} {error}");
                // What was acknowledged is still read, or its read fails; no more writes are taken, and the health says so.
                for (key, n) in &acked {
                    if let Ok((found, _)) = s.store.get(&s.key(key), None).await {
                        assert_eq!(number(&found.unwrap().value), *n);
                    }
                }
                let again = Txn {
                    guards: vec![],
                    ops: vec![s.put("again", "1")],
                };
                s.store.commit(again).await.unwrap_err();
                s.store.status().await.unwrap_err();
                break;
            }
        }
    }
    s.finish().await;
    println!("\nstopped");
}

async fn acknowledged_writes_survive(after: u64, kind: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let store = reopen(EngineKind::Sled, dir.path()).unwrap();
    store.shutdown().await;
    // The kernel ends a process that exceeds the limit, unless it ignores the signal.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "mvcc::tests::sled_writes::process_with_a_limit",
            "--nocapture",
        ])
        .env(DIR, dir.path())
        .env(AFTER, after.to_string())
        .env(LIMIT, kind)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "write {after}, {kind}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let acked: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("acked ")?.split_once(' '))
        .map(|(key, n)| (key, n.parse().unwrap()))
        .collect();
    let last = acked.values().max().copied().unwrap_or(0);
    let s = Subject::in_process(reopen(EngineKind::Sled, dir.path()).unwrap());
    let found: BTreeMap<String, Vec<u8>> = s
        .list("", None)
        .await
        .into_iter()
        .map(|(name, value)| (name, value.to_vec()))
        .collect();
    for (key, n) in acked {
        let there = number(
            found
                .get(key)
                .unwrap_or_else(|| panic!("write {after}, {kind}: {key} is lost")),
        );
        // The one whose answer was an error may be there.
        assert!(
            there == n || there == last + 1,
            "write {after}, {kind}: {key} is {there}, acknowledged {n}"
        );
    }
    s.write("more", "1").await;
    s.finish().await;
    let failed = text.contains("\nfailed ") || text.contains("\nrefused ");
    assert!(failed || text.contains("\nstopped"), "{text}");
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_loses_no_acknowledged_write_to_a_disk_that_refuses_writes() {
    if test_tools::tool("prlimit").is_none() {
        return;
    }
    let every: u64 = std::env::var("STORAGE_OPERATIONS")
        .ok()
        .map_or(7, |text| text.parse().unwrap());
    let (mut rounds, mut failures) = (0, 0);
    for after in (0..WRITES).filter(|n| n.is_multiple_of(every)) {
        for kind in LIMITS {
            rounds += 1;
            failures += u64::from(acknowledged_writes_survive(after, kind).await);
        }
    }
    assert!(failures * 2 > rounds, "the limit is felt: {failures} of {rounds}");
    println!("sled: {rounds} rounds with a limit, {failures} failures, no acknowledged write lost");
}
