//! Flags about an etcd.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::pki::Authority;
use serde_json::{Value, json};
use test_support::eventually;
use test_tools::{Cluster, Etcd, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{MAPS, map, start_on};
use super::{EVENTS, event, version};

fn port(url: &str) -> u16 {
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    port.expect("a port")
}

/// The lease of a key, by the JSON gateway of a member without TLS.
async fn lease(port: u16, key: &str) -> String {
    let body = json!({"key": STANDARD.encode(key)}).to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a connection");
    let head = format!(
        "POST /v3/kv/range HTTP/1.0\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let found: Value = serde_json::from_str(body).expect("JSON");
    found["kvs"][0]["lease"].as_str().expect("a lease").to_string()
}

#[tokio::test]
async fn leases_and_compaction() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let flags = [
        &*format!("--etcd-servers={}", etcd.url()),
        "--etcd-compaction-interval=1s",
        "--lease-reuse-duration-seconds=1",
    ];
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    let first = version(&client.post(MAPS, &map("one")).await.expect(201));
    // By default one lease serves the events of a minute, which are many more than these.
    let mut leases = std::collections::BTreeSet::new();
    let mut count = 0;
    while leases.len() < 2 {
        assert!(count < 500, "one lease serves {count} events");
        client
            .post(EVENTS, &event(&format!("e{count}")))
            .await
            .expect(201);
        leases.insert(lease(port(&etcd.url()), &format!("/registry/events/default/e{count}")).await);
        count += 1;
    }
    // By default a state is kept for five minutes. Each is asked for once, because the cache keeps those that it was asked for.
    let older = std::cell::Cell::new(first.parse::<u64>().expect("a number"));
    eventually("the history is compacted", || async {
        client
            .patch(
                &format!("{MAPS}/one"),
                "merge-patch+json",
                &json!({"data": {"at": older.get().to_string()}}),
            )
            .await
            .expect(200);
        let past = format!(
            "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
            older.replace(older.get() + 1)
        );
        (client.get(&past).await.status == 410).then_some(())
    })
    .await;
}

#[tokio::test]
async fn tls_and_health() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::generate("etcd").expect("an authority");
    let names = ["127.0.0.1".to_string(), "localhost".to_string()];
    let server = authority.server("etcd", &names).expect("a certificate");
    let user = authority.client("apiserver", "").expect("a certificate");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let member = [
        "--client-cert-auth".to_string(),
        "--trusted-ca-file".to_string(),
        file("etcd-ca.crt", &authority.certificate),
        "--cert-file".to_string(),
        file("etcd.crt", &server.certificate),
        "--key-file".to_string(),
        file("etcd.key", &server.key),
    ];
    let Some(cluster) = Cluster::start_with(1, "https", member.to_vec()).await else {
        return;
    };
    let wire = Proxy::to(port(&cluster.endpoints()[0])).await;
    let flags = [
        format!("--etcd-servers=https://127.0.0.1:{}", wire.port()),
        format!("--etcd-cafile={}", dir.path().join("etcd-ca.crt").display()),
        format!("--etcd-certfile={}", file("user.crt", &user.certificate)),
        format!("--etcd-keyfile={}", file("user.key", &user.key)),
        "--etcd-healthcheck-timeout=500ms".to_string(),
        "--etcd-readycheck-timeout=1h".to_string(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (_child, client) = start_on(dir.path(), 0, &flags).await;
    client.post(MAPS, &map("one")).await.expect(201);
    client.get("/livez/etcd").await.expect(200);
    wire.cut();
    eventually("the store is unhealthy", || async {
        (client.get("/livez/etcd").await.status == 500).then_some(())
    })
    .await;
    // Its own timeout is an hour.
    client.get("/readyz/etcd-readiness").await.expect(200);
}
