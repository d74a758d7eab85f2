//! Servers on stores with damaged objects: each is an error of its own, and none keeps a server from starting.

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
    let file = dir.join("redb/store.redb");
    let mut bytes = std::fs::read(&file).expect("the store's file");
    let text = format!("\"name\":\"{name}\"");
    let places: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter(|(_, window)| *window == text.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "{name} is stored as it is");
    for at in places {
        bytes[at + 2] ^= 1;
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
