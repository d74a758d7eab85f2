//! The flags about kubelets.

use std::net::Ipv4Addr;

use test_support::{Kubelet, own_address};

use super::rig::{NAMESPACE, Rig, node, pod};

#[tokio::test]
async fn kubelets_are_trusted_by_flags() {
    let files = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let file = files.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    };
    let rig = Rig::start_with(|builder, kubelet| {
        let client = kubelet.client();
        let (certificate, key) = (write("crt", &client.certificate), write("key", &client.key));
        let authority = write("ca", kubelet.ca());
        builder.with(move |options| {
            let options = &mut options.kubelet;
            options.kubelet_client_certificate = Some(certificate);
            options.kubelet_client_key = Some(key);
            options.kubelet_certificate_authority = Some(authority);
        })
    })
    .await;
    let log = rig.client.get(&format!("{NAMESPACE}/pods/p/log")).await;
    log.expect(200);
    // What the kubelet knows of its client is in its echo, which is reached by an address that other machines could use.
    if let Some(address) = own_address() {
        let made = node("n2", address, rig.kubelet.port());
        rig.client.post("/api/v1/nodes", &made).await.expect(201);
        let seen = rig.client.get("/api/v1/nodes/n2/proxy/stats").await.expect(200);
        assert_eq!(seen["known"], true);
    }
    // Another kubelet, of an authority that is not known.
    let stranger = Kubelet::start().await;
    let made = node("n3", Ipv4Addr::LOCALHOST.into(), stranger.port());
    rig.client.post("/api/v1/nodes", &made).await.expect(201);
    rig.add(&pod("q", "n3", &["c"])).await;
    let refused = rig
        .client
        .get(&format!("{NAMESPACE}/pods/q/log"))
        .await
        .expect(500);
    assert_eq!(
        refused["message"],
        format!(
            "Get \"https://127.0.0.1:{}/containerLogs/default/q/c\": tls: failed to verify certificate: x509: \
             certificate signed by unknown authority",
            stranger.port()
        )
    );
    // An address that the certificate is not for, and a client that does not mind.
    let made = node("n4", Ipv4Addr::new(127, 0, 0, 2).into(), rig.kubelet.port());
    rig.client.post("/api/v1/nodes", &made).await.expect(201);
    rig.add(&pod("r", "n4", &["c"])).await;
    let path = format!("{NAMESPACE}/pods/r/log");
    let refused = rig.client.get(&path).await.expect(500)["message"].to_string();
    assert!(
        refused.contains("certificate is valid for localhost"),
        "{refused}"
    );
    assert!(refused.contains("not 127.0.0.2"), "{refused}");
    let insecure = format!("{path}?insecureSkipTLSVerifyBackend=true");
    rig.client.get(&insecure).await.expect(200);
    rig.plane.stop().await;
}

#[tokio::test]
async fn nodes_are_reached_by_flags() {
    // An address that swallows what is sent to it is not to be had on every machine; a port that is listened on and never answers is.
    let silent = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let rig = Rig::start_with(|builder, kubelet| {
        let known = kubelet.port();
        builder.with(move |options| {
            let options = &mut options.kubelet;
            options.kubelet_preferred_address_types = vec!["Hostname".into(), "InternalIP".into()];
            options.kubelet_timeout = std::time::Duration::from_millis(300);
            options.kubelet_port = known;
        })
    })
    .await;
    // The preferred address, and the port where the node does not say it.
    let mut made = node("n2", Ipv4Addr::LOCALHOST.into(), 0);
    made["status"] = serde_json::json!({"addresses": [
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "Hostname", "address": "localhost"},
    ]});
    rig.client.post("/api/v1/nodes", &made).await.expect(201);
    rig.add(&pod("q", "n2", &["c"])).await;
    rig.client
        .get(&format!("{NAMESPACE}/pods/q/log"))
        .await
        .expect(200);
    let made = node("n3", Ipv4Addr::LOCALHOST.into(), port);
    rig.client.post("/api/v1/nodes", &made).await.expect(201);
    rig.add(&pod("r", "n3", &["c"])).await;
    let late = rig
        .client
        .get(&format!("{NAMESPACE}/pods/r/log"))
        .await
        .expect(500);
    assert_eq!(
        late["message"],
        format!(
            "Get \"https://127.0.0.1:{port}/containerLogs/default/r/c\": net/http: TLS handshake timeout"
        )
    );
    rig.plane.stop().await;
}
