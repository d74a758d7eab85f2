//! Users of token issuers (OpenID Connect): the file of `--authentication-config`, keys that rotate, and tokens that do not hold.

mod bad_tokens;
mod login;

use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use control_plane::ControlPlane;
use machinery::limits;
use serde_json::{Value, json};
use test_support::{Client, Issuer, Signing, eventually, plane_with};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A configuration with one authenticator, of which parts are replaced or added.
fn config(issuer: &Issuer, parts: &Value) -> Value {
    let mut jwt = json!({
        "issuer": {"url": issuer.url(), "certificateAuthority": issuer.ca(), "audiences": ["kubernetes"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
    });
    for (name, value) in parts.as_object().expect("members") {
        jwt[name] = value.clone();
    }
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]})
}

fn write(directory: &Path, config: &Value) -> PathBuf {
    let file = directory.join("authentication.json");
    std::fs::write(&file, config.to_string()).expect("a file");
    file
}

/// A server with this configuration, which knows its issuers.
async fn server(directory: &Path, issuer: &Issuer, config: &Value) -> (ControlPlane, Client) {
    let (plane, client) = unready(directory, config).await;
    known(&plane, &client, issuer).await;
    (plane, client)
}

/// The same, which may not know its issuers yet.
async fn unready(directory: &Path, config: &Value) -> (ControlPlane, Client) {
    let file = write(directory, config);
    plane_with(|builder| builder.with(|options| options.authentication.authentication_config = Some(file)))
        .await
}

/// Waits until tokens of an issuer are verified.
async fn known(plane: &ControlPlane, client: &Client, issuer: &Issuer) {
    let token = issuer.token(&json!({"sub": "probe"}));
    eventually("the issuer is known", || async {
        let why = error(client, &token).await;
        (!why.contains("oidc: authenticator not initialized")).then_some(())
    })
    .await;
    let _ = plane;
}

fn holder(plane: &ControlPlane, client: &Client, token: &str) -> Client {
    client
        .anonymous(plane.ca_certificate())
        .header("authorization", &format!("Bearer {token}"))
}

/// The user of a token, as the server sees it.
async fn user(plane: &ControlPlane, client: &Client, token: &str) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = holder(plane, client, token).post(WHO, &review).await;
    answer.expect(201)["status"]["userInfo"].clone()
}

/// The error of a review of a token; empty for a good one.
async fn error(client: &Client, token: &str) -> String {
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let answer = client.post(REVIEWS, &review).await.expect(201);
    answer["status"]["error"].as_str().unwrap_or_default().to_owned()
}

async fn refused(plane: &ControlPlane, client: &Client, token: &str, expected: &str) {
    holder(plane, client, token).get("/api").await.expect(401);
    let why = error(client, token).await;
    assert!(why.contains(expected), "{why}\nrather than {expected}");
}

#[tokio::test]
async fn tokens_of_an_issuer_become_users() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let config = config(
        &issuer,
        &json!({
            "claimMappings": {
                "username": {"expression": "'oidc:' + claims.sub"},
                "groups": {"expression": "claims.?roles.orValue([]).map(role, 'oidc:' + role)"},
                "uid": {"claim": "sub"},
                "extra": [{"key": "example.com/team", "valueExpression": "claims.?example__dot__com__slash__team.orValue('')"}],
            },
            "claimValidationRules": [
                {"claim": "hd", "requiredValue": "example.com"},
                {"expression": "claims.exp - claims.iat <= 86400", "message": "too long"},
            ],
            "userValidationRules": [{"expression": "!user.username.startsWith('oidc:system:')", "message": "reserved"}],
        }),
    );
    let (plane, client) = server(directory.path(), &issuer, &config).await;
    let whole = issuer.token(
        &json!({"sub": "jane", "hd": "example.com", "roles": ["dev", "ops"], "example.com/team": "blue", "jti": "7"}),
    );
    assert_eq!(
        user(&plane, &client, &whole).await,
        json!({
            "username": "oidc:jane", "uid": "jane",
            "groups": ["oidc:dev", "oidc:ops", "system:authenticated"],
            "extra": {"example.com/team": ["blue"], "authentication.kubernetes.io/credential-id": ["JTI=7"]},
        })
    );
    let plain = issuer.token(&json!({"sub": "joe", "hd": "example.com"}));
    assert_eq!(user(&plane, &client, &plain).await["username"], "oidc:joe");
    let claims = |change: Value| {
        let mut claims = json!({"sub": "jane", "hd": "example.com"});
        for (name, value) in change.as_object().expect("claims") {
            claims[name] = value.clone();
        }
        issuer.token(&claims)
    };
    for (change, why) in [
        (
            json!({"aud": "other"}),
            r#"oidc: verify token: oidc: expected audience "kubernetes" got ["other"]"#,
        ),
        (
            json!({"aud": null}),
            r#"oidc: verify token: oidc: expected audience "kubernetes" got []"#,
        ),
        (
            json!({"exp": 1}),
            "oidc: verify token: oidc: token is expired (Token Expiry: 1970-01-01 00:00:01 +0000 UTC)",
        ),
        (
            json!({"nbf": 99_999_999_999_u64}),
            "before the nbf (not before) time",
        ),
        (
            json!({"hd": null}),
            "oidc: required claim hd not present in ID token",
        ),
        (
            json!({"hd": "x"}),
            "oidc: required claim hd value does not match. Got = x, want = example.com",
        ),
        (json!({"exp": 99_999_999_999_u64}), "failed: too long"),
        (json!({"sub": "system:admin"}), "failed: reserved"),
        (
            json!({"sub": null}),
            "oidc: error evaluating username claim expression: ",
        ),
        (json!({"iss": "https://other.example"}), "invalid bearer token"),
    ] {
        refused(&plane, &client, &claims(change), why).await;
    }
    let metrics = client.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for name in [
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{result=\"success\"",
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{result=\"failure\"",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds{result=\"success\"",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{",
        "apiserver_authentication_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(name), "{name}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn keys_are_fetched_again_when_they_rotate() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let config = config(&issuer, &json!({}));
    let (plane, client) = server(directory.path(), &issuer, &config).await;
    let token = |name: &str| issuer.token(&json!({"sub": name}));
    let fetched = || {
        let requests = issuer.requests();
        requests.iter().filter(|(path, _)| path == "/keys").count()
    };
    assert_eq!(user(&plane, &client, &token("a")).await["username"], "oidc:a");
    let (before, old) = (fetched(), token("old"));
    assert_eq!(user(&plane, &client, &token("b")).await["username"], "oidc:b");
    assert_eq!(fetched(), before, "keys are kept");

    issuer.rotate(Signing::Es384);
    let new = token("c");
    eventually("the new key is fetched", || async {
        error(&client, &new).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(user(&plane, &client, &new).await["username"], "oidc:c");
    // The old key is not published any more.
    let why = "oidc: verify token: failed to verify signature: failed to verify id token signature";
    refused(&plane, &client, &old, why).await;
    // Tokens that no key has signed make a request a second at most.
    let (before, start) = (fetched(), Instant::now());
    for number in 0..50 {
        let header = BASE64.encode(format!(r#"{{"alg":"ES256","kid":"{number}"}}"#));
        let claims = old.split('.').nth(1).expect("claims");
        refused(&plane, &client, &format!("{header}.{claims}.AAAA"), why).await;
    }
    let (made, seconds) = (fetched() - before, start.elapsed().as_secs());
    assert!(made as u64 <= seconds + 2, "{made} requests in {seconds} s");
    plane.stop().await;
}

#[tokio::test]
async fn a_changed_file_counts_when_it_holds() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let (plane, client) = server(directory.path(), &issuer, &config(&issuer, &json!({}))).await;
    let token = issuer.token(&json!({"sub": "jane", "email": "j@x"}));
    assert_eq!(user(&plane, &client, &token).await["username"], "oidc:jane");

    // Content that cannot be used changes nothing.
    let mut bad = config(&issuer, &json!({"claimMappings": {"username": {"claim": "sub"}}}));
    write(directory.path(), &bad);
    assert_eq!(plane.reload().await, [""; 0]);
    bad = config(&issuer, &json!({}));
    bad["anonymous"] = json!({"enabled": true});
    write(directory.path(), &bad);
    assert_eq!(plane.reload().await, [""; 0]);
    std::fs::write(directory.path().join("authentication.json"), "{").expect("a file");
    assert_eq!(plane.reload().await, [""; 0]);
    assert_eq!(plane.reload().await, [""; 0], "it is tried once");
    assert_eq!(user(&plane, &client, &token).await["username"], "oidc:jane");

    let mail = json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}});
    write(directory.path(), &config(&issuer, &mail));
    assert_eq!(plane.reload().await, ["authentication configuration"]);
    // At once, although the user of the token was remembered.
    assert_eq!(user(&plane, &client, &token).await["username"], "j@x");

    let mut none = config(&issuer, &json!({}));
    none["jwt"] = json!([]);
    write(directory.path(), &none);
    assert_eq!(plane.reload().await, ["authentication configuration"]);
    refused(&plane, &client, &token, "invalid bearer token").await;
    let metrics = client.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let reloads = "apiserver_authentication_config_controller_automatic_reloads_total";
    for (status, count) in [("success", 2), ("failure", 3)] {
        let end = format!("status=\"{status}\"}} {count}");
        let found = metrics
            .lines()
            .any(|line| line.starts_with(reloads) && line.ends_with(&end));
        assert!(found, "{end}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn the_server_starts_before_its_issuer() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    issuer.set_down(true);
    let (plane, client) = unready(directory.path(), &config(&issuer, &json!({}))).await;
    let token = issuer.token(&json!({"sub": "jane"}));
    refused(&plane, &client, &token, "oidc: authenticator not initialized").await;
    client.get("/readyz").await.expect(200);
    issuer.set_down(false);
    known(&plane, &client, &issuer).await;
    assert_eq!(user(&plane, &client, &token).await["username"], "oidc:jane");
    plane.stop().await;
}

#[tokio::test]
async fn discovery_documents_may_be_elsewhere() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let url = format!("{}/apart", issuer.url());
    let document = json!({"issuer": url, "jwks_uri": format!("{}/keys", issuer.url())});
    issuer.serve("/discovery", document.to_string());
    let issued = json!({"issuer": {"url": url, "discoveryURL": format!("{}/discovery", issuer.url()),
        "certificateAuthority": issuer.ca(), "audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"}});
    let (plane, client) = unready(directory.path(), &config(&issuer, &issued)).await;
    let token = issuer.token(&json!({"sub": "jane", "iss": url, "aud": ["b", "c"]}));
    eventually("the issuer is known", || async {
        error(&client, &token).await.is_empty().then_some(())
    })
    .await;
    let other = issuer.token(&json!({"sub": "jane", "iss": url, "aud": ["c"]}));
    let why = r#"oidc: expected audience in ["a" "b"] got ["c"]"#;
    refused(&plane, &client, &other, why).await;
    plane.stop().await;
}

#[tokio::test]
async fn groups_may_be_distributed() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let groups = json!({"claimMappings": {
        "username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": "g:"},
    }});
    let (plane, client) = server(directory.path(), &issuer, &config(&issuer, &groups)).await;
    issuer.serve("/groups", issuer.token(&json!({"groups": ["a", "b"]})));
    issuer.serve("/none", issuer.token(&json!({})));
    issuer.serve("/at", "x".repeat(limits::ISSUER_ANSWER_BYTES));
    issuer.serve("/long", "x".repeat(limits::ISSUER_ANSWER_BYTES + 1));
    let token = |path: &str| {
        let source = json!({"endpoint": format!("{}{path}", issuer.url()), "access_token": "secret"});
        issuer
            .token(&json!({"sub": "jane", "_claim_names": {"groups": "s"}, "_claim_sources": {"s": source}}))
    };
    let good = token("/groups");
    // The issuer of the claims becomes known in the background.
    eventually("the claims are resolved", || async {
        error(&client, &good).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(
        user(&plane, &client, &good).await["groups"],
        json!(["g:a", "g:b", "system:authenticated"])
    );
    let asked = issuer.requests();
    assert!(asked.contains(&("/groups".into(), "secret".into())), "{asked:?}");
    let distributed = "oidc: could not expand distributed claims: ";
    for (path, why) in [
        ("/none", "did not contain claim: groups"),
        (
            "/gone",
            "error while getting distributed claim JWT: 404 Not Found",
        ),
        ("/keys", "failed for claim \"groups\": malformed token"),
        ("/at", "failed for claim \"groups\": malformed token"),
        ("/long", "the answer is too long"),
    ] {
        refused(&plane, &client, &token(path), distributed).await;
        refused(&plane, &client, &token(path), why).await;
    }
    plane.stop().await;
}

#[tokio::test]
async fn anonymous_requests_may_be_for_some_paths() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let mut config = config(&issuer, &json!({}));
    config["anonymous"] = json!({"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/readyz"}]});
    let (plane, client) = server(directory.path(), &issuer, &config).await;
    let stranger = client.anonymous(plane.ca_certificate());
    for (path, status) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/healthz", 401),
        ("/livez/ping", 401),
        ("/api", 401),
    ] {
        assert_eq!(stranger.get(path).await.status, status, "{path}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_refuse_the_start() {
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let fault = async |config: &Value, anonymous: Option<bool>| {
        let file = write(directory.path(), config);
        let builder = ControlPlane::builder().in_memory().with(|options| {
            options.authentication.authentication_config = Some(file);
            options.authentication.anonymous_auth = anonymous;
        });
        builder.start().await.expect_err("it cannot start").to_string()
    };
    let sound = config(&issuer, &json!({}));
    let mut own = sound.clone();
    own["jwt"][0]["issuer"]["url"] = "https://kubernetes.default.svc.cluster.local".into();
    let mut unknown = sound.clone();
    unknown["jwt"][0]["more"] = json!(1);
    let mut anonymous = sound.clone();
    anonymous["anonymous"] = json!({"enabled": false});
    for (config, flag, expected) in [
        (
            &own,
            None,
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \
            \"https://kubernetes.default.svc.cluster.local\": URL must not overlap with disallowed issuers: [https://kubernetes.default.svc.cluster.local]",
        ),
        (
            &unknown,
            None,
            "strict decoding error: unknown field \"jwt[0].more\"",
        ),
        (
            &anonymous,
            Some(true),
            "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file",
        ),
    ] {
        let why = fault(config, flag).await;
        assert!(why.contains(expected), "{why}");
    }
}
