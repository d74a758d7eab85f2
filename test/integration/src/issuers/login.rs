//! Real kubectl, which is client-go, logs in with tokens of an issuer: by `--token`, and by a credential plugin as kubelogin is one.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use test_support::{Issuer, kubectl, tool};

use super::{config, server};

/// A kubeconfig whose user is this one.
fn kubeconfig(directory: &Path, name: &str, url: &str, ca: &str, user: &Value) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": BASE64_STANDARD.encode(ca)}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    let file = directory.join(name);
    std::fs::write(&file, config.to_string()).expect("a file");
    file
}

/// A program that prints the credential of a file, and counts its runs by a byte each in another.
fn plugin(directory: &Path) -> PathBuf {
    let (program, credential, runs) = (
        directory.join("login"),
        directory.join("credential.json"),
        directory.join("runs"),
    );
    let script = format!(
        "#!/bin/sh\nprintf x >> '{}'\ncat '{}'\n",
        runs.display(),
        credential.display()
    );
    std::fs::write(&program, script).expect("a file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("a mode");
    program
}

#[tokio::test]
async fn kubectl_logs_in_with_tokens_of_an_issuer() {
    let Some(program) = tool("kubectl") else { return };
    let (issuer, directory) = (Issuer::start().await, tempfile::tempdir().expect("a directory"));
    let mappings = json!({"claimMappings": {
        "username": {"claim": "email", "prefix": ""}, "groups": {"claim": "groups", "prefix": "oidc:"},
    }});
    let (plane, client) = server(directory.path(), &issuer, &config(&issuer, &mappings)).await;
    // What kubelogin brings is an ID token: an audience, an email, groups.
    let claims = json!({"sub": "7", "email": "jane@example.com", "email_verified": true, "groups": ["dev"]});
    let token = issuer.token(&claims);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:dev"}],
    });
    client
        .post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
        .await
        .expect(201);

    let (url, ca) = (plane.url(), plane.ca_certificate().to_string());
    let nobody = kubeconfig(directory.path(), "nobody", &url, &ca, &json!({}));
    let by_flag = format!("--token={token}");
    let who = [
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
    ];
    let arguments: Vec<&str> = [&*by_flag].into_iter().chain(who).collect();
    let (well, text) = kubectl(&program, &nobody, &arguments, "").await;
    assert!(well, "{text}");
    assert_eq!(text, "jane@example.com [\"oidc:dev\",\"system:authenticated\"]");

    let login = plugin(directory.path());
    let credential = |token: &str| {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
        });
        std::fs::write(directory.path().join("credential.json"), credential.to_string()).expect("a file");
    };
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": login, "interactiveMode": "Never", "provideClusterInfo": false,
    }});
    let by_plugin = kubeconfig(directory.path(), "plugin", &url, &ca, &user);
    credential(&token);
    let (well, text) = kubectl(&program, &by_plugin, &who, "").await;
    assert!(well && text.starts_with("jane@example.com"), "{text}");
    let make = ["create", "configmap", "of-jane", "-n", "default"];
    let (well, text) = kubectl(&program, &by_plugin, &make, "").await;
    assert!(well, "{text}");
    let (well, text) = kubectl(&program, &by_plugin, &["get", "nodes"], "").await;
    assert!(!well);
    let forbidden = "nodes is forbidden: User \"jane@example.com\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
    assert!(text.contains(forbidden), "{text}");

    // A token that has ended: client-go asks the plugin once more, and says so.
    let mut old = claims.clone();
    old["exp"] = json!(1);
    credential(&issuer.token(&old));
    let runs = directory.path().join("runs");
    std::fs::write(&runs, "").expect("a file");
    let (well, text) = kubectl(&program, &by_plugin, &["get", "configmaps"], "").await;
    assert!(!well);
    assert!(
        text.contains("You must be logged in to the server") || text.contains("Unauthorized"),
        "{text}"
    );
    let ran = std::fs::read(&runs).expect("a file").len();
    assert!(ran >= 2, "the plugin ran {ran} times");
    plane.stop().await;
}
