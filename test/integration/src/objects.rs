//! Objects: the verbs, patches, watches, CRDs.

use machinery::limits;
use serde_json::{Value, json};
use test_support::{eventually, plane};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

#[tokio::test]
async fn an_object_lives_its_life() {
    let (plane, client) = plane().await;
    let created = client.post(MAPS, &map("a", "1")).await.expect(201);
    let version = created["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_string();

    let again = client.post(MAPS, &map("a", "1")).await.expect(409);
    assert_eq!(again["message"], "configmaps \"a\" already exists");

    let mut watch = client
        .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
        .await;
    let patched = client
        .patch(
            &format!("{MAPS}/a"),
            "merge-patch+json",
            &json!({"data": {"key": "2"}}),
        )
        .await;
    assert_eq!(patched.expect(200)["data"]["key"], "2");
    let event = watch.next().await.expect("an event");
    assert_eq!(
        (event["type"].as_str(), event["object"]["data"]["key"].as_str()),
        (Some("MODIFIED"), Some("2"))
    );

    let mut stale = map("a", "3");
    stale["metadata"]["resourceVersion"] = version.into();
    let conflict = client.put(&format!("{MAPS}/a"), &stale).await.expect(409);
    assert_eq!(conflict["reason"], "Conflict");

    let listed = client.get(MAPS).await.expect(200);
    assert!(
        listed["items"]
            .as_array()
            .expect("items")
            .iter()
            .any(|m| m["metadata"]["name"] == "a")
    );

    client.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(watch.next().await.expect("an event")["type"], "DELETED");
    let gone = client.get(&format!("{MAPS}/a")).await.expect(404);
    assert_eq!(gone["message"], "configmaps \"a\" not found");
    plane.stop().await;
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let (plane, client) = plane().await;
    let created = client.post(MAPS, &map("a", "1")).await.expect(201);
    let patch = json!({"data": {"key": "1"}});
    let patched = client
        .patch(&format!("{MAPS}/a"), "merge-patch+json", &patch)
        .await
        .expect(200);
    assert_eq!(
        patched["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    plane.stop().await;
}

#[tokio::test]
async fn applies_share_an_object_and_conflict() {
    let (plane, client) = plane().await;
    let apply = |manager: &'static str, force: bool, value: &'static str| {
        let client = client.clone();
        async move {
            let path = format!("{MAPS}/a?fieldManager={manager}&force={force}");
            client.patch(&path, "apply-patch+yaml", &map("a", value)).await
        }
    };
    let created = apply("one", false, "1").await.expect(201);
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "one");
    let refused = apply("two", false, "2").await.expect(409);
    assert!(
        refused["message"]
            .as_str()
            .expect("a message")
            .starts_with("Apply failed with 1 conflict: conflict with \"one\"")
    );
    let taken = apply("two", true, "2").await.expect(200);
    assert_eq!(taken["data"]["key"], "2");
    plane.stop().await;
}

#[tokio::test]
async fn bad_bodies_are_refused_in_words() {
    let (plane, client) = plane().await;
    let malformed = client
        .raw("POST", MAPS, "application/json", "{")
        .await
        .expect(400);
    assert_eq!(malformed["reason"], "BadRequest");
    let unknown = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "extra": 1});
    let strict = client
        .post(&format!("{MAPS}?fieldValidation=Strict"), &unknown)
        .await
        .expect(400);
    assert!(
        strict["message"]
            .as_str()
            .expect("a message")
            .ends_with("strict decoding error: unknown field \"extra\"")
    );
    let warned = client.post(MAPS, &unknown).await;
    assert_eq!(warned.status, 201);
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"extra\\\"\"");
    let named = client.post(MAPS, &map("A_b", "1")).await.expect(422);
    assert_eq!(named["details"]["causes"][0]["field"], "metadata.name");
    let body = |length: usize| {
        let mut body = map("padded", "1").to_string().into_bytes();
        body.resize(length, b' ');
        body
    };
    for (length, expected) in [(limits::BODY_BYTES + 1, 413), (limits::BODY_BYTES, 201)] {
        client
            .raw("POST", MAPS, "application/json", body(length))
            .await
            .expect(expected);
    }
    let selector = client
        .get(&format!("{MAPS}?labelSelector=a%3D%3D%3Db"))
        .await
        .expect(400);
    assert_eq!(selector["reason"], "BadRequest");
    client
        .get("/apis/nothing.example.com/v1/things")
        .await
        .expect(404);
    plane.stop().await;
}

/// The entry of the write itself is one of those that are counted.
#[tokio::test]
async fn entries_of_managed_fields_are_bounded() {
    let (plane, client) = plane().await;
    let managed = |name: &str, entries: usize| {
        let entry = |index| {
            json!({"manager": format!("m{index}"), "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:absent": {}}}})
        };
        let mut map = map(name, "1");
        map["metadata"]["managedFields"] = (0..entries).map(entry).collect();
        map
    };
    let created = client
        .post(MAPS, &managed("full", limits::MANAGED_FIELDS - 1))
        .await
        .expect(201);
    let entries = created["metadata"]["managedFields"].as_array().expect("entries");
    assert_eq!(entries.len(), limits::MANAGED_FIELDS);
    let refused = client
        .post(MAPS, &managed("past", limits::MANAGED_FIELDS))
        .await
        .expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.managedFields");
    plane.stop().await;
}

#[tokio::test]
async fn a_custom_resource_is_there_when_its_definition_is() {
    let (plane, client) = plane().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10}, "color": {"type": "string", "default": "blue"}},
                    "x-kubernetes-validations": [{"rule": "self.size < 9 || self.color == 'red'", "message": "big ones are red"}]}}}}}],
        },
    });
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    client
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &definition,
        )
        .await
        .expect(201);
    let widget = |size: i64| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size, "more": 1}});
    let refused = client.post(widgets, &widget(11)).await.expect(422);
    assert!(
        refused["message"]
            .as_str()
            .expect("a message")
            .contains("should be less than or equal to 10")
    );
    let red = client.post(widgets, &widget(9)).await.expect(422);
    assert!(
        red["message"]
            .as_str()
            .expect("a message")
            .contains("big ones are red")
    );
    let created = client.post(widgets, &widget(3)).await.expect(201);
    assert_eq!(created["spec"], json!({"size": 3, "color": "blue"}));
    assert_eq!(created["metadata"]["generation"], 1);
    let mut watch = client.watch(&format!("{widgets}?watch=1")).await;
    assert_eq!(watch.next().await.expect("an event")["type"], "ADDED");
    client
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
        .await
        .expect(200);
    assert_eq!(watch.next().await.expect("an event")["type"], "DELETED");
    eventually("the resource is gone", || async {
        (client.get(widgets).await.status == 404).then_some(())
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let (plane, client) = plane().await;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "goes"}});
    client.post("/api/v1/namespaces", &space).await.expect(201);
    client
        .post("/api/v1/namespaces/goes/configmaps", &map("a", "1"))
        .await
        .expect(201);
    client.delete("/api/v1/namespaces/goes").await.expect(200);
    eventually("the namespace is gone", || async {
        (client.get("/api/v1/namespaces/goes").await.status == 404).then_some(())
    })
    .await;
    client
        .get("/api/v1/namespaces/goes/configmaps/a")
        .await
        .expect(404);
    plane.stop().await;
}

#[tokio::test]
async fn a_patch_may_not_take_the_version_away_and_ownership_is_of_versions_that_exist() {
    let (plane, client) = plane().await;
    client.post(MAPS, &map("a", "1")).await.expect(201);
    let path = format!("{MAPS}/a");
    let patch =
        async |body: &Value, code: u16| client.patch(&path, "merge-patch+json", body).await.expect(code);
    let refused = patch(&json!({"apiVersion": ""}), 400).await;
    assert_eq!(
        refused["message"],
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    );
    patch(&json!({"kind": null}), 200).await;
    let owned = |version: &str| json!({"apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:key": {}}}, "manager": "m", "operation": "Update"});
    for version in ["apps/v1", "v9", "nope/v1"] {
        let written = patch(
            &json!({"metadata": {"managedFields": [owned(version), owned("v1")]}}),
            200,
        )
        .await;
        let fields = written["metadata"]["managedFields"].as_array().expect("a list");
        assert_eq!(fields.len(), 1, "{version}: {fields:?}");
        assert_eq!(fields[0]["apiVersion"], "v1");
    }
    plane.stop().await;
}
