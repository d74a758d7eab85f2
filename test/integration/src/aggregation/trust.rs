//! A backend receives the identity and the request that were authorized here.

use std::sync::Arc;

use control_plane::ControlPlane;
use generic_server::pki::Authority;
use serde_json::json;
use test_support::{Client, PATIENCE, eventually, plane_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::faults::raw_connection;
use super::faulty::{Faulty, Step, answer};
use super::{SERVICES, api_service, local_service, reason};

/// A plane with a backend for `trust.io` that answers with the head of the request, and a user `alice` of the group `dev`.
async fn start() -> (ControlPlane, Client, Client, Faulty, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret,alice,1,\"dev\"\n").expect("a token file");
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(file.clone()))).await;
    let alice = client
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    let authority = Authority::generate("test").expect("an authority");
    let script = |path: &str, head: &str| {
        if path == "/apis/trust.io/v1" {
            return answer(
                "200 OK",
                r#"{"kind":"APIResourceList","groupVersion":"trust.io/v1","resources":[]}"#,
            );
        }
        if head.contains("upgrade: echo") {
            let text = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n{head}"
            );
            return vec![Step::Say(text.into_bytes())];
        }
        answer("200 OK", head)
    };
    let backend = Faulty::start(&authority, "trust", Arc::new(script)).await;
    local_service(&client, "trust").await;
    let service = api_service("trust.io", "trust", backend.port, Some(&authority.certificate));
    client.post(SERVICES, &service).await.expect(201);
    reason(&client, "trust.io", "Passed").await;
    eventually("it serves", || async {
        (client.get("/apis/trust.io/v1/things").await.status == 200).then_some(())
    })
    .await;
    (plane, client, alice, backend, directory)
}

/// The answer to a raw request, as the administrator.
async fn raw(plane: &ControlPlane, request: &str) -> String {
    let mut stream = raw_connection(plane).await;
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut got = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut got));
    // A close without TLS's farewell is an error to the client.
    let _ = read.await.expect("an answer in time");
    String::from_utf8_lossy(&got).into_owned()
}

/// All headers of identity and of the request's path.
const OWN: &str = "x-remote-user, x-remote-group, x-remote-uid, x-remote-extra-a, x-kubernetes-aggregated-by, \
                   x-forwarded-for, x-forwarded-host, x-forwarded-proto, x-forwarded-uri, audit-id, host";

#[tokio::test]
async fn no_client_takes_its_identity_away() {
    let (plane, _client, _alice, _backend, _directory) = start().await;
    let check = |what: &str, received: &str| {
        for wanted in [
            "x-remote-user: kubernetes-admin\r\n",
            "x-remote-group: system:masters\r\n",
            "x-remote-group: system:authenticated\r\n",
            "x-kubernetes-aggregated-by: ",
            "x-forwarded-for: 127.0.0.1\r\n",
            "audit-id: ",
            "host: localhost:",
        ] {
            assert!(received.contains(wanted), "{what}: {wanted} in {received}");
        }
        assert!(!received.contains("mallory"), "{what}: {received}");
        assert_eq!(received.matches("x-remote-user").count(), 1, "{what}: {received}");
    };
    let lies = "X-Remote-User: mallory\r\nX_Remote_User: mallory\r\nx-remote_extra-a: mallory\r\nImpersonate_User: mallory\r\n";
    for connection in [
        format!("Connection: close, {OWN}\r\n"),
        format!(
            "Connection: {}\r\nConnection: close\r\n",
            OWN.to_ascii_uppercase()
        ),
        format!("Connection: close\r\nConnection: {}\r\n", OWN.replace(", ", ",")),
    ] {
        let request =
            format!("GET /apis/trust.io/v1/things HTTP/1.1\r\nHost: localhost\r\n{connection}{lies}\r\n");
        let answer = raw(&plane, &request).await;
        let (_, received) = answer.split_once("get /apis/trust.io").expect(&answer);
        check(&connection, received);
    }
    // Trailers say nothing, either.
    let request = format!(
        "POST /apis/trust.io/v1/things HTTP/1.1\r\nHost: localhost\r\nConnection: close, {OWN}\r\nTrailer: X-Remote-User\r\n\
         Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX-Remote-User: mallory\r\n\r\n"
    );
    let answer = raw(&plane, &request).await;
    let (_, received) = answer.split_once("post /apis/trust.io").expect(&answer);
    check("trailers", received);
    // An upgrade is passed on as one, with the same identity.
    let request = format!(
        "GET /apis/trust.io/v1/things HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, {OWN}\r\nUpgrade: echo\r\n{lies}\r\n"
    );
    let answer = raw(&plane, &request).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let (_, received) = answer.split_once("get /apis/trust.io").expect(&answer);
    check("upgrade", received);
    assert!(received.contains("connection: upgrade\r\n"), "{received}");
    plane.stop().await;
}

#[tokio::test]
async fn a_list_is_narrowed_for_the_backend_as_it_was_for_authorization() {
    let (plane, client, alice, _backend, _directory) = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "one-thing"},
        "rules": [
            {"apiGroups": ["trust.io"], "resources": ["things"], "resourceNames": ["allowed"], "verbs": ["list", "watch"]},
            {"apiGroups": ["trust.io"], "resources": ["others"], "verbs": ["watch"]},
        ],
    });
    client
        .post(&format!("{rbac}/clusterroles"), &role)
        .await
        .expect(201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "one-thing"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "one-thing"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
    });
    client
        .post(&format!("{rbac}/clusterrolebindings"), &binding)
        .await
        .expect(201);
    let things = |query: &str| format!("/apis/trust.io/v1/things?{query}");
    eventually("the role holds", || async {
        let answer = alice.get(&things("fieldSelector=metadata.name%3Dallowed")).await;
        (answer.status == 200).then_some(())
    })
    .await;
    // The backend reads the request that was authorized.
    for (query, passed_on) in [
        (
            "fieldSelector=metadata.name%3Dallowed",
            "fieldselector=metadata.name%3dallowed",
        ),
        (
            "fieldSelector=metadata.name%3Dallowed&fieldSelector=x%3Dy",
            "fieldselector=metadata.name%3dallowed&fieldselector=x%3dy",
        ),
        (
            "a=%zz&b;c&fieldSelector=metadata.name%3Dallowed&limit=5",
            "fieldselector=metadata.name%3dallowed&limit=5",
        ),
    ] {
        let answer = alice.get(&things(query)).await;
        let received = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{query}: {received}");
        let line = format!("get /apis/trust.io/v1/things?{passed_on} http/1.1");
        assert!(received.starts_with(&line), "{query}: {received}");
    }
    for query in [
        "",
        "fieldSelector=metadata.name%3Dallowed,x!%3D;",
        "fieldSelector=metadata.name%3Dallowed,x!%3D%zz",
        "fieldSelector=metadata.name%3Dallowed&fieldSelector%3D;",
        "fieldSelector=x%3Dy&fieldSelector=metadata.name%3Dallowed",
        "FieldSelector=metadata.name%3Dallowed",
        "fieldSelector=metadata.name%3Dallowed&labelSelector=!!",
        "fieldSelector=metadata.name%3Dallowed&limit=x",
    ] {
        let answer = alice.get(&things(query)).await;
        let narrowed = query.contains("fieldSelector%3D;");
        assert_eq!(answer.status, if narrowed { 200 } else { 403 }, "{query}");
    }
    // A watch that the backend would read as a list is one here.
    for (query, status) in [
        ("watch=1;", 403),
        ("watch=%zz", 403),
        ("watch=0", 403),
        ("watch=1", 200),
        ("watch", 200),
    ] {
        let answer = alice.get(&format!("/apis/trust.io/v1/others?{query}")).await;
        assert_eq!(answer.status, status, "{query}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn paths_mean_the_same_to_both() {
    let (plane, client, _alice, _backend, _directory) = start().await;
    for (path, expected) in [
        ("namespaces/a/../b/things", "400"),
        ("namespaces/a/%2e%2e/b/things", "400"),
        ("namespaces/a/%2E./b/things", "400"),
        ("things/.", "400"),
        ("/things", "400"),
        ("namespaces//things", "400"),
        ("namespaces/a%2F..%2Fb/things", "400"),
        // A slash is one however it is written: that is what was decided on.
        ("namespaces/a%2Fthings", "200"),
        ("things/...", "200"),
    ] {
        let answer = raw(
            &plane,
            &format!("GET /apis/trust.io/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        )
        .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected}")),
            "{path}: {answer}"
        );
        if path.contains("%2Fthings") && expected == "200" {
            assert!(
                answer.contains("get /apis/trust.io/v1/namespaces/a/things http/1.1"),
                "{answer}"
            );
        }
    }

    // Unknown names never become metric labels.
    client.get("/apis/trust.io/v1/invented").await.expect(200);
    client.get("/apis/invented.io/v1/things").await.expect(404);
    client.get("/api/v1/invented").await.expect(404);
    client
        .get("/api/v1/namespaces/default/pods/a/invented")
        .await
        .expect(404);
    client.get("/apis/apps/invented/deployments").await.expect(404);
    client.get("/api/v1/namespaces/default/pods").await.expect(200);
    let metrics = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body);
    assert!(!text.contains("invented"), "{text}");
    let known =
        "apiserver_request_total{verb=\"LIST\",dry_run=\"\",group=\"\",version=\"v1\",resource=\"pods\"";
    assert!(text.contains(known), "{text}");
    assert!(
        text.contains("group=\"trust.io\",version=\"v1\",resource=\"\""),
        "{text}"
    );
    plane.stop().await;
}
