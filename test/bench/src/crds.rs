//! The phase `crds`: the cost of many large CustomResourceDefinitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::CrdLoad;
use crate::client::{Client, Error, Target};
use crate::figures::{JSON, percentiles, round};
use crate::process::{cpu_seconds, resident_mib};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// How long a CRD may take to be served.
const PATIENCE: Duration = Duration::from_secs(300);
/// CRDs in a group.
const PER_GROUP: usize = 10;

/// Where one of the CRDs is.
struct Place {
    group: String,
    plural: String,
}

impl Place {
    fn of(run: &str, index: usize) -> Self {
        Place {
            group: format!("g{}.{run}.example.com", index / PER_GROUP),
            plural: format!("widgets{index}"),
        }
    }

    fn objects(&self) -> String {
        format!("/apis/{}/v1/{}", self.group, self.plural)
    }

    fn kind(&self) -> String {
        format!("Widget{}", self.plural.trim_start_matches("widgets"))
    }

    fn object(&self, name: &str) -> Bytes {
        let object = json!({"apiVersion": format!("{}/v1", self.group), "kind": self.kind(),
            "metadata": {"name": name}, "spec": {"replicas": 3, "section0": {"mode": "Auto", "count": 5}}});
        object.to_string().into()
    }

    /// A CRD of about this many bytes, in the shape of those of large operators: half of it is prose.
    fn crd(&self, size: usize) -> Bytes {
        let described = |what: &str| {
            format!(
                "{what} of the widget. When it is not given, the controller chooses one that suits the rest of the \
                 specification; changing it later restarts what depends on it."
            )
        };
        let section = || {
            json!({"type": "object", "description": described("A section"), "required": ["mode"], "properties": {
                "mode": {"type": "string", "enum": ["Auto", "Manual", "Off"], "default": "Auto", "description": described("The mode")},
                "count": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000, "description": described("The count")},
                "name": {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "description": described("The name")},
                "size": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "description": described("The size")},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": described("The labels")},
                "ports": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                    "description": described("The list of ports"),
                    "items": {"type": "object", "required": ["port"], "properties": {
                        "port": {"type": "integer", "format": "int32", "description": described("The number")},
                        "protocol": {"type": "string", "default": "TCP", "description": described("The protocol")}}}},
            }})
        };
        let bytes_of_one = section().to_string().len() + 16;
        let mut spec = Map::new();
        spec.insert(
            "replicas".into(),
            json!({"type": "integer", "format": "int32", "default": 1}),
        );
        for index in 0..size.div_ceil(bytes_of_one).max(1) {
            spec.insert(format!("section{index}"), section());
        }
        let schema = json!({"type": "object", "description": described("The desired state"), "properties": {
            "spec": {"type": "object", "properties": spec,
                "x-kubernetes-validations": [{"rule": "self.replicas >= 0", "message": "replicas cannot be negative"}]},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let (group, plural, kind) = (&self.group, &self.plural, self.kind());
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Cluster",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}]}]}});
        crd.to_string().into()
    }
}

/// Creates a CRD and waits until its resource answers; gives how long the create and the rest took.
async fn create(client: &Client, place: &Place, size: usize) -> Result<(Duration, Duration), Error> {
    let begun = Instant::now();
    let (status, _) = client.call("POST", CRDS, JSON, place.crd(size)).await?;
    if status != 201 {
        return Err(format!("create of a CRD: {status}").into());
    }
    let created = begun.elapsed();
    let path = format!("{}?limit=1", place.objects());
    while client.call("GET", &path, "", Bytes::new()).await?.0 != 200 {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} is not served", place.plural).into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((created, begun.elapsed()))
}

async fn timed(client: &Client, path: &str, accept: &str) -> Result<Value, Error> {
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..3 {
        let begun = Instant::now();
        let (status, length) = client.call_as("GET", path, accept, "", Bytes::new()).await?;
        if status != 200 {
            return Err(format!("{path}: {status}").into());
        }
        times.push(round(begun.elapsed().as_secs_f64() * 1000.0));
        bytes = length;
    }
    Ok(json!({"bytes": bytes, "first_ms": times[0], "again_ms": times[2]}))
}

/// Runs the phase.
pub(crate) async fn run(
    target: &Target,
    admin: &Client,
    pids: &[u32],
    load: &CrdLoad,
) -> Result<Value, Error> {
    let run = format!("run{}", std::process::id());
    // The first answers allocate memory that does not belong to the CRDs.
    for path in ["/openapi/v2", "/apis", CRDS] {
        admin.call("GET", path, "", Bytes::new()).await?;
    }
    let (memory, cpu) = (resident_mib(pids), cpu_seconds(pids));
    let begun = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..load.clients {
        let client = target.connect().await?;
        let (next, run, load) = (next.clone(), run.clone(), load.clone());
        workers.spawn(async move {
            let mut times = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= load.count {
                    return Ok::<_, Error>(times);
                }
                times.push(create(&client, &Place::of(&run, index), load.size).await?);
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = workers.join_next().await {
        times.extend(done??);
    }
    let served_after = begun.elapsed().as_secs_f64();
    let created = percentiles(times.iter().map(|(created, _)| *created).collect());
    let served = percentiles(times.iter().map(|(_, served)| *served).collect());
    let mut line = json!({
        "phase": "crds", "operations": load.count, "bytes": Place::of(&run, 0).crd(load.size).len(),
        "last_served_seconds": round(served_after), "create_ms": created, "served_ms": served,
    });
    let cpu_of_creating = cpu_seconds(pids) - cpu;
    // Background work after a create (status, discovery) counts too.
    tokio::time::sleep(Duration::from_secs(load.settle)).await;
    if !pids.is_empty() {
        let share = load.count.max(1) as f64;
        let added = resident_mib(pids) - memory;
        line["create_cpu_seconds"] = round(cpu_of_creating).into();
        line["settled_cpu_seconds"] = round(cpu_seconds(pids) - cpu).into();
        line["rss_added_mib"] = round(added).into();
        line["rss_added_kib_each"] = round(added * 1024.0 / share).into();
    }
    // The first connection may have been idle for too long.
    let admin = &target.connect().await?;
    line["openapi_v2"] = timed(admin, "/openapi/v2", JSON).await?;
    line["aggregated_discovery"] = timed(admin, "/apis", AGGREGATED).await?;
    let path = format!("/openapi/v3/apis/{}/v1", Place::of(&run, 0).group);
    line["openapi_v3_of_a_group"] = timed(admin, &path, JSON).await?;
    let mut first = Vec::new();
    let mut second = Vec::new();
    for index in 0..load.count.min(20) {
        let place = Place::of(&run, index);
        for (name, times) in [("a", &mut first), ("b", &mut second)] {
            let begun = Instant::now();
            let path = place.objects();
            let (status, _) = admin.call("POST", &path, JSON, place.object(name)).await?;
            if status != 201 {
                return Err(format!("create of an object: {status}").into());
            }
            times.push(begun.elapsed());
        }
    }
    line["first_object_ms"] = percentiles(first);
    line["second_object_ms"] = percentiles(second);
    let cpu = cpu_seconds(pids);
    let mut more = Vec::new();
    for index in 0..load.more {
        let place = Place::of(&format!("more.{run}"), index);
        more.push(create(admin, &place, load.size).await?.1);
    }
    line["one_more_ms"] = percentiles(more);
    if !pids.is_empty() {
        line["one_more_cpu_ms"] = round((cpu_seconds(pids) - cpu) * 1000.0 / load.more.max(1) as f64).into();
        line["rss_at_the_end_mib"] = round(resident_mib(pids)).into();
    }
    Ok(line)
}
