//! What reads cost in each form that clients ask for: lists of many pods, of those with a label, and single pods, in JSON, protobuf and as
//! Tables, plain and compressed.

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, Error, Target};
use crate::figures::{JSON, percentiles, round};
use crate::process::{cpu_seconds, resident_mib};

/// How many pods, and how often they are asked for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Forms {
    /// Pods of about 9 KiB; made when they are not there.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) pods: usize,
    /// Lists in each form, after a first one that is measured alone.
    #[arg(long, default_value_t = 10)]
    pub(crate) lists: usize,
    /// Single pods in each form.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) gets: usize,
    /// Changes that are made before each list.
    #[arg(long, default_value_t = 0)]
    pub(crate) writes: usize,
    /// Clients that make the pods.
    #[arg(long, default_value_t = 32)]
    pub(crate) clients: usize,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// As kubectl and client-go ask.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
/// Pods with the same label.
const GROUP: usize = 100;

/// Runs the rows.
pub(crate) async fn run(
    target: &Target,
    admin: &Client,
    base: &str,
    pids: &[u32],
    forms: &Forms,
) -> Result<Value, Error> {
    make(target, admin, base, forms).await?;
    let pods = format!("{base}/pods");
    let some = format!("{pods}?labelSelector=group%3D7");
    let mut rows = Vec::new();
    for (row, path, accept, encoding) in [
        ("JSON", &pods, JSON, ""),
        ("JSON, gzip", &pods, JSON, "gzip"),
        ("protobuf", &pods, PROTOBUF, ""),
        ("protobuf, gzip", &pods, PROTOBUF, "gzip"),
        ("metadata, protobuf, gzip", &pods, METADATA, "gzip"),
        ("Table", &pods, TABLE, ""),
        ("Table, gzip", &pods, TABLE, "gzip"),
        ("by label, JSON", &some, JSON, ""),
        ("by label, JSON, gzip", &some, JSON, "gzip"),
        ("by label, protobuf", &some, PROTOBUF, ""),
        ("by label, protobuf, gzip", &some, PROTOBUF, "gzip"),
        ("by label, Table, gzip", &some, TABLE, "gzip"),
    ] {
        let count = match path == &some {
            true => forms.lists * 20,
            false => forms.lists,
        };
        let ask = Ask {
            admin,
            accept,
            encoding,
            pids,
        };
        let writes = (forms.writes, base);
        rows.push(ask.row(row, count, writes, |_| path.clone()).await?);
    }
    for (row, accept) in [("one pod, JSON", JSON), ("one pod, protobuf", PROTOBUF)] {
        let ask = Ask {
            admin,
            accept,
            encoding: "gzip",
            pids,
        };
        let path = |at: usize| format!("{pods}/{}", name(at * 7 % forms.pods.max(1)));
        rows.push(ask.row(row, forms.gets, (0, base), path).await?);
    }
    Ok(json!({"phase": "forms", "pods": forms.pods, "operations": rows.len(), "rows": rows}))
}

/// How a row asks.
struct Ask<'a> {
    admin: &'a Client,
    accept: &'a str,
    encoding: &'a str,
    pids: &'a [u32],
}

impl Ask<'_> {
    /// One request alone, and `count` more of the same form.
    async fn row(
        &self,
        row: &str,
        count: usize,
        (writes, base): (usize, &str),
        path: impl Fn(usize) -> String,
    ) -> Result<Value, Error> {
        let (first_cpu, first) = (cpu_seconds(self.pids), Instant::now());
        let bytes = self.one(&path(0)).await?;
        let (first_cpu, first) = (cpu_seconds(self.pids) - first_cpu, first.elapsed());
        let (mut cpu, mut times) = (0.0, Vec::with_capacity(count));
        let mut before = cpu_seconds(self.pids);
        for at in 0..count {
            if writes > 0 {
                for write in 0..writes {
                    touch(self.admin, base, at * writes + write).await?;
                }
                before = cpu_seconds(self.pids);
            }
            let begun = Instant::now();
            self.one(&path(at)).await?;
            times.push(begun.elapsed());
            if writes > 0 {
                cpu += cpu_seconds(self.pids) - before;
            }
        }
        if writes == 0 {
            cpu = cpu_seconds(self.pids) - before;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let operations = count.max(1) as f64;
        Ok(json!({
            "row": row,
            "bytes": bytes,
            "first_cpu_ms": round(first_cpu * 1000.0),
            "first_ms": round(first.as_secs_f64() * 1000.0),
            "cpu_ms_each": round(cpu * 1000.0 / operations),
            "ms": percentiles(times),
            "rss_mib": round(resident_mib(self.pids)),
        }))
    }

    async fn one(&self, path: &str) -> Result<usize, Error> {
        let (status, bytes) = self.admin.fetch(path, self.accept, self.encoding).await?;
        match status {
            200 => Ok(bytes),
            _ => Err(format!("{path} as {} answered {status}", self.accept).into()),
        }
    }
}

fn name(at: usize) -> String {
    format!("form-{at:06}")
}

/// Makes the pods, unless the last one is there.
async fn make(target: &Target, admin: &Client, base: &str, forms: &Forms) -> Result<(), Error> {
    let last = format!("{base}/pods/{}", name(forms.pods.saturating_sub(1)));
    let (status, _) = admin.call("GET", &last, "", Bytes::new()).await?;
    if status == 200 {
        return Ok(());
    }
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..forms.clients.max(1) {
        let (client, base) = (target.connect().await?, base.to_string());
        let (step, end) = (forms.clients.max(1), forms.pods);
        workers.spawn(async move {
            for at in (worker..end).step_by(step) {
                let body = pod(at, end).to_string();
                let (status, _) = client
                    .call("POST", &format!("{base}/pods"), JSON, body.into())
                    .await?;
                if status != 201 && status != 409 {
                    return Err(format!("a pod is answered with {status}").into());
                }
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    Ok(())
}

/// Changes a pod.
async fn touch(admin: &Client, base: &str, at: usize) -> Result<(), Error> {
    let patch = json!({"metadata": {"annotations": {"touched": at.to_string()}}}).to_string();
    let path = format!("{base}/pods/{}", name(at * 13));
    let media = "application/merge-patch+json";
    let (status, _) = admin.call("PATCH", &path, media, patch.into()).await?;
    match status {
        200 | 404 => Ok(()),
        _ => Err(format!("a patch is answered with {status}").into()),
    }
}

/// A pod as controllers make them: some containers with their settings, and annotations.
fn pod(at: usize, pods: usize) -> Value {
    let groups = (pods / GROUP).max(1);
    // What differs among pods of one template, too: ids and digests.
    let unique = |salt: usize| {
        let mixed = (at * 31 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "{mixed:016x}{:016x}",
            mixed.rotate_left(29).wrapping_mul(0x2545_f491_4f6c_dd1d)
        )
    };
    let container = |number: usize| {
        let env: Vec<Value> = (0..12)
            .map(|n| json!({"name": format!("SETTING_{n:02}"), "value": format!("value-{n}-of-{number}-{}", &unique(n)[..8])}))
            .collect();
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5, "periodSeconds": 10});
        json!({"name": format!("container-{number}"), "image": format!("registry.example.com/team/app-{number}@sha256:{}{}", unique(1), unique(2)),
            "args": ["--serve", "--port=8080", "--log-level=info", "--leader-elect=true"], "env": env,
            "ports": [{"name": "http", "containerPort": 8080 + number, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "readinessProbe": probe, "livenessProbe": probe,
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}, {"name": "data", "mountPath": "/var/lib/app"}]})
    };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name(at), "labels": {"app": "bench", "group": (at % groups).to_string(), "pod-template-hash": &unique(3)[..10]},
            "annotations": {"checksum/config": unique(4), "checksum/secret": unique(5), "example.com/revision": unique(6)}},
        "spec": {"serviceAccountName": "default", "containers": (0..3).map(container).collect::<Vec<_>>(),
            "volumes": [{"name": "config", "configMap": {"name": "app-config"}}, {"name": "data", "emptyDir": {}}]}})
}
