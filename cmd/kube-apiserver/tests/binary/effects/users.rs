//! Flags about how users are authenticated.

use generic_server::pki::{Pki, ServingNames, kubeconfig};
use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, eventually};

use super::super::{authority_of, start_on};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn user_of(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    client.post(REVIEWS, &review).await.expect(201)["status"]["userInfo"].clone()
}

#[tokio::test]
async fn anonymous_requests_and_audiences() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["--anonymous-auth=false", "--api-audiences=https://a.example"];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    client
        .anonymous(&authority_of(dir.path()))
        .get("/version")
        .await
        .expect(401);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the account", || async {
        (client.get(account).await.status == 200).then_some(())
    })
    .await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = client
        .post(&format!("{account}/token"), &request)
        .await
        .expect(201);
    assert_eq!(issued["spec"]["audiences"], json!(["https://a.example"]));
}

#[tokio::test]
async fn headers_of_front_proxies() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--requestheader-uid-headers=X-Remote-Uid,X-My-Uid",
        "--requestheader-group-headers=X-Remote-Group,X-My-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-My-Extra-",
    ];
    let (_child, _) = start_on(dir.path(), 0, &flags).await;
    let own = std::fs::read_to_string(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
    let server = own.lines().find_map(|line| line.trim().strip_prefix("server: "));
    let pki = Pki::open(&dir.path().join("pki"), &ServingNames::default()).expect("the server's keys");
    let proxy = kubeconfig(
        server.expect("a server"),
        &pki.ca.certificate,
        &pki.front_proxy_client,
    );
    let alice = Client::from_kubeconfig(proxy.as_bytes())
        .header("X-Remote-User", "alice")
        .header("X-My-Uid", "42")
        .header("X-My-Group", "dev")
        .header("X-My-Extra-Team", "blue");
    assert_eq!(
        user_of(&alice).await,
        json!({"username": "alice", "uid": "42", "groups": ["dev", "system:authenticated"], "extra": {"team": ["blue"]}})
    );
}

#[tokio::test]
async fn answers_of_a_token_webhook_expire() {
    let webhook = Webhook::start(|_| {
        Reply::Json(
            json!({"apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview",
            "status": {"authenticated": false}}),
        )
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("webhook.kubeconfig");
    std::fs::write(&file, webhook.kubeconfig()).expect("a file");
    let named = format!("--authentication-token-webhook-config-file={}", file.display());
    let flags = [&*named, "--authentication-token-webhook-cache-ttl=1ms"];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let ca = authority_of(dir.path());
    let unknown = client.anonymous(&ca).header("authorization", "Bearer t");
    // By default an answer is kept for two minutes.
    eventually("the webhook is asked again", || async {
        unknown.get("/version").await.expect(401);
        (webhook.questions().len() > 2).then_some(())
    })
    .await;
}

/// How a server of these flags answers a user without a role, twice, and how often its webhook was asked.
async fn asked(webhook: &Webhook, dir: &std::path::Path, flags: &[&str]) -> (u16, usize) {
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, "secret,alice,1\n").expect("a file");
    let tokens = format!("--token-auth-file={}", tokens.display());
    let flags: Vec<&str> = flags.iter().copied().chain([&*tokens]).collect();
    let (_child, client) = start_on(dir, 0, &flags).await;
    let alice = client
        .anonymous(&authority_of(dir))
        .header("authorization", "Bearer secret");
    let before = webhook.questions().len();
    alice.get("/api/v1/nodes").await;
    let status = alice.get("/api/v1/nodes").await.status;
    (status, webhook.questions().len() - before)
}

#[tokio::test]
async fn authorizers_of_flags_and_files() {
    let webhook = Webhook::start(|review| {
        let allowed = review["spec"]["user"] == "alice";
        Reply::Json(
            json!({"apiVersion": review["apiVersion"], "kind": "SubjectAccessReview", "status": {"allowed": allowed}}),
        )
    })
    .await;
    let dir = || tempfile::tempdir().expect("a directory");
    let files = dir();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, webhook.kubeconfig()).expect("a file");
    let webhook_flag = format!("--authorization-webhook-config-file={}", kubeconfig.display());
    let by_webhook = ["--authorization-mode=RBAC,Webhook", &webhook_flag];
    assert_eq!(asked(&webhook, dir().path(), &by_webhook).await, (200, 1));
    assert_eq!(
        webhook.questions()[0]["apiVersion"],
        "authorization.k8s.io/v1beta1"
    );
    let uncached = [
        by_webhook[0],
        by_webhook[1],
        "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=0",
        "--authorization-webhook-cache-unauthorized-ttl=0",
    ];
    assert_eq!(asked(&webhook, dir().path(), &uncached).await, (200, 2));
    let last = webhook.questions().pop().expect("a question");
    assert_eq!(last["apiVersion"], "authorization.k8s.io/v1");

    let policies = files.path().join("policies");
    let policy = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"nodes","apiGroup":"*"}}"#;
    std::fs::write(&policies, policy).expect("a file");
    let policies = format!("--authorization-policy-file={}", policies.display());
    let by_policies = ["--authorization-mode=ABAC", &policies];
    assert_eq!(asked(&webhook, dir().path(), &by_policies).await, (200, 0));

    let config = files.path().join("authorization");
    let text = "{\"apiVersion\": \"apiserver.config.k8s.io/v1\", \"kind\": \"AuthorizationConfiguration\", \"authorizers\": [{\"type\": \"RBAC\", \"name\": \"rbac\"}, {\"type\": \"AlwaysAllow\", \"name\": \"alwaysallow\"}]}";
    std::fs::write(&config, text).expect("a file");
    let config = format!("--authorization-config={}", config.display());
    assert_eq!(asked(&webhook, dir().path(), &[&*config]).await, (200, 0));
}
