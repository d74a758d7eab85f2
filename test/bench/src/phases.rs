//! The phases.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::aggregation;
use crate::client::{Client, Error, Target};
use crate::collect;
use crate::figures::{JSON, percentiles, round};
use crate::process::{cpu_seconds, resident_mib};
use crate::{Load, Phase};

/// Runs a phase; gives its line.
pub(crate) async fn run(
    kubeconfig: Option<&Path>,
    pids: &[u32],
    namespace: &str,
    server: Option<&str>,
    phase: &Phase,
) -> Result<Value, Error> {
    match phase {
        Phase::Start { url, runs, command } => return start(url, *runs, command).await,
        Phase::Memory => return Ok(json!({"phase": "memory", "rss_mib": round(resident_mib(pids))})),
        _ => {}
    }
    let (target, admin) = connect(kubeconfig, server, namespace).await?;
    let base = format!("/api/v1/namespaces/{namespace}");
    match phase {
        Phase::Gc { count, clients } => {
            return collect::gc(&target, &admin, &base, *clients, *count, pids).await;
        }
        Phase::Forms(of) => return crate::forms::run(&target, &admin, &base, pids, of).await,
        Phase::Namespaces { count, clients } => {
            return collect::namespaces(&target, &admin, *clients, *count, pids).await;
        }
        _ => {}
    }
    let before = cpu_seconds(pids);
    let begun = Instant::now();
    let mut line = match phase {
        Phase::List { count, query } => list(&admin, &base, *count, query).await?,
        Phase::Watch {
            watchers,
            events,
            connections,
            collection,
            object,
        } => {
            let own = format!("{base}/configmaps");
            let watched = Watched {
                collection: collection.as_deref().unwrap_or(&own),
                object: serde_json::from_str(object)?,
                watchers: *watchers,
                events: *events,
                connections: *connections,
                pids,
            };
            watch(&target, &admin, &watched).await?
        }
        Phase::GetPath { path, clients, count } => {
            aggregation::get_path(&target, path, *clients, *count).await?
        }
        Phase::Put { collection, object } => {
            let (status, _) = admin
                .call("POST", collection, JSON, object.clone().into())
                .await?;
            json!({"phase": "put", "status": status, "operations": 1})
        }
        Phase::Register(of) => aggregation::register(&admin, namespace, of).await?,
        Phase::Outage { path, runs, command } => aggregation::outage(&admin, path, *runs, command).await?,
        Phase::Clean => {
            let (status, _) = admin
                .call("DELETE", &format!("{base}/configmaps"), "", Bytes::new())
                .await?;
            json!({"phase": "clean", "status": status, "operations": 1})
        }
        Phase::Heavy { clients, seconds } => {
            crate::heavy::run(&target, &admin, namespace, *clients, *seconds).await?
        }
        Phase::Crds(load) => crate::crds::run(&target, &admin, pids, load).await?,
        other => load(&target, &base, other).await?,
    };
    let seconds = begun.elapsed().as_secs_f64();
    line["seconds"] = round(seconds).into();
    let operations = line["operations"].as_f64().unwrap_or(1.0).max(1.0);
    line["per_second"] = round(operations / seconds).into();
    if !pids.is_empty() {
        line["cpu_ms_each"] = round((cpu_seconds(pids) - before) * 1000.0 / operations).into();
        line["rss_mib"] = round(resident_mib(pids)).into();
    }
    Ok(line)
}

/// Reads the kubeconfig, and makes the namespace.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    server: Option<&str>,
    namespace: &str,
) -> Result<(Target, Client), Error> {
    let mut target = Target::read(kubeconfig.ok_or("--kubeconfig is needed")?)?;
    if let Some(server) = server {
        target = target.at(server);
    }
    let admin = target.connect().await?;
    // An aggregated server that is asked directly has no namespaces.
    if server.is_none() {
        make_namespace(&admin, namespace).await?;
    }
    Ok((target, admin))
}

/// One operation of a load phase.
struct Operation {
    method: &'static str,
    path: String,
    media: &'static str,
    body: Bytes,
}

fn operation(base: &str, phase: &Phase, load: &Load, index: usize) -> Operation {
    let name = format!("item-{index:07}");
    let labels = json!({"group": format!("{}", index % 100)});
    let data = "x".repeat(load.size);
    let object = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"text": value}});
    let maps = format!("{base}/configmaps");
    let one = format!("{maps}/{name}");
    let (method, path, media, body) = match phase {
        Phase::Create(_) => ("POST", maps, JSON, object(&data)),
        Phase::Update(_) => ("PUT", one, JSON, object(&format!("{data}u"))),
        Phase::MergePatch(_) => (
            "PATCH",
            one,
            "application/merge-patch+json",
            json!({"data": {"patched": index.to_string()}}),
        ),
        Phase::StrategicPatch(_) => (
            "PATCH",
            one,
            "application/strategic-merge-patch+json",
            json!({"data": {"strategic": index.to_string()}}),
        ),
        Phase::ApplyCreate(_) => (
            "PATCH",
            format!("{one}-a?fieldManager=bench"),
            "application/apply-patch+yaml",
            {
                let mut object = object(&data);
                object["metadata"]["name"] = format!("{name}-a").into();
                object
            },
        ),
        Phase::ApplyUpdate(_) => (
            "PATCH",
            format!("{one}-a?fieldManager=bench"),
            "application/apply-patch+yaml",
            {
                let mut object = object(&format!("{data}v"));
                object["metadata"]["name"] = format!("{name}-a").into();
                object
            },
        ),
        Phase::CreatePods(_) => (
            "POST",
            format!("{base}/pods"),
            JSON,
            pod(&format!("pod-{index:07}")),
        ),
        _ => ("GET", one, "", Value::Null),
    };
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    Operation {
        method,
        path,
        media,
        body,
    }
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}}, "spec": {
        "serviceAccountName": "default",
        "containers": [{"name": "main", "image": "registry.example.com/app:1.2.3", "args": ["--serve", "--port=8080"],
            "env": [{"name": "MODE", "value": "production"}], "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}}]}})
}

async fn load(target: &Target, base: &str, phase: &Phase) -> Result<Value, Error> {
    let (name, load) = match phase {
        Phase::Create(load) => ("create", load),
        Phase::Update(load) => ("update", load),
        Phase::MergePatch(load) => ("merge-patch", load),
        Phase::StrategicPatch(load) => ("strategic-patch", load),
        Phase::ApplyCreate(load) => ("apply-create", load),
        Phase::ApplyUpdate(load) => ("apply-update", load),
        Phase::CreatePods(load) => ("create-pods", load),
        Phase::Get(load) => ("get", load),
        _ => return Err("not a load phase".into()),
    };
    let next = Arc::new(AtomicUsize::new(load.from));
    let end = load.from + load.count;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..load.clients {
        let client = target.connect().await?;
        let (next, base, phase, load) = (next.clone(), base.to_string(), phase.clone(), load.clone());
        workers.spawn(async move {
            let mut times = Vec::new();
            let mut failed = 0_usize;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= end {
                    return Ok::<_, Error>((times, failed));
                }
                let operation = operation(&base, &phase, &load, index);
                let begun = Instant::now();
                let (status, _) = client
                    .call(operation.method, &operation.path, operation.media, operation.body)
                    .await?;
                times.push(begun.elapsed());
                failed += usize::from(status >= 300);
            }
        });
    }
    let (mut times, mut failed) = (Vec::new(), 0);
    while let Some(done) = workers.join_next().await {
        let (some, bad) = done??;
        times.extend(some);
        failed += bad;
    }
    Ok(json!({
        "phase": name, "clients": load.clients, "operations": times.len(), "failed": failed,
        "bytes": load.size, "ms": percentiles(times),
    }))
}

async fn list(admin: &Client, base: &str, count: usize, query: &str) -> Result<Value, Error> {
    let path = format!("{base}/configmaps?{query}");
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let begun = Instant::now();
        let (status, length) = admin.call("GET", &path, "", Bytes::new()).await?;
        if status != 200 {
            return Err(format!("list: {status}").into());
        }
        times.push(begun.elapsed());
        bytes = length;
    }
    Ok(
        json!({"phase": "list", "query": query, "operations": count, "bytes": bytes, "ms": percentiles(times)}),
    )
}

async fn make_namespace(admin: &Client, namespace: &str) -> Result<(), Error> {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    // Pods want one; where no controller makes it, it is made here.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    for (path, object) in [("/api/v1/namespaces", space), (accounts.as_str(), account)] {
        let (status, _) = admin.call("POST", path, JSON, object.to_string().into()).await?;
        if !matches!(status, 201 | 409) {
            return Err(format!("cannot make the namespace: {status}").into());
        }
    }
    Ok(())
}

/// The watched collection, and the load on it.
struct Watched<'a> {
    collection: &'a str,
    /// The object to create in it.
    object: Value,
    watchers: usize,
    events: usize,
    connections: usize,
    pids: &'a [u32],
}

async fn watch(target: &Target, admin: &Client, of: &Watched<'_>) -> Result<Value, Error> {
    let (watchers, events) = (of.watchers, of.events);
    let idle = resident_mib(of.pids);
    let origin = Instant::now();
    // Of this run alone, because leftovers of earlier runs would be delivered too.
    let run = format!("run-{}-{watchers}", std::process::id());
    let mut clients = Vec::new();
    for _ in 0..of.connections.max(1) {
        clients.push(target.connect().await?);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..watchers {
        let client = clients[index % clients.len()].clone();
        let path = format!(
            "{}?watch=1&labelSelector=watched%3D{run}&timeoutSeconds=600",
            of.collection
        );
        let response = client.open("GET", &path, "", Bytes::new()).await?;
        if response.status() != 200 {
            return Err(format!("watch: {}", response.status()).into());
        }
        tasks.spawn(async move {
            let mut body = response.into_body();
            let mut pending = Vec::new();
            let mut times = Vec::new();
            while times.len() < events {
                let Some(frame) = body.frame().await else { break };
                let Ok(frame) = frame else { break };
                pending.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
                while let Some(end) = pending.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = pending.drain(..=end).collect();
                    // The write's time is in the object: microseconds since this phase began.
                    let sent = serde_json::from_slice::<Value>(&line).ok().and_then(|event| {
                        event
                            .pointer("/object/metadata/annotations/sent")?
                            .as_str()?
                            .parse::<u64>()
                            .ok()
                    });
                    if let Some(sent) = sent {
                        times.push(origin.elapsed().saturating_sub(Duration::from_micros(sent)));
                    }
                }
            }
            times
        });
    }
    let watching = resident_mib(of.pids);
    for index in 0..events {
        let sent = origin.elapsed().as_micros().to_string();
        let mut body = of.object.clone();
        body["metadata"] = json!({
            "name": format!("watched-{index}-{run}"),
            "labels": {"watched": run}, "annotations": {"sent": sent},
        });
        let (status, _) = admin
            .call("POST", of.collection, JSON, body.to_string().into())
            .await?;
        if status != 201 {
            return Err(format!("create while watching: {status}").into());
        }
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done?);
    }
    let delivered = times.len();
    Ok(
        json!({"phase": "watch", "watchers": watchers, "events": events, "operations": delivered,
        "missing": (watchers * events).saturating_sub(delivered), "ms": percentiles(times),
        "rss_mib_of_watches": round(watching - idle)}),
    )
}

async fn start(url: &str, runs: usize, command: &[String]) -> Result<Value, Error> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut times = Vec::new();
    let mut memory = 0.0;
    for _ in 0..runs {
        let begun = Instant::now();
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let deadline = begun + Duration::from_secs(120);
        while !crate::client::answers_ready(url).await {
            if Instant::now() > deadline {
                return Err("the server did not become ready within two minutes".into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(begun.elapsed());
        memory = child.id().map_or(0.0, |pid| resident_mib(&[pid]));
        child.kill().await?;
    }
    Ok(json!({"phase": "start", "operations": runs, "rss_mib": round(memory), "ms": percentiles(times)}))
}
