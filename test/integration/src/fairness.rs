//! API Priority and Fairness: classification, seats and queues, as clients see them.

use std::time::Duration;

use control_plane::{AuthorizationMode, ControlPlane};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Answer, Client, Reply, Webhook, eventually, plane_with};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DUMPS: &str = "/debug/api_priority_and_fairness";

/// A server with two seats, of which every level has one, and its users.
struct Server {
    /// Of system:masters.
    root: Client,
    alice: Client,
    bob: Client,
    _plane: ControlPlane,
    _folder: TempDir,
}

async fn server() -> Server {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "one,alice,1\ntwo,bob,2\n").expect("a file");
    let (plane, root) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            options.authorization.authorization_mode = vec![AuthorizationMode::AlwaysAllow];
            options.max_requests_inflight = 1;
            options.max_mutating_requests_inflight = 1;
        })
    })
    .await;
    let user = |token: &str| {
        let client = root.anonymous(plane.ca_certificate());
        client.header("authorization", &format!("Bearer {token}"))
    };
    Server {
        alice: user("one"),
        bob: user("two"),
        root,
        _plane: plane,
        _folder: folder,
    }
}

/// A level with one seat for a server that has two.
fn level(name: &str, response: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": response,
            },
        },
    })
}

/// A schema for everything that alice and bob ask for.
fn schema(name: &str, level: &str) -> Value {
    let subjects = ["alice", "bob"].map(|user| json!({"kind": "User", "user": {"name": user}}));
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": subjects,
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
                }],
            }],
        },
    })
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a uid")
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let value = answer.headers.get(name);
    value.map_or("", |value| value.to_str().expect("text"))
}

/// The schema and the level that an answer names.
fn flow(answer: &Answer) -> (&str, &str) {
    let name = |kind: &str| header(answer, &format!("x-kubernetes-pf-{kind}-uid"));
    (name("flowschema"), name("prioritylevel"))
}

/// Puts alice and bob into a level with one seat.
async fn confine(server: &Server, response: &Value) {
    let level = server
        .root
        .post(LEVELS, &level("narrow", response))
        .await
        .expect(201);
    let schema = server
        .root
        .post(SCHEMAS, &schema("narrow", "narrow"))
        .await
        .expect(201);
    eventually("the schema is in force", || async {
        let answer = server.alice.get(MAPS).await;
        (flow(&answer) == (uid(&schema), uid(&level))).then_some(())
    })
    .await;
}

/// A webhook that never answers for objects with the label `slow`: their creation takes `seconds`.
async fn slow_webhook(server: &Server, seconds: u32) -> Webhook {
    let webhook = Webhook::start(|_| Reply::Never).await;
    let configuration = json!({
        "metadata": {"name": "slow"},
        "webhooks": [{
            "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": seconds, "failurePolicy": "Ignore",
            "clientConfig": {"url": webhook.url(), "caBundle": webhook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
            "objectSelector": {"matchLabels": {"slow": "yes"}},
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    server.root.post(path, &configuration).await.expect(201);
    // It is asked from the first write on that follows its own.
    eventually("the webhook is asked", || async {
        let answer =
            tokio::time::timeout(Duration::from_millis(200), server.root.post(MAPS, &slow("probe"))).await;
        match answer {
            Err(_) => Some(()),
            Ok(_) => {
                server.root.delete(&format!("{MAPS}/probe")).await;
                None
            }
        }
    })
    .await;
    webhook
}

fn slow(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"slow": "yes"}}})
}

/// A request of alice that keeps her seat.
fn hold(server: &Server, name: &str) -> tokio::task::JoinHandle<Answer> {
    let (alice, map) = (server.alice.clone(), slow(name));
    tokio::spawn(async move { alice.post(MAPS, &map).await })
}

/// Waits until so many requests of the level run and wait.
async fn wait_for(server: &Server, executing: usize, waiting: usize) {
    eventually("requests run and wait", || async {
        let dump = server.root.get(&format!("{DUMPS}/dump_priority_levels")).await;
        let text = String::from_utf8_lossy(&dump.body).into_owned();
        let line = text.lines().find(|line| line.starts_with("narrow,"))?;
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        (cells[4..6] == [waiting.to_string(), executing.to_string()]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn answers_name_their_schema_and_level() {
    let server = server().await;
    let named = async |path: &str, name: &str| {
        uid(&server.root.get(&format!("{path}/{name}")).await.json).to_string()
    };
    let exempt = (named(SCHEMAS, "exempt").await, named(LEVELS, "exempt").await);
    let usual = (
        named(SCHEMAS, "global-default").await,
        named(LEVELS, "global-default").await,
    );
    let probes = (named(SCHEMAS, "probes").await, named(LEVELS, "exempt").await);
    let check = async |client: &Client, path: &str, expected: &(String, String)| {
        let answer = client.get(path).await;
        assert_eq!(
            flow(&answer),
            (&*expected.0, &*expected.1),
            "{path} {}",
            answer.status
        );
    };
    eventually("the objects are in force", || async {
        let answer = server.alice.get(MAPS).await;
        (flow(&answer).0 == usual.0).then_some(())
    })
    .await;
    check(&server.root, MAPS, &exempt).await;
    check(&server.alice, MAPS, &usual).await;
    check(
        &server.alice,
        "/api/v1/namespaces/default/configmaps/missing",
        &usual,
    )
    .await;
    check(&server.alice, "/version", &usual).await;
    check(&server.alice, "/readyz", &probes).await;
}

#[tokio::test]
async fn a_level_without_seats_and_queues_refuses() {
    let server = server().await;
    confine(&server, &json!({"type": "Reject"})).await;
    let webhook = slow_webhook(&server, 30).await;
    let held = hold(&server, "held");
    wait_for(&server, 1, 0).await;
    let refused = server.bob.get(MAPS).await;
    assert_eq!(refused.status, 429);
    assert_eq!(header(&refused, "retry-after"), "1");
    assert_eq!(&*refused.body, b"Too many requests, please try again later.\n");
    let schema = server.root.get(&format!("{SCHEMAS}/narrow")).await.json;
    assert_eq!(flow(&refused).0, uid(&schema));
    // The exempt are served under a full server: administrators and whoever probes it.
    server.root.get(MAPS).await.expect(200);
    assert_eq!(server.bob.get("/readyz").await.status, 200);
    // So are requests of another level.
    assert_eq!(server.bob.get("/version").await.status, 200);
    let text = server.root.get("/metrics").await.body;
    let text = String::from_utf8_lossy(&text);
    let labels = "flow_schema=\"narrow\",priority_level=\"narrow\"";
    for line in [
        format!("apiserver_flowcontrol_rejected_requests_total{{{labels},reason=\"concurrency-limit\"}} 1"),
        format!("apiserver_flowcontrol_current_executing_requests{{{labels}}} 1"),
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"narrow\"} 1".into(),
    ] {
        assert!(text.contains(&line), "{line}");
    }
    // A client that goes gives its seat back.
    held.abort();
    eventually("the seat is free", || async {
        (server.bob.get(MAPS).await.status == 200).then_some(())
    })
    .await;
    drop(webhook);
}

#[tokio::test]
async fn a_polite_client_does_not_wait_for_an_abusers_queue() {
    let server = server().await;
    let queuing = json!({"queues": 64, "handSize": 4, "queueLengthLimit": 50});
    confine(&server, &json!({"type": "Queue", "queuing": queuing})).await;
    let webhook = slow_webhook(&server, 1).await;
    let flood: Vec<_> = (0..12)
        .map(|number| hold(&server, &format!("m{number}")))
        .collect();
    wait_for(&server, 1, 11).await;
    let dump = server
        .root
        .get(&format!("{DUMPS}/dump_requests?includeRequestDetails=1"))
        .await;
    let text = String::from_utf8_lossy(&dump.body).into_owned();
    let of_alice = text
        .lines()
        .filter(|line| line.starts_with("narrow,") && line.contains("alice"));
    assert_eq!(of_alice.count(), 12, "{text}");
    assert_eq!(server.bob.get(MAPS).await.status, 200);
    // Alice's first is over, and her queues have had a turn at most.
    let done = flood.iter().filter(|task| task.is_finished()).count();
    assert!(done <= 6, "{done}");
    for task in flood {
        task.abort();
    }
    drop(webhook);
}

#[tokio::test]
async fn a_schema_without_its_level_is_passed_over() {
    let server = server().await;
    server
        .root
        .post(SCHEMAS, &schema("lost", "missing"))
        .await
        .expect(201);
    let condition = async |expected: [&str; 2]| {
        eventually("the condition is written", || async {
            let schema = server.root.get(&format!("{SCHEMAS}/lost")).await.json;
            let condition = &schema["status"]["conditions"][0];
            let found = ["status", "reason"].map(|key| condition[key].as_str().unwrap_or_default());
            (condition["type"] == "Dangling" && found == expected)
                .then(|| condition["message"].as_str().unwrap_or_default().to_string())
        })
        .await
    };
    let begin = "This FlowSchema references the PriorityLevelConfiguration object named \"missing\"";
    assert_eq!(
        condition(["True", "NotFound"]).await,
        format!("{begin} but there is no such object")
    );
    let lost = server.root.get(&format!("{SCHEMAS}/lost")).await.json;
    let entries = lost["metadata"]["managedFields"].as_array();
    let manager = "api-priority-and-fairness-config-consumer-v1";
    let applied = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
    assert!(
        entries.is_some_and(|entries| entries.iter().any(applied)),
        "{lost}"
    );
    assert_ne!(flow(&server.alice.get(MAPS).await).0, uid(&lost));
    let level = level("missing", &json!({"type": "Reject"}));
    server.root.post(LEVELS, &level).await.expect(201);
    assert_eq!(
        condition(["False", "Found"]).await,
        format!("{begin} and it exists")
    );
    assert_eq!(flow(&server.alice.get(MAPS).await).0, uid(&lost));
}

#[tokio::test]
async fn first_objects_come_back() {
    let server = server().await;
    let path = format!("{SCHEMAS}/exempt");
    let before = server.root.get(&path).await.expect(200);
    server.root.delete(&path).await.expect(200);
    let after = eventually("it is there again", || async {
        let found = server.root.get(&path).await;
        (found.status == 200 && uid(&found.json) != uid(&before)).then_some(found.json)
    })
    .await;
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"],
        "true"
    );
}

#[tokio::test]
async fn the_state_is_shown() {
    let server = server().await;
    server.alice.get(MAPS).await.expect(200);
    let text = async |name: &str| {
        let answer = server.root.get(&format!("{DUMPS}/{name}")).await;
        assert_eq!(answer.status, 200, "{name}");
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    let levels = text("dump_priority_levels").await;
    let begin = "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, ";
    assert!(levels.starts_with(begin), "{levels}");
    assert!(levels.contains("\ncatch-all, "), "{levels}");
    let queues = text("dump_queues").await;
    assert!(queues.contains("0.00000000ss"), "{queues}");
    assert!(text("dump_requests").await.contains("FlowDistingsher"));
    let metrics = String::from_utf8_lossy(&server.root.get("/metrics").await.body).into_owned();
    for name in [
        "current_executing_requests",
        "current_executing_seats",
        "current_limit_seats",
        "current_r",
        "demand_seats",
        "demand_seats_average",
        "demand_seats_high_watermark",
        "demand_seats_smoothed",
        "demand_seats_stdev",
        "dispatched_requests_total",
        "lower_limit_seats",
        "nominal_limit_seats",
        "priority_level_request_utilization",
        "priority_level_seat_utilization",
        "request_execution_seconds",
        "seat_fair_frac",
        "target_seats",
        "upper_limit_seats",
        "watch_count_samples",
        "work_estimated_seats",
    ] {
        assert!(
            metrics.contains(&format!("\n# TYPE apiserver_flowcontrol_{name} ")),
            "{name}"
        );
    }
}
