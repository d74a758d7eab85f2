//! Requests that cost as much as one may, all the time, and how others fare beside them.
//!
//! Each is just within the server's bounds (`machinery::limits`), so that it is worked through and not refused at the door.
//! Requests that would be stored is tried only (`dryRun=All`), so that the server's state stays small.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use machinery::limits;
use serde_json::{Value, json};

use crate::client::{Client, Error, Target};
use crate::figures::{JSON, percentiles};

/// Between two looks of the prober.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the prober waits for an answer; one that does not come counts with this time, as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A user who may do everything in the namespace and nothing elsewhere, so that escalation is checked.
const USER: &str = "heavy";

/// A request of much work.
#[derive(Debug, Clone)]
struct Heavy {
    name: &'static str,
    method: &'static str,
    path: String,
    media: &'static str,
    body: Bytes,
}

/// Runs `clients` of them at once for so many seconds.
pub(crate) async fn run(
    target: &Target,
    admin: &Client,
    namespace: &str,
    clients: usize,
    seconds: u64,
) -> Result<Value, Error> {
    let base = format!("/api/v1/namespaces/{namespace}");
    prepare(admin, namespace, &base).await?;
    let requests = requests(namespace, &base);
    let alone = probed(target, &base, Duration::from_secs(2)).await?;
    let (end, over) = tokio::sync::watch::channel(());
    let mut workers = tokio::task::JoinSet::new();
    for index in 0..clients {
        let heavy = requests[index % requests.len()].clone();
        let (client, mut over) = (target.connect().await?, over.clone());
        workers.spawn(async move {
            let mut answers: BTreeMap<u16, usize> = BTreeMap::new();
            let mut times = Vec::new();
            loop {
                let begun = Instant::now();
                let sent = client.call_for(USER, heavy.method, &heavy.path, heavy.media, heavy.body.clone());
                tokio::select! {
                    answer = sent => *answers.entry(answer?.0).or_default() += 1,
                    // Requests in flight at the end are not waited for.
                    _ = over.changed() => return Ok::<_, Error>((heavy.name, answers, times)),
                }
                times.push(begun.elapsed());
            }
        });
    }
    let beside = probed(target, &base, Duration::from_secs(seconds)).await?;
    drop(end);
    let mut sorts = serde_json::Map::new();
    let mut operations = 0;
    while let Some(worker) = workers.join_next().await {
        let (name, answers, times) = worker??;
        operations += times.len();
        let codes: BTreeMap<String, usize> = answers
            .iter()
            .map(|(code, count)| (code.to_string(), *count))
            .collect();
        sorts.insert(name.into(), json!({"codes": codes, "ms": percentiles(times)}));
    }
    Ok(json!({
        "phase": "heavy", "clients": clients, "operations": operations, "alone": alone, "beside": beside, "requests": sorts,
    }))
}

/// Asks for `/readyz` and a small object in turn, from a thread of its own.
async fn probed(target: &Target, base: &str, duration: Duration) -> Result<Value, Error> {
    let (target, base) = (target.clone(), base.to_string());
    let probing = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(probe(&target, &base, duration))
    });
    probing.await?
}

async fn probe(target: &Target, base: &str, duration: Duration) -> Result<Value, Error> {
    let paths = ["/readyz".to_string(), format!("{base}/configmaps/small")];
    let mut times = [Vec::new(), Vec::new()];
    let mut failed = 0_usize;
    let begun = Instant::now();
    let client = loop {
        match tokio::time::timeout(PATIENCE, target.connect()).await {
            Ok(client) => break client?,
            // A server that refuses all requests is no reason to wait longer.
            Err(_) if begun.elapsed() > duration => {
                return Err("no connection while heavy requests are under way".into());
            }
            Err(_) => {}
        }
    };
    while begun.elapsed() < duration {
        for (path, times) in paths.iter().zip(&mut times) {
            let one = Instant::now();
            let answer = tokio::time::timeout(PATIENCE, client.call("GET", path, "", Bytes::new())).await;
            times.push(one.elapsed());
            failed += usize::from(!matches!(answer, Ok(Ok((200, _)))));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let [ready, get] = times;
    Ok(json!({
        "operations": ready.len() + get.len(), "failed": failed, "readyz_ms": percentiles(ready),
        "get_ms": percentiles(get),
    }))
}

async fn prepare(admin: &Client, namespace: &str, base: &str) -> Result<(), Error> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    let small = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}, "data": {"a": "b"},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "long"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod_template(1_000, 0)},
    });
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let objects = [
        (bindings, binding),
        (format!("{base}/configmaps"), small),
        (deployments(namespace), deployment),
    ];
    for (path, object) in objects {
        let (status, _) = admin.call("POST", &path, JSON, object.to_string().into()).await?;
        if !matches!(status, 201 | 409) {
            return Err(format!("POST {path}: {status}").into());
        }
    }
    Ok(())
}

fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

fn pod_template(volumes: usize, from: usize) -> Value {
    let volumes: Vec<Value> = (from..from + volumes)
        .map(|i| json!({"name": format!("v{i}"), "emptyDir": {}}))
        .collect();
    json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes},
    })
}

/// One of each sort.
fn requests(namespace: &str, base: &str) -> Vec<Heavy> {
    let heavy = |name, method, path: String, media, body: String| Heavy {
        name,
        method,
        path,
        media,
        body: body.into(),
    };
    let words =
        |stem: &str, count: usize| -> Vec<String> { (0..count).map(|i| format!("{stem}{i}")).collect() };
    let review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n\
                  spec: {nonResourceAttributes: {path: /, verb: get}}\n";
    let aliases = limits::YAML_ALIAS_BYTES / 100_000 - 2;
    let yaml = format!(
        "{review}x: &x \"{}\"\ny: [{}]\n",
        "x".repeat(100_000),
        "*x,".repeat(aliases)
    );
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "product"},
        "rules": [{"apiGroups": words("g", 100), "resources": words("r", 100), "verbs": words("v", 12)}],
    });
    let length = 9_000;
    let operations = limits::JSON_PATCH_STEPS / length / 2;
    let patch = format!(
        r#"[{{"op":"add","path":"/x","value":[{}0]}}{}]"#,
        "0,".repeat(length),
        r#",{"op":"add","path":"/x/0","value":0}"#.repeat(operations)
    );
    let owners: Vec<Value> = (0..limits::OWNER_REFERENCES)
        .map(|i| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{i}"), "uid": format!("u{i}")}))
        .collect();
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": owners},
    });
    let mut pod = pod_template(20_000, 0);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "long".into();
    let data: serde_json::Map<String, Value> = (0..40_000)
        .map(|i| (format!("key-{i}"), Value::from("v")))
        .collect();
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data,
    });
    let merged = json!({"spec": {"template": pod_template(10_000, 500)}});
    let selector = words("k", limits::TARGET_BYTES / 8).join(",");
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles?dryRun=All");
    vec![
        heavy(
            "yaml-aliases",
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".into(),
            "application/yaml",
            yaml,
        ),
        heavy("role-escalation", "POST", roles, JSON, role.to_string()),
        heavy(
            "json-patch",
            "PATCH",
            format!("{base}/configmaps/small?dryRun=All"),
            "application/json-patch+json",
            patch,
        ),
        heavy(
            "owner-references",
            "POST",
            format!("{base}/configmaps?dryRun=All"),
            JSON,
            owned.to_string(),
        ),
        heavy(
            "pod-volumes",
            "POST",
            format!("{base}/pods?dryRun=All"),
            JSON,
            pod.to_string(),
        ),
        heavy(
            "apply",
            "PATCH",
            format!("{base}/configmaps/applied?fieldManager=heavy&dryRun=All"),
            "application/apply-patch+yaml",
            applied.to_string(),
        ),
        heavy(
            "strategic-merge",
            "PATCH",
            format!("{}/long?dryRun=All", deployments(namespace)),
            "application/strategic-merge-patch+json",
            merged.to_string(),
        ),
        heavy(
            "selector",
            "GET",
            format!("{base}/configmaps?labelSelector={selector}"),
            "",
            String::new(),
        ),
    ]
}
