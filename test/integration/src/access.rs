//! Who may ask, and who may do what.

use serde_json::json;
use test_support::{plane, plane_with};

#[tokio::test]
async fn strangers_are_told_so() {
    let (plane, client) = plane().await;
    let stranger = client.anonymous(plane.ca_certificate());
    let refused = stranger.get("/api/v1/namespaces/default/pods").await.expect(403);
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    stranger.get("/version").await.expect(200);
    let forged = stranger.header("authorization", "Bearer nonsense");
    forged.get("/version").await.expect(401);
    plane.stop().await;
}

#[tokio::test]
async fn roles_take_effect_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret,alice,1,\"dev\"\n").expect("a token file");
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(file.clone()))).await;
    let alice = client
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    let pods = "/api/v1/namespaces/default/pods";
    alice.get(pods).await.expect(403);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    client.post(bindings, &binding).await.expect(201);
    test_support::eventually("the role holds", || async {
        (alice.get(pods).await.status == 200).then_some(())
    })
    .await;
    alice.get("/api/v1/namespaces/kube-system/pods").await.expect(403);
    plane.stop().await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret,alice,1,\"dev\"\n").expect("a token file");
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(file.clone()))).await;
    let alice = client
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |name: &str, resource: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": ["rbac.authorization.k8s.io", ""], "resources": [resource], "verbs": ["create", "get"]}],
        })
    };
    client.post(roles, &role("keeper", "roles")).await.expect(201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keeper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    client
        .post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            &binding,
        )
        .await
        .expect(201);
    test_support::eventually("the role holds", || async {
        (alice.get(&format!("{roles}/keeper")).await.status == 200).then_some(())
    })
    .await;
    alice.post(roles, &role("same", "roles")).await.expect(201);
    let refused = alice.post(roles, &role("more", "secrets")).await.expect(403);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held"),
        "{message}"
    );
    plane.stop().await;
}
