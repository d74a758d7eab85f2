//! Flags about the issuers of tokens.

use std::path::Path;

use serde_json::{Value, json};
use test_support::{Client, Issuer, Signing, eventually};

use super::super::{authority_of, start_on};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The user of a token, once the server knows its issuer.
async fn user_of(dir: &Path, client: &Client, token: &str) -> Value {
    let holder = client
        .anonymous(&authority_of(dir))
        .header("authorization", &format!("Bearer {token}"));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    eventually("the issuer is known", || async {
        let answer = holder.post(REVIEWS, &review).await;
        (answer.status == 201).then(|| answer.json["status"]["userInfo"].clone())
    })
    .await
}

async fn refused(dir: &Path, client: &Client, token: &str) {
    let holder = client
        .anonymous(&authority_of(dir))
        .header("authorization", &format!("Bearer {token}"));
    holder.get("/api").await.expect(401);
}

#[tokio::test]
async fn flags_about_an_issuer() {
    let (issuer, dir) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let file = dir.path().join("issuer.crt");
    std::fs::write(&file, issuer.ca()).expect("a file");
    let flags = [
        &*format!("--oidc-issuer-url={}", issuer.url()),
        "--oidc-client-id=kubernetes",
        &*format!("--oidc-ca-file={}", file.display()),
        "--oidc-username-claim=name",
        "--oidc-username-prefix=u:",
        "--oidc-groups-claim=roles",
        "--oidc-groups-prefix=g:",
        "--oidc-required-claim=hd=example.com",
        "--oidc-required-claim=tier=gold",
        "--oidc-signing-algs=RS256,ES256",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let claims = json!({"name": "jane", "roles": ["dev"], "hd": "example.com", "tier": "gold"});
    let good = issuer.token(&claims);
    assert_eq!(
        user_of(dir.path(), &client, &good).await,
        json!({"username": "u:jane", "groups": ["g:dev", "system:authenticated"]})
    );
    for (claim, value) in [
        ("hd", json!("other")),
        ("tier", Value::Null),
        ("aud", json!("other")),
    ] {
        let mut claims = claims.clone();
        claims[claim] = value;
        refused(dir.path(), &client, &issuer.token(&claims)).await;
    }
    // Of an algorithm that is not allowed.
    issuer.rotate(Signing::Es384);
    refused(dir.path(), &client, &issuer.token(&claims)).await;
}

#[tokio::test]
async fn a_file_of_jwt_authenticators() {
    let (issuer, dir) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let other = Issuer::start().await;
    let jwt = |issuer: &Issuer, prefix: &str| {
        json!({
            "issuer": {"url": issuer.url(), "certificateAuthority": issuer.ca(), "audiences": ["kubernetes"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": prefix}},
        })
    };
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
        "jwt": [jwt(&issuer, "one:"), jwt(&other, "other:")],
        "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
    });
    let file = dir.path().join("authentication.json");
    std::fs::write(&file, config.to_string()).expect("a file");
    let named = format!("--authentication-config={}", file.display());
    let (_child, client) = start_on(dir.path(), 0, &[&*named]).await;
    for (issuer, expected) in [(&issuer, "one:jane"), (&other, "other:jane")] {
        let token = issuer.token(&json!({"sub": "jane"}));
        assert_eq!(user_of(dir.path(), &client, &token).await["username"], expected);
    }
    // A token is verified by the keys of its own issuer.
    let forged = other.token(&json!({"sub": "jane", "iss": issuer.url()}));
    refused(dir.path(), &client, &forged).await;
    let stranger = client.anonymous(&authority_of(dir.path()));
    stranger.get("/livez").await.expect(200);
    stranger.get("/version").await.expect(401);
}
