//! Encryption at rest, objects that cannot be read, and files that are read again.

use std::path::Path;

use control_plane::ControlPlane;
use kms_plugin::Plugin;
use serde_json::{Value, json};
use test_support::{Client, eventually};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ONE: &str = "/api/v1/namespaces/default/secrets/one";
const KEY: &str = "/registry/secrets/default/one";
const K1: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const K2: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"password": "swordfish"}})
}

fn keyed(provider: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}"))
        .collect();
    format!("{provider}: {{keys: [{}]}}", keys.join(", "))
}

/// A KMS plugin as a provider.
/// A plugin whose absence is noticed soon.
fn kms(socket: &Path) -> String {
    kms_within(socket, "200ms")
}

/// A plugin that is given so long for each answer.
fn kms_within(socket: &Path, timeout: &str) -> String {
    format!(
        "kms: {{apiVersion: v2, name: vault, timeout: {timeout}, endpoint: 'unix://{}'}}",
        socket.display()
    )
}

fn write(dir: &Path, resources: &str, providers: &[&str]) {
    let providers: String = providers.iter().map(|p| format!("  - {p}\n")).collect();
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: {resources}\n  providers:\n{providers}"
    );
    std::fs::write(dir.join("enc.yaml"), text).expect("a file");
}

async fn start(dir: &Path, gates: &[&str]) -> (ControlPlane, Client) {
    let builder = ControlPlane::builder().on_free_port().data_dir(dir.join("data"));
    let builder = builder.with(|options| {
        options.min_free_disk_mib = 1;
        options.feature_gates = gates.iter().map(|gate| gate.to_string()).collect();
        options.encryption_provider_config_automatic_reload = true;
        options.encryption_provider_config = Some(dir.join("enc.yaml"));
    });
    let plane = builder.start().await.expect("it starts");
    let client = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    (plane, client)
}

async fn raw(plane: &ControlPlane, key: &str) -> Vec<u8> {
    let (found, _) = plane.engine().get(key, None).await.expect("an answer");
    found.expect("it is stored").value.to_vec()
}

fn holds(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

#[tokio::test]
async fn values_are_hidden_and_keys_rotate() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    // The plain text and its form in base64.
    let plain = ["swordfish", "c3dvcmRmaXNo"];
    write(dir, "[secrets]", &["identity: {}"]);
    let (plane, client) = start(dir, &[]).await;
    let created = client.post(SECRETS, &secret("one")).await.expect(201);
    assert!(holds(&raw(&plane, KEY).await, plain[1]));

    let rounds = [
        (keyed("aescbc", &[("k1", K1)]), "k8s:enc:aescbc:v1:k1:"),
        (
            keyed("aescbc", &[("k2", K2), ("k1", K1)]),
            "k8s:enc:aescbc:v1:k2:",
        ),
        (keyed("aesgcm", &[("k1", K1)]), "k8s:enc:aesgcm:v1:k1:"),
        (keyed("secretbox", &[("k1", K1)]), "k8s:enc:secretbox:v1:k1:"),
        ("identity: {}".to_string(), "{"),
    ];
    let mut before = "identity: {}".to_string();
    let mut version = created["metadata"]["resourceVersion"].clone();
    for (provider, prefix) in rounds {
        write(dir, "[secrets]", &[&provider, &before]);
        assert_eq!(plane.reload().await, ["encryption configuration"]);
        assert_eq!(plane.reload().await, [""; 0], "nothing has changed since");
        // A write that changes nothing but the key.
        let object = client.get(ONE).await.expect(200);
        let stored = client.put(ONE, &object).await.expect(200);
        assert_ne!(stored["metadata"]["resourceVersion"], version, "{prefix}");
        version = stored["metadata"]["resourceVersion"].clone();
        let bytes = raw(&plane, KEY).await;
        assert!(bytes.starts_with(prefix.as_bytes()), "{prefix}");
        if prefix != "{" {
            assert!(!plain.iter().any(|text| holds(&bytes, text)), "{prefix}");
        }
        let again = client.put(ONE, &stored).await.expect(200);
        assert_eq!(
            again["metadata"]["resourceVersion"], version,
            "now it is no write"
        );
        before = provider;
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "swordfish"}});
    client
        .post("/api/v1/namespaces/default/configmaps", &map)
        .await
        .expect(201);
    let map = raw(&plane, "/registry/configmaps/default/m").await;
    assert!(holds(&map, plain[0]), "only what is named is encrypted");

    // An invalid file: the previous one stays in use, and the failure is counted.
    write(dir, "[secrets]", &["aescbc: {keys: []}"]);
    assert_eq!(plane.reload().await, [""; 0]);
    client.get(ONE).await.expect(200);
    let metrics = client.get("/metrics").await.body;
    let failed = "apiserver_encryption_config_controller_automatic_reloads_total{status=\"failure\"} 1\n";
    assert!(holds(&metrics, failed));
    assert!(holds(
        &metrics,
        "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:aesgcm:v1:\"}"
    ));
    plane.stop().await;
}

#[tokio::test]
async fn everything_is_encrypted_by_a_wildcard() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "['*.*']", &[&keyed("secretbox", &[("k1", K1)])]);
    let (plane, client) = start(dir.path(), &[]).await;
    client.post(SECRETS, &secret("one")).await.expect(201);
    plane.stop().await;
    let (plane, client) = start(dir.path(), &[]).await;
    assert_eq!(
        client.get(ONE).await.expect(200)["data"]["password"],
        "c3dvcmRmaXNo"
    );
    let all = plane
        .engine()
        .range(storage::RangeRequest {
            prefix: "/registry/".into(),
            ..storage::RangeRequest::default()
        })
        .await
        .expect("an answer");
    for kv in all.kvs {
        assert!(
            kv.value.starts_with(b"k8s:enc:secretbox:v1:k1:"),
            "{} is not encrypted",
            kv.key
        );
    }
    plane.stop().await;
}

#[tokio::test]
async fn one_unreadable_object_is_its_own_error_and_can_be_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let (old, new) = (keyed("aesgcm", &[("k1", K1)]), keyed("aesgcm", &[("k2", K2)]));
    write(dir, "[secrets]", &[&old]);
    let (plane, client) = start(dir, &[]).await;
    client.post(SECRETS, &secret("one")).await.expect(201);
    plane.stop().await;

    // The key is lost.
    write(dir, "[secrets]", &[&new, "identity: {}"]);
    let (plane, client) = start(dir, &[]).await;
    client.post(SECRETS, &secret("two")).await.expect(201);
    client.get(&format!("{SECRETS}/two")).await.expect(200);
    client
        .get("/api/v1/namespaces/kube-system/secrets")
        .await
        .expect(200);
    let why = "no matching key was found for the provided AES transformer";
    let error = client.get(ONE).await.expect(500);
    assert_eq!(
        (error["reason"].as_str(), error["message"].as_str()),
        (
            Some("InternalError"),
            Some(format!("Internal error occurred: {why}").as_str())
        )
    );
    let error = client.get(SECRETS).await.expect(500);
    assert_eq!(
        error["message"],
        format!("Internal error occurred: unable to transform key \"{KEY}\": {why}")
    );
    client.post(SECRETS, &secret("one")).await.expect(409);
    client.put(ONE, &secret("one")).await.expect(500);
    client.delete(ONE).await.expect(500);
    // Without the feature gate the option is as if it were not there.
    let ignore = format!("{ONE}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    client.delete(&ignore).await.expect(500);

    // The key is found again.
    write(dir, "[secrets]", &[&new, &old]);
    assert_eq!(plane.reload().await, ["encryption configuration"]);
    client.get(ONE).await.expect(200);
    client.get(SECRETS).await.expect(200);
    plane.stop().await;

    // And lost for good.
    write(dir, "[secrets]", &[&new]);
    let (plane, client) = start(dir, &["AllowUnsafeMalformedObjectDeletion=true"]).await;
    let error = client.get(SECRETS).await.expect(500);
    assert_eq!(error["reason"], "StorageReadError");
    assert_eq!(
        error["message"],
        "failed to read one or more secrets from the storage"
    );
    assert_eq!(error["details"]["causes"][0]["field"], KEY);
    let error = client.get(ONE).await.expect(500);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("StorageError: corrupt object, Code: 7, Key: /secrets/default/one"),
        "{message}"
    );

    let mut watch = client
        .watch(&format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Dtwo"))
        .await;
    let sound = client
        .delete(&format!(
            "{SECRETS}/two?ignoreStoreReadErrorWithClusterBreakingPotential=true"
        ))
        .await
        .expect(422);
    let text = sound["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("is exclusively used to delete corrupt object(s)"),
        "{text}"
    );
    client
        .delete(&format!("{ignore}&propagationPolicy=Orphan"))
        .await
        .expect(422);
    client
        .delete(&format!(
            "{SECRETS}?ignoreStoreReadErrorWithClusterBreakingPotential=true"
        ))
        .await
        .expect(422);
    // The right to delete does not include the right to delete this way.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "deleter"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    client
        .post(&format!("{rbac}/clusterroles"), &role)
        .await
        .expect(201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "deleter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "deleter"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    client
        .post(&format!("{rbac}/clusterrolebindings"), &binding)
        .await
        .expect(201);
    let alice = client.clone().header("Impersonate-User", "alice");
    let refused = eventually("alice may delete", async || {
        let answer = alice.delete(&ignore).await;
        let denied = answer.json["message"].as_str()?.contains("not permitted to do");
        denied.then_some(answer)
    })
    .await;
    assert_eq!(refused.status, 403);

    let status = client.delete(&ignore).await.expect(200);
    assert_eq!(
        (status["kind"].as_str(), status["status"].as_str()),
        (Some("Status"), Some("Success"))
    );
    client.get(ONE).await.expect(404);
    client.get(SECRETS).await.expect(200);
    client.post(SECRETS, &secret("one")).await.expect(201);
    client.delete(&format!("{SECRETS}/two")).await.expect(200);
    // A watcher that may have missed something must list again.
    while let Some(event) = watch.next().await {
        let kind = event["type"].as_str().unwrap_or_default();
        if kind != "ADDED" {
            assert!(["DELETED", "ERROR"].contains(&kind), "{event}");
            break;
        }
    }
    plane.stop().await;
}

#[tokio::test]
async fn a_kms_plugin_goes_and_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let socket = dir.join("kms.sock");
    let plugin = Plugin::listen(&socket, "key-1").expect("a plugin");
    write(dir, "[secrets]", &[&kms(&socket)]);
    let (plane, client) = start(dir, &[]).await;
    client.post(SECRETS, &secret("one")).await.expect(201);
    let bytes = raw(&plane, KEY).await;
    assert!(bytes.starts_with(b"k8s:enc:kms:v2:vault:"));
    assert!(!holds(&bytes, "swordfish") && !holds(&bytes, "c3dvcmRmaXNo"));
    assert_eq!(client.get("/readyz/kms-providers").await.status, 200);
    drop(plugin);
    client.get(ONE).await.expect(200);
    client.post(SECRETS, &secret("two")).await.expect(201);
    plane.stop().await;

    // Started while it is away: everything else works.
    let (plane, client) = start(dir, &[]).await;
    assert_eq!(client.get("/readyz/kms-providers").await.status, 500);
    client
        .get("/api/v1/namespaces/default/configmaps")
        .await
        .expect(200);
    let error = client.get(ONE).await.expect(500);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("Internal error occurred: failed to decrypt DEK, error: rpc error"),
        "{message}"
    );
    client.get(SECRETS).await.expect(500);
    client.post(SECRETS, &secret("three")).await.expect(500);

    let _plugin = Plugin::listen(&socket, "key-1").expect("a plugin");
    eventually("the secret is read", async || {
        (client.get(ONE).await.status == 200).then_some(())
    })
    .await;
    eventually("all are listed", async || {
        let answer = client.get(SECRETS).await;
        (answer.status == 200 && answer.json["items"].as_array()?.len() == 2).then_some(())
    })
    .await;
    eventually("it is written again", async || {
        let status = client.post(SECRETS, &secret("four")).await.status;
        [201, 409].contains(&status).then_some(())
    })
    .await;
    eventually("it is healthy", async || {
        (client.get("/readyz/kms-providers").await.status == 200).then_some(())
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn a_start_waits_for_the_plugin_that_encrypts_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let socket = dir.join("kms.sock");
    let plugin = Plugin::listen(&socket, "key-1").expect("a plugin");
    // Every answer is needed here, however busy the machine is.
    write(dir, "['*.*']", &[&kms_within(&socket, "10s")]);
    let (plane, client) = start(dir, &[]).await;
    client.post(SECRETS, &secret("one")).await.expect(201);
    plane.stop().await;
    drop(plugin);

    let mut starting = Box::pin(start(dir, &[]));
    let early = tokio::time::timeout(std::time::Duration::from_secs(1), &mut starting).await;
    assert!(early.is_err(), "there is nothing to start with");
    let _plugin = Plugin::listen(&socket, "key-1").expect("a plugin");
    let (plane, client) = starting.await;
    assert_eq!(
        client.get(ONE).await.expect(200)["data"]["password"],
        "c3dvcmRmaXNo"
    );
    plane.stop().await;
}
