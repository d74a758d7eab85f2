//! Kubelets: what they may do, by the Node authorizer and NodeRestriction, and how they are reached.

mod command;
mod forward;
mod kubectl;
mod log;
mod proxy;
mod rig;
mod trust;

use control_plane::AuthorizationMode;
use serde_json::{Value, json};
use test_support::plane_with;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).expect("a text")
}

#[tokio::test]
async fn a_kubelet_reads_objects_of_its_pods() {
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.authorization.authorization_mode = vec![AuthorizationMode::Node, AuthorizationMode::Rbac];
            options.enable_admission_plugins = vec!["NodeRestriction".into()];
        })
    })
    .await;
    let kubelet = |name: &str| {
        client
            .clone()
            .header("impersonate-user", &format!("system:node:{name}"))
            .header("impersonate-group", "system:nodes")
    };
    let (n1, n2) = (kubelet("n1"), kubelet("n2"));

    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let made = n1.post("/api/v1/nodes", &node("n1")).await.expect(201);
    let refused = n1.post("/api/v1/nodes", &node("n2")).await.expect(403);
    assert_eq!(
        refused["message"],
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    n1.get("/api/v1/nodes/n1").await.expect(200);
    let refused = n1.get("/api/v1/nodes").await.expect(403);
    assert_eq!(
        refused["message"],
        "nodes is forbidden: User \"system:node:n1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: \
         node 'n1' cannot read all nodes, only its own Node object"
    );

    let a = "/api/v1/namespaces/default";
    for name in ["used", "unused"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        client.post(&format!("{a}/secrets"), &secret).await.expect(201);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n1", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "used"}}]}],
            "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault", "path": "t"}}]}}],
        },
    });
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    client.post(&format!("{a}/serviceaccounts"), &account).await;
    let pod = client.post(&format!("{a}/pods"), &pod).await.expect(201);
    test_support::eventually("the pod counts", || async {
        (n1.get(&format!("{a}/secrets/used")).await.status == 200).then_some(())
    })
    .await;
    n1.get(&format!("{a}/secrets/unused")).await.expect(403);
    n2.get(&format!("{a}/secrets/used")).await.expect(403);
    n1.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")
        .await
        .expect(200);
    n1.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn2")
        .await
        .expect(403);

    let token = |audience: &str, uid: &str| {
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": [audience],
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid},
            },
        })
    };
    let uid = text(&pod, "/metadata/uid");
    let tokens = format!("{a}/serviceaccounts/default/token");
    n1.post(&tokens, &token("vault", uid)).await.expect(201);
    let refused = n1.post(&tokens, &token("other", uid)).await.expect(403);
    assert_eq!(
        text(&refused, "/message")
            .split_once("forbidden: ")
            .expect("a refusal")
            .1,
        "audience \"other\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
    );
    n1.post(&tokens, &token("vault", "another")).await.expect(403);
    n2.post(&tokens, &token("vault", uid)).await.expect(403);

    let mirror = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "m", "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": text(&made, "/metadata/uid"), "controller": true},
            ],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    n1.post(&format!("{a}/pods"), &mirror).await.expect(201);
    let mut foreign = mirror.clone();
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    n1.post(&format!("{a}/pods"), &foreign).await.expect(403);
    n2.delete(&format!("{a}/pods/m")).await.expect(403);
    n1.delete(&format!("{a}/pods/m")).await.expect(200);
    n1.delete(&format!("{a}/pods/absent")).await.expect(404);

    // The pod's end is the end of what came with it.
    client
        .delete(&format!("{a}/pods/p?gracePeriodSeconds=0"))
        .await
        .expect(200);
    test_support::eventually("the pod counts no longer", || async {
        (n1.get(&format!("{a}/secrets/used")).await.status == 403).then_some(())
    })
    .await;
    plane.stop().await;
}
