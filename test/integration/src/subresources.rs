//! Bodies and refusals of the subresources that are more than a view: tokens, bindings, evictions.

use serde_json::{Value, json};
use test_support::{Client, plane};

const NAMESPACE: &str = "/api/v1/namespaces/default";

async fn account(client: &Client, name: &str) -> String {
    let account = json!({"metadata": {"name": name}});
    let made = client
        .post(&format!("{NAMESPACE}/serviceaccounts"), &account)
        .await
        .expect(201);
    made["metadata"]["uid"].as_str().expect("a uid").to_string()
}

async fn pod(client: &Client, name: &str, account: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"serviceAccountName": account,
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    client.post(&format!("{NAMESPACE}/pods"), &pod).await.expect(201);
}

#[tokio::test]
async fn a_token_is_bound_to_what_its_account_has() {
    let (plane, client) = plane().await;
    let uid = account(&client, "own").await;
    account(&client, "other").await;
    pod(&client, "mine", "own").await;
    pod(&client, "theirs", "other").await;
    let secret = json!({"metadata": {"name": "s"}});
    client
        .post(&format!("{NAMESPACE}/secrets"), &secret)
        .await
        .expect(201);
    let path = format!("{NAMESPACE}/serviceaccounts/own/token");
    let ask = async |metadata: Value, bound: Value| {
        let request = json!({"metadata": metadata, "spec": {"boundObjectRef": bound}});
        client.post(&path, &request).await
    };
    let refused = async |metadata: Value, bound: Value, code: u16, message: &str| {
        assert_eq!(ask(metadata, bound).await.expect(code)["message"], message);
    };
    let none = || json!({});
    let to = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    ask(none(), to("Pod", "mine")).await.expect(201);
    ask(none(), to("Secret", "s")).await.expect(201);
    ask(
        json!({"name": "own", "namespace": "default", "uid": uid}),
        Value::Null,
    )
    .await
    .expect(201);
    let message =
        "cannot bind token for serviceaccount \"own\" to pod running with different serviceaccount name.";
    refused(none(), to("Pod", "theirs"), 400, message).await;
    // The version of the reference counts for nothing.
    refused(none(), json!({"kind": "Pod", "name": "theirs"}), 400, message).await;
    refused(none(), to("Pod", "gone"), 404, "pods \"gone\" not found").await;
    refused(none(), to("Node", "gone"), 404, "nodes \"gone\" not found").await;
    let message = "cannot bind token to object of type /v1, Kind=ConfigMap";
    refused(none(), to("ConfigMap", "m"), 400, message).await;
    let message = "Operation cannot be fulfilled on Pod \"mine\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated";
    let stale = json!({"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "x"});
    refused(none(), stale, 409, message).await;
    let message = format!(
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"own\": the UID in the token request (x) does not match the UID of the service account ({uid})"
    );
    refused(json!({"uid": "x"}), Value::Null, 409, &message).await;
    let message = "TokenRequest.authentication.k8s.io \"own\" is invalid: metadata.name: Invalid value: \"x\": must match the service account name if specified";
    refused(json!({"name": "x"}), Value::Null, 422, message).await;
    plane.stop().await;
}

#[tokio::test]
async fn bodies_are_read_as_their_kinds() {
    let (plane, client) = plane().await;
    account(&client, "default-like").await;
    pod(&client, "p", "default-like").await;
    let path = format!("{NAMESPACE}/pods/p/binding");
    let send =
        async |path: &str, media: &str, body: &str| client.raw("POST", path, media, body.to_string()).await;
    let yaml = "{metadata: {name: p, labels: {a: 1}}, target: {name: worker}}";
    send(&path, "application/yaml", yaml).await.expect(400);
    send(
        &path,
        "application/json",
        r#"{"metadata": {"name": "p", "labels": {"a": {}}}, "target": {"name": "worker"}}"#,
    )
    .await
    .expect(400);
    send(&path, "text/plain", yaml).await.expect(415);
    send(
        &path,
        "application/yaml",
        "{kind: Pod, apiVersion: v1, metadata: {name: p}}",
    )
    .await
    .expect(400);
    let unknown = r#"{"metadata": {"name": "p"}, "target": {"name": "worker"}, "more": 1}"#;
    let strict = format!("{path}?fieldValidation=Strict");
    send(&strict, "application/json", unknown).await.expect(400);
    send(
        &path,
        "Application/YAML; charset=utf-8",
        "{metadata: {name: p, labels: {a: b}}, target: {name: worker}}",
    )
    .await
    .expect(201);
    let bound = client.get(&format!("{NAMESPACE}/pods/p")).await.expect(200);
    assert_eq!(
        (&bound["spec"]["nodeName"], &bound["metadata"]["labels"]),
        (&json!("worker"), &json!({"a": "b"}))
    );
    let eviction = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}});
    client
        .post(&format!("{NAMESPACE}/pods/p/eviction?dryRun=All"), &eviction)
        .await
        .expect(201);
    // Queries are decoded as Go does: a plus sign that is written out stays one.
    let log = client
        .get(&format!("{NAMESPACE}/pods/p/log?container=a%2Bb"))
        .await
        .expect(400);
    assert_eq!(log["message"], "container a+b is not valid for pod p");
    plane.stop().await;
}
