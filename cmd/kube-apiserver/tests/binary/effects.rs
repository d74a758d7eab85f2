//! The effect of each flag in a running server: [`SHOWN`] names the test of every flag of the parser, and a flag without one fails.

mod audit;
mod cluster;
mod coverage;
mod etcd;
mod issuers;
mod tls;
mod users;

use std::path::Path;

use serde_json::{Value, json};
use test_support::{Client, eventually};

use super::{MAPS, command, map, outcome, start_on};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "r", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}})
}

async fn metrics(client: &Client) -> String {
    let answer = client.get("/metrics").await;
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Waits until a line of `/metrics` is as wanted.
async fn metric(client: &Client, what: &str, wanted: impl Fn(&str) -> bool) {
    eventually(what, || async {
        metrics(client).await.lines().any(&wanted).then_some(())
    })
    .await;
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn version(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.expect("a version").to_string()
}

#[tokio::test]
async fn networks_and_services() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--bind-address=127.0.0.1",
        "--advertise-address=192.0.2.1",
        "--service-cluster-ip-range=10.9.0.0/24",
        "--service-node-port-range=31000-31000",
        "--cors-allowed-origins=//example[.]com$",
        "--min-request-timeout=1",
        "--event-ttl=1s",
        "--controllers=*,-root-ca-certificate-publisher-controller",
        "--watch-cache-history-mib=7",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    client.post(EVENTS, &event("short")).await.expect(201);

    let kubernetes = client.get(&format!("{SERVICES}/kubernetes")).await.expect(200);
    assert_eq!(kubernetes["spec"]["clusterIP"], "10.9.0.1");
    eventually("the advertised address", || async {
        let endpoints = client
            .get("/api/v1/namespaces/default/endpoints/kubernetes")
            .await
            .json;
        (endpoints["subsets"][0]["addresses"][0]["ip"] == "192.0.2.1").then_some(())
    })
    .await;
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    };
    let first = client.post(SERVICES, &service("first")).await.expect(201);
    assert_eq!(first["spec"]["ports"][0]["nodePort"], 31000);
    let full = client.post(SERVICES, &service("second")).await;
    assert!((400..=599).contains(&full.status), "{}", full.json);

    let origin = |origin: &str| client.clone().header("Origin", origin);
    let allowed = origin("https://example.com").get("/version").await;
    assert_eq!(
        allowed.headers["access-control-allow-origin"],
        "https://example.com"
    );
    let other = origin("https://example.org").get("/version").await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));

    let namespaces = "/api/v1/namespaces";
    client
        .post(namespaces, &json!({"metadata": {"name": "new"}}))
        .await
        .expect(201);
    eventually("the service account", || async {
        let account = client
            .get(&format!("{namespaces}/new/serviceaccounts/default"))
            .await;
        (account.status == 200).then_some(())
    })
    .await;
    client
        .get(&format!("{namespaces}/new/configmaps/kube-root-ca.crt"))
        .await
        .expect(404);

    metric(&client, "the budget of caches", |line| {
        line == "apiserver_watch_cache_history_limit_bytes 7340032"
    })
    .await;
    // Without the flags the event lives for an hour, and the watch for half an hour.
    eventually("the event expires", || async {
        (client.get(&format!("{EVENTS}/short")).await.status == 404).then_some(())
    })
    .await;
    let ended = async { while watch.next().await.is_some() {} };
    tokio::time::timeout(test_support::PATIENCE, ended)
        .await
        .expect("the watch ends");
}

#[tokio::test]
async fn the_address_that_it_listens_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(dir.path(), 0, &["--bind-address=127.0.0.2"]).await;
    client.get("/version").await.expect(200);
    let greeted = std::fs::read_to_string(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
    let line = greeted
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: https://"));
    let address = line.expect("a server");
    assert!(address.starts_with("127.0.0.2:"), "{address}");
    let elsewhere = address.replace("127.0.0.2", "127.0.0.1");
    assert!(tokio::net::TcpStream::connect(elsewhere).await.is_err());
}

#[tokio::test]
async fn keys_and_values_of_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--etcd-prefix=/other",
        "--storage-media-type=application/yaml",
        "--etcd-count-metric-poll-period=100ms",
        "--etcd-db-metric-poll-interval=0",
        "--scrub-interval=100ms",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let count = |line: &str| {
        let line = line.strip_prefix("apiserver_resource_objects{group=\"\",resource=\"configmaps\"} ");
        line.and_then(|count| count.parse::<u64>().ok())
    };
    metric(&client, "the objects are counted", |line| count(line).is_some()).await;
    let before = metrics(&client).await.lines().find_map(count).expect("a count");
    client.post(MAPS, &map("counted")).await.expect(201);
    metric(&client, "the object is counted", |line| {
        count(line) > Some(before)
    })
    .await;
    metric(&client, "the store is scrubbed again", |line| {
        let scrubs = line.strip_prefix("apiserver_storage_scrubs_total{result=\"clean\"} ");
        scrubs.and_then(|scrubs| scrubs.parse::<u64>().ok()) > Some(1)
    })
    .await;
    assert!(!metrics(&client).await.contains("apiserver_storage_size_bytes"));
    let file = std::fs::read(dir.path().join("redb/store.redb")).expect("the store");
    assert!(contains(&file, "/other/configmaps/default/counted"));
    assert!(contains(&file, "kind: ConfigMap\n") && !contains(&file, "\"kind\":\"ConfigMap\""));

    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--storage-backend=sled",
        "--etcd-count-metric-poll-period=0",
        "--etcd-db-metric-poll-interval=100ms",
        "--scrub-interval=0",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    metric(&client, "the store is measured", |line| {
        line.starts_with("apiserver_storage_size_bytes{")
    })
    .await;
    let text = metrics(&client).await;
    assert!(!text.contains("apiserver_resource_objects"), "{text}");
    assert!(dir.path().join("sled").is_dir() && !dir.path().join("redb").exists());
}

/// Overwrites an object until states of half the writes ago are compacted, which the default limits keep for five minutes. Each state is
/// asked for once or twice, because the cache keeps those that it was asked for.
async fn history_is_cut(flag: &str, value: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(dir.path(), 0, &[flag]).await;
    let object = client.post(MAPS, &map("one")).await.expect(201);
    let versions = tokio::sync::Mutex::new(vec![version(&object)]);
    eventually(flag, || async {
        let mut versions = versions.lock().await;
        let next = json!({"data": {"round": versions.len().to_string(), "value": value}});
        let path = format!("{MAPS}/one");
        let object = client.patch(&path, "merge-patch+json", &next).await.expect(200);
        versions.push(version(&object));
        let past = &versions[versions.len() / 2];
        let past = format!("{MAPS}?resourceVersion={past}&resourceVersionMatch=Exact");
        (client.get(&past).await.status == 410).then_some(())
    })
    .await;
}

#[tokio::test]
async fn history_is_cut_by_changes() {
    history_is_cut("--history-max-changes=10", "").await;
}

#[tokio::test]
async fn history_is_cut_by_age() {
    history_is_cut("--history-retention=1s", "").await;
}

#[tokio::test]
async fn history_is_cut_by_bytes() {
    history_is_cut("--history-max-mib=1", &"x".repeat(50_000)).await;
}

#[tokio::test]
async fn a_lost_store_is_refused_unless_it_may_be_empty() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut child, client) = start_on(dir.path(), 0, &[]).await;
    client.post(MAPS, &map("lost")).await.expect(201);
    child.kill().await.expect("killed");
    std::fs::remove_file(dir.path().join("redb/store.redb")).expect("a store");
    let (code, text) = outcome(dir.path(), &[]).await;
    assert_eq!(code, Some(3), "{text}");
    let (_child, client) = start_on(dir.path(), 0, &["--allow-empty"]).await;
    client.get(&format!("{MAPS}/lost")).await.expect(404);
}

#[tokio::test]
async fn a_first_start_needs_free_space() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, text) = outcome(dir.path(), &["--min-free-disk-mib=1000000000"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.starts_with(
            "kube-apiserver: --min-free-disk-mib=1000000000: a new store has too little free space"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn logs_and_warnings() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--v=4",
        "--logging-format=json",
        "--watch-cache=false",
        "--default-watch-cache-size=1",
        "--watch-cache-sizes=pods#1",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    client.get("/version").await.expect(200);
    let log = lines_of_json(dir.path());
    let requests = |line: &Value| line["v"] == 1 && line["path"] == "/version";
    assert!(log.iter().any(requests), "{log:?}");
    for flag in [
        "--watch-cache",
        "--default-watch-cache-size",
        "--watch-cache-sizes",
    ] {
        let warned = log
            .iter()
            .any(|line| line["v"] == 0 && line.to_string().contains(&format!("{flag} has no effect")));
        assert!(warned, "{flag}: {log:?}");
    }
    let other = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(other.path(), 0, &[]).await;
    client.get("/version").await.expect(200);
    let log = std::fs::read_to_string(other.path().join("server.log")).expect("a log");
    assert!(!log.contains("/version") && !log.contains("{\"ts\""), "{log}");
}

#[tokio::test]
async fn help_and_version() {
    let dir = tempfile::tempdir().expect("a directory");
    for (flag, text) in [
        ("--help", "--max-requests-inflight"),
        ("--version", "Kubernetes v1.36.2\n"),
        ("--version=raw", "version.Info{Major:\"1\", Minor:\"36\""),
    ] {
        let output = command(dir.path(), &[flag]).output().await.expect("it runs");
        assert!(output.status.success(), "{flag}");
        assert!(contains(&output.stdout, text), "{flag}");
    }
}

fn lines_of_json(dir: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(dir.join("server.log")).expect("a log");
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}
