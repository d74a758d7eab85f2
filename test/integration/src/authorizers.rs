//! The authorizers that flags and `--authorization-config` name: policies, webhooks, match conditions.

mod expressions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::{AuthorizationFlags, AuthorizationMode, ControlPlane, SubjectAccessReviewVersion};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Client, Reply, Webhook, plane_with};

const PODS: &str = "/api/v1/namespaces/dev/pods";

/// A server whose user alice has no role, and her client.
async fn server(folder: &TempDir, flags: AuthorizationFlags) -> (ControlPlane, Client, Client) {
    let tokens = write(folder, "tokens", "secret,alice,1,\"dev\"\n");
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            options.authorization = flags;
        })
    })
    .await;
    let alice = admin
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    (plane, admin, alice)
}

fn write(folder: &TempDir, name: &str, content: &str) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, content).expect("a file");
    file
}

async fn webhook(answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Webhook {
    Webhook::start(move |review| match answer(review) {
        Some(status) => Reply::Json(
            json!({"apiVersion": review["apiVersion"], "kind": "SubjectAccessReview", "status": status}),
        ),
        None => Reply::Raw(403, "no".into()),
    })
    .await
}

#[tokio::test]
async fn a_webhook_authorizes_requests() {
    let folder = tempfile::tempdir().expect("a directory");
    let webhook = webhook(|review| {
        let attributes = &review["spec"]["resourceAttributes"];
        match (attributes["verb"].as_str(), attributes["resource"].as_str()) {
            (Some("list"), Some("pods")) => Some(json!({"allowed": true})),
            (Some("delete"), Some("pods")) => Some(json!({"denied": true, "reason": "not on fridays"})),
            (_, Some("secrets")) => None,
            _ => Some(json!({"allowed": false, "reason": "who is it?"})),
        }
    })
    .await;
    let flags = AuthorizationFlags {
        authorization_mode: vec![AuthorizationMode::Rbac, AuthorizationMode::Webhook],
        authorization_webhook_config_file: Some(write(&folder, "webhook", &webhook.kubeconfig())),
        authorization_webhook_version: Some(SubjectAccessReviewVersion::V1),
        ..AuthorizationFlags::default()
    };
    let (plane, admin, alice) = server(&folder, flags).await;
    let narrowed = format!("{PODS}?fieldSelector=spec.nodeName%3Dn&labelSelector=a%20in%20(b)");
    for path in [&narrowed, &narrowed, PODS, PODS] {
        alice.get(path).await.expect(200);
    }
    let asked = webhook.questions();
    assert_eq!(asked.len(), 2, "an allowed request is remembered: {asked:?}");
    assert_eq!(
        asked[0],
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": "alice", "uid": "1", "groups": ["dev", "system:authenticated"],
                "resourceAttributes": {
                    "namespace": "dev", "verb": "list", "version": "v1", "resource": "pods",
                    "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
                    "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
                },
            },
            "status": {"allowed": false},
        })
    );
    let denied = alice.delete(&format!("{PODS}/p")).await.expect(403);
    let text = "pods \"p\" is forbidden: User \"alice\" cannot delete resource \"pods\" in API group \"\" in the namespace \"dev\": not on fridays";
    assert_eq!(denied["message"], text);
    let refused = alice.get("/api/v1/nodes").await.expect(403);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|text| text.ends_with(": who is it?"))
    );
    let failed = alice.get("/api/v1/namespaces/dev/secrets").await;
    assert_eq!(failed.status, 500);
    let text = String::from_utf8_lossy(&failed.body);
    let start = "Internal Server Error: \"/api/v1/namespaces/dev/secrets\": ";
    assert!(text.starts_with(start), "{text}");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "alice", "resourceAttributes": {"verb": "get", "resource": "secrets"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let status = admin.post(path, &review).await.expect(201)["status"].clone();
    assert_eq!(status["allowed"], false);
    assert!(status["evaluationError"].is_string(), "{status}");
    let metrics = admin.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"default\",decision=\"allowed\"} 4",
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"default\",decision=\"denied\"} 1",
        "apiserver_authorization_webhook_evaluations_total{name=\"default\",result=\"success\"} 4",
        "apiserver_authorization_webhook_evaluations_fail_open_total{name=\"default\",result=\"error\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    plane.stop().await;
}

/// An `AuthorizationConfiguration` with this list of authorizers.
fn configuration(file: &Path, authorizers: &Value) {
    let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers});
    std::fs::write(file, text.to_string()).expect("a file");
}

#[tokio::test]
async fn a_configuration_is_read_again_and_its_conditions_spare_the_webhook() {
    let folder = tempfile::tempdir().expect("a directory");
    let webhook = webhook(|_| Some(json!({"allowed": true}))).await;
    let kubeconfig = write(&folder, "webhook", &webhook.kubeconfig());
    let in_dev = json!({"type": "Webhook", "name": "in-dev", "webhook": {
        "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny", "cacheAuthorizedRequests": false,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        "matchConditionSubjectAccessReviewVersion": "v1",
        "matchConditions": [
            {"expression": "has(request.resourceAttributes)"},
            {"expression": "request.resourceAttributes.namespace == 'dev'"},
        ],
    }});
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let file = folder.path().join("authorization");
    configuration(&file, &json!([in_dev, rbac]));
    let flags = AuthorizationFlags {
        authorization_config: Some(file.clone()),
        ..AuthorizationFlags::default()
    };
    let (plane, admin, alice) = server(&folder, flags).await;
    let elsewhere = "/api/v1/namespaces/default/pods";
    alice.get(elsewhere).await.expect(403);
    assert!(webhook.questions().is_empty(), "the conditions exclude it");
    alice.get(PODS).await.expect(200);
    alice.get(PODS).await.expect(200);
    assert_eq!(webhook.questions().len(), 2, "nothing is remembered");
    admin.get(elsewhere).await.expect(200);

    // Roles stay necessary; another authorizer may follow them.
    configuration(&file, &json!([{"type": "AlwaysAllow", "name": "alwaysallow"}]));
    assert_eq!(plane.reload().await, [""; 0]);
    alice.get(elsewhere).await.expect(403);
    configuration(
        &file,
        &json!([rbac, {"type": "AlwaysAllow", "name": "alwaysallow"}]),
    );
    assert_eq!(plane.reload().await, ["authorization configuration"]);
    alice.get(elsewhere).await.expect(200);
    assert_eq!(webhook.questions().len(), 2);
    let metrics = admin.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (name, labels) in [
        (
            "match_condition_exclusions_total",
            "{type=\"Webhook\",name=\"in-dev\"} 2",
        ),
        (
            "config_controller_automatic_reloads_total",
            "status=\"success\"} 1",
        ),
        (
            "config_controller_automatic_reloads_total",
            "status=\"failure\"} 1",
        ),
    ] {
        let name = format!("apiserver_authorization_{name}");
        let found = metrics
            .lines()
            .any(|line| line.starts_with(&name) && line.ends_with(labels));
        let all: Vec<&str> = metrics.lines().filter(|line| line.starts_with(&name)).collect();
        assert!(found, "{name} {labels}: {all:?}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn a_file_of_policies_decides() {
    let folder = tempfile::tempdir().expect("a directory");
    let policy = json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
        "spec": {"group": "dev", "readonly": true, "namespace": "dev", "resource": "pods", "apiGroup": "*"}});
    let flags = AuthorizationFlags {
        authorization_mode: vec![AuthorizationMode::Abac],
        authorization_policy_file: Some(write(&folder, "policies", &format!("# one\n{policy}\n"))),
        ..AuthorizationFlags::default()
    };
    let (plane, admin, alice) = server(&folder, flags).await;
    alice.get(PODS).await.expect(200);
    let refused = alice.delete(&format!("{PODS}/p")).await.expect(403);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|text| text.ends_with(": No policy matched."))
    );
    alice.get("/api/v1/namespaces/default/pods").await.expect(403);
    admin.get("/api/v1/namespaces/default/pods").await.expect(200);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "dev"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let own = admin.post(path, &review).await.expect(201);
    assert_eq!(
        own["status"]["resourceRules"],
        json!([]),
        "system:masters has no rules, as upstream"
    );
    plane.stop().await;
}

#[tokio::test]
async fn a_webhook_that_fails_closed_or_hangs_ends_in_an_error() {
    let folder = tempfile::tempdir().expect("a directory");
    let hanging = Webhook::start(|_| Reply::Never).await;
    let kubeconfig = write(&folder, "webhook", &hanging.kubeconfig());
    let file = folder.path().join("authorization");
    let webhook = |timeout: &str| {
        json!({"type": "Webhook", "name": "hanging", "webhook": {
            "timeout": timeout, "subjectAccessReviewVersion": "v1beta1", "failurePolicy": "Deny",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        }})
    };
    configuration(
        &file,
        &json!([webhook("100ms"), {"type": "AlwaysAllow", "name": "alwaysallow"}]),
    );
    let flags = AuthorizationFlags {
        authorization_config: Some(file),
        ..AuthorizationFlags::default()
    };
    let (plane, admin, alice) = server(&folder, flags).await;
    let answer = tokio::time::timeout(Duration::from_secs(30), alice.get(PODS)).await;
    assert_eq!(
        answer.expect("an answer").status,
        500,
        "the next authorizer is not asked"
    );
    admin.get(PODS).await.expect(200);
    plane.stop().await;
}
