//! Durable commits per second of the embedded engines: `commit_bench ENGINE DIR [SECONDS]`.
//!
//! For 1, 32 and 256 clients that each write 2 KiB values to keys of their own, one commit after the other.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{Op, OpenOptions, Txn};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, engine, dir, rest @ ..] = args.as_slice() else {
        println!("usage: commit_bench ENGINE DIR [SECONDS]");
        return;
    };
    let seconds: u64 = rest.first().map_or(3, |text| text.parse().unwrap());
    let options = OpenOptions {
        engine: engine.parse().unwrap(),
        dir: Some(dir.into()),
        retention: Duration::from_secs(2),
        ..OpenOptions::default()
    };
    let opening = Instant::now();
    let store = storage::open(options).unwrap();
    println!(
        "open: {:?}, {:?}",
        opening.elapsed(),
        store.status().await.unwrap()
    );
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
                        let value = Bytes::from(vec![(round % 251) as u8; 2048]);
                        let key = format!("/registry/configmaps/default/c{client}-{}", round % 200);
                        let began = Instant::now();
                        let txn = Txn {
                            guards: vec![],
                            ops: vec![Op::Put {
                                key,
                                value,
                                ttl: None,
                            }],
                        };
                        store.commit(txn).await.unwrap();
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
    if rest.get(1).is_some_and(|word| word == "crash") {
        std::process::exit(1);
    }
    store.shutdown().await;
}
