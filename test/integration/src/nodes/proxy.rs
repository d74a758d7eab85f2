//! `nodes/proxy`, `pods/proxy` and `services/proxy`.

use serde_json::json;
use test_support::{PATIENCE, own_address};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::rig::{NAMESPACE, Rig, node, pod};

#[tokio::test]
async fn requests_are_passed_to_nodes_pods_and_services() {
    let rig = Rig::start().await;
    let Some(address) = own_address() else {
        // The loopback address is refused.
        return rig.plane.stop().await;
    };
    let port = rig.kubelet.port();
    let client = rig
        .client
        .clone()
        .header("x-remote-user", "root")
        .header("x-kept", "1");
    client
        .post("/api/v1/nodes", &node("n2", address, port))
        .await
        .expect(201);
    let seen = client
        .raw(
            "PUT",
            "/api/v1/nodes/n2/proxy/a/b%20c/?x=1&y=%2F",
            "text/plain",
            "body",
        )
        .await;
    assert!(!seen.headers.contains_key("access-control-allow-origin"));
    let seen = seen.expect(200);
    assert_eq!(seen["method"], "PUT");
    assert_eq!(seen["target"], "/a/b%20c/?x=1&y=%2F");
    assert_eq!(seen["body"], "body");
    assert_eq!(seen["headers"]["x-kept"], "1");
    assert_eq!(seen["headers"]["x-remote-user"], serde_json::Value::Null);
    assert_eq!(
        seen["headers"]["x-forwarded-uri"],
        "/api/v1/nodes/n2/proxy/a/b%20c/"
    );
    for method in ["HEAD", "OPTIONS"] {
        let answer = client
            .raw(method, "/api/v1/nodes/n2/proxy/a", "text/plain", "")
            .await;
        assert_eq!(answer.status, 200, "{method}");
    }
    // Under `/watch/` every method is authorized as a watch.
    for method in ["GET", "POST", "PUT"] {
        let path = "/api/v1/watch/nodes/n2/proxy/run/default/p/c";
        let answer = client.raw(method, path, "text/plain", "").await;
        assert_eq!(answer.status, 404, "{method}");
    }
    let by_port = format!("/api/v1/nodes/https:n2:{port}/proxy/metrics");
    assert_eq!(client.get(&by_port).await.expect(200)["target"], "/metrics");

    // Relative links of a page are relative to a path with a final slash.
    let moved = client.get("/api/v1/nodes/n2/proxy?x=1").await;
    assert_eq!(moved.status, 301);
    assert_eq!(moved.headers["location"], "/api/v1/nodes/n2/proxy/?x=1");
    let moved = client.get("/api/v1/nodes/n2/proxy/redirect").await;
    assert_eq!(moved.status, 302);
    assert_eq!(moved.headers["location"], "/api/v1/nodes/n2/proxy/there?a=b");

    let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
    let of_pod = format!("{NAMESPACE}/pods/p/status");
    client
        .patch(&of_pod, "merge-patch+json", &status)
        .await
        .expect(200);
    let path = format!("{NAMESPACE}/pods/https:p:{port}/proxy/x");
    assert_eq!(client.get(&path).await.expect(200)["target"], "/x");

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": port}]},
    });
    client
        .post(&format!("{NAMESPACE}/services"), &service)
        .await
        .expect(201);
    let path = format!("{NAMESPACE}/services/https:s:web/proxy/x");
    let refused = client.get(&path).await;
    assert!(matches!(refused.status, 404 | 503), "{}", refused.status);
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"},
        "subsets": [{
            "addresses": [{"ip": address, "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}],
            "ports": [{"name": "web", "port": port}],
        }],
    });
    client
        .post(&format!("{NAMESPACE}/endpoints"), &endpoints)
        .await
        .expect(201);
    for name in ["https:s:web", "https:s:80"] {
        let path = format!("{NAMESPACE}/services/{name}/proxy/x");
        assert_eq!(client.get(&path).await.expect(200)["target"], "/x", "{name}");
    }
    let none = client
        .get(&format!("{NAMESPACE}/services/https:s:other/proxy/x"))
        .await
        .expect(503);
    assert_eq!(
        none["message"],
        "no endpoints available for service \"https:s:other\""
    );
    let none = client
        .get(&format!("{NAMESPACE}/services/s:81/proxy/x"))
        .await
        .expect(503);
    assert_eq!(none["message"], "no service port 81 found for service \"s\"");

    // Other protocols pass.
    let path = format!("{NAMESPACE}/services/https:s:web/proxy/socket");
    let mut io = client
        .upgrade("GET", &path, &[("upgrade", "other")])
        .await
        .expect("an upgrade")
        .io;
    io.write_all(b"as it is").await.expect("sent");
    let mut back = [0; 8];
    timeout(PATIENCE, io.read_exact(&mut back))
        .await
        .expect("bytes in time")
        .expect("bytes");
    assert_eq!(&back, b"as it is");
    drop(io);
    rig.is_free().await;
    rig.plane.stop().await;
}

#[tokio::test]
async fn addresses_of_this_machine_are_refused() {
    let rig = Rig::start().await;
    let check = async |path: &str, code: u16, expected: &str| {
        assert_eq!(
            rig.client.get(path).await.expect(code)["message"],
            expected,
            "{path}"
        );
    };
    check("/api/v1/nodes/n1/proxy/metrics", 400, "address not allowed").await;
    check(
        "/api/v1/nodes/ftp:n1:80/proxy/x",
        400,
        "invalid node request \"ftp:n1:80\"",
    )
    .await;
    check("/api/v1/nodes/absent/proxy/x", 404, "nodes \"absent\" not found").await;
    check(&format!("{NAMESPACE}/pods/p/proxy/x"), 400, "address not allowed").await;
    rig.add(&pod("q", "n1", &["c"])).await;
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    rig.client
        .patch(&format!("{NAMESPACE}/pods/q/status"), "merge-patch+json", &status)
        .await
        .expect(200);
    check(&format!("{NAMESPACE}/pods/q/proxy/x"), 400, "address not allowed").await;
    check(
        &format!("{NAMESPACE}/pods/q:80/proxy/x?dryRun=All"),
        400,
        "dryRun is not supported",
    )
    .await;
    rig.plane.stop().await;
}
