//! A disk without room: the server starts on it, refuses writes with the reason, and serves reads.

use control_plane::ControlPlane;
use serde_json::json;
use test_support::Client;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(dir: &std::path::Path, min_free_disk_mib: u64) -> (ControlPlane, Client) {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir);
    let builder = builder.with(|options| options.min_free_disk_mib = min_free_disk_mib);
    let plane = builder.start().await.expect("it starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}

#[tokio::test]
async fn a_full_disk_refuses_writes_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let (plane, client) = start(dir.path(), 1).await;
    for name in ["stays", "goes"] {
        client.post(MAPS, &map(name)).await.expect(201);
    }
    plane.stop().await;

    // No disk has so much.
    let (plane, client) = start(dir.path(), u64::MAX).await;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Internal error occurred: the store has too little free space", "reason": "InternalError", "code": 507});
    assert_eq!(client.post(MAPS, &map("more")).await.expect(507), status);
    let one = format!("{MAPS}/stays");
    let change = json!({"data": {"a": "b"}});
    let refused = client.patch(&one, "merge-patch+json", &change).await;
    assert_eq!(refused.expect(507), status);

    assert!(client.get(&one).await.expect(200)["data"].is_null());
    client.get("/readyz").await.expect(200);
    // Deletions are allowed.
    client.delete(&format!("{MAPS}/goes")).await.expect(200);
    let left = client.get(MAPS).await.expect(200).to_string();
    assert!(left.contains("stays") && !left.contains("goes"), "{left}");
    plane.stop().await;

    let (plane, client) = start(dir.path(), 1).await;
    client.post(MAPS, &map("more")).await.expect(201);
    plane.stop().await;
}
