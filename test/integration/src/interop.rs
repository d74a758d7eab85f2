//! One etcd shared with a real kube-apiserver: taking over what it left, running beside it, handing back, and values that either has
//! encrypted. Needs etcd and the program that `UPSTREAM_KUBE_APISERVER` names; says loudly when it is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::etcd::take_node_ports;
use control_plane::ControlPlane;
use kms_plugin::Plugin;
use serde_json::{Value, json};
use test_support::{Client, Etcd, PATIENCE, Upstream, eventually, plane_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// This server as a replica on an etcd, with the keys of a data directory. Its own controllers are off: kube-apiserver has none either.
async fn ours(dir: &Path, etcd: &str) -> (ControlPlane, Client) {
    ours_with(dir, etcd, |_| {}).await
}

async fn ours_with(
    dir: &Path,
    etcd: &str,
    change: impl FnOnce(&mut control_plane::Options),
) -> (ControlPlane, Client) {
    plane_with(|builder| {
        builder.data_dir(dir).with(|options| {
            options.storage_backend = None;
            options.etcd_servers = vec![etcd.to_string()];
            options.controllers = vec!["-*".into()];
            change(options);
        })
    })
    .await
}

/// A data directory with its keys and nothing else.
async fn keys() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, _) = plane_with(|builder| builder.data_dir(dir.path())).await;
    plane.stop().await;
    dir
}

/// Some objects of every resource.
fn objects(side: &str, number: &str) -> Vec<Value> {
    let text = include_str!("interop/objects.yaml");
    let text = text.replace("SIDE", side).replace("NUMBER", number);
    let objects = text.split("\n---\n");
    objects
        .map(|text| {
            let decoded = machinery::codec::yaml::decode(text.as_bytes());
            decoded.expect("a manifest").value
        })
        .collect()
}

/// Where objects like this one are, once the server serves its kind.
async fn collection(client: &Client, object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("a version");
    let root = match version.contains('/') {
        true => format!("/apis/{version}"),
        false => format!("/api/{version}"),
    };
    let plural = eventually(&format!("{} is served", object["kind"]), async || {
        let known = client.get(&root).await;
        let resources = known.json["resources"].as_array()?;
        let name = |r: &Value| r["name"].as_str().map(str::to_string);
        resources
            .iter()
            .filter(|r| r["kind"] == object["kind"])
            .filter_map(name)
            .find(|name| !name.contains('/'))
    })
    .await;
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

/// Makes all objects; gives where they are.
async fn make(client: &Client, side: &str, number: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for object in objects(side, number) {
        let path = collection(client, &object).await;
        let what = format!("{path}/{}", object["metadata"]["name"].as_str().expect("a name"));
        // Informers of kube-apiserver lag: a kind, a namespace or a class may not be known yet.
        eventually(&what, async || {
            let answer = client.post(&path, &object).await;
            let later = matches!(answer.status, 403 | 404);
            assert!(
                later || answer.status == 201,
                "{what}: {}",
                String::from_utf8_lossy(&answer.body)
            );
            (!later).then_some(())
        })
        .await;
        paths.push(what);
    }
    paths
}

/// The paths of all lists that a server has.
async fn lists(client: &Client) -> BTreeSet<String> {
    let mut roots = vec!["/api/v1".to_string()];
    let groups = client.get("/apis").await.expect(200);
    for group in groups["groups"].as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            let version = version["groupVersion"].as_str().expect("a version");
            roots.push(format!("/apis/{version}"));
        }
    }
    let mut lists = BTreeSet::new();
    for root in roots {
        let answer = client.get(&root).await;
        for resource in answer.json["resources"].as_array().into_iter().flatten() {
            let verbs = resource["verbs"].as_array().expect("verbs");
            let name = resource["name"].as_str().expect("a name");
            // Component statuses are generated on each request and not stored.
            if verbs.contains(&json!("list")) && name != "componentstatuses" {
                lists.insert(format!("{root}/{name}"));
            }
        }
    }
    lists
}

/// Waits until two servers serve the same lists and the same objects in them, byte for byte when parsed.
async fn agree(a: &Client, b: &Client) {
    let deadline = Instant::now() + PATIENCE;
    let mut paths = BTreeSet::new();
    while Instant::now() < deadline {
        let (left, right) = (lists(a).await, lists(b).await);
        if left == right {
            paths = left;
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(paths.len() > 60, "both serve the same kinds");
    for path in paths {
        loop {
            let (left, right) = (a.get(&path).await, b.get(&path).await);
            let fault = match (left.status, right.status) {
                (200, 200) => difference(&left.json, &right.json),
                // kube-apiserver's caches are not filled at once.
                codes => format!("answered {codes:?}"),
            };
            if fault.is_empty() {
                break;
            }
            // Servers renew leases and conditions of their own meanwhile.
            assert!(Instant::now() < deadline, "{path} differs: {fault}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The first thing that differs between two lists, but the lists' own versions.
fn difference(left: &Value, right: &Value) -> String {
    let [l, r] = [left, right].map(|list| list["items"].as_array().map_or(&[][..], Vec::as_slice));
    if left["kind"] != right["kind"] || l.len() != r.len() {
        return format!(
            "{} of {} and {} of {}",
            l.len(),
            left["kind"],
            r.len(),
            right["kind"]
        );
    }
    let different = l.iter().zip(r).find(|(l, r)| l != r);
    different.map_or_else(String::new, |(l, r)| format!("\n{l}\n{r}"))
}

/// The objects at these paths.
async fn read(client: &Client, paths: &[String]) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for path in paths {
        let object = eventually(path, async || {
            let answer = client.get(path).await;
            (answer.status == 200).then_some(answer.json)
        })
        .await;
        found.insert(path.clone(), object);
    }
    found
}

/// A write by one is read by the other at once and seen by its watchers; stale writes are refused.
async fn write_and_see(writer: &Client, reader: &Client, name: &str) {
    let start = reader.get(MAPS).await.expect(200);
    let version = start["metadata"]["resourceVersion"].as_str().expect("a version");
    let query = format!("{MAPS}?watch=1&resourceVersion={version}");
    let mut watches = [writer.watch(&query).await, reader.watch(&query).await];
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}});
    let created = writer.post(MAPS, &map).await.expect(201);
    let path = format!("{MAPS}/{name}");
    assert_eq!(reader.get(&path).await.expect(200), created);
    let patch = json!({"data": {"n": "1"}});
    let patched = reader.patch(&path, "merge-patch+json", &patch).await.expect(200);
    assert_eq!(writer.get(&path).await.expect(200), patched);
    let listed = writer.get(MAPS).await.expect(200);
    let items = listed["items"].as_array().expect("items");
    assert!(items.iter().any(|item| item["data"] == patched["data"]));
    writer.put(&path, &created).await.expect(409);
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"m": "2"}});
    let by_patch = format!("{path}?fieldManager=me&force=true");
    let applied = writer
        .patch(&by_patch, "apply-patch+yaml", &applied)
        .await
        .expect(200);
    assert_eq!(reader.get(&path).await.expect(200), applied);
    let gone = reader.delete(&path).await.expect(200);
    assert_eq!(gone["status"], "Success");
    writer.get(&path).await.expect(404);
    for watch in &mut watches {
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let event = watch.next().await.expect("an event");
            if event["object"]["metadata"]["name"] == name {
                seen.push(event["type"].as_str().unwrap_or_default().to_string());
            }
        }
        assert_eq!(seen, ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]);
    }
}

#[tokio::test]
async fn an_etcd_is_shared_with_kube_apiserver_and_handed_back() {
    let (Some(program), Some(etcd)) = (Upstream::program(), Etcd::start().await) else {
        return;
    };
    let dir = keys().await;
    let dir = dir.path();

    // Taking over: objects written by kube-apiserver are served.
    let flag = format!("--service-node-port-range={NODE_PORTS}");
    let upstream = Upstream::start(&program, dir, &etcd.url(), &[&flag]).await;
    let theirs = make(upstream.client(), "up", "1").await;
    let few = |options: &mut control_plane::Options| options.service_node_port_range = NODE_PORTS.into();
    let (plane, client) = ours_with(dir, &etcd.url(), few).await;
    agree(upstream.client(), &client).await;

    // Side by side: each sees what the other writes, kinds that the other defined included.
    write_and_see(upstream.client(), &client, "from-upstream").await;
    write_and_see(&client, upstream.client(), "from-ours").await;
    let own = make(&client, "own", "2").await;
    agree(upstream.client(), &client).await;
    assert_eq!(
        client.get(CRDS).await.expect(200)["items"]
            .as_array()
            .map(Vec::len),
        Some(4)
    );
    // Both give out what is left of the node ports at the same time.
    tokio::join!(
        take_node_ports(upstream.client(), "up"),
        take_node_ports(&client, "own")
    );
    let services = client.get("/api/v1/services").await.expect(200).clone();
    let services = services["items"].as_array().expect("services");
    let ports = |service: &Value| {
        let of_ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let mut all: Vec<i64> = of_ports.filter_map(|port| port["nodePort"].as_i64()).collect();
        all.extend(service["spec"]["healthCheckNodePort"].as_i64());
        all
    };
    let mut ports: Vec<i64> = services.iter().flat_map(ports).collect();
    ports.sort_unstable();
    assert_eq!(ports, (30000..=30031).collect::<Vec<i64>>());
    let before = read(upstream.client(), &theirs).await;
    drop(upstream);
    plane.stop().await;

    // Alone, from the start.
    let (plane, client) = ours_with(dir, &etcd.url(), |options| {
        options.storage_media_type = Some(control_plane::StorageMediaType::Yaml);
    })
    .await;
    let both = [&theirs[..], &own].concat();
    let after = read(&client, &both).await;
    for (path, object) in before {
        assert_eq!(after[&path], object, "{path}");
    }
    // Upstream's objects are written again, in the one form that has not been seen yet.
    for path in &theirs {
        let patch = json!({"metadata": {"labels": {"seen": "ours"}}});
        client.patch(path, "merge-patch+json", &patch).await.expect(200);
    }
    let written = read(&client, &both).await;
    let stored = plane.engine().get("/registry/pods/shop-up/rich", None).await;
    let stored = stored.expect("an answer").0.expect("it is stored").value;
    assert!(stored.starts_with(b"apiVersion: v1\n"));
    plane.stop().await;

    // Handing back.
    let upstream = Upstream::start(&program, dir, &etcd.url(), &[]).await;
    let found = read(upstream.client(), &both).await;
    for (path, object) in &written {
        assert_eq!(found[path], *object, "{path}");
    }
    let (plane, client) = ours(dir, &etcd.url()).await;
    agree(upstream.client(), &client).await;
    plane.stop().await;
}

/// Few enough to run out of.
const NODE_PORTS: &str = "30000-30031";

const K1: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The resources that each provider encrypts, and the prefixes of its values.
const ENCRYPTED: [(&str, &str, &str); 4] = [
    ("secrets/shop/s", "aescbc", "k8s:enc:aescbc:v1:k1:"),
    ("configmaps/shop/m", "aesgcm", "k8s:enc:aesgcm:v1:k1:"),
    ("leases/shop/l", "secretbox", "k8s:enc:secretbox:v1:k1:"),
    ("serviceaccounts/shop/a", "kms", "k8s:enc:kms:v2:vault:"),
];

#[tokio::test]
async fn values_that_either_has_encrypted_are_read_by_the_other() {
    let (Some(program), Some(etcd)) = (Upstream::program(), Etcd::start().await) else {
        return;
    };
    let dir = keys().await;
    let dir = dir.path();
    let socket = dir.join("kms.sock");
    let _plugin = Plugin::listen(&socket, "key-1").expect("a plugin");
    let config = dir.join("enc.yaml");
    let mut text =
        String::from("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n");
    for (key, provider, _) in ENCRYPTED {
        let resource = match key.split('/').next().expect("a resource") {
            "leases" => "leases.coordination.k8s.io",
            plain => plain,
        };
        let provider = match provider {
            "kms" => format!(
                "kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}'}}",
                socket.display()
            ),
            other => format!("{other}: {{keys: [{{name: k1, secret: {K1}}}]}}"),
        };
        text += &format!("- resources: [{resource}]\n  providers:\n  - {provider}\n  - identity: {{}}\n");
    }
    std::fs::write(&config, text).expect("a file");
    let flag = format!("--encryption-provider-config={}", config.display());
    let upstream = Upstream::start(&program, dir, &etcd.url(), &[&flag]).await;
    let (plane, client) = ours_with(dir, &etcd.url(), |options| {
        options.encryption_provider_config = Some(config.clone());
    })
    .await;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    client.post("/api/v1/namespaces", &space).await.expect(201);

    for (name, writer, reader) in [
        ("theirs", upstream.client(), &client),
        ("own", &client, upstream.client()),
    ] {
        for (key, _, prefix) in ENCRYPTED {
            let (plural, rest) = key.split_once('/').expect("a key");
            let kind = match plural {
                "secrets" => {
                    json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"password": "swordfish"}})
                }
                "configmaps" => {
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"password": "swordfish"}})
                }
                "leases" => {
                    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "swordfish"}})
                }
                _ => {
                    json!({"apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "swordfish"}]})
                }
            };
            let (namespace, short) = rest.split_once('/').expect("a key");
            let name = format!("{short}-{name}");
            let mut object = kind;
            object["metadata"] = json!({"name": name, "namespace": namespace});
            let collection = collection(writer, &object).await;
            let created = eventually("the namespace is known", async || {
                let answer = writer.post(&collection, &object).await;
                (answer.status == 201).then_some(answer.json)
            })
            .await;
            let path = format!("{collection}/{name}");
            assert_eq!(reader.get(&path).await.expect(200), created, "{path}");
            let key = format!("/registry/{plural}/{namespace}/{name}");
            let stored = plane.engine().get(&key, None).await.expect("an answer").0;
            let stored = stored.expect("it is stored").value;
            assert!(stored.starts_with(prefix.as_bytes()), "{key}");
            // Values that the other encrypted are current: a write that changes nothing is not stored.
            let again = reader.put(&path, &created).await.expect(200);
            assert_eq!(again, created, "{path}");
            let patch = json!({"metadata": {"labels": {"by": "other"}}});
            let patched = reader.patch(&path, "merge-patch+json", &patch).await.expect(200);
            assert_eq!(writer.get(&path).await.expect(200), patched, "{path}");
        }
    }
    plane.stop().await;
}
