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
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "w", "user": "u"}}],
        "clusters": [{"name": "w", "cluster": {"server": webhook.url(), "certificate-authority-data": webhook.ca_bundle()}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&file, config.to_string()).expect("a file");
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
