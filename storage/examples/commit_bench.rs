//! The throughput of the embedded engines, and how long they take to open after a crash.
//!
//! - `commit_bench ENGINE DIR [SECONDS]`: durable commits for 1, 32 and 256 clients, which each write 2 KiB values to keys of
//!   their own, one commit after the other.
//! - `commit_bench reopen ENGINE DIR [OBJECTS]`: a process writes that many objects (50,000) of 2 KiB twice and is killed, once
//!   after writes have paused and once during single writes; then the store is opened.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{Op, OpenOptions, Store, Txn};

const OBJECTS: usize = 50_000;
/// The line that the child process prints when it may be killed.
const READY: &str = "ready";
const WRITERS: usize = 64;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["reopen", engine, dir, rest @ ..] => {
            let objects = rest.first().map_or(OBJECTS, |text| text.parse().unwrap());
            for last in ["pause", "lone"] {
                reopen(engine, &format!("{dir}/{last}"), objects, last).await;
            }
        }
        ["fill", engine, dir, objects, last] => fill(engine, dir, objects.parse().unwrap(), last).await,
        [engine, dir, rest @ ..] => {
            let seconds = rest.first().map_or(3, |text| text.parse().unwrap());
            commits(engine, dir, seconds).await;
        }
        _ => println!("usage: commit_bench ENGINE DIR [SECONDS] | commit_bench reopen ENGINE DIR [OBJECTS]"),
    }
}

fn options(engine: &str, dir: &str) -> OpenOptions {
    OpenOptions {
        engine: engine.parse().unwrap(),
        dir: Some(dir.into()),
        ..OpenOptions::default()
    }
}

async fn put(store: &dyn Store, key: String, fill: usize) {
    let op = Op::Put {
        key,
        value: Bytes::from(vec![(fill % 251) as u8; 2048]),
        ttl: None,
    };
    let txn = Txn {
        guards: vec![],
        ops: vec![op],
    };
    store.commit(txn).await.unwrap();
}

async fn commits(engine: &str, dir: &str, seconds: u64) {
    let options = OpenOptions {
        retention: Duration::from_secs(2),
        ..options(engine, dir)
    };
    let store = storage::open(options).unwrap();
    for clients in [1usize, 32, 256] {
        let until = Instant::now() + Duration::from_secs(seconds);
        let started = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|client| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    for round in 0.. {
                        if Instant::now() >= until {
                            break;
                        }
                        let key = format!("/registry/configmaps/default/c{client}-{}", round % 200);
                        let began = Instant::now();
                        put(&*store, key, round).await;
                        taken.push(began.elapsed());
                    }
                    taken
                })
            })
            .collect();
        let mut taken = Vec::new();
        for task in tasks {
            taken.extend(task.await.unwrap());
        }
        let elapsed = started.elapsed().as_secs_f64();
        taken.sort();
        if taken.is_empty() {
            continue;
        }
        let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize];
        println!(
            "{engine} clients {clients}: {:.0}/s p50 {:?} p99 {:?} max {:?}",
            taken.len() as f64 / elapsed,
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    println!("{:?}", store.status().await.unwrap());
    store.shutdown().await;
}

/// The process that is killed.
async fn fill(engine: &str, dir: &str, objects: usize, last: &str) {
    let store: Arc<dyn Store> = storage::open(options(engine, dir)).unwrap();
    let key = |n: usize| format!("/registry/configmaps/default/c{n:06}");
    for round in 0..2 {
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in (writer..objects).step_by(WRITERS) {
                    put(&*store, key(n), n + round).await;
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    if last == "pause" {
        println!("{READY}");
        std::future::pending::<()>().await;
    }
    for n in 0.. {
        if n == 200 {
            println!("{READY}");
        }
        put(&*store, key(n % objects), n).await;
    }
}

async fn reopen(engine: &str, dir: &str, objects: usize, last: &str) {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["fill", engine, dir, &objects.to_string(), last])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(writer.stdout.take().unwrap());
    lines.read_line(&mut said).unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(said.trim_end(), READY);
    let opening = Instant::now();
    let store = storage::open(options(engine, dir)).unwrap();
    let took = opening.elapsed();
    println!(
        "{engine} killed after {last}: opened in {took:?}, {:?}",
        store.status().await.unwrap()
    );
    store.shutdown().await;
}
