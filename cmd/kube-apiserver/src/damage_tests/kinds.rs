//! A damaged object of each kind that the server itself reads.

use serde_json::{Value, json};
use test_support::eventually;

use super::{damage, start};

/// Objects of kinds that the server itself reads: where they are, and one whose name has `hurt` in it.
fn of_internal_readers() -> Vec<(&'static str, Value)> {
    let of = |version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        for (key, value) in rest.as_object().expect("an object") {
            match key.as_str() {
                "annotations" | "labels" => object["metadata"][key] = value.clone(),
                _ => object[key] = value.clone(),
            }
        }
        object
    };
    let names = json!({"plural": "hurts", "singular": "hurt", "kind": "Hurt"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let parent = json!({"resource": "services", "namespace": "default", "name": "nobody"});
    let backend = json!({"service": {"name": "s", "namespace": "default"}, "group": "hurt.example.com", "version": "v1",
        "insecureSkipTLSVerify": true, "groupPriorityMinimum": 10, "versionPriority": 10});
    let level = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    let rules = json!([{"apiGroups": [""], "resources": ["hurt-things"], "verbs": ["get"]}]);
    let default = |group: &str| json!({format!("{group}.kubernetes.io/is-default-class"): "true"});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    vec![
        (
            "/api/v1/namespaces",
            of("v1", "Namespace", "hurt-namespace", json!({})),
        ),
        ("/api/v1/nodes", of("v1", "Node", "hurt-node", json!({}))),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            of("v1", "ServiceAccount", "hurt-account", json!({})),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            of("v1", "Secret", "hurt-secret", json!({})),
        ),
        (
            "/api/v1/namespaces/default/pods",
            of("v1", "Pod", "hurt-pod", json!({"spec": pod})),
        ),
        (
            "/api/v1/namespaces/default/services",
            of(
                "v1",
                "Service",
                "hurt-service",
                json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
            ),
        ),
        (
            "/apis/networking.k8s.io/v1/ipaddresses",
            of(
                "networking.k8s.io/v1",
                "IPAddress",
                "10.0.0.77",
                json!({"spec": {"parentRef": parent}}),
            ),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            of(
                "networking.k8s.io/v1",
                "IngressClass",
                "hurt-ingress",
                json!({"annotations": default("ingressclass"), "spec": {"controller": "example.com/c"}}),
            ),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            of(
                "storage.k8s.io/v1",
                "StorageClass",
                "hurt-storage",
                json!({"annotations": default("storageclass"), "provisioner": "example.com/p"}),
            ),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            of(
                "scheduling.k8s.io/v1",
                "PriorityClass",
                "hurt-priority",
                json!({"value": 7, "globalDefault": true}),
            ),
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            of(
                "node.k8s.io/v1",
                "RuntimeClass",
                "hurt-runtime",
                json!({"handler": "h"}),
            ),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            of(
                "coordination.k8s.io/v1",
                "Lease",
                "hurt-lease",
                json!({"spec": {}}),
            ),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            of(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                "hurt-role",
                json!({"labels": {"part": "x"}, "rules": rules}),
            ),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            of(
                "flowcontrol.apiserver.k8s.io/v1",
                "PriorityLevelConfiguration",
                "hurt-level",
                json!({"spec": level}),
            ),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            of(
                "flowcontrol.apiserver.k8s.io/v1",
                "FlowSchema",
                "hurt-schema",
                json!({"spec": {"priorityLevelConfiguration": {"name": "global-default"}}}),
            ),
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            of(
                "apiregistration.k8s.io/v1",
                "APIService",
                "v1.hurt.example.com",
                json!({"spec": backend}),
            ),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            of(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "hurts.crd.example.com",
                json!({"spec": {"group": "crd.example.com", "scope": "Namespaced", "names": names, "versions": [version]}}),
            ),
        ),
    ]
}

/// The same object by another name.
fn sibling(object: &Value) -> Value {
    let text = object.to_string();
    let text = text
        .replace("hurt", "new")
        .replace("Hurt", "New")
        .replace("10.0.0.77", "10.0.0.78");
    serde_json::from_str(&text).expect("JSON")
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_stops_no_other_of_its_kind() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plane, client) = start(dir.path()).await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the account of pods", || async {
        (client.get(account).await.status == 200).then_some(())
    })
    .await;
    for (path, object) in of_internal_readers() {
        client.post(path, &object).await.expect(201);
    }
    let whole = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "x"}}]}});
    client
        .post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &whole)
        .await
        .expect(201);
    plane.stop().await;
    for (_, object) in of_internal_readers() {
        damage(dir.path(), name_of(&object));
    }

    let (plane, client) = start(dir.path()).await;
    client.get("/readyz").await.expect(200);
    for (path, object) in of_internal_readers() {
        client
            .get(&format!("{path}/{}", name_of(&object)))
            .await
            .expect(500);
        client.post(path, &sibling(&object)).await.expect(201);
    }
    // What depends on defaults has those that can be read, the first of them after a start, too.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = client
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect(201);
    assert_eq!(pod["spec"]["priorityClassName"], "new-priority", "{pod}");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "late"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = client
        .post("/api/v1/namespaces/default/persistentvolumeclaims", &claim)
        .await
        .expect(201);
    assert_eq!(claim["spec"]["storageClassName"], "new-storage", "{claim}");
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "late"},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let ingress = client.post(ingresses, &ingress).await.expect(201);
    assert_eq!(ingress["spec"]["ingressClassName"], "new-ingress", "{ingress}");
    eventually("the aggregated role", || async {
        let role = client
            .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/whole")
            .await
            .expect(200);
        (role["rules"][0]["resources"][0] == "new-things").then_some(())
    })
    .await;
    // An address whose object cannot be read may be of any service.
    let taken = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"},
        "spec": {"clusterIP": "10.0.0.77", "ports": [{"port": 80}]}});
    client
        .post("/api/v1/namespaces/default/services", &taken)
        .await
        .expect(422);
    plane.stop().await;
}
