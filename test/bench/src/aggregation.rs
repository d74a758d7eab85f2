//! Phases about aggregated servers: requests by path, so that the same backend can be asked through the aggregator and directly,
//! registering one, and what happens when it dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, Error, Target};
use crate::figures::{JSON, percentiles, round};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Between two looks at something that should change.
const GLANCE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks for one path again and again.
pub(crate) async fn get_path(
    target: &Target,
    path: &str,
    clients: usize,
    count: usize,
) -> Result<Value, Error> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let client = target.connect().await?;
        let (next, path) = (next.clone(), path.to_string());
        workers.spawn(async move {
            let (mut times, mut failed) = (Vec::new(), 0_usize);
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let begun = Instant::now();
                let (status, _) = client.call("GET", &path, "", Bytes::new()).await?;
                times.push(begun.elapsed());
                failed += usize::from(status >= 300);
            }
            Ok::<_, Error>((times, failed))
        });
    }
    let (mut times, mut failed) = (Vec::new(), 0);
    while let Some(done) = workers.join_next().await {
        let (some, bad) = done??;
        times.extend(some);
        failed += bad;
    }
    Ok(json!({
        "phase": "get-path", "path": path, "clients": clients, "operations": times.len(), "failed": failed,
        "ms": percentiles(times),
    }))
}

/// The backend of an APIService.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Registration {
    /// The group.
    #[arg(long, default_value = "sample.example.com")]
    pub(crate) group: String,
    /// The version.
    #[arg(long, default_value = "v1")]
    pub(crate) version: String,
    /// Where the backend listens on this machine.
    #[arg(long)]
    pub(crate) port: u16,
}

/// Registers a backend on this machine, and measures until it is served.
pub(crate) async fn register(admin: &Client, namespace: &str, of: &Registration) -> Result<Value, Error> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let services = format!("/api/v1/namespaces/{namespace}/services");
    made(admin, &services, &service).await?;
    let (group, version) = (&of.group, &of.version);
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("{version}.{group}")},
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": {"namespace": namespace, "name": "backend", "port": of.port},
        },
    });
    let begun = Instant::now();
    made(admin, SERVICES, &api_service).await?;
    let path = format!("/apis/{group}/{version}");
    until(admin, &path, |status| status == 200).await?;
    let served = begun.elapsed();
    Ok(json!({"phase": "register", "operations": 1, "served_ms": round(served.as_secs_f64() * 1000.0)}))
}

async fn made(admin: &Client, path: &str, object: &Value) -> Result<(), Error> {
    let (status, _) = admin.call("POST", path, JSON, object.to_string().into()).await?;
    match status {
        201 | 409 => Ok(()),
        other => Err(format!("POST {path}: {other}").into()),
    }
}

/// Asks until the status is as wanted; how long that took, and how long the last answer.
async fn until(
    admin: &Client,
    path: &str,
    wanted: impl Fn(u16) -> bool,
) -> Result<(Duration, Duration), Error> {
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        let (status, _) = admin.call("GET", path, "", Bytes::new()).await?;
        if wanted(status) {
            return Ok((begun.elapsed(), asked.elapsed()));
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{path} still answers {status}").into());
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Kills a registered backend and starts it again.
pub(crate) async fn outage(
    admin: &Client,
    path: &str,
    runs: usize,
    command: &[String],
) -> Result<Value, Error> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let start = || {
        tokio::process::Command::new(program)
            .args(arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
    };
    let (mut seen, mut answers, mut served) = (Vec::new(), Vec::new(), Vec::new());
    let mut child = start()?;
    until(admin, path, |status| status == 200).await?;
    for _ in 0..runs {
        child.kill().await?;
        let (after, took) = until(admin, path, |status| status != 200).await?;
        seen.push(after);
        answers.push(took);
        // Long enough away for every server to have noticed.
        tokio::time::sleep(Duration::from_secs(8)).await;
        let begun = Instant::now();
        child = start()?;
        until(admin, path, |status| status == 200).await?;
        served.push(begun.elapsed());
    }
    child.kill().await?;
    Ok(json!({
        "phase": "outage", "operations": runs, "failure_seen_ms": percentiles(seen),
        "failing_answer_ms": percentiles(answers), "served_again_ms": percentiles(served),
    }))
}
