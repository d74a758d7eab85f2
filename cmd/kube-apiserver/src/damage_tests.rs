//! Servers on stores with damaged objects: each is an error of its own, and none keeps a server from starting.

mod kinds;
mod lost;

use std::path::Path;

use serde_json::{Value, json};
use test_support::{Answer, Client, eventually};

use crate::ControlPlane;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential=true";

async fn start(dir: &Path) -> (ControlPlane, Client) {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir);
    let gate = "AllowUnsafeMalformedObjectDeletion=true".to_string();
    let builder = builder.with(|options| options.feature_gates = vec![gate]);
    let plane = builder.start().await.expect("it starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}

/// Changes a byte of the stored values of objects with this name. Keys are stored without quotes.
fn damage(dir: &Path, name: &str) {
    damage_text(dir, &format!("\"name\":\"{name}\""));
}

fn damage_text(dir: &Path, text: &str) {
    let file = dir.join("redb/store.redb");
    let mut bytes = std::fs::read(&file).expect("the store's file");
    let places: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter(|(_, window)| *window == text.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "{text} is stored as it is");
    for at in places {
        // More than one byte, which a start would put right.
        bytes[at + 2] ^= 1;
        bytes[at + 4] ^= 1;
    }
    std::fs::write(&file, bytes).expect("the store's file");
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_objects_may_be_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    for name in ["sound", "hurt"] {
        client.post(MAPS, &map(name)).await.expect(201);
    }
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some-role"}});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    client.post(roles, &role).await.expect(201);
    plane.stop().await;
    let damaged = [
        ("hurt", "/api/v1/namespaces/default/configmaps/hurt"),
        (
            "cluster-admin",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        ),
        (
            "some-role",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/some-role",
        ),
        ("kube-public", "/api/v1/namespaces/kube-public"),
        (
            "exempt",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt",
        ),
        ("kubernetes", "/api/v1/namespaces/default/services/kubernetes"),
        (
            "system-node-critical",
            "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        ),
    ];
    for (name, _) in damaged {
        damage(dir.path(), name);
    }
    // APIServices that the server itself registers are recreated.
    damage(dir.path(), "v1.apps");

    let (plane, client) = start(dir.path()).await;
    for (name, path) in damaged {
        let status = client.get(path).await.expect(500);
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(" is damaged: ") && message.contains("fails its checksum"),
            "{name}: {status}"
        );
    }
    client.get(&format!("{MAPS}/sound")).await.expect(200);
    client.post(MAPS, &map("new")).await.expect(201);
    client
        .get("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps")
        .await
        .expect(200);
    client.get("/apis/apps/v1/deployments").await.expect(200);
    // Others of the kind, and watches of it.
    client
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
        .await
        .expect(200);
    client
        .get("/api/v1/namespaces/kube-system/configmaps")
        .await
        .expect(200);
    let mut watch = client.watch(&format!("{MAPS}?watch=true")).await;
    client.get("/readyz").await.expect(200);
    let text = |answer: Answer| String::from_utf8_lossy(&answer.body).into_owned();
    let verbose = text(client.get("/readyz?verbose").await);
    assert!(verbose.contains("[!]storage-integrity "), "{verbose}");
    let metrics = text(client.get("/metrics").await);
    let line = "apiserver_storage_damaged_objects{group=\"\",resource=\"configmaps\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");

    // As it is, none can be changed or deleted.
    let one = format!("{MAPS}/hurt");
    client.delete(&one).await.expect(500);
    client.put(&one, &map("hurt")).await.expect(500);
    client.get(MAPS).await.expect(500);
    client.delete(&format!("{one}?{IGNORE}")).await.expect(200);
    client.get(&one).await.expect(404);
    client.get(MAPS).await.expect(200);
    client.post(MAPS, &map("hurt")).await.expect(201);
    // The watch receives an error that makes it list again, or the new object.
    while let Some(event) = watch.next().await {
        if event["object"]["metadata"]["name"] == "hurt" {
            break;
        }
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_admission_configuration_refuses_writes_until_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "some-hook"}});
    client.post(HOOKS, &hook).await.expect(201);
    plane.stop().await;
    damage(dir.path(), "some-hook");

    let (plane, client) = start(dir.path()).await;
    client.get("/livez").await.expect(200);
    client.get("/readyz").await.expect(500);
    client.get(MAPS).await.expect(200);
    // Its decision is unknown.
    let refused = client.post(MAPS, &map("new")).await.expect(403);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("not yet ready to handle request"), "{refused}");
    client
        .delete(&format!("{HOOKS}/some-hook?{IGNORE}"))
        .await
        .expect(200);
    eventually("the configuration has been read", || async {
        client
            .try_post(MAPS, &map("new"))
            .await
            .ok()
            .filter(|answer| answer.status == 201)
    })
    .await;
    client.get("/readyz").await.expect(200);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_cannot_be_read_keeps_its_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let mut hurt = service("hurt");
    hurt["metadata"]["labels"] = json!({"mark": "unmistakable"});
    let hurt = client.post(services, &hurt).await.expect(201);
    plane.stop().await;
    damage_text(dir.path(), "unmistakable");
    let (plane, client) = start(dir.path()).await;
    // The first search of a start begins where that service was given its address.
    let first = client.post(services, &service("first")).await.expect(201);
    assert_ne!(first["spec"]["clusterIP"], hurt["spec"]["clusterIP"]);
    let mut wants = service("wants");
    wants["spec"]["clusterIP"] = hurt["spec"]["clusterIP"].clone();
    client.post(services, &wants).await.expect(422);
    // Once it is deleted its address is free.
    client
        .delete(&format!("{services}/hurt?{IGNORE}"))
        .await
        .expect(200);
    client.post(services, &wants).await.expect(201);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_limits_or_protects_fails_closed_in_its_namespace() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    let limits = json!([{"type": "Container", "max": {"cpu": "1"}}]);
    let cases = [
        (
            "resourcequotas",
            "ResourceQuota",
            json!({"hard": {"configmaps": "1"}}),
        ),
        ("limitranges", "LimitRange", json!({"limits": limits})),
    ];
    for (resource, kind, spec) in &cases {
        let name = format!("with-{resource}");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        client.post("/api/v1/namespaces", &namespace).await.expect(201);
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": format!("hurt-{resource}")}, "spec": spec});
        client
            .post(&format!("/api/v1/namespaces/{name}/{resource}"), &object)
            .await
            .expect(201);
        eventually("the account of pods", || async {
            let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            (client.get(&path).await.status == 200).then_some(())
        })
        .await;
    }
    plane.stop().await;
    for (resource, ..) in &cases {
        damage(dir.path(), &format!("hurt-{resource}"));
    }
    let (plane, client) = start(dir.path()).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}});
    for (resource, ..) in &cases {
        let within = format!("/api/v1/namespaces/with-{resource}");
        client.post(&format!("{within}/pods"), &pod).await.expect(500);
        client
            .delete(&format!("{within}/{resource}/hurt-{resource}?{IGNORE}"))
            .await
            .expect(200);
        client.post(&format!("{within}/pods"), &pod).await.expect(201);
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_deleted_around_a_damaged_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    client.post("/api/v1/namespaces", &namespace).await.expect(201);
    let maps = "/api/v1/namespaces/going/configmaps";
    for name in ["sound", "hurt"] {
        client.post(maps, &map(name)).await.expect(201);
    }
    plane.stop().await;
    damage(dir.path(), "hurt");
    let (plane, client) = start(dir.path()).await;
    let place = "/api/v1/namespaces/going";
    client.delete(place).await.expect(200);
    eventually("the condition that names what is left", || async {
        let left = client.get(place).await.expect(200);
        let failed = left["status"]["conditions"].as_array()?.iter().any(|condition| {
            condition["type"] == "NamespaceDeletionContentFailure"
                && condition["status"] == "True"
                && condition["message"]
                    .as_str()
                    .is_some_and(|why| why.contains("configmaps"))
        });
        failed.then_some(())
    })
    .await;
    client.get(&format!("{maps}/sound")).await.expect(404);
    client.delete(&format!("{maps}/hurt?{IGNORE}")).await.expect(200);
    eventually("the end of the namespace", || async {
        (client.get(place).await.status == 404).then_some(())
    })
    .await;
    plane.stop().await;
}

/// As upstream: an update has to read what it replaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_is_not_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    client.post(MAPS, &map("hurt")).await.expect(201);
    plane.stop().await;
    damage(dir.path(), "hurt");
    let (plane, client) = start(dir.path()).await;
    let one = format!("{MAPS}/hurt");
    let merge = "merge-patch+json";
    let apply = "apply-patch+yaml";
    for answer in [
        client.put(&one, &map("hurt")).await,
        client.patch(&one, merge, &json!({"data": {"a": "b"}})).await,
        client
            .patch(&format!("{one}?fieldManager=m"), apply, &map("hurt"))
            .await,
        client.delete(&one).await,
    ] {
        let status = answer.expect(500);
        assert_eq!(status["reason"], "InternalError", "{status}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains("corrupt object"), "{status}");
    }
    client.post(MAPS, &map("hurt")).await.expect(409);
    client.delete(&format!("{one}?{IGNORE}")).await.expect(200);
    client.post(MAPS, &map("hurt")).await.expect(201);
    plane.stop().await;
}
