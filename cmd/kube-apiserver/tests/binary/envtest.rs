//! The programs of `envtest-assets` as controller-runtime's envtest starts them: an etcd and an API server, in processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use test_support::{Client, Etcd, PATIENCE, named_tool};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{MAPS, admin, map};

/// Runs `kube-apiserver envtest-assets`.
async fn assets(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-apiserver"));
    command.arg("envtest-assets").args(arguments);
    command.output().await.expect("the binary runs")
}

/// The programs in a directory whose path has a space.
async fn written(parent: &TempDir) -> PathBuf {
    let directory = parent.path().join("the assets");
    let output = assets(&[&directory]).await;
    assert!(output.status.success(), "{output:?}");
    // Nothing but the path: a shell takes it.
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim_end(),
        directory.to_string_lossy()
    );
    directory
}

/// A stand-in for etcd, with its URL.
struct Store {
    process: Child,
    url: String,
}

async fn etcd(programs: &Path, data: &Path) -> Store {
    let mut process = Command::new(programs.join("etcd"))
        .arg("--advertise-client-urls=http://127.0.0.1:0")
        .arg("--listen-client-urls=http://127.0.0.1:0")
        .arg("--listen-peer-urls=http://127.0.0.1:0")
        .arg("--unsafe-no-fsync=true")
        .arg(format!("--data-dir={}", data.display()))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("in time");
    let line = line.expect("a line").unwrap_or_default();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url
        .unwrap_or_else(|| panic!("{line}"))
        .trim_end_matches(';')
        .to_string();
    Store { process, url }
}

fn server(programs: &Path, etcd: &str) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    command
        .arg(format!("--etcd-servers={etcd}"))
        .args([
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--allow-privileged=true",
        ])
        .args([
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
        ])
        .arg("--disable-admission-plugins=ServiceAccount")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts an API server on a stand-in and waits until it is ready.
async fn serve(programs: &Path, etcd: &Store, data: &Path) -> (Child, Client) {
    let child = server(programs, &etcd.url).spawn().expect("it runs");
    ready(child, &data.join("kube-apiserver")).await
}

/// Waits until an API server is ready; `data` is its own directory.
async fn ready(mut child: Child, data: &Path) -> (Child, Client) {
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let greeting = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("in time");
    let greeting = greeting.expect("a line").unwrap_or_default();
    assert!(greeting.contains("is ready"), "{greeting:?}");
    (child, admin(data))
}

async fn ended(mut process: Child) -> Option<i32> {
    let status = tokio::time::timeout(PATIENCE, process.wait())
        .await
        .expect("it ends");
    status.expect("a status").code()
}

async fn terminate(process: &Child) {
    let id = process.id().expect("it runs").to_string();
    Command::new("kill").arg(id).status().await.expect("kill runs");
}

#[tokio::test]
async fn objects_survive_the_api_server_and_end_with_the_directory_of_etcd() {
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let data = parent.path().join("etcd's data");
    let store = etcd(&programs, &data).await;
    let (mut first, client) = serve(&programs, &store, &data).await;
    client.post(MAPS, &map("kept")).await.expect(201);
    // As with an API server alone: no controller makes a service account, and pods need none.
    let accounts = client
        .get("/api/v1/namespaces/default/serviceaccounts")
        .await
        .expect(200);
    assert_eq!(accounts["items"], json!([]));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect(201);

    let second = server(&programs, &store.url).output().await.expect("it ends");
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(3), "{text}");
    assert!(text.contains("has an API server already (process "), "{text}");

    // Killed or asked to end, the next one has its objects.
    first.kill().await.expect("killed");
    let (second, client) = serve(&programs, &store, &data).await;
    client.get(&format!("{MAPS}/kept")).await.expect(200);
    terminate(&second).await;
    assert_eq!(ended(second).await, Some(0));
    let (third, client) = serve(&programs, &store, &data).await;
    client.get(&format!("{MAPS}/kept")).await.expect(200);

    // It ends with its etcd, although nobody stops it.
    terminate(&store.process).await;
    assert_eq!(ended(store.process).await, Some(0));
    assert_eq!(ended(third).await, Some(0));
}

#[tokio::test]
async fn two_environments_do_not_meet() {
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let (a, b) = (parent.path().join("a"), parent.path().join("b"));
    let (one, other) = (etcd(&programs, &a).await, etcd(&programs, &b).await);
    let (first, second) = tokio::join!(serve(&programs, &one, &a), serve(&programs, &other, &b));
    first.1.post(MAPS, &map("first")).await.expect(201);
    second.1.get(&format!("{MAPS}/first")).await.expect(404);
}

#[tokio::test]
async fn servers_on_a_real_etcd_keep_their_keys_with_their_certificates() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let start = async |name: &str| {
        let certificates = parent.path().join(name);
        std::fs::create_dir(&certificates).expect("made");
        let mut command = server(&programs, &etcd.url());
        command.arg(format!("--cert-dir={}", certificates.display()));
        // None of them has the default directory to itself.
        let child = command.env("XDG_DATA_HOME", parent.path()).spawn();
        ready(child.expect("it runs"), &certificates.join("kube-apiserver")).await
    };
    let (first, second) = tokio::join!(start("a"), start("b"));
    first.1.post(MAPS, &map("shared")).await.expect(201);
    second.1.get(&format!("{MAPS}/shared")).await.expect(200);
    assert!(!parent.path().join("kube-apiserver").exists());
}

#[tokio::test]
async fn a_stand_in_ends_with_the_process_that_started_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let mut shell = Command::new("sh")
        .args(["-c", "\"$0\" \"$@\" & wait"])
        .arg(programs.join("etcd"))
        .arg("--listen-client-urls=http://127.0.0.1:0")
        .arg(format!("--data-dir={}", parent.path().join("data").display()))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(shell.stderr.take().expect("a pipe")).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("in time");
    assert!(
        line.expect("a line")
            .is_some_and(|line| line.contains("a stand-in for etcd"))
    );
    shell.kill().await.expect("killed");
    // The last process that has the pipe.
    let end = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .expect("it ends");
    assert_eq!(end.expect("a pipe"), None);
}

#[tokio::test]
async fn clients_of_etcd_read_that_it_is_none() {
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let store = etcd(&programs, &parent.path().join("data")).await;
    let options = storage::EtcdOptions {
        endpoints: vec![store.url.clone()],
        ..storage::EtcdOptions::default()
    };
    let client = storage::open_etcd(&options).expect("it dials later");
    let refused = client.get("/registry/x", None).await.expect_err("no etcd");
    let mut text = refused.to_string();
    let mut source = std::error::Error::source(&refused);
    while let Some(cause) = source {
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    assert!(
        text.contains("this is no etcd, but a stand-in for tests"),
        "{text}"
    );
}

#[tokio::test]
async fn directories_that_cannot_be_written_to_are_named() {
    let parent = tempfile::tempdir().expect("a directory");
    let file = parent.path().join("file");
    std::fs::write(&file, "").expect("written");
    let refused = assets(&[&file]).await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(
        (refused.status.code(), refused.stdout.is_empty()),
        (Some(1), true),
        "{text}"
    );
    assert!(text.contains("file is a file: name a directory"), "{text}");
}

/// The suites of controller-runtime that start an environment and take seconds: `CONTROLLER_RUNTIME_MODULE` names the `go.mod`
/// of its module, which can be written to, and `GO` the program that compiles it.
#[tokio::test]
async fn suites_of_controller_runtime() {
    let (Some(go), Some(module)) = (named_tool("GO"), named_tool("CONTROLLER_RUNTIME_MODULE")) else {
        return;
    };
    let parent = tempfile::tempdir().expect("a directory");
    let programs = written(&parent).await;
    let suites = ["envtest", "client", "builder", "cluster", "controller", "webhook"];
    let tested = Command::new(go)
        .args(["test", "-count=1", "-p=1"])
        .args(suites.map(|suite| format!("./pkg/{suite}")))
        .current_dir(module.parent().expect("the directory of go.mod"))
        .env("KUBEBUILDER_ASSETS", programs)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(1200), tested)
        .await
        .expect("in time");
    let output = output.expect("go runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
}
