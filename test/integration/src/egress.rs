//! Egress selection: the server's own connections go through the proxies that `--egress-selector-config-file` names.

use std::path::{Path, PathBuf};

use kms_plugin::konnectivity::Konnectivity;
use serde_json::{Value, json};
use test_support::{ConnectProxy, Etcd, Issuer, Kubelet, Reply, Webhook, eventually, plane_with};

use crate::etcd::replica_with;

const NAMESPACE: &str = "/api/v1/namespaces/default";

/// Writes a configuration with these selections.
fn write(directory: &Path, selections: &Value) -> PathBuf {
    let file = directory.join("egress.json");
    let config = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": selections,
    });
    std::fs::write(&file, config.to_string()).expect("a file");
    file
}

fn by_grpc(network: &str, socket: &Path) -> Value {
    json!({"name": network, "connection": {"proxyProtocol": "GRPC", "transport": {"uds": {"udsName": socket}}}})
}

fn by_connect(network: &str, proxy: &ConnectProxy, directory: &Path) -> Value {
    let [ca, certificate, key] = proxy.write_client(directory);
    json!({"name": network, "connection": {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {
        "url": proxy.url(),
        "tlsConfig": {"caBundle": ca, "clientCert": certificate, "clientKey": key},
    }}}})
}

/// A node that only the proxy finds.
fn node(name: &str, host: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "Hostname", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
    })
}

#[tokio::test]
async fn nodes_are_reached_through_konnectivity() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("konnectivity.sock");
    let server = Konnectivity::listen(&socket).expect("a server");
    let file = write(directory.path(), &json!([by_grpc("cluster", &socket)]));
    let kubelet = Kubelet::start().await;
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.egress_selector_config_file = Some(file);
            options.kubelet.kubelet_timeout = std::time::Duration::from_millis(500);
        })
    })
    .await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    client
        .post(&format!("{NAMESPACE}/serviceaccounts"), &account)
        .await;
    for (name, host) in [
        ("n1", "node-1.invalid"),
        ("n2", "refused.invalid"),
        ("n3", "silent.invalid"),
    ] {
        let made = node(name, host, kubelet.port());
        client.post("/api/v1/nodes", &made).await.expect(201);
        let made = pod(&format!("on-{name}"), name);
        client.post(&format!("{NAMESPACE}/pods"), &made).await.expect(201);
    }
    let log = |pod: &str| format!("{NAMESPACE}/pods/{pod}/log");
    let text = client.get(&log("on-n1")).await;
    text.expect(200);
    assert_eq!(server.dialled(), [format!("node-1.invalid:{}", kubelet.port())]);
    eventually("the tunnel ends with its request", || async {
        (server.connections() == 0 && kubelet.connections() == 0).then_some(())
    })
    .await;
    // Larger than all windows and pipes on the way.
    let long = client.get(&format!("{}?tailLines=200000", log("on-n1"))).await;
    long.expect(200);

    let port = kubelet.port();
    let url = |host: &str, pod: &str| format!("Get \"https://{host}:{port}/containerLogs/default/{pod}/c\"");
    let refused = client.get(&log("on-n2")).await.expect(500);
    assert_eq!(
        refused["message"],
        format!("{}: no agent", url("refused.invalid", "on-n2"))
    );
    let silent = client.get(&log("on-n3")).await.expect(500);
    assert_eq!(
        silent["message"],
        format!(
            "{}: dial tcp silent.invalid:{port}: i/o timeout",
            url("silent.invalid", "on-n3")
        )
    );
    eventually("a dial that is given up ends", || async {
        (server.connections() == 0).then_some(())
    })
    .await;
    let metrics = client.get("/metrics").await.body;
    let metrics = String::from_utf8_lossy(&metrics);
    let line = |line: &str| assert!(metrics.lines().any(|found| found == line), "{line}");
    line("apiserver_egress_dialer_dial_failure_count{protocol=\"grpc\",stage=\"proxy\",transport=\"uds\"} 1");
    // The server has gone.
    drop(server);
    let gone = client.get(&log("on-n1")).await.expect(500)["message"].to_string();
    assert!(gone.contains("rpc error: code = Unavailable"), "{gone}");
    plane.stop().await;
}

#[tokio::test]
async fn webhooks_and_issuers_are_reached_through_an_http_proxy() {
    let directory = tempfile::tempdir().expect("a directory");
    let proxy = ConnectProxy::start().await;
    let selections = json!([by_connect("controlplane", &proxy, directory.path())]);
    let file = write(directory.path(), &selections);
    let issuer = Issuer::start().await;
    let authentication = directory.path().join("authentication.json");
    let jwt = json!({
        "issuer": {
            "url": issuer.url(), "certificateAuthority": issuer.ca(), "audiences": ["kubernetes"],
            "egressSelectorType": "controlplane",
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    });
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]});
    std::fs::write(&authentication, config.to_string()).expect("a file");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.egress_selector_config_file = Some(file);
            options.authentication.authentication_config = Some(authentication);
        })
    })
    .await;
    // An issuer of tokens.
    let holder = client.anonymous(plane.ca_certificate()).header(
        "authorization",
        &format!("Bearer {}", issuer.token(&json!({"sub": "jane"}))),
    );
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let user = eventually("the issuer is known", || async {
        let answer = holder
            .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
            .await;
        (answer.status == 201).then(|| answer.expect(201))
    })
    .await;
    assert_eq!(user["status"]["userInfo"]["username"], "jane");
    let of_issuer = issuer.url().replace("https://", "");
    assert!(proxy.asked().contains(&of_issuer), "{:?}", proxy.asked());

    // Webhooks with a URL, one of which the proxy does not let through.
    let webhook = Webhook::start(|review| {
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": false, "status": {"message": "not today"}},
        }))
    })
    .await;
    let hook = |name: &str, url: &str, resource: &str| {
        json!({
            "name": name, "clientConfig": {"url": url, "caBundle": webhook.ca_bundle()},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        })
    };
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [
            hook("maps.example.com", &webhook.url(), "configmaps"),
            hook("secrets.example.com", "https://refused.invalid/", "secrets"),
        ],
    });
    client
        .post(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            &hooks,
        )
        .await
        .expect(201);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let refused = eventually("the webhook is asked", || async {
        let answer = client
            .post(&format!("{NAMESPACE}/configmaps?dryRun=All"), &map)
            .await;
        (answer.status != 201).then_some(answer)
    })
    .await;
    let message = refused.expect(400)["message"].to_string();
    assert!(message.contains("denied the request: not today"), "{message}");
    let of_webhook = webhook.url().replace("https://", "").replace('/', "");
    assert!(proxy.asked().contains(&of_webhook), "{:?}", proxy.asked());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let answer = client.post(&format!("{NAMESPACE}/secrets"), &secret).await;
    let message = answer.expect(500)["message"].to_string();
    let at = proxy.url().replace("https://", "");
    let why = format!("proxy error from {at} while dialing refused.invalid:443, code 403: 403 Forbidden");
    assert!(message.contains(&why), "{message}");
    plane.stop().await;
}

#[tokio::test]
async fn etcd_is_reached_through_a_proxy() {
    let Some(etcd) = Etcd::start().await else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("proxy.sock");
    let proxy = ConnectProxy::on_socket(&socket);
    let selection = json!({"name": "etcd", "connection": {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket}}}});
    let file = write(directory.path(), &json!([selection]));
    let port = etcd.url().rsplit_once(':').expect("a port").1.to_string();
    let member = format!("http://etcd.invalid:{port}");
    let (plane, client, _data) = replica_with(&etcd, |options| {
        options.etcd_servers = vec![member];
        options.egress_selector_config_file = Some(file);
    })
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    client
        .post(&format!("{NAMESPACE}/configmaps"), &map)
        .await
        .expect(201);
    client.get(&format!("{NAMESPACE}/configmaps/a")).await.expect(200);
    let asked = proxy.asked();
    assert!(!asked.is_empty());
    assert!(
        asked
            .iter()
            .all(|server| *server == format!("etcd.invalid:{port}")),
        "{asked:?}"
    );
    plane.stop().await;
}
