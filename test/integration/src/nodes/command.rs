//! `pods/exec` and `pods/attach`.

use std::net::Ipv4Addr;

use generic_server::streaming::spdy::{Frame, Reader, Writer};
use generic_server::streaming::websocket::Event;
use serde_json::Value;
use test_support::{PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::rig::{NAMESPACE, Rig, node, pod};

const V5: &str = "v5.channel.k8s.io";

fn exec(query: &str) -> String {
    format!("{NAMESPACE}/pods/p/exec?{query}")
}

fn status(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn commands_run_over_websocket() {
    let rig = Rig::start().await;
    let (mut socket, protocol) = rig
        .websocket(&exec("command=cat&stdin=true&stdout=true&stderr=true"), V5)
        .await
        .expect("an upgrade");
    assert_eq!(protocol, V5);
    for piece in ["hello ", "world"] {
        socket
            .writer
            .message(&[&[0], piece.as_bytes()])
            .await
            .expect("sent");
    }
    socket.writer.message(&[&[255, 0]]).await.expect("sent");
    let [_, out, err, error, _] = socket.channels().await;
    assert_eq!((out.as_str(), err.as_str()), ("hello world", ""));
    assert_eq!(error, r#"{"metadata":{},"status":"Success"}"#);

    let run = async |query: &str| {
        let (mut socket, _) = rig.websocket(&exec(query), V5).await.expect("an upgrade");
        socket.channels().await
    };
    let [_, out, err, error, _] = run("command=both&stdout=true&stderr=true").await;
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
    assert_eq!(status(&error)["status"], "Success");
    let [.., error, _] = run("command=exit&command=7&stdout=true").await;
    assert_eq!(status(&error)["reason"], "NonZeroExitCode");
    assert_eq!(status(&error)["details"]["causes"][0]["message"], "7");
    let [.., error, _] = run("command=absent&stdout=true").await;
    assert_eq!(
        status(&error)["message"],
        "Internal error occurred: unable to upgrade connection: container not found (\"c\")"
    );
    let [.., error, _] = run("command=elsewhere&stdout=true").await;
    let message = status(&error)["message"].to_string();
    assert!(message.ends_with("redirect not allowed\""), "{message}");
    let [.., error, _] = run("command=vanish&stdout=true").await;
    assert_eq!(status(&error)["code"], 500, "{error}");
    rig.is_free().await;
    rig.plane.stop().await;
}

#[tokio::test]
async fn terminals_have_sizes_over_websocket() {
    let rig = Rig::start().await;
    let path = exec("command=size&stdin=true&stdout=true&tty=true");
    let (mut socket, _) = rig.websocket(&path, V5).await.expect("an upgrade");
    socket
        .writer
        .message(&[&[4], br#"{"Width":80,"Height":24}"#])
        .await
        .expect("sent");
    let [_, out, ..] = socket.channels().await;
    assert_eq!(out, "{\"Width\":80,\"Height\":24}\n");
    rig.plane.stop().await;
}

#[tokio::test]
async fn clients_attach_over_websocket() {
    let rig = Rig::start().await;
    let path = format!("{NAMESPACE}/pods/p/attach?stdin=true&stdout=true&container=c");
    let (mut socket, _) = rig.websocket(&path, V5).await.expect("an upgrade");
    socket.writer.message(&[&[0], b"hello"]).await.expect("sent");
    socket.writer.message(&[&[255, 0]]).await.expect("sent");
    let [_, out, ..] = socket.channels().await;
    assert_eq!(out, "hello");
    rig.plane.stop().await;
}

#[tokio::test]
async fn commands_run_over_spdy() {
    let rig = Rig::start().await;
    let headers = [
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ("authorization", "Bearer secret"),
    ];
    let upgraded = rig
        .client
        .upgrade("POST", &exec("command=cat&stdin=true&stdout=true"), &headers)
        .await;
    let upgraded = upgraded.expect("an upgrade");
    assert_eq!(upgraded.headers["x-stream-protocol-version"], "v4.channel.k8s.io");
    let (from, to) = tokio::io::split(upgraded.io);
    let (mut reader, writer) = (Reader::new(from), Writer::new(to));
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        writer.open(stream, &[("streamtype", kind)]).await.expect("sent");
    }
    let piece = vec![b'x'; 100_000];
    writer.data(3, &piece, true).await.expect("sent");
    let (mut out, mut error, mut open) = (0, Vec::new(), vec![1, 5]);
    while !open.is_empty() {
        let frame = timeout(PATIENCE, reader.next())
            .await
            .expect("a frame in time")
            .expect("a frame");
        if let Frame::Data { stream, bytes, last } = frame.expect("no end") {
            match stream {
                1 => error.extend_from_slice(&bytes),
                _ => out += bytes.len(),
            }
            open.retain(|id| !(last && *id == stream));
        }
    }
    assert_eq!(out, piece.len());
    assert_eq!(
        status(std::str::from_utf8(&error).expect("text"))["status"],
        "Success"
    );
    assert_eq!(rig.kubelet.connections(), 1);
    drop((reader, writer));
    rig.is_free().await;
    // Older WebSockets are the kubelet's own business: this one sends back whatever comes.
    let headers = [
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    let upgraded = rig
        .client
        .upgrade("GET", &exec("command=cat&stdin=true"), &headers)
        .await;
    let mut io = upgraded.expect("an upgrade").io;
    io.write_all(b"as it is").await.expect("sent");
    let mut back = [0; 8];
    timeout(PATIENCE, io.read_exact(&mut back))
        .await
        .expect("bytes in time")
        .expect("bytes");
    assert_eq!(&back, b"as it is");
    rig.plane.stop().await;
}

#[tokio::test]
async fn what_cannot_run_is_refused_in_upstreams_words() {
    let rig = Rig::start().await;
    let spdy = [
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
    ];
    let check = async |path: &str, code: u16, expected: &str| {
        let refused = rig
            .client
            .upgrade("POST", path, &spdy)
            .await
            .map(|_| ())
            .expect_err("a refusal");
        assert_eq!(refused.status, code, "{path}");
        assert_eq!(refused.json["message"], expected, "{path}");
    };
    rig.add(&pod("pending", "", &["c"])).await;
    rig.add(&pod("many", "n1", &["a", "b"])).await;
    // A node whose kubelet is dead.
    let dead = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let port = dead.local_addr().expect("an address").port();
    drop(dead);
    rig.client
        .post("/api/v1/nodes", &node("n2", Ipv4Addr::LOCALHOST.into(), port))
        .await
        .expect(201);
    rig.add(&pod("lost", "n2", &["c"])).await;
    rig.add(&pod("nowhere", "n3", &["c"])).await;
    let path = |pod: &str| format!("{NAMESPACE}/pods/{pod}/exec?command=cat&stdout=true");
    check(&path("pending"), 400, "pod pending does not have a host assigned").await;
    check(
        &path("many"),
        400,
        "a container name must be specified for pod many, choose one of: [a b]",
    )
    .await;
    check(&path("nowhere"), 404, "nodes \"n3\" not found").await;
    check(&path("absent"), 404, "pods \"absent\" not found").await;
    check(
        &format!("{}&dryRun=All", path("p")),
        400,
        "dryRun is not supported",
    )
    .await;
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    check(&path("lost"), 500, &format!("error dialing backend: {refused}")).await;
    let answer = rig.client.post(&path("p"), &Value::Null).await.expect(400);
    assert_eq!(answer["message"], "Upgrade request required");
    let (mut socket, _) = rig.websocket(&path("lost"), V5).await.expect("an upgrade");
    let [.., error, _] = socket.channels().await;
    assert_eq!(
        status(&error)["message"],
        format!(
            "Internal error occurred: error sending request: Post \
             \"https://127.0.0.1:{port}/exec/default/lost/c?command=cat&output=1\": {refused}"
        )
    );
    rig.plane.stop().await;
}

#[tokio::test]
async fn a_command_by_get_needs_the_right_to_create_it() {
    let rig = Rig::start().await;
    let role = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}],
    });
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "amy"}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    rig.client
        .post(&format!("{rbac}/clusterroles"), &role)
        .await
        .expect(201);
    rig.client
        .post(&format!("{rbac}/clusterrolebindings"), &binding)
        .await
        .expect(201);
    let amy = Rig {
        client: rig.client.clone().header("impersonate-user", "amy"),
        ..rig
    };
    let path = exec("command=both&stdout=true");
    let refused = eventually("the role counts", || async {
        let refused = amy.websocket(&path, V5).await.map(|_| ()).expect_err("a refusal");
        (!refused.1.contains("cannot get")).then_some(refused)
    })
    .await;
    assert_eq!(refused.0, 403);
    assert!(refused.1.contains("pods \\\"p\\\" is forbidden"), "{}", refused.1);
    amy.plane.stop().await;
}

#[tokio::test]
async fn policies_see_what_is_run() {
    let rig = Rig::start().await;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "exec"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]},
            ]},
            "validations": [{"expression": "object.kind == 'PodExecOptions' && !('exit' in object.command)"}],
        },
    });
    let binding = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "exec"}, "spec": {"policyName": "exec", "validationActions": ["Deny"]},
    });
    rig.client
        .post(&format!("{policies}/validatingadmissionpolicies"), &policy)
        .await
        .expect(201);
    rig.client
        .post(&format!("{policies}/validatingadmissionpolicybindings"), &binding)
        .await
        .expect(201);
    let denied = eventually("the policy counts", || async {
        rig.websocket(&exec("command=exit&command=0&stdout=true"), V5)
            .await
            .map(|_| ())
            .err()
    })
    .await;
    assert_eq!(denied.0, 422, "{}", denied.1);
    let (mut socket, _) = rig
        .websocket(&exec("command=both&stdout=true"), V5)
        .await
        .expect("an upgrade");
    let [_, out, ..] = socket.channels().await;
    assert_eq!(out, "out\n");
    rig.plane.stop().await;
}

#[tokio::test]
async fn ends_that_vanish_free_everything() {
    let rig = Rig::start().await;
    let path = exec("command=sleep&stdin=true&stdout=true");
    let (socket, _) = rig.websocket(&path, V5).await.expect("an upgrade");
    eventually("the command runs", || async {
        (rig.kubelet.connections() == 1).then_some(())
    })
    .await;
    drop(socket);
    rig.is_free().await;
    let Rig {
        plane,
        client,
        kubelet,
    } = rig;
    let rig = Rig {
        plane,
        client,
        kubelet,
    };
    let (mut socket, _) = rig.websocket(&path, V5).await.expect("an upgrade");
    eventually("the command runs", || async {
        (rig.kubelet.connections() == 1).then_some(())
    })
    .await;
    let Rig { plane, kubelet, .. } = rig;
    drop(kubelet);
    // The stand-in's streams live on in tasks of their own; the server's end is what ends them.
    plane.stop().await;
    let end = timeout(PATIENCE, async {
        while let Ok(Some(_)) = socket.reader.next().await {}
    });
    end.await.expect("an end in time");
}

#[tokio::test]
async fn the_record_of_a_command_is_complete_when_it_ends() {
    let folder = tempfile::tempdir().expect("a directory");
    let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
    let rules = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, resources: [{resources: [pods/exec]}]}]}";
    std::fs::write(&policy, rules).expect("a file");
    let file = log.clone();
    let rig = Rig::start_with(|builder, _| {
        builder.with(|options| {
            options.audit.audit_policy_file = Some(policy);
            options.audit.log.audit_log_path = Some(file);
        })
    })
    .await;
    let stages = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let stage = |line: &str| {
            let event: Value = serde_json::from_str(line).expect("an event a line");
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            format!("{} {code}", event["stage"].as_str().unwrap_or_default())
        };
        text.lines().map(stage).collect::<Vec<String>>()
    };
    let path = exec("command=cat&stdin=true&stdout=true");
    let (mut socket, _) = rig.websocket(&path, V5).await.expect("an upgrade");
    socket.writer.message(&[&[0], b"hello"]).await.expect("sent");
    // The echo shows that the command runs.
    while !matches!(
        socket.reader.next().await.expect("an event"),
        Some(Event::Data { bytes, .. }) if bytes.ends_with(b"hello")
    ) {}
    assert_eq!(stages(), ["RequestReceived 0", "ResponseStarted 101"]);
    socket.writer.message(&[&[255, 0]]).await.expect("sent");
    socket.channels().await;
    drop(socket);
    eventually("the command's end is recorded", || async {
        let complete = stages()
            .last()
            .is_some_and(|stage| stage == "ResponseComplete 101");
        complete.then_some(())
    })
    .await;
    rig.plane.stop().await;
}
