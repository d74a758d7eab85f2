//! The work that follows a deletion's answer: dependents go with their owner, and everything goes with its namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, Error, Target};
use crate::figures::JSON;
use crate::process::cpu_seconds;

/// How long collecting may take before the phase gives up.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often it is asked whether something is left.
const LOOK: Duration = Duration::from_millis(20);

/// Sends a request per index, by several clients at once. What is there already stays.
pub(crate) async fn all(
    target: &Target,
    clients: usize,
    count: usize,
    request: impl Fn(usize) -> (&'static str, String, Value) + Clone + Send + 'static,
) -> Result<(), Error> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let client = target.connect().await?;
        let (next, request) = (next.clone(), request.clone());
        workers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok::<_, Error>(());
                }
                let (method, path, body) = request(index);
                let (status, _) = client.call(method, &path, JSON, body.to_string().into()).await?;
                if status >= 300 && status != 409 {
                    return Err(format!("{method} {path}: {status}").into());
                }
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(())
}

/// Waits until a list is empty.
async fn emptied(client: &Client, path: &str) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let list = client.json("GET", path, Bytes::new()).await?;
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("something is left of {path}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn line(phase: &str, count: usize, begun: Instant, cpu: f64) -> Value {
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let per_second = count as f64 / seconds;
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    json!({"phase": phase, "operations": count, "seconds": round(seconds), "per_second": round(per_second),
        "cpu_seconds": round(cpu)})
}

/// Makes an owner and its dependents, deletes it, and measures until the last dependent is gone.
pub(crate) async fn gc(
    target: &Target,
    admin: &Client,
    base: &str,
    clients: usize,
    count: usize,
    pids: &[u32],
) -> Result<Value, Error> {
    let run = format!("run-{}", std::process::id());
    let maps = format!("{base}/configmaps");
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("owner-{run}")}});
    let owner = admin.json("POST", &maps, owner.to_string().into()).await?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"]});
    let (path, label) = (maps.clone(), run.clone());
    all(target, clients, count, move |index| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("owned-{index}-{label}"),
            "labels": {"owned": label}, "ownerReferences": [reference]}});
        ("POST", path.clone(), object)
    })
    .await?;
    let (begun, cpu) = (Instant::now(), cpu_seconds(pids));
    let options = json!({"propagationPolicy": "Background"});
    let path = format!("{maps}/owner-{run}");
    admin
        .call("DELETE", &path, JSON, options.to_string().into())
        .await?;
    emptied(admin, &format!("{maps}?labelSelector=owned%3D{run}&limit=1")).await?;
    Ok(line("gc", count, begun, cpu_seconds(pids) - cpu))
}

/// Makes namespaces with a few objects each, deletes them all at once, and measures until the last is gone.
pub(crate) async fn namespaces(
    target: &Target,
    admin: &Client,
    clients: usize,
    count: usize,
    pids: &[u32],
) -> Result<Value, Error> {
    const SPACES: &str = "/api/v1/namespaces";
    const OBJECTS: usize = 5;
    let run = format!("run-{}", std::process::id());
    let label = run.clone();
    all(target, clients, count, move |index| {
        let object = json!({"metadata": {"name": format!("{label}-{index}"), "labels": {"bench": label}}});
        ("POST", SPACES.into(), object)
    })
    .await?;
    let label = run.clone();
    all(target, clients, count * OBJECTS, move |index| {
        let path = format!("{SPACES}/{label}-{}/configmaps", index / OBJECTS);
        let object = json!({"metadata": {"name": format!("item-{}", index % OBJECTS)}});
        ("POST", path, object)
    })
    .await?;
    let (begun, cpu) = (Instant::now(), cpu_seconds(pids));
    let label = run.clone();
    all(target, clients, count, move |index| {
        ("DELETE", format!("{SPACES}/{label}-{index}"), json!({}))
    })
    .await?;
    emptied(admin, &format!("{SPACES}?labelSelector=bench%3D{run}&limit=1")).await?;
    Ok(line("namespaces", count, begun, cpu_seconds(pids) - cpu))
}
