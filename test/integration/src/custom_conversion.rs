//! Custom resources in several versions, converted by a webhook over HTTPS: how often it is asked, and what happens when it is
//! slow, wrong, or an impostor. Tests run on one thread: nothing may block it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, plane, plane_with};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/shop.example.com/v1/namespaces/default/stalls";
const V2: &str = "/apis/shop.example.com/v2/namespaces/default/stalls";

/// v1 has `spec.address`, v2 `spec.host` and `spec.port`; v1 is stored.
fn crd(webhook: &Webhook, ca: &str) -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let replicas = json!({"type": "integer", "default": 1});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "stalls.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": {"plural": "stalls", "singular": "stall", "kind": "Stall", "listKind": "StallList"},
            "versions": [
                version("v1", true, json!({"address": {"type": "string"}, "replicas": replicas})),
                version("v2", false, json!({"host": {"type": "string"}, "port": {"type": "string"}, "replicas": replicas})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": webhook.url(), "caBundle": ca},
            }},
        },
    })
}

fn converted(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    let spec = object["spec"].as_object_mut().expect("a spec");
    if to.ends_with("/v2") {
        let address = spec.remove("address").unwrap_or_default();
        let (host, port) = address
            .as_str()
            .and_then(|a| a.split_once(':'))
            .unwrap_or_default();
        spec.insert("host".into(), host.into());
        spec.insert("port".into(), port.into());
    } else {
        let text = |key: &str| {
            spec.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let address = format!("{}:{}", text("host"), text("port"));
        spec.retain(|key, _| key == "replicas");
        spec.insert("address".into(), address.into());
    }
    object
}

/// A good answer.
fn review(question: &Value) -> Value {
    let request = &question["request"];
    let to = request["desiredAPIVersion"].as_str().expect("a version");
    let objects = request["objects"].as_array().expect("objects");
    let objects: Vec<Value> = objects.iter().map(|object| converted(object, to)).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn stall(name: &str) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Stall", "metadata": {"name": name},
        "spec": {"address": format!("{name}.local:80")}})
}

/// Makes the CRD, with the webhook's own authority.
async fn define(client: &Client, webhook: &Webhook) {
    let crd = crd(webhook, &webhook.ca_bundle());
    client.post(CRDS, &crd).await.expect(201);
}

/// Merge-patches; gives the answer.
async fn merge(client: &Client, path: &str, patch: &Value) -> Value {
    let answer = client.patch(path, "merge-patch+json", patch).await;
    answer.expect(200)
}

/// The message of the 500 that a request at v2 ends with.
async fn failure(client: &Client) -> String {
    let answer = client.get(&format!("{V2}/a")).await.expect(500);
    assert_eq!(answer["reason"], "InternalError");
    answer["message"].as_str().expect("a message").to_string()
}

async fn create(client: &Client, names: &[&str]) {
    for name in names {
        client.post(V1, &stall(name)).await.expect(201);
    }
}

#[tokio::test]
async fn every_verb_works_at_the_version_that_is_not_stored() {
    let (_plane, client) = plane().await;
    let webhook = Webhook::start(|question| Reply::Json(review(question))).await;
    define(&client, &webhook).await;
    create(&client, &["a"]).await;
    assert!(
        webhook.questions().is_empty(),
        "the stored version needs no webhook"
    );

    let a = client.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(a["spec"], json!({"host": "a.local", "port": "80", "replicas": 1}));
    let new = json!({"apiVersion": "shop.example.com/v2", "kind": "Stall", "metadata": {"name": "b"},
        "spec": {"host": "b.local", "port": "81"}});
    let b = client.post(V2, &new).await.expect(201);
    assert_eq!(b["spec"]["host"], "b.local");
    let stored = client.get(&format!("{V1}/b")).await.expect(200);
    assert_eq!(stored["spec"], json!({"address": "b.local:81", "replicas": 1}));

    let mut changed = b.clone();
    changed["spec"]["port"] = "82".into();
    client.put(&format!("{V2}/b"), &changed).await.expect(200);
    let patch = json!({"spec": {"host": "c.local"}});
    let b = merge(&client, &format!("{V2}/b"), &patch).await;
    assert_eq!(
        (&b["spec"]["host"], &b["spec"]["port"]),
        (&json!("c.local"), &json!("82"))
    );
    let status = json!({"status": {"replicas": 4}});
    merge(&client, &format!("{V2}/b/status"), &status).await;
    let scale = client.get(&format!("{V2}/b/scale")).await.expect(200);
    assert_eq!(scale["status"]["replicas"], 4);
    let scaled = json!({"spec": {"replicas": 5}});
    merge(&client, &format!("{V2}/b/scale"), &scaled).await;
    let applied = json!({"apiVersion": "shop.example.com/v2", "kind": "Stall", "metadata": {"name": "d"},
        "spec": {"host": "d.local", "port": "84"}});
    let path = format!("{V2}/d?fieldManager=test");
    client
        .patch(&path, "apply-patch+yaml", &applied)
        .await
        .expect(201);
    let v1 = client.get(V1).await.expect(200);
    let addresses: Vec<&str> = v1["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|i| i["spec"]["address"].as_str())
        .collect();
    assert_eq!(addresses, ["a.local:80", "c.local:82", "d.local:84"]);
    client.delete(&format!("{V2}/d")).await.expect(200);
    assert_eq!(webhook.connections(), 1, "connections are pooled");
}

#[tokio::test]
async fn a_list_is_one_question_and_no_write_is_asked_about_twice() {
    let (_plane, client) = plane().await;
    let webhook = Webhook::start(|question| Reply::Json(review(question))).await;
    define(&client, &webhook).await;
    let names: Vec<String> = (0..40).map(|n| format!("s{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    create(&client, &names).await;
    let list = client.get(V2).await.expect(200);
    assert_eq!(list["items"].as_array().expect("items").len(), 40);
    let asked = |question: &Value| question["request"]["objects"].as_array().map_or(0, Vec::len);
    let sizes = || webhook.questions().iter().map(asked).collect::<Vec<_>>();
    assert_eq!(sizes(), [40], "one question for the whole list");
    client.get(V2).await.expect(200);
    client.get(&format!("{V2}/s07")).await.expect(200);
    let table = client.clone().header(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    );
    assert_eq!(table.get(V2).await.expect(200)["kind"], "Table");
    assert_eq!(sizes(), [40], "answers are kept");

    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    merge(&client, &format!("{V1}/s07"), &patch).await;
    client.get(V2).await.expect(200);
    assert_eq!(sizes(), [40, 1], "only what was written since");

    // Watchers share the answers too.
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(
            client
                .watch(&format!("{V2}?watch=1&resourceVersion={version}"))
                .await,
        );
    }
    create(&client, &["t1"]).await;
    for watch in &mut watches {
        for (kind, name) in [("MODIFIED", "s07"), ("ADDED", "t1")] {
            let event = watch.next().await.expect("an event");
            assert_eq!(
                (&event["type"], &event["object"]["metadata"]["name"]),
                (&json!(kind), &json!(name))
            );
            assert_eq!(event["object"]["apiVersion"], "shop.example.com/v2");
            assert_eq!(event["object"]["spec"]["host"], format!("{name}.local"));
        }
    }
    assert_eq!(sizes(), [40, 1, 1], "twenty watchers, one question");

    // An object that leaves a selection is reported as it was, at the revision of the change.
    let selected =
        format!("{V2}?watch=1&labelSelector=x%3Dy&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut watch = client.watch(&selected).await;
    let event = watch.next().await.expect("an event");
    assert_eq!(event["object"]["metadata"]["name"], "s07");
    let patch = json!({"metadata": {"labels": {"x": null}}, "spec": {"address": "moved.local:1"}});
    let moved = merge(&client, &format!("{V1}/s07"), &patch).await;
    let event = watch.next().await.expect("an event");
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["spec"]["host"], "s07.local");
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        moved["metadata"]["resourceVersion"]
    );
    let now = client.get(&format!("{V2}/s07")).await.expect(200);
    assert_eq!(now["spec"]["host"], "moved.local");
}

#[tokio::test]
async fn a_webhook_that_errs_is_named() {
    let (_plane, client) = plane().await;
    let mode = Arc::new(parking_lot::Mutex::new("good"));
    let of_server = mode.clone();
    let webhook = Webhook::start(move |question| {
        let mut answer = review(question);
        let objects = &mut answer["response"]["convertedObjects"];
        match *of_server.lock() {
            "renamed" => objects[0]["metadata"]["name"] = "other".into(),
            "another uid" => objects[0]["metadata"]["uid"] = "other".into(),
            "too few" => *objects = json!([]),
            "not converted" => objects[0]["apiVersion"] = "shop.example.com/v1".into(),
            "another kind" => objects[0]["kind"] = "Booth".into(),
            "no metadata" => {
                objects[0].as_object_mut().expect("an object").remove("metadata");
            }
            "labels" => objects[0]["metadata"]["labels"] = json!({"not valid!": "x"}),
            "failure" => answer["response"] = json!({"uid": question["request"]["uid"], "result": {"status": "Failed", "message": "no such street"}}),
            "uid of the review" => answer["response"]["uid"] = "another".into(),
            "garbage" => return Reply::Raw(200, "<html>".into()),
            "status" => return Reply::Raw(500, "out of order\n".into()),
            "huge" => return Reply::Raw(200, vec![b' '; 65 << 20].into()),
            _ => {}
        }
        Reply::Json(answer)
    })
    .await;
    define(&client, &webhook).await;
    create(&client, &["a"]).await;
    let a = client.get(&format!("{V1}/a")).await.expect(200);
    let uid = a["metadata"]["uid"].as_str().expect("a uid");
    let post = format!("Post \"{}?timeout=30s\"", webhook.url());
    let cases = [
        ("renamed", "returned invalid object: must have the same name: a != other".to_string()),
        (
            "another uid",
            format!("returned invalid object: must have the same UID: {uid} != other"),
        ),
        ("too few", "returned 0 objects, expected 1".to_string()),
        (
            "not converted",
            "returned invalid object at index 0: invalid groupVersion (expected shop.example.com/v2, received shop.example.com/v1)"
                .to_string(),
        ),
        (
            "another kind",
            "returned invalid object at index 0: invalid kind (expected Stall, received Booth)".to_string(),
        ),
        (
            "no metadata",
            "returned invalid object: must have the same name: a != ".to_string(),
        ),
        ("labels", "returned invalid metadata: metadata.labels: Invalid value: \"not valid!\"".to_string()),
        ("failure", "failed: no such street".to_string()),
        ("uid of the review", "failed: expected response.uid=".to_string()),
        ("garbage", "failed: couldn't get version/kind; json parse error: ".to_string()),
        (
            "status",
            "failed: an error on the server (\"out of order\") has prevented the request from succeeding".to_string(),
        ),
        ("huge", format!("failed: {post}: the answer is larger than 67108864 bytes")),
    ];
    for (fault, expected) in cases {
        *mode.lock() = fault;
        let message = failure(&client).await;
        let prefix = format!(
            "Internal error occurred: conversion webhook for shop.example.com/v1, Kind=Stall {expected}"
        );
        assert!(message.starts_with(&prefix), "{fault}: {message}");
    }
    // A write that cannot be converted is not stored, and a watch says what it cannot tell.
    *mode.lock() = "failure";
    let new = json!({"apiVersion": "shop.example.com/v2", "kind": "Stall", "metadata": {"name": "b"}, "spec": {"host": "b"}});
    let refused = client.post(V2, &new).await.expect(500);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|m| m.contains("no such street"))
    );
    client.get(&format!("{V1}/b")).await.expect(404);
    let mut watch = client.watch(&format!("{V2}?watch=1")).await;
    let event = watch.next().await.expect("an event");
    assert_eq!(event["type"], "ERROR");
    assert!(
        event["object"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("no such street"))
    );
    assert!(watch.next().await.is_none());
    // Objects of the stored version do not need it, and it is asked again when it is well.
    client.get(&format!("{V1}/a")).await.expect(200);
    client.delete(&format!("{V1}/a")).await.expect(200);
    *mode.lock() = "good";
    client.post(V2, &new).await.expect(201);
}

#[tokio::test]
async fn a_slow_webhook_ends_its_own_requests_only() {
    let (_plane, client) = plane_with(|builder| {
        builder.with(|options| options.custom_resource_limits.conversion = Duration::from_millis(300))
    })
    .await;
    let stuck = Arc::new(AtomicBool::new(true));
    let of_server = stuck.clone();
    let webhook = Webhook::start(move |question| match of_server.load(Ordering::Relaxed) {
        true => Reply::Never,
        false => Reply::Json(review(question)),
    })
    .await;
    define(&client, &webhook).await;
    create(&client, &["a"]).await;
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.get(&format!("{V2}/a")).await }
    });
    // The one thread is free meanwhile.
    client.get(&format!("{V1}/a")).await.expect(200);
    let answer = slow.await.expect("no panic").expect(500);
    let message = answer["message"].as_str().expect("a message");
    let expected = format!(
        "failed: Post \"{}?timeout=1s\": context deadline exceeded",
        webhook.url()
    );
    assert!(message.ends_with(&expected), "{message}");
    stuck.store(false, Ordering::Relaxed);
    client.get(&format!("{V2}/a")).await.expect(200);
}

#[tokio::test]
async fn only_the_bundle_is_trusted() {
    let (_plane, client) = plane().await;
    let webhook = Webhook::start(|question| Reply::Json(review(question))).await;
    let other = Webhook::start(|question| Reply::Json(review(question))).await;
    client
        .post(CRDS, &crd(&webhook, &other.ca_bundle()))
        .await
        .expect(201);
    create(&client, &["a"]).await;
    let message = failure(&client).await;
    assert!(
        message.contains("conversion webhook for shop.example.com/v1, Kind=Stall failed: Post")
            && message.contains("certificate"),
        "{message}"
    );
    assert!(
        webhook.questions().is_empty(),
        "an untrusted webhook receives nothing"
    );

    let fixed =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": webhook.ca_bundle()}}}}});
    merge(&client, &format!("{CRDS}/stalls.shop.example.com"), &fixed).await;
    client.get(&format!("{V2}/a")).await.expect(200);
}
