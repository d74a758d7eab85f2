//! Many planes in one process, and forks of one: in process, through the library. Its own memory and CPU are what is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control_plane::{ControlPlane, Snapshot, User, administrator};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::client::Error;
use crate::figures::round;
use crate::process::{cpu_seconds, resident_mib};

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Planes {
    /// Idle planes; none for forks alone.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Seconds for which they are idle.
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// Objects of 2 KiB in the plane that is forked; none for idle planes alone.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Forks of it, all kept.
    #[arg(long, default_value_t = 100)]
    forks: usize,
    /// Runs no controllers.
    #[arg(long)]
    no_controllers: bool,
}

/// Writers that fill the plane.
const WRITERS: usize = 64;
/// Objects that are changed before a reset.
const CHANGED: usize = 100;

/// Prints a line for each part.
pub(crate) async fn run(what: &Planes, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
    if what.count > 0 {
        print(idle(what).await?);
    }
    if what.objects > 0 {
        forks(what, print).await?;
    }
    Ok(())
}

fn own_pid() -> [u32; 1] {
    [std::process::id()]
}

fn memory() -> f64 {
    resident_mib(&own_pid())
}

fn milliseconds(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1000.0)
}

async fn start(what: &Planes) -> Result<ControlPlane, Error> {
    let builder = ControlPlane::builder().in_memory();
    let builder = match what.no_controllers {
        true => builder.controllers(Vec::<String>::new()),
        false => builder,
    };
    Ok(builder.start().await?)
}

async fn idle(what: &Planes) -> Result<Value, Error> {
    // What the first one makes for all is no part of the others.
    let first = start(what).await?;
    let before = memory();
    let (begun, cpu_before) = (Instant::now(), cpu_seconds(&own_pid()));
    let mut planes = Vec::with_capacity(what.count);
    for _ in 0..what.count {
        planes.push(start(what).await?);
    }
    let (took, cpu) = (begun.elapsed(), cpu_seconds(&own_pid()) - cpu_before);
    // The controllers have read what there is, and allocators have given back what they can.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (memory() - before) / what.count as f64;
    let cpu_before = cpu_seconds(&own_pid());
    tokio::time::sleep(Duration::from_secs(what.idle)).await;
    let idle_cpu = cpu_seconds(&own_pid()) - cpu_before;
    let line = json!({
        "phase": "planes", "count": what.count, "first_mib": round(before),
        "start_ms": milliseconds(took / u32::try_from(what.count)?),
        "start_cpu_ms": round(cpu * 1000.0 / what.count as f64),
        "all_s": round(took.as_secs_f64()), "mib_each": round(each * 100.0) / 100.0, "rss_mib": round(memory()),
        "idle_cpu_ms_per_plane_and_minute": round(idle_cpu * 60_000.0 / what.idle.max(1) as f64 / what.count as f64),
        "threads": threads(),
    });
    drop(planes);
    first.stop().await;
    Ok(line)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

async fn forks(what: &Planes, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
    let plane = Arc::new(start(what).await?);
    fill(&plane, what.objects).await?;
    let filled = memory();
    let begun = Instant::now();
    let snapshot = plane.snapshot().await?;
    let frozen = begun.elapsed();
    // The first use of what all share.
    snapshot.fork().await?.stop().await;

    let before = memory();
    let mut forks: Vec<ControlPlane> = Vec::with_capacity(what.forks);
    let mut times = Vec::with_capacity(what.forks);
    let cpu_before = cpu_seconds(&own_pid());
    for _ in 0..what.forks {
        let begun = Instant::now();
        forks.push(plane.fork().await?);
        times.push(begun.elapsed());
    }
    let cpu = cpu_seconds(&own_pid()) - cpu_before;
    times.sort_unstable();
    let at_once = memory();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let forked = memory();
    for (n, fork) in forks.iter().enumerate() {
        create(fork, "own", n).await?;
        let listed = count(fork).await?;
        if listed != what.objects + 1 {
            return Err(format!("fork {n} has {listed} objects").into());
        }
    }
    let kept = times.len().max(1);
    print(json!({
        "phase": "forks", "objects": what.objects, "forks": what.forks, "filled_mib": round(filled),
        "snapshot_ms": milliseconds(frozen), "fork_min_ms": milliseconds(times.first().copied().unwrap_or_default()),
        "fork_median_ms": milliseconds(times.get(kept / 2).copied().unwrap_or_default()),
        "fork_max_ms": milliseconds(times.last().copied().unwrap_or_default()),
        "fork_cpu_ms": round(cpu * 1000.0 / kept as f64),
        "mib_each_at_once": round((at_once - before) * 100.0 / kept as f64) / 100.0,
        "mib_each": round((forked - before) * 100.0 / kept as f64) / 100.0,
        "mib_each_after_a_list": round((memory() - before) * 100.0 / kept as f64) / 100.0,
    }));
    print(reset(&plane, &snapshot, what.objects).await?);
    for fork in forks {
        fork.stop().await;
    }
    Ok(())
}

async fn reset(plane: &ControlPlane, snapshot: &Snapshot, objects: usize) -> Result<Value, Error> {
    for n in 0..CHANGED {
        create(plane, "later", n).await?;
    }
    let begun = Instant::now();
    plane.reset_to(snapshot).await?;
    let took = begun.elapsed();
    let left = count(plane).await?;
    if left != objects {
        return Err(format!("{left} objects are left of {objects}").into());
    }
    Ok(json!({"phase": "reset", "objects": objects, "changed": CHANGED, "reset_ms": milliseconds(took)}))
}

async fn fill(plane: &Arc<ControlPlane>, objects: usize) -> Result<(), Error> {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let plane = plane.clone();
        writers.spawn(async move {
            for n in (writer..objects).step_by(WRITERS) {
                create(&plane, "object", n)
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

async fn create(plane: &ControlPlane, name: &str, n: usize) -> Result<(), Error> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-{n:05}")},
        "data": {"filler": "x".repeat(2048)},
    });
    let (status, body) = ask(plane, Method::POST, COLLECTION, Some(&object)).await?;
    match status {
        StatusCode::CREATED => Ok(()),
        status => Err(format!(
            "a create is answered {status}: {}",
            String::from_utf8_lossy(&body)
        )
        .into()),
    }
}

/// The ConfigMaps, without the one that every namespace has.
async fn count(plane: &ControlPlane) -> Result<usize, Error> {
    let (status, body) = ask(plane, Method::GET, COLLECTION, None).await?;
    if status != StatusCode::OK {
        return Err(format!("a list is answered {status}").into());
    }
    let list: Value = serde_json::from_slice(&body)?;
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(items
        .iter()
        .filter(|item| item["metadata"]["name"] != "kube-root-ca.crt")
        .count())
}

/// A request of the administrator, straight into the chain.
async fn ask(
    plane: &ControlPlane,
    method: Method,
    path: &str,
    object: Option<&Value>,
) -> Result<(StatusCode, bytes::Bytes), Error> {
    let user: User = administrator();
    let body = object.map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(
            header::AUTHORIZATION,
            format!("Bearer {}", plane.token_for(&user)),
        )
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body).map_err(|never| match never {}).boxed_unsync())?;
    let response = plane.chain().serve(request).await;
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}
