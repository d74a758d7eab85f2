//! Storage version migration: a CRD's objects are rewritten at its new storage version, and the old one can go.

use serde_json::{Value, json};
use storage::{KeyValue, RangeRequest};
use test_support::{Client, eventually, plane, plane_with};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jars.pantry.example.com";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

fn versions(storage: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!([version("v1"), version("v2")])
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "jars.pantry.example.com"},
        "spec": {
            "group": "pantry.example.com", "scope": "Namespaced",
            "names": {"plural": "jars", "singular": "jar", "kind": "Jar", "listKind": "JarList"},
            "versions": versions("v1"),
        },
    })
}

fn migration(name: &str, resource: &str) -> Value {
    json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": {"group": "pantry.example.com", "resource": resource}}})
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut found = conditions.into_iter().flatten().filter(|c| c["type"] == kind);
    found.next().unwrap_or(&Value::Null)
}

async fn ended(client: &Client, name: &str) -> Value {
    eventually("the migration ends", || async {
        let object = client.get(&format!("{MIGRATIONS}/{name}")).await.json;
        (condition(&object, "Running")["status"] == "False").then_some(object)
    })
    .await
}

#[tokio::test]
async fn objects_move_to_the_new_storage_version() {
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.feature_gates = vec!["StorageVersionMigrator=true".into()];
            options.runtime_config = vec!["storagemigration.k8s.io/v1beta1=true".into()];
        })
    })
    .await;
    client.post(CRDS, &crd()).await.expect(201);
    for name in ["a", "b", "c"] {
        let jar = json!({"apiVersion": "pantry.example.com/v1", "kind": "Jar", "metadata": {"name": name}, "spec": {"of": name}});
        client
            .post("/apis/pantry.example.com/v1/namespaces/default/jars", &jar)
            .await
            .expect(201);
    }
    let patch = json!({"spec": {"versions": versions("v2")}});
    let changed = client.patch(CRD, "merge-patch+json", &patch).await.expect(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    // The old version cannot go while objects may be stored at it.
    let only_v2 = json!({"spec": {"versions": [versions("v2")[1]]}});
    let refused = client.patch(CRD, "merge-patch+json", &only_v2).await.expect(422);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|m| m.contains("must remain in spec.versions"))
    );

    let stored = || async {
        let range = RangeRequest {
            prefix: "/registry/pantry.example.com/jars/".into(),
            ..RangeRequest::default()
        };
        let found = plane.engine().range(range).await.expect("readable");
        let version = |kv: &KeyValue| {
            let object: Value = serde_json::from_slice(&kv.value).expect("JSON");
            object["apiVersion"].as_str().expect("a version").to_string()
        };
        found.kvs.iter().map(version).collect::<Vec<_>>()
    };
    assert_eq!(stored().await, ["pantry.example.com/v1"; 3]);
    client
        .post(MIGRATIONS, &migration("move", "jars"))
        .await
        .expect(201);
    let done = ended(&client, "move").await;
    let succeeded = condition(&done, "Succeeded");
    assert_eq!(
        (&succeeded["status"], &succeeded["reason"]),
        (&json!("True"), &json!("StorageVersionMigrationSucceeded"))
    );
    assert_eq!(condition(&done, "Running")["reason"], "MigrationCompleted");
    assert!(done["status"]["resourceVersion"].is_string());
    assert_eq!(stored().await, ["pantry.example.com/v2"; 3]);
    let a = client
        .get("/apis/pantry.example.com/v1/namespaces/default/jars/a")
        .await
        .expect(200);
    assert_eq!(
        (&a["spec"]["of"], &a["metadata"]["generation"]),
        (&json!("a"), &json!(1))
    );
    let crd = client.get(CRD).await.expect(200);
    assert_eq!(crd["status"]["storedVersions"], json!(["v2"]));
    let migrating = condition(&crd, "StorageMigrating");
    assert_eq!(
        (&migrating["status"], &migrating["reason"]),
        (&json!("False"), &json!("MigrationSucceeded"))
    );
    client.patch(CRD, "merge-patch+json", &only_v2).await.expect(200);
    client
        .get("/apis/pantry.example.com/v1/namespaces/default/jars/a")
        .await
        .expect(404);
    client
        .get("/apis/pantry.example.com/v2/namespaces/default/jars/a")
        .await
        .expect(200);
}

#[tokio::test]
async fn migrations_are_judged() {
    let (_plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.feature_gates = vec!["StorageVersionMigrator=true".into()];
            options.runtime_config = vec!["api/beta=true".into()];
            options.controllers = vec!["-*".into()];
        })
    })
    .await;
    let refused = client
        .post(MIGRATIONS, &migration("bad", "Jars!"))
        .await
        .expect(422);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|m| m.contains("spec.resource.resource: Invalid value: \"Jars!\": a DNS-1035 label"))
    );
    let mut object = client
        .post(MIGRATIONS, &migration("good", "jars"))
        .await
        .expect(201);
    let path = format!("{MIGRATIONS}/good");
    object["spec"]["resource"]["resource"] = "tins".into();
    let refused = client.put(&path, &object).await.expect(422);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|m| m.contains("field is immutable"))
    );
    let status = |kinds: &[&str]| {
        let of = |kind: &&str| json!({"type": kind, "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"status": {"resourceVersion": "7", "conditions": kinds.iter().map(of).collect::<Vec<_>>()}})
    };
    let path = format!("{path}/status");
    let both = status(&["Succeeded", "Failed"]);
    client.patch(&path, "merge-patch+json", &both).await.expect(422);
    client
        .patch(&path, "merge-patch+json", &status(&["Succeeded"]))
        .await
        .expect(200);
    client
        .patch(&path, "merge-patch+json", &status(&[]))
        .await
        .expect(422);
    let other = json!({"status": {"resourceVersion": "8"}});
    client.patch(&path, "merge-patch+json", &other).await.expect(422);
}

#[tokio::test]
async fn it_is_off_by_default() {
    let (_plane, client) = plane().await;
    client.get(MIGRATIONS).await.expect(404);
}
