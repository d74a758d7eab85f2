//! Writes of custom resources whose answers depend on more than one of schema, version and subresource, as a kube-apiserver
//! gives them.

use serde_json::{Value, json};
use test_support::{Client, plane};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/mill.example.com/v1/namespaces/default/wheels";
const V2: &str = "/apis/mill.example.com/v2/namespaces/default/wheels";

/// Two versions with a scale, the replicas of each in a place of their own. v1 is stored.
async fn define(client: &Client) {
    let version = |name: &str, replicas: &str, selectable: &str| {
        let spec = json!({"size": {"type": "integer"}, "turns": {"type": "integer"}, "load": {"type": "number"}, "wood": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": selectable}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": replicas, "statusReplicasPath": ".status.size"}}})
    };
    let mut second = version("v2", ".spec.turns", ".spec.turns");
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
        json!({"type": "string"});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "wheels.mill.example.com"},
        "spec": {
            "group": "mill.example.com", "scope": "Namespaced",
            "names": {"plural": "wheels", "singular": "wheel", "kind": "Wheel", "listKind": "WheelList"},
            "versions": [version("v1", ".spec.size", ".spec.wood"), second],
        },
    });
    client.post(CRDS, &crd).await.expect(201);
}

fn wheel(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("mill.example.com/{version}"), "kind": "Wheel", "metadata": {"name": name}, "spec": spec})
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// The fields of a manager, of all its entries.
fn owned(object: &Value, manager: &str) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry["manager"] == manager);
    entries.map(|entry| entry["fieldsV1"].clone()).collect()
}

#[tokio::test]
async fn a_scale_is_written_where_nothing_is_and_read_where_something_is() {
    let (_plane, client) = plane().await;
    define(&client).await;
    let new = wheel("v1", "a", json!({"wood": "oak"}));
    client.post(V1, &new).await.expect(201);
    let scale = format!("{V1}/a/scale");
    let missing = client.get(&scale).await.expect(500);
    assert!(message(&missing).contains("the spec replicas field \".spec.size\" does not exist"));
    let nothing = json!({"metadata": {"labels": {"a": "b"}}});
    let empty = client
        .patch(&scale, "merge-patch+json", &nothing)
        .await
        .expect(400);
    assert_eq!(
        message(&empty),
        "the spec replicas field \".spec.size\" cannot be empty"
    );
    let two = json!({"spec": {"replicas": 2}});
    let by_scaler = format!("{scale}?fieldManager=scaler");
    let scaled = client
        .patch(&by_scaler, "merge-patch+json", &two)
        .await
        .expect(200);
    assert_eq!(scaled["spec"]["replicas"], 2);
    let negative = json!({"spec": {"replicas": -1}});
    client
        .patch(&scale, "merge-patch+json", &negative)
        .await
        .expect(422);
    let object = client.get(&format!("{V1}/a")).await.expect(200);
    assert_eq!(object["spec"]["size"], 2);
    // Nobody owned the replicas, so nobody comes to own them.
    assert!(owned(&object, "scaler").is_empty());
}

#[tokio::test]
async fn a_scale_moves_replicas_that_are_owned_in_another_version() {
    let (_plane, client) = plane().await;
    define(&client).await;
    let new = wheel("v2", "a", json!({"turns": 1, "wood": "oak"}));
    client
        .post(&format!("{V2}?fieldManager=maker"), &new)
        .await
        .expect(201);
    let scale = |version: &str| format!("{version}/a/scale?fieldManager=scaler");
    let to = |replicas: u32| json!({"spec": {"replicas": replicas}});
    client
        .patch(&scale(V1), "merge-patch+json", &to(3))
        .await
        .expect(200);
    let object = client.get(&format!("{V1}/a")).await.expect(200);
    // The replicas of v2 are another field than those of v1; upstream takes them for the same, so the maker loses them.
    assert_eq!(
        owned(&object, "maker"),
        [json!({"f:spec": {".": {}, "f:wood": {}}})]
    );
    assert_eq!(owned(&object, "scaler"), [json!({"f:spec": {"f:size": {}}})]);
}

#[tokio::test]
async fn a_status_is_applied_whoever_owns_the_spec_in_any_version() {
    let (_plane, client) = plane().await;
    define(&client).await;
    for version in ["v1", "v2"] {
        let new = wheel(version, version, json!({"wood": "oak"}));
        let path = if version == "v1" { V1 } else { V2 };
        client
            .post(&format!("{path}?fieldManager=maker"), &new)
            .await
            .expect(201);
        let mut applied = wheel("v1", version, json!({"wood": "ash"}));
        applied["status"] = json!({"note": "turns"});
        let status = format!("{V1}/{version}/status?fieldManager=watcher");
        let object = client
            .patch(&status, "apply-patch+yaml", &applied)
            .await
            .expect(200);
        assert_eq!(object["spec"]["wood"], "oak");
        assert_eq!(
            owned(&object, "maker"),
            [json!({"f:spec": {".": {}, "f:wood": {}}})]
        );
    }
}

#[tokio::test]
async fn what_is_applied_is_judged_before_it_is_pruned() {
    let (_plane, client) = plane().await;
    define(&client).await;
    let path = format!("{V1}/a?fieldManager=one");
    let null = wheel("v1", "a", json!({"size": null}));
    let refused = client.patch(&path, "apply-patch+yaml", &null).await.expect(422);
    assert!(message(&refused).contains("spec.size in body must be of type integer: \"null\""));
    // A create drops it.
    let created = client.post(V1, &null).await.expect(201);
    assert_eq!(created["spec"], json!({}));
    // What is not known goes when the object is stored, and stays owned.
    let free = wheel("v1", "b", json!({"free": {"x": {"y": null}}}));
    let path = format!("{V1}/b?fieldManager=one");
    let applied = client.patch(&path, "apply-patch+yaml", &free).await.expect(201);
    assert_eq!(applied["spec"], json!({"free": {"x": {"y": null}}}));
}

#[tokio::test]
async fn a_whole_double_is_another_value_until_it_is_stored() {
    let (_plane, client) = plane().await;
    define(&client).await;
    let new = wheel("v1", "a", json!({"load": 1000.0, "size": 1}));
    let created = client.post(V1, &new).await.expect(201);
    assert_eq!(created["spec"]["load"], json!(1000));
    let again = json!({"spec": {"load": 1000.0}});
    let path = format!("{V1}/a");
    let changed = client.patch(&path, "merge-patch+json", &again).await.expect(200);
    assert_eq!(changed["spec"]["load"], json!(1000));
    assert_eq!(changed["metadata"]["generation"], 2);
    let replicas = json!({"spec": {"size": 2.0}});
    let refused = client
        .patch(&path, "merge-patch+json", &replicas)
        .await
        .expect(422);
    assert!(
        message(&refused).contains(".spec.size accessor error: 2 is of the type float64, expected int64")
    );
}

#[tokio::test]
async fn a_version_is_selected_by_its_own_fields() {
    let (_plane, client) = plane().await;
    define(&client).await;
    let new = wheel("v1", "a", json!({"wood": "oak", "turns": 4}));
    client.post(V1, &new).await.expect(201);
    for (path, field, code) in [
        (V1, "spec.wood=oak", 200),
        (V1, "spec.turns=4", 400),
        (V2, "spec.turns=4", 200),
        (V2, "spec.wood=oak", 400),
    ] {
        let answer = client
            .get(&format!("{path}?fieldSelector={field}"))
            .await
            .expect(code);
        if code == 200 {
            assert_eq!(
                answer["items"].as_array().map(Vec::len),
                Some(1),
                "{path} {field}"
            );
        } else {
            assert!(
                message(&answer).starts_with("field label not supported: "),
                "{answer}"
            );
        }
    }
}
