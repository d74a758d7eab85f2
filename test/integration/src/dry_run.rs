//! Dry run: every verb and subresource runs, answers as it would, and leaves the store as it was, byte for byte and revision for
//! revision.

use std::collections::BTreeMap;

use control_plane::ControlPlane;
use serde_json::{Value, json};
use storage::RangeRequest;
use test_support::{Client, eventually, plane_with};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const NS: &str = "/api/v1/namespaces/d";

/// Everything that is stored: keys with the revisions of their last writes. But for what the server itself keeps alive.
async fn stored(plane: &ControlPlane) -> BTreeMap<String, u64> {
    let request = RangeRequest {
        prefix: "/registry/".into(),
        ..RangeRequest::default()
    };
    let found = plane.engine().range(request).await.expect("an answer");
    found
        .kvs
        .iter()
        .filter(|kv| !kv.key.contains("masterleases"))
        .map(|kv| (kv.key.to_string(), kv.mod_revision.0))
        .collect()
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "NodePort", "clusterIP": "10.0.0.77", "ports": [{"port": 80, "nodePort": 30777}]}})
}

fn crd(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.dry.example.com")},
        "spec": {
            "group": "dry.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Kind{plural}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn apiservice(group: &str) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": {"namespace": "d", "name": "absent"}}})
}

fn request() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["a".to_string()]).expect("parameters");
    let request = params.serialize_request(&key).expect("a request");
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(request.pem().expect("PEM"))
}

async fn set_up(client: &Client) {
    // The server's own write of the first seconds.
    eventually("the default ServiceCIDR is ready", async || {
        let found = client
            .get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
            .await;
        (found.status == 200 && found.expect(200)["status"]["conditions"].is_array()).then_some(())
    })
    .await;
    let make = async |path: &str, object: Value| client.post(path, &object).await.expect(201);
    make("/api/v1/namespaces", json!({"metadata": {"name": "d"}})).await;
    let account = json!({"metadata": {"name": "default"}});
    make(&format!("{NS}/serviceaccounts"), account).await;
    make(
        "/api/v1/nodes",
        json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}),
    )
    .await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "50", "configmaps": "50", "requests.cpu": "9"}}});
    make(&format!("{NS}/resourcequotas"), quota).await;
    let hard = json!({"pods": "50", "configmaps": "50", "requests.cpu": "9"});
    let used =
        json!({"status": {"hard": hard, "used": {"pods": "0", "configmaps": "0", "requests.cpu": "0"}}});
    client
        .patch(
            &format!("{NS}/resourcequotas/q/status"),
            "merge-patch+json",
            &used,
        )
        .await
        .expect(200);
    for name in ["p", "bound"] {
        make(&format!("{NS}/pods"), pod(name)).await;
    }
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    make(&format!("{NS}/pods/bound/binding"), binding).await;
    make(
        &format!("{NS}/configmaps"),
        json!({"metadata": {"name": "m"}, "data": {"a": "b"}}),
    )
    .await;
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "w"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}});
    make("/apis/apps/v1/namespaces/d/deployments", deployment).await;
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}});
    make("/apis/policy/v1/namespaces/d/poddisruptionbudgets", budget).await;
    client
        .patch(
            "/apis/policy/v1/namespaces/d/poddisruptionbudgets/b/status",
            "merge-patch+json",
            &json!({"status": {"disruptionsAllowed": 1, "observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}}),
        )
        .await
        .expect(200);
    let signing = json!({"metadata": {"name": "s"}, "spec": {"request": request(), "usages": ["client auth"],
        "signerName": "example.com/signer"}});
    make("/apis/certificates.k8s.io/v1/certificatesigningrequests", signing).await;
    make(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        crd("olds"),
    )
    .await;
    make(
        "/apis/dry.example.com/v1/namespaces/d/olds",
        json!({"apiVersion": "dry.example.com/v1", "kind": "Kindolds", "metadata": {"name": "o"}, "spec": {"x": 1}}),
    )
    .await;
    make(
        "/apis/apiregistration.k8s.io/v1/apiservices",
        apiservice("old.example.com"),
    )
    .await;
    make(
        "/apis/coordination.k8s.io/v1/namespaces/d/leases",
        json!({"metadata": {"name": "l"}}),
    )
    .await;
}

/// Requests by method, path below which the query goes, media type, body and the code of the answer.
type Row = (&'static str, &'static str, &'static str, Value, u16);

fn objects() -> Vec<Row> {
    let m = "/api/v1/namespaces/d/configmaps/m";
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "c"}});
    let strategic = "application/strategic-merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let data = json!({"data": {"a": "c"}});
    vec![
        ("POST", "/api/v1/namespaces/d/configmaps", JSON, map("new"), 201),
        ("PUT", m, JSON, map("m"), 200),
        (
            "PATCH",
            m,
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/data/a", "value": "c"}]),
            200,
        ),
        ("PATCH", m, MERGE, data.clone(), 200),
        ("PATCH", m, strategic, data, 200),
        ("PATCH", m, apply, map("m"), 200),
        (
            "PATCH",
            "/api/v1/namespaces/d/configmaps/new",
            apply,
            map("new"),
            201,
        ),
        ("DELETE", m, "", Value::Null, 200),
        ("DELETE", "/api/v1/namespaces/d/configmaps", "", Value::Null, 200),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/d/leases/new",
            JSON,
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}}),
            201,
        ),
        ("POST", "/api/v1/namespaces/d/pods", JSON, pod("new"), 201),
        ("DELETE", "/api/v1/namespaces/d/pods/bound", "", Value::Null, 200),
        ("DELETE", "/api/v1/namespaces/d/pods", "", Value::Null, 200),
        (
            "POST",
            "/api/v1/namespaces/d/services",
            JSON,
            service("first"),
            201,
        ),
        // The previous dry run has taken neither address nor port.
        (
            "POST",
            "/api/v1/namespaces/d/services",
            JSON,
            service("second"),
            201,
        ),
        (
            "PATCH",
            "/api/v1/namespaces/d/services/new",
            apply,
            service("new"),
            201,
        ),
        (
            "POST",
            "/api/v1/namespaces",
            JSON,
            json!({"metadata": {"name": "new"}}),
            201,
        ),
        ("DELETE", "/api/v1/namespaces/d", "", Value::Null, 200),
        ("DELETE", "/api/v1/nodes/n", "", Value::Null, 200),
        (
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            JSON,
            crd("news"),
            201,
        ),
        (
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/olds.dry.example.com",
            MERGE,
            json!({"spec": {"names": {"shortNames": ["ol"]}}}),
            200,
        ),
        (
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/olds.dry.example.com",
            "",
            Value::Null,
            200,
        ),
        (
            "POST",
            "/apis/dry.example.com/v1/namespaces/d/olds",
            JSON,
            json!({"apiVersion": "dry.example.com/v1", "kind": "Kindolds", "metadata": {"name": "new"}}),
            201,
        ),
        (
            "DELETE",
            "/apis/dry.example.com/v1/namespaces/d/olds",
            "",
            Value::Null,
            200,
        ),
        (
            "POST",
            "/apis/apiregistration.k8s.io/v1/apiservices",
            JSON,
            apiservice("new.example.com"),
            201,
        ),
        (
            "PATCH",
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.old.example.com",
            MERGE,
            json!({"spec": {"versionPriority": 20}}),
            200,
        ),
        (
            "DELETE",
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.old.example.com",
            "",
            Value::Null,
            200,
        ),
    ]
}

fn subresources() -> Vec<Row> {
    let scale = json!({"spec": {"replicas": 3}});
    let evict = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "bound"}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}});
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    let resize = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let strategic = "application/strategic-merge-patch+json";
    let finalize = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "d"}, "spec": {"finalizers": []}});
    vec![
        (
            "PATCH",
            "/apis/apps/v1/namespaces/d/deployments/w/scale",
            MERGE,
            scale,
            200,
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/d/deployments/w/status",
            MERGE,
            json!({"status": {"replicas": 1}}),
            200,
        ),
        (
            "PATCH",
            "/apis/dry.example.com/v1/namespaces/d/olds/o/status",
            MERGE,
            json!({"status": {"y": 1}}),
            200,
        ),
        (
            "PATCH",
            "/api/v1/namespaces/d/pods/p/status",
            MERGE,
            json!({"status": {"message": "m"}}),
            200,
        ),
        (
            "POST",
            "/api/v1/namespaces/d/pods/bound/eviction",
            JSON,
            evict,
            201,
        ),
        (
            "POST",
            "/api/v1/namespaces/d/pods/p/binding",
            JSON,
            binding.clone(),
            201,
        ),
        ("POST", "/api/v1/namespaces/d/bindings", JSON, binding, 201),
        (
            "PATCH",
            "/api/v1/namespaces/d/pods/bound/ephemeralcontainers",
            strategic,
            ephemeral,
            200,
        ),
        (
            "PATCH",
            "/api/v1/namespaces/d/pods/bound/resize",
            strategic,
            resize,
            200,
        ),
        (
            "POST",
            "/api/v1/namespaces/d/serviceaccounts/default/token",
            JSON,
            token,
            201,
        ),
        (
            "PATCH",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/s/approval",
            MERGE,
            approved,
            200,
        ),
        (
            "PATCH",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/s/status",
            MERGE,
            json!({"status": {"certificate": null}}),
            200,
        ),
        ("PUT", "/api/v1/namespaces/d/finalize", JSON, finalize, 200),
        (
            "PATCH",
            "/api/v1/namespaces/d/status",
            MERGE,
            json!({"status": {"phase": "Active"}}),
            200,
        ),
        (
            "PATCH",
            "/api/v1/namespaces/d/resourcequotas/q/status",
            MERGE,
            json!({"status": {"used": {"pods": "7"}}}),
            200,
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            JSON,
            review,
            201,
        ),
    ]
}

#[tokio::test]
async fn nothing_is_left_of_it() {
    // Without controllers: their writes would be mistaken for those of the requests.
    let (plane, client) = plane_with(|builder| {
        builder.with(|o| {
            o.controllers = vec!["-*".into()];
            o.service_cluster_ip_range = "10.0.0.0/16".into();
        })
    })
    .await;
    set_up(&client).await;
    let mut faults = Vec::new();
    for (method, path, media, body, code) in objects().into_iter().chain(subresources()) {
        let before = stored(&plane).await;
        let query = match media {
            "application/apply-patch+yaml" => "?dryRun=All&fieldManager=t&force=true",
            _ => "?dryRun=All",
        };
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = client
            .raw(method, &format!("{path}{query}"), media, body.clone())
            .await;
        if answer.status != code {
            faults.push(format!("{method} {path}: {} {}", answer.status, answer.json));
        }
        let after = stored(&plane).await;
        if after != before {
            let changed: Vec<_> = after.iter().filter(|(k, v)| before.get(*k) != Some(v)).collect();
            faults.push(format!("{method} {path} changed the store: {changed:?}"));
        }
        let refused = client
            .raw(method, &format!("{path}?dryRun=Some"), media, body)
            .await;
        let expected = 400..=422;
        if !expected.contains(&refused.status) {
            faults.push(format!("{method} {path}?dryRun=Some: {}", refused.status));
        }
        assert_eq!(stored(&plane).await, before, "{method} {path}?dryRun=Some");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // An address assigned in a dry run is free.
    let given = client
        .post(&format!("{NS}/services"), &service("real"))
        .await
        .expect(201);
    assert_eq!(given["spec"]["clusterIP"], "10.0.0.77");
    plane.stop().await;
}
