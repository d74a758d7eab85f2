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
async fn a_token_is_bound_to_objects_of_its_account() {
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
    refused(none(), to("Secret", ""), 400, "Name parameter required.").await;
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

#[tokio::test]
async fn answers_of_subresources_are_negotiated() {
    let (plane, client) = plane().await;
    account(&client, "own").await;
    pod(&client, "p", "own").await;
    let token = format!("{NAMESPACE}/serviceaccounts/own/token");
    let ask = async |accept: &str| {
        let client = client.clone().header("accept", accept);
        let answer = client
            .post(&token, &json!({"spec": {"expirationSeconds": 600}}))
            .await;
        (answer.status, answer.body)
    };
    for (accept, expected) in [
        ("application/json", "{\"kind\":\"TokenRequest\""),
        ("application/yaml", "apiVersion: authentication.k8s.io/v1"),
        ("application/vnd.kubernetes.protobuf", "k8s\0"),
        // There are no columns to show: the next best form is taken.
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
            "{\"kind\":\"TokenRequest\"",
        ),
    ] {
        let (code, body) = ask(accept).await;
        assert_eq!(code, 201, "{accept}");
        assert!(
            body.starts_with(expected.as_bytes()),
            "{accept}: {}",
            String::from_utf8_lossy(&body)
        );
    }
    let (code, _) = ask("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(code, 406);
    // The posted fields belong to the client in the answer, as upstream has it.
    let issued = client.post(&token, &json!({"spec": {}})).await.expect(201);
    let managed = &issued["metadata"]["managedFields"][0];
    assert_eq!(
        (&managed["subresource"], &managed["operation"]),
        (&json!("token"), &json!("Update"))
    );
    plane.stop().await;
}

#[tokio::test]
async fn a_dry_run_of_an_eviction_may_be_asked_for_in_its_body() {
    let (plane, client) = plane().await;
    account(&client, "own").await;
    pod(&client, "p", "own").await;
    let path = format!("{NAMESPACE}/pods/p/eviction");
    let evict = async |query: &str, options: Value| {
        let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": options});
        client.post(&format!("{path}{query}"), &eviction).await
    };
    evict("", json!({"dryRun": ["All"]})).await.expect(201);
    evict("?dryRun=All", json!({"dryRun": ["All"]})).await.expect(201);
    let message = "Non-matching dry-run options in request and content: [All] and [Some]";
    let refused = evict("?dryRun=All", json!({"dryRun": ["Some"]}))
        .await
        .expect(500);
    assert_eq!(refused["message"], message);
    client.get(&format!("{NAMESPACE}/pods/p")).await.expect(200);
    evict("", Value::Null).await.expect(201);
    client.get(&format!("{NAMESPACE}/pods/p")).await.expect(404);
    plane.stop().await;
}

#[tokio::test]
async fn a_changed_definition_is_checked_without_being_written() {
    let (plane, client) = plane().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |kind: &str| {
        let schema = json!({"type": "object", "properties": {"size": {"type": kind}}});
        json!({"metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
    };
    client.post(definitions, &definition("integer")).await.expect(201);
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "one"}, "size": 3});
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    client.post(foos, &foo).await.expect(201);
    let path = format!("{definitions}/foos.example.com/impact");
    let report = client.post(&path, &definition("string")).await.expect(200);
    assert_eq!(
        (&report["objects"], &report["refused"]["count"]),
        (&json!(1), &json!(1))
    );
    // The body is read as any: YAML will do, and strictness is the client's choice.
    let yaml = client
        .raw(
            "POST",
            &path,
            "application/yaml",
            definition("integer").to_string(),
        )
        .await;
    assert_eq!(yaml.expect(200)["refused"]["count"], 0);
    let mut odd = definition("integer");
    odd["spec"]["more"] = json!(1);
    client
        .post(&format!("{path}?fieldValidation=Strict"), &odd)
        .await
        .expect(400);
    client
        .post(
            &format!("{definitions}/bars.example.com/impact"),
            &definition("string"),
        )
        .await
        .expect(404);
    let stored = client
        .get(&format!("{definitions}/foos.example.com"))
        .await
        .expect(200);
    let kind = &stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["size"]["type"];
    assert_eq!(kind, "integer");
    // Upstream has no such subresource: its documents are the same.
    let documents = client.get("/apis/apiextensions.k8s.io/v1").await.expect(200);
    assert!(!documents.to_string().contains("impact"));
    plane.stop().await;
}

#[tokio::test]
async fn a_scale_is_judged_as_the_object_that_it_is() {
    let (plane, client) = plane().await;
    let container = json!({"name": "c", "image": "i"});
    let labels = json!({"a": "b"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    client.post(deployments, &deployment).await.expect(201);
    let path = format!("{deployments}/d/scale");
    let scale = |metadata: Value, replicas: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}});
    let named = |more: Value| {
        let mut metadata = json!({"name": "d", "namespace": "default"});
        metadata
            .as_object_mut()
            .zip(more.as_object())
            .expect("objects")
            .0
            .extend(more.as_object().expect("an object").clone());
        metadata
    };
    let cases = [
        (
            named(json!({"name": "e"})),
            400,
            "the name of the object (e) does not match the name on the URL (d)",
        ),
        (
            named(json!({"namespace": "e"})),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            named(json!({"resourceVersion": "abc"})),
            500,
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (named(json!({"resourceVersion": "0"})), 200, ""),
        (
            named(json!({"labels": {"a": "b c"}})),
            422,
            "Scale.autoscaling \"d\" is invalid: metadata.labels: Invalid value: \"b c\"",
        ),
    ];
    for (metadata, code, message) in cases {
        let body = scale(metadata, json!(2));
        let put = client.put(&path, &body).await.expect(code);
        let patched = client.patch(&path, "merge-patch+json", &body).await.expect(code);
        for answer in [put, patched] {
            let found = answer["message"].as_str().unwrap_or_default();
            assert!(found.starts_with(message), "{body}: {found}");
        }
    }
    let apply = async |manager: &str, replicas: Value, force: bool, code: u16| {
        let body = scale(named(json!({})), replicas);
        let path = format!("{path}?fieldManager={manager}&force={force}");
        client.patch(&path, "apply-patch+yaml", &body).await.expect(code)
    };
    let typed = apply("m", json!("3"), true, 500).await;
    assert_eq!(
        typed["message"],
        "failed to create typed patch object (default/d; autoscaling/v1, Kind=Scale): .spec.replicas: expected numeric (int or float), got string"
    );
    // Conflicts come before faults.
    apply("m", json!(-3), false, 409).await;
    apply("m", json!(-3), true, 422).await;
    let wrapped = apply("m", json!(3_000_000_000_i64), true, 422).await;
    assert_eq!(
        wrapped["details"]["causes"][0]["message"],
        "Invalid value: -1294967296: must be greater than or equal to 0"
    );
    assert_eq!(apply("m", json!(3), true, 200).await["spec"]["replicas"], 3);
    plane.stop().await;
}
