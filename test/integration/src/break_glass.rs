//! `--webhook-break-glass`: what brings the backend of a webhook back goes past it, and nothing else.

use serde_json::{Value, json};
use test_support::{Client, eventually, plane_with};

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const PODS: &str = "/api/v1/namespaces/hooks/pods";
const WARNING: &str = "299 - \"admission webhook \\\"hook.example.com\\\" was not asked: nothing of its service is up, and this write may bring it back\"";

fn pod(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false}})
}

fn deployment(name: &str, app: &str) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, "template": template}})
}

fn slice(name: &str, service: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4", "ports": [],
        "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true}}]})
}

/// A webhook that is asked about every write, behind a Service without a pod.
async fn lock(client: &Client, failure_policy: &str) {
    for name in ["hooks", "other"] {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        client.post("/api/v1/namespaces", &space).await.expect(201);
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        eventually("the default account is there", || async {
            (client.get(&account).await.status == 200).then_some(())
        })
        .await;
    }
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"clusterIP": "None", "selector": {"app": "hook"}, "ports": [{"port": 443}]}});
    client
        .post("/api/v1/namespaces/hooks/services", &service)
        .await
        .expect(201);
    let everything =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "lock"}, "webhooks": [{"name": "hook.example.com", "rules": everything, "failurePolicy": failure_policy,
            "clientConfig": {"service": {"namespace": "hooks", "name": "hook"}}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5}]});
    client.post(HOOKS, &hooks).await.expect(201);
    let maps = "/api/v1/namespaces/other/configmaps?dryRun=All";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
    eventually("the webhook counts", || async {
        (client.post(maps, &map).await.status == 500).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_backend_comes_back() {
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.webhook_break_glass = true)).await;
    lock(&client, "Fail").await;
    let node = Client::from_kubeconfig(plane.kubeconfig().as_bytes())
        .header("Impersonate-User", "system:node:n1")
        .header("Impersonate-Group", "system:nodes")
        .header("Impersonate-Group", "system:masters");

    // Its pods and what makes them.
    let made = client.post(PODS, &pod("own", "hook")).await;
    assert_eq!(
        (made.status, &made.headers["warning"].to_str().expect("text")),
        (201, &WARNING),
        "{:?}",
        made.json
    );
    let deployments = "/apis/apps/v1/namespaces/hooks/deployments";
    client
        .post(deployments, &deployment("own", "hook"))
        .await
        .expect(201);
    // Nobody else's, there or elsewhere, nor anything else.
    let refused = client.post(PODS, &pod("stray", "other")).await.expect(500);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.starts_with("Internal error occurred: failed calling webhook \"hook.example.com\""),
        "{message}"
    );
    client
        .post(deployments, &deployment("stray", "other"))
        .await
        .expect(500);
    client
        .post("/api/v1/namespaces/other/pods", &pod("own", "hook"))
        .await
        .expect(500);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    client
        .post("/api/v1/namespaces/hooks/configmaps", &map)
        .await
        .expect(500);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    client
        .post("/api/v1/namespaces/hooks/secrets", &secret)
        .await
        .expect(500);
    // A pod of another kind does not become one of the backend's, nor one of the backend's another.
    let relabel = json!({"metadata": {"labels": {"app": "other"}}});
    client
        .patch(&format!("{PODS}/own"), "merge-patch+json", &relabel)
        .await
        .expect(500);

    // A node speaks for itself alone.
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    node.post("/api/v1/nodes", &named("n1")).await.expect(201);
    node.post("/api/v1/nodes", &named("n2")).await.expect(500);
    client.post("/api/v1/nodes", &named("n3")).await.expect(500);
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    node.post(leases, &lease("n1")).await.expect(201);
    node.post(leases, &lease("n2")).await.expect(500);

    // A ready pod holds the webhook up, whatever has become of its endpoints: who deletes those gets nothing past it.
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let status = format!("{PODS}/own/status");
    let merge = "merge-patch+json";
    client.patch(&status, merge, &ready("True")).await.expect(200);
    client.post(PODS, &pod("second", "hook")).await.expect(500);
    // Only a component says otherwise.
    client.patch(&status, merge, &ready("False")).await.expect(500);
    node.patch(&status, merge, &ready("False")).await.expect(200);
    client.post(PODS, &pod("second", "hook")).await.expect(201);
    // So do endpoints that are ready.
    let slices = "/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices";
    client.post(slices, &slice("stray", "other")).await.expect(500);
    client.post(slices, &slice("hook-1", "hook")).await.expect(201);
    client.post(PODS, &pod("third", "hook")).await.expect(500);

    let metrics = client.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let counted =
        "apiserver_admission_webhook_break_glass_count{name=\"hook.example.com\",type=\"validating\"} ";
    assert!(metrics.contains(counted), "{metrics}");
    let report = client.get("/debug/admission").await.expect(200);
    let hook = &report["webhooks"][0];
    assert_eq!(
        (&hook["name"], &hook["phase"]),
        (&json!("hook.example.com"), &json!("validating"))
    );
    assert!(
        hook["brokeGlass"].as_u64() >= Some(8) && hook["failures"].as_u64() > hook["brokeGlass"].as_u64(),
        "{hook}"
    );
    let why = hook["lastError"]["message"].as_str().expect("an error");
    assert!(
        why.ends_with("no endpoints available for service \"hook\"") && !why.contains("timeout="),
        "{why}"
    );
    // The report has a permission of its own.
    let somebody =
        Client::from_kubeconfig(plane.kubeconfig().as_bytes()).header("Impersonate-User", "somebody");
    somebody.get("/debug/admission").await.expect(403);
    client.post("/debug/admission", &json!({})).await.expect(405);
    plane.stop().await;
}

#[tokio::test]
async fn nothing_goes_past_without_the_flag() {
    let (plane, client) = plane_with(|builder| builder).await;
    lock(&client, "Fail").await;
    client.post(PODS, &pod("own", "hook")).await.expect(500);
    plane.stop().await;
}
