//! Service account tokens that a program beside the server signs.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use control_plane::{ControlPlane, StartError};
use kms_plugin::signer::{Answers, Signer};
use serde_json::{Value, json};
use test_support::{Client, eventually, plane_with};

const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/worker/token";

async fn started(socket: &Path) -> (ControlPlane, Client) {
    let socket = socket.display().to_string();
    plane_with(|builder| builder.with(|options| options.service_account_signing_endpoint = Some(socket)))
        .await
}

async fn token(client: &Client, seconds: i64) -> (String, Value) {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
    let given = client.post(TOKENS, &asked).await.expect(201);
    let token = given["status"]["token"].as_str().expect("a token").to_string();
    let claims = token.split('.').nth(1).expect("claims").to_string();
    let claims = BASE64.decode(claims).expect("base64");
    (token, serde_json::from_slice(&claims).expect("JSON"))
}

#[tokio::test]
async fn a_program_signs_the_tokens_of_service_accounts() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("signer.sock");
    let program = Signer::listen(&socket, "one").expect("a socket");
    let (plane, client) = started(&socket).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}});
    client
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .expect(201);
    let (first, claims) = token(&client, 3600).await;
    assert_eq!(claims["sub"], "system:serviceaccount:default:worker");
    let holder = |token: &str| {
        client
            .anonymous(plane.ca_certificate())
            .header("authorization", &format!("Bearer {token}"))
    };
    holder(&first).get("/api").await.expect(200);
    // No token holds longer than the program says: a day.
    let (_, claims) = token(&client, 200_000).await;
    let lifetime = claims["exp"].as_i64().expect("a time") - claims["iat"].as_i64().expect("a time");
    assert_eq!(lifetime, 86_400);

    // Another key signs: others learn of it by the documents, this server when it is named.
    program.add_key("two", false);
    let (second, _) = token(&client, 3600).await;
    eventually("the new key is known", || async {
        (holder(&second).get("/api").await.status == 200).then_some(())
    })
    .await;
    program.add_key("old", true);
    let jwks = client.get("/openid/v1/jwks").await.expect(200);
    let ids: Vec<&Value> = jwks["keys"]
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| &key["kid"])
        .collect();
    assert_eq!(ids, ["one", "two"]);
    // The header of the token names no key of the program, so the token is refused.
    let foreign = first.split('.').collect::<Vec<_>>();
    let header = BASE64.encode(r#"{"alg":"ES256","kid":"nobody's","typ":"JWT"}"#);
    let foreign = format!("{header}.{}.{}", foreign[1], foreign[2]);
    holder(&foreign).get("/api").await.expect(401);

    // A program that is away signs nothing; tokens of known keys are good.
    program.answer(Answers {
        signature: Some(String::new()),
        ..Answers::default()
    });
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let refused = client.post(TOKENS, &asked).await.expect(500);
    let message = refused["message"].as_str().expect("text");
    assert!(message.contains("failed to generate token"), "{message}");
    drop(program);
    holder(&first).get("/api?again").await.expect(200);
    let metrics = client.get("/metrics").await;
    assert!(
        String::from_utf8_lossy(&metrics.body)
            .contains("apiserver_externaljwt_sign_request_total{code=\"unknown-non-grpc\"}"),
        "a failed signature is counted"
    );
    plane.stop().await;
}

#[tokio::test]
async fn a_program_that_allows_too_little_stops_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("signer.sock");
    let program = Signer::listen(&socket, "one").expect("a socket");
    program.answer(Answers {
        most_seconds: 60,
        ..Answers::default()
    });
    let socket = socket.display().to_string();
    let started = ControlPlane::builder()
        .in_memory()
        .with(|options| options.service_account_signing_endpoint = Some(socket))
        .start()
        .await;
    let error: StartError = started.expect_err("no server");
    let text = error.to_string();
    assert!(
        text.contains(
            "max token life supported by external-jwt-signer (60s) is less than acceptable (min 600s)"
        ),
        "{text}"
    );
}
