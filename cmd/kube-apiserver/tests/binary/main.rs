//! The real binary, as a process: its greeting and exit codes, what it keeps over `kill -9`, and an unmodified kubectl.

mod admission_config;
mod backup;
mod effects;
mod envtest;
mod flags;
mod guides;
mod hygiene;
mod kube_rs;
mod readiness;
mod replicas;
mod serving;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Value, json};
use test_support::{Client, PATIENCE, eventually, kubectl, tool};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn command(dir: &Path, more: &[&str]) -> Command {
    command_on(dir, 0, more)
}

fn command_on(dir: &Path, port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-apiserver"));
    command
        .arg("--data-dir")
        .arg(dir)
        .args(["--bind-address", "127.0.0.1", "--secure-port"])
        .arg(port.to_string())
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts the server and waits for its greeting.
async fn start(dir: &Path) -> (Child, Client) {
    start_on(dir, 0, &[]).await
}

/// The same on a port and with more flags.
async fn start_on(dir: &Path, port: u16, more: &[&str]) -> (Child, Client) {
    let (child, ..) = launch(dir, port, more).await;
    (child, admin(dir))
}

/// A client of the administrator of a server with this data directory.
fn admin(dir: &Path) -> Client {
    let kubeconfig = std::fs::read(dir.join("admin.kubeconfig")).expect("a kubeconfig");
    Client::from_kubeconfig(&kubeconfig)
}

/// Starts the server and waits for the first line of its greeting; gives the URL in it and the lines after it. A server whose users
/// come from an authority of others writes no kubeconfig.
async fn launch(dir: &Path, port: u16, more: &[&str]) -> (Child, String, Lines<BufReader<ChildStdout>>) {
    // The log is a file: a pipe that nobody reads would fill.
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("server.log"));
    let mut child = command_on(dir, port, more)
        .stderr(log.expect("a log file"))
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let greeting = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("a greeting in time");
    let greeting = greeting.expect("a line").unwrap_or_default();
    let url = greeting
        .strip_prefix("The control plane is ready at ")
        .and_then(|url| url.strip_suffix('.'))
        .filter(|url| url.starts_with("https://"));
    let url = url.unwrap_or_else(|| panic!("{greeting:?}"));
    (child, url.to_string(), lines)
}

/// The certificate of the authority that a server made in its data directory.
fn authority_of(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("pki/ca.crt")).expect("a certificate")
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"name": name}})
}

#[tokio::test]
async fn every_acknowledged_write_survives_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all: Vec<String> = Vec::new();
    for round in 0..3 {
        let (mut child, client) = start(dir.path()).await;
        for name in &all {
            client.get(&format!("{MAPS}/{name}")).await.expect(200);
        }
        let acknowledged = Arc::new(tokio::sync::Mutex::new(Vec::new()));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let (client, acknowledged) = (client.clone(), acknowledged.clone());
            writers.spawn(async move {
                for index in 0..1000 {
                    let name = format!("m-{round}-{writer}-{index}");
                    client.post(MAPS, &map(&name)).await.expect(201);
                    acknowledged.lock().await.push(name);
                }
            });
        }
        // In the middle of it, whenever that is.
        eventually("some writes", || async {
            (acknowledged.lock().await.len() > 16).then_some(())
        })
        .await;
        child.kill().await.expect("killed");
        // Writers fail on the connection that is gone; the acknowledgements before that count.
        writers.abort_all();
        while writers.join_next().await.is_some() {}
        all.extend(acknowledged.lock().await.iter().cloned());
    }
    let (_child, client) = start(dir.path()).await;
    let listed = client.get(MAPS).await.expect(200);
    let names: Vec<&str> = listed["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|m| m["metadata"]["name"].as_str())
        .collect();
    let lost: Vec<&String> = all
        .iter()
        .filter(|name| !names.contains(&name.as_str()))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} are lost: {lost:?}",
        lost.len(),
        all.len()
    );
}

#[tokio::test]
async fn closed_output_does_not_end_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = command(dir.path(), &["-v", "4"])
        .spawn()
        .expect("the binary runs");
    drop((child.stdout.take(), child.stderr.take()));
    let path = dir.path().join("admin.kubeconfig");
    let kubeconfig = eventually("a kubeconfig", || async { std::fs::read(&path).ok() }).await;
    let client = Client::from_kubeconfig(&kubeconfig);
    eventually("readiness", || async {
        (client.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    client.post(MAPS, &map("one")).await.expect(201);
    assert!(matches!(child.try_wait(), Ok(None)), "it still runs");
}

#[tokio::test]
async fn a_watch_resumes_over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut child, client) = start(dir.path()).await;
    let first = client.post(MAPS, &map("first")).await.expect(201);
    let version = first["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_string();
    client.post(MAPS, &map("second")).await.expect(201);
    child.kill().await.expect("killed");
    let (_child, client) = start(dir.path()).await;
    let mut watch = client
        .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
        .await;
    let event = watch.next().await.expect("an event");
    assert_eq!(
        (
            event["type"].as_str(),
            event["object"]["metadata"]["name"].as_str()
        ),
        (Some("ADDED"), Some("second"))
    );
}

/// Runs the binary to its end; gives its exit code and what it said.
async fn outcome(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = tokio::time::timeout(PATIENCE, command(dir, more).output())
        .await
        .expect("it ends");
    let output = output.expect("it runs");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[tokio::test]
async fn faults_at_start_are_one_line_and_a_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, text) = outcome(dir.path(), &["--no-such-flag"]).await;
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = outcome(dir.path(), &["--service-cluster-ip-range=nonsense"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--service-cluster-ip-range"), "{text}");

    let (_child, _) = start(dir.path()).await;
    let (code, text) = outcome(dir.path(), &[]).await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("is locked by"), "{text}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let other = tempfile::tempdir().expect("a directory");
    let (code, text) = outcome(other.path(), &["--secure-port", &port]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("--secure-port"), "{text}");

    let file = other.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let (code, text) = outcome(&file, &[]).await;
    assert_eq!(code, Some(3), "{text}");
}

#[tokio::test]
async fn files_that_do_not_hold_are_named_with_their_flag() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("garbage");
    std::fs::write(&file, "garbage").expect("a file");
    let garbage = file.to_str().expect("a path");
    for flags in [
        &["--client-ca-file", garbage][..],
        &["--requestheader-client-ca-file", garbage],
        &["--tls-cert-file", garbage, "--tls-private-key-file", garbage],
        &[
            "--proxy-client-cert-file",
            garbage,
            "--proxy-client-key-file",
            garbage,
        ],
        &["--service-account-key-file", garbage],
        &["--service-account-signing-key-file", garbage],
        &["--client-ca-file", "/nowhere"],
    ] {
        let (code, text) = outcome(dir.path(), flags).await;
        assert_eq!(code, Some(2), "{flags:?}: {text}");
        assert!(text.contains(flags[0]), "{flags:?}: {text}");
    }
}

/// Files about users, permissions, records and admission: what is wrong with them is said at the start, and nothing is served.
#[tokio::test]
async fn files_about_access_that_do_not_hold_are_named() {
    const GARBAGE: &str = "garbage";
    const EMPTY: &str = "empty";
    const MISSING: &str = "missing";
    let dir = tempfile::tempdir().expect("a directory");
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}";
    for (name, content) in [(GARBAGE, "garbage\n"), (EMPTY, ""), ("policy", policy)] {
        std::fs::write(dir.path().join(name), content).expect("a file");
    }
    let file = |name: &str| dir.path().join(name).to_str().expect("a path").to_string();
    let policy = format!("--audit-policy-file={}", file("policy"));
    let all = &[GARBAGE, EMPTY, MISSING][..];
    // As upstream, an empty list of tokens or of policies is one that holds none.
    let lists = &[GARBAGE, MISSING][..];
    for (flag, more, wrong) in [
        ("--token-auth-file", &[][..], lists),
        ("--authentication-token-webhook-config-file", &[], all),
        ("--authentication-config", &[], all),
        ("--authorization-config", &[], all),
        (
            "--authorization-policy-file",
            &["--authorization-mode=ABAC"],
            lists,
        ),
        (
            "--authorization-webhook-config-file",
            &["--authorization-mode=Webhook"],
            all,
        ),
        ("--audit-policy-file", &["--audit-log-path=-"], all),
        ("--audit-webhook-config-file", &[policy.as_str()], all),
        ("--admission-control-config-file", &[], all),
        (
            "--oidc-ca-file",
            &[
                "--oidc-issuer-url=https://issuer.example.com",
                "--oidc-client-id=me",
            ],
            lists,
        ),
    ] {
        for name in wrong {
            let own = format!("{flag}={}", file(name));
            let flags: Vec<&str> = more.iter().copied().chain([own.as_str()]).collect();
            let (code, text) = outcome(dir.path(), &flags).await;
            assert_eq!(code, Some(2), "{flags:?}: {text}");
            // The flag, or upstream's words for what it is about.
            let named = [
                flag,
                "audit policy file",
                "audit webhook",
                "jwt[0].issuer.certificateAuthority",
            ];
            assert!(named.iter().any(|name| text.contains(name)), "{flags:?}: {text}");
            let says_which = *name != MISSING || text.contains(&file(MISSING));
            assert!(says_which, "{flags:?}: {text}");
        }
    }
}

/// Sends a signal that asks the process to end.
#[cfg(unix)]
async fn terminate(child: &Child) {
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status().await;
    assert!(sent.expect("kill runs").success());
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = command(dir.path(), &["--shutdown-delay-duration=1h"])
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next_line().await.expect("a line").expect("a greeting");
    let kubeconfig = std::fs::read(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
    let client = Client::from_kubeconfig(&kubeconfig);
    terminate(&child).await;
    eventually("it stops being ready", || async {
        (client.get("/readyz").await.status == 500).then_some(())
    })
    .await;
    assert!(matches!(child.try_wait(), Ok(None)), "it serves on for an hour");
    terminate(&child).await;
    let ended = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .expect("it ends");
    assert_eq!(ended.expect("a status").code(), Some(1));
}

#[tokio::test]
async fn kubectl_does_its_day() {
    let Some(program) = tool("kubectl") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, _) = start(dir.path()).await;
    let kubeconfig = dir.path().join("admin.kubeconfig");
    let run = |arguments: &'static str, input: &'static str| {
        let (program, kubeconfig) = (program.clone(), kubeconfig.clone());
        async move {
            let words: Vec<&str> = arguments.split_whitespace().collect();
            let (ok, text) = kubectl(&program, &kubeconfig, &words, input).await;
            assert!(ok, "kubectl {arguments}: {text}");
            text
        }
    };
    run("create namespace shop", "").await;
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: nginx}]}\n";
    run("apply -f -", deployment).await;
    assert!(run("apply -f -", deployment).await.contains("unchanged"));
    run("apply --server-side --force-conflicts -f -", deployment).await;
    run("label deployment web -n shop tier=front", "").await;
    run("patch deployment web -n shop -p {\"spec\":{\"paused\":true}}", "").await;
    run("scale deployment web -n shop --replicas=3", "").await;
    let wide = run("get deployment web -n shop -o wide", "").await;
    assert!(wide.contains("0/3") && wide.contains("nginx"), "{wide}");
    let yaml = run("get deployment web -n shop -o yaml", "").await;
    assert!(
        yaml.contains("tier: front") && yaml.contains("paused: true"),
        "{yaml}"
    );
    assert!(run("api-resources", "").await.contains("deployments"));
    assert!(
        run("explain deployment.spec.replicas", "")
            .await
            .contains("replicas")
    );
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {kind: Widget, plural: widgets, shortNames: [wd]}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, maximum: 10}}}}}}\n";
    run("apply -f -", crd).await;
    run(
        "apply -f -",
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one, namespace: shop}\nspec: {size: 3}\n",
    )
    .await;
    assert!(run("get wd -n shop", "").await.contains("one"));
    let words = [
        "patch",
        "wd",
        "one",
        "-n",
        "shop",
        "--type=merge",
        "-p",
        "{\"spec\":{\"size\":11}}",
    ];
    let (ok, text) = kubectl(&program, &kubeconfig, &words, "").await;
    assert!(
        !ok && text.contains("should be less than or equal to 10"),
        "{text}"
    );
    run("delete namespace shop --timeout=20s", "").await;
}
