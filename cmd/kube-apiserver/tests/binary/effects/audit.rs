//! Flags about auditing: the log and its rotation, the webhook, batches, sizes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, eventually};

use super::super::{MAPS, command, map, start_on};
use super::metric;

/// A policy that records writes to config maps when they are complete, with their objects.
const WRITES: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "RequestResponse", "verbs": ["create"], "users": ["kubernetes-admin"],
        "resources": [{"group": "", "resources": ["configmaps"]}]}]}"#;

fn write(dir: &Path, name: &str, content: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::write(&file, content).expect("a file");
    file
}

async fn create(client: &Client, name: &str, bytes: usize) {
    let mut map = map(name);
    map["data"]["text"] = "x".repeat(bytes).into();
    client.post(MAPS, &map).await.expect(201);
}

/// The whole lines of a log.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(String::from).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    let name = |event: &'_ Value| event["objectRef"]["name"].as_str().map(|_| ());
    assert!(events.iter().all(|event| name(event).is_some()), "{events:?}");
    events
        .iter()
        .filter_map(|event| event["objectRef"]["name"].as_str())
        .collect()
}

#[tokio::test]
async fn the_audit_log_is_rotated() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = write(dir.path(), "policy", WRITES);
    let old = write(dir.path(), "audit-2001-01-01T00-00-00.000.log", "old\n");
    let log = dir.path().join("audit.log");
    let flags = [
        &*format!("--audit-policy-file={}", policy.display()),
        &*format!("--audit-log-path={}", log.display()),
        "--audit-log-version=audit.k8s.io/v1",
        "--audit-log-format=json",
        "--audit-log-mode=blocking-strict",
        "--audit-log-maxage=1",
        "--audit-log-maxbackup=1",
        "--audit-log-maxsize=1",
        "--audit-log-compress",
        "--audit-log-truncate-enabled",
        "--audit-log-truncate-max-event-size=1000000",
        "--audit-log-truncate-max-batch-size=1000001",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    eventually("the file of another year goes", || async {
        (!old.exists()).then_some(())
    })
    .await;
    create(&client, "large", 600_000).await;
    let events: Vec<Value> = lines(&log)
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(names(&events), ["large"], "the answer waits for its event");
    assert_eq!(events[0]["level"], "RequestResponse");
    assert_eq!(
        events[0]["annotations"]["audit.k8s.io/truncated"], "true",
        "twice its size is too much"
    );
    assert!(events[0].get("responseObject").is_none());
    for index in 0..6 {
        create(&client, &format!("middle-{index}"), 300_000).await;
    }
    let rotated = || {
        let names = std::fs::read_dir(dir.path())
            .expect("a directory")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter(|name| name.starts_with("audit-"))
            .collect::<Vec<_>>()
    };
    eventually("one compressed file", || async {
        let files = rotated();
        (files.len() == 1 && files[0].ends_with(".log.gz")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_in_batches() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = write(dir.path(), "policy", WRITES);
    let log = dir.path().join("sub/audit.log");
    let flags = [
        &*format!("--audit-policy-file={}", policy.display()),
        &*format!("--audit-log-path={}", log.display()),
        "--audit-log-format=legacy",
        "--audit-log-mode=batch",
        "--audit-log-batch-buffer-size=3",
        "--audit-log-batch-max-size=2",
        "--audit-log-batch-max-wait=1ms",
        "--audit-log-batch-throttle-enable",
        "--audit-log-batch-throttle-qps=0.001",
        "--audit-log-batch-throttle-burst=1",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    create(&client, "first", 1).await;
    eventually("the first batch", || async {
        (lines(&log).len() == 1).then_some(())
    })
    .await;
    assert!(lines(&log)[0].contains(" AUDIT: id="), "{:?}", lines(&log));
    // Further batches have to wait: what neither a batch nor the queue holds is lost.
    for index in 0..10 {
        create(&client, &format!("later-{index}"), 1).await;
    }
    metric(&client, "lost events", |line| {
        let count = line.strip_prefix("apiserver_audit_error_total{plugin=\"buffered\"} ");
        count
            .and_then(|count| count.parse::<u64>().ok())
            .is_some_and(|count| (5..=7).contains(&count))
    })
    .await;
    assert_eq!(lines(&log).len(), 1);
}

#[tokio::test]
async fn the_audit_webhook() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = write(dir.path(), "policy", WRITES);
    let fails = std::sync::atomic::AtomicUsize::new(2);
    let webhook = Webhook::start(move |_| {
        let order = std::sync::atomic::Ordering::Relaxed;
        match fails.fetch_update(order, order, |left| left.checked_sub(1)) {
            Ok(_) => Reply::Raw(403, "not yet".into()),
            Err(_) => Reply::Json(json!({})),
        }
    })
    .await;
    let config = write(dir.path(), "webhook", &webhook.kubeconfig());
    let flags = [
        &*format!("--audit-policy-file={}", policy.display()),
        &*format!("--audit-webhook-config-file={}", config.display()),
        "--audit-webhook-version=audit.k8s.io/v1",
        "--audit-webhook-mode=batch",
        "--audit-webhook-initial-backoff=10ms",
        "--audit-webhook-batch-buffer-size=3",
        "--audit-webhook-batch-max-size=2",
        "--audit-webhook-batch-max-wait=1ms",
        "--audit-webhook-batch-throttle-enable=true",
        "--audit-webhook-batch-throttle-qps=0.001",
        "--audit-webhook-batch-throttle-burst=1",
        "--audit-webhook-truncate-enabled",
        "--audit-webhook-truncate-max-event-size=9000",
        "--audit-webhook-truncate-max-batch-size=9001",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    create(&client, "first", 9_000).await;
    eventually("the third attempt", || async {
        (webhook.questions().len() == 3).then_some(())
    })
    .await;
    let sent = webhook.questions();
    assert_eq!(sent[0], sent[2]);
    assert_eq!(
        (&sent[2]["kind"], &sent[2]["apiVersion"]),
        (&json!("EventList"), &json!("audit.k8s.io/v1"))
    );
    let items = sent[2]["items"].as_array().expect("items");
    assert_eq!(names(items), ["first"]);
    assert_eq!(items[0]["annotations"]["audit.k8s.io/truncated"], "true");
    for index in 0..10 {
        create(&client, &format!("later-{index}"), 1).await;
    }
    metric(&client, "lost events", |line| {
        let count = line.strip_prefix("apiserver_audit_error_total{plugin=\"buffered\"} ");
        count
            .and_then(|count| count.parse::<u64>().ok())
            .is_some_and(|count| (5..=7).contains(&count))
    })
    .await;
    assert_eq!(webhook.questions().len(), 3);
}

#[tokio::test]
async fn a_webhook_that_is_away_is_asked_again_by_the_deprecated_flag() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = write(dir.path(), "policy", WRITES);
    let webhook = Webhook::start(|_| Reply::Raw(500, "no".into())).await;
    let config = write(dir.path(), "webhook", &webhook.kubeconfig());
    let flags = [
        &*format!("--audit-policy-file={}", policy.display()),
        &*format!("--audit-webhook-config-file={}", config.display()),
        "--audit-webhook-mode=blocking",
        "--audit-webhook-batch-initial-backoff=1ms",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    create(&client, "first", 1).await;
    assert_eq!(webhook.questions().len(), 5, "the answer waits for all attempts");
    metric(&client, "the lost event", |line| {
        line == "apiserver_audit_error_total{plugin=\"webhook\"} 1"
    })
    .await;
}

#[tokio::test]
async fn a_start_refuses_a_policy_that_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = write(
        dir.path(),
        "policy",
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: []}",
    );
    let flag = format!("--audit-policy-file={}", policy.display());
    let output = command(dir.path(), &[&flag, "--audit-log-path=-"])
        .output()
        .await
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!(
        "loading audit policy file: loaded illegal policy with 0 rules: from file {}",
        policy.display()
    );
    assert!(error.contains(&expected), "{error}");
}
