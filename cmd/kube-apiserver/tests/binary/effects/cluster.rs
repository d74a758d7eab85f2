//! Flags about what members of a cluster see of the server, and how it comes and goes beside others.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use test_support::{Client, PATIENCE, eventually};

use super::super::{MAPS, authority_of, command_on, launch, map, start_on, terminate};

const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// A pod, once its service account is there.
async fn pod(client: &Client, name: &str) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    eventually("a pod", || async {
        let answer = client.post(PODS, &pod).await;
        (answer.status == 201).then_some(answer.json)
    })
    .await
}

#[tokio::test]
async fn names_tolerations_and_endpoints() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--external-hostname=api.example.com",
        "--endpoint-reconciler-type=none",
        "--enable-garbage-collector=false",
        "--default-not-ready-toleration-seconds=11",
        "--default-unreachable-toleration-seconds=12",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let versions = client.get("/api").await.expect(200);
    let address = versions["serverAddressByClientCIDRs"][0]["serverAddress"].as_str();
    assert!(
        address.is_some_and(|address| address.starts_with("api.example.com:")),
        "{address:?}"
    );
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    client.get(endpoints).await.expect(404);
    let mut orphan = map("orphan");
    orphan["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    client.post(MAPS, &orphan).await.expect(201);
    // Other controllers have done their work then.
    let pod = pod(&client, "p").await;
    let seconds = |key: &str| {
        let all = pod["spec"]["tolerations"].as_array().expect("tolerations");
        let one = all.iter().find(|toleration| toleration["key"] == key);
        one.map(|toleration| toleration["tolerationSeconds"].clone())
    };
    assert_eq!(seconds("node.kubernetes.io/not-ready"), Some(json!(11)));
    assert_eq!(seconds("node.kubernetes.io/unreachable"), Some(json!(12)));
    client.get(&format!("{MAPS}/orphan")).await.expect(200);
    client.get(endpoints).await.expect(404);
}

#[tokio::test]
async fn tokens_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        "--enable-bootstrap-token-auth",
        "--service-account-max-token-expiration=1h",
        "--service-account-jwks-uri=https://keys.example.com/jwks",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true"}});
    client
        .post("/api/v1/namespaces/kube-system/secrets", &secret)
        .await
        .expect(201);
    let node = client
        .anonymous(&authority_of(dir.path()))
        .header("Authorization", "Bearer abcdef.0123456789abcdef");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let user = node
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await
        .expect(201);
    assert_eq!(user["status"]["userInfo"]["username"], "system:bootstrap:abcdef");

    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
    let given = eventually("the service account", || async {
        let answer = client.post(TOKENS, &asked).await;
        (answer.status == 201).then_some(answer)
    })
    .await;
    let warning = given.headers["warning"].to_str().expect("text");
    assert!(
        warning.contains("requested expiration of 7200 seconds shortened to 3600 seconds"),
        "{warning}"
    );
    assert_eq!(given.json["spec"]["expirationSeconds"], 3600);
    let discovery = client.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(discovery["jwks_uri"], "https://keys.example.com/jwks");
}

/// The claims of the token that a pod is given by default.
async fn claims_of_a_pods_token(client: &Client) -> Value {
    let pod = pod(client, "p").await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "expirationSeconds": 3607,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}}});
    let given = client.post(TOKENS, &asked).await.expect(201);
    assert_eq!(given["spec"]["expirationSeconds"], 3607);
    let token = given["status"]["token"].as_str().expect("a token");
    let claims = token.split('.').nth(1).expect("claims");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON")
}

#[tokio::test]
async fn tokens_of_pods_hold_longer() {
    for (flags, seconds) in [
        (&[][..], 365 * 24 * 3600),
        (&["--service-account-extend-token-expiration=false"][..], 3607),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let (_child, client) = start_on(dir.path(), 0, flags).await;
        let claims = claims_of_a_pods_token(&client).await;
        let at = |claim: &Value| claim.as_i64().expect("a time");
        assert_eq!(at(&claims["exp"]) - at(&claims["iat"]), seconds, "{flags:?}");
        let warns = claims["kubernetes.io"]["warnafter"].as_i64();
        let expected = (seconds != 3607).then(|| at(&claims["iat"]) + 3607);
        assert_eq!(warns, expected, "{flags:?}");
    }
}

#[tokio::test]
async fn two_servers_on_one_port() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let flags = ["--permit-port-sharing"];
    let (_one, url, _lines) = launch(first.path(), 0, &flags).await;
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    let port: u16 = port.expect("a port");
    let (_two, _) = start_on(second.path(), port, &flags).await;
    let third = tempfile::tempdir().expect("a directory");
    let refused = command_on(third.path(), port, &[]).output().await;
    assert!(!refused.expect("it runs").status.success());
}

#[cfg(unix)]
#[tokio::test]
async fn watches_have_a_while_at_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut child, client) =
        start_on(dir.path(), 0, &["--shutdown-watch-termination-grace-period=10m"]).await;
    let watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    terminate(&child).await;
    eventually("it takes no requests any more", || async {
        client.try_get("/version").await.err()
    })
    .await;
    assert!(
        child.try_wait().expect("a state").is_none(),
        "it waits for the watch"
    );
    drop(watch);
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    assert!(ended.expect("it ends").expect("a status").success());
}
