//! A polite client alone, and beside one that keeps hundreds of lists under way. Both are service accounts, so that a server with priority and
//! fairness gives them the same priority level and different flows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Rows, Sent};
use crate::client::{Error, Target};
use crate::collect;
use crate::process::cpu_seconds;

/// ConfigMaps that the abuser lists.
const LISTED: usize = 500;
/// Bytes of each.
const SIZE: usize = 2048;
/// Requests of the abuser on one connection.
const ON_ONE: usize = 50;
/// Between two requests of the polite client.
const PAUSE: Duration = Duration::from_millis(5);
/// An answer that takes longer counts with this time, as failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Before the polite client is measured, so that the flood is there.
const LEAD: Duration = Duration::from_secs(1);

pub(super) async fn run(of: &Rows<'_>, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
    let (polite, abuser) = (of.reader("polite").await?, of.reader("abuser").await?);
    let maps = format!("{}/configmaps", of.base);
    let path = maps.clone();
    collect::all(of.target, 16, LISTED, move |index| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("listed-{index:04}"),
            "labels": {"listed": "yes"}}, "data": {"text": "x".repeat(SIZE)}});
        ("POST", path.clone(), object)
    })
    .await?;
    let duration = Duration::from_secs(of.access.seconds);
    let alone = probed(of, &polite, Duration::ZERO, duration / 2).await?;
    print(of_one(of.line("polite get alone", alone)));

    let (end, over) = tokio::sync::watch::channel(());
    let lists = format!("{maps}?labelSelector=listed%3Dyes");
    let mut workers = tokio::task::JoinSet::new();
    let mut client = abuser.connect().await?;
    let (cpu, begun) = (cpu_seconds(of.pids), Instant::now());
    for index in 0..of.access.flood {
        if index % ON_ONE == 0 && index > 0 {
            client = abuser.connect().await?;
        }
        let (client, lists, mut over) = (client.clone(), lists.clone(), over.clone());
        workers.spawn(async move {
            let (mut times, mut failed) = (Vec::new(), 0_usize);
            loop {
                let one = Instant::now();
                tokio::select! {
                    answer = client.call("GET", &lists, "", Bytes::new()) => failed += usize::from(!matches!(answer, Ok((200, _)))),
                    // Those under way at the end are not waited for.
                    _ = over.changed() => return (times, failed),
                }
                times.push(one.elapsed());
            }
        });
    }
    let beside = probed(of, &polite, LEAD, duration).await?;
    drop(end);
    let mut flood = Sent {
        seconds: begun.elapsed().as_secs_f64(),
        cpu: cpu_seconds(of.pids) - cpu,
        ..Sent::default()
    };
    while let Some(worker) = workers.join_next().await {
        let (times, failed) = worker?;
        flood.times.extend(times);
        flood.failed += failed;
    }
    print(of_one(of.line("polite get beside the flood", beside)));
    let row = format!("the flood: lists of {LISTED}, {} at once", of.access.flood);
    let mut line = of.line(&row, flood);
    line["clients"] = of.access.flood.into();
    print(line);
    Ok(())
}

/// Of one client. What the server used meanwhile is mostly for others.
fn of_one(mut line: Value) -> Value {
    line["clients"] = 1.into();
    if let Some(line) = line.as_object_mut() {
        line.remove("cpu_ms_each");
    }
    line
}

/// Gets of a client that waits a little after each, from a thread of its own.
async fn probed(of: &Rows<'_>, target: &Target, lead: Duration, duration: Duration) -> Result<Sent, Error> {
    let (target, path) = (target.clone(), of.small());
    let probing = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = tokio::time::timeout(PATIENCE, target.connect()).await??;
            tokio::time::sleep(lead).await;
            let (mut sent, begun) = (Sent::default(), Instant::now());
            while begun.elapsed() < duration {
                let one = Instant::now();
                let answer =
                    tokio::time::timeout(PATIENCE, client.call("GET", &path, "", Bytes::new())).await;
                sent.times.push(one.elapsed());
                sent.failed += usize::from(!matches!(answer, Ok(Ok((200, _)))));
                tokio::time::sleep(PAUSE).await;
            }
            sent.seconds = begun.elapsed().as_secs_f64();
            Ok::<_, Error>(sent)
        })
    });
    probing.await?
}
