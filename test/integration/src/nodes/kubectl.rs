//! Real `kubectl` against the stand-in.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::rig::{Rig, pod};

/// Both ways in which `kubectl` opens streams, by its environment.
const OVER: [(&str, &str); 2] = [("true", "WebSocket"), ("false", "SPDY")];

struct Kubectl {
    program: PathBuf,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Kubectl {
    fn new(rig: &Rig) -> Option<Self> {
        let program = test_support::tool("kubectl")?;
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, rig.plane.kubeconfig()).expect("written");
        Some(Kubectl {
            program,
            file,
            _directory: directory,
        })
    }

    fn command(&self, websockets: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .arg("--kubeconfig")
            .arg(&self.file)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The exit code and both outputs.
    async fn run(&self, websockets: &str, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut child = self.command(websockets, arguments).spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let (input, output) = (input.to_string(), child.wait_with_output());
        let writing = tokio::spawn(async move {
            // A command may end before it has read all.
            let _ = stdin.write_all(input.as_bytes()).await;
        });
        let output = tokio::time::timeout(test_support::PATIENCE, output).await;
        let output = output.expect("kubectl ends in time").expect("kubectl ends");
        writing.await.expect("a task");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

#[tokio::test]
async fn kubectl_runs_commands_and_reads_logs() {
    let rig = Rig::start().await;
    let Some(kubectl) = Kubectl::new(&rig) else {
        return rig.plane.stop().await;
    };
    for (websockets, over) in OVER {
        let run = async |arguments: &[&str], input: &str| kubectl.run(websockets, arguments, input).await;
        let input = "a line of input\n".repeat(20_000);
        let (code, out, err) = run(&["exec", "-i", "p", "--", "cat"], &input).await;
        assert_eq!((code, out.len()), (0, input.len()), "{over}: {err}");
        let (code, out, err) = run(&["exec", "p", "--", "both"], "").await;
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (0, "out\n", "err\n"),
            "{over}"
        );
        let (code, _, err) = run(&["exec", "p", "--", "exit", "7"], "").await;
        assert_eq!(code, 7, "{over}: {err}");
        let (code, _, err) = run(&["exec", "p", "--", "absent"], "").await;
        assert_eq!(code, 1, "{over}");
        assert!(err.contains("container not found (\"c\")"), "{over}: {err}");
        let copied = kubectl.file.with_extension("copied");
        let copied = copied.to_str().expect("text");
        let (code, _, err) = run(&["cp", "p:/etc/file", copied], "").await;
        assert_eq!(code, 0, "{over}: {err}");
        assert_eq!(
            std::fs::read_to_string(copied).expect("a file"),
            test_support::FILE,
            "{over}"
        );
        let (code, _, err) = run(&["cp", copied, "p:/etc/other"], "").await;
        assert_eq!(code, 0, "{over}: {err}");
        let (code, out, err) = run(&["attach", "-i", "p"], "hello").await;
        assert_eq!((code, out.as_str()), (0, "hello"), "{over}: {err}");
    }
    let (code, out, err) = kubectl.run("true", &["logs", "p", "--tail=3"], "").await;
    assert_eq!(
        (code, out.as_str()),
        (0, "/containerLogs/default/p/c?tailLines=3\n"),
        "{err}"
    );
    rig.add(&pod("q", "n1", &["refuses"])).await;
    let (code, _, err) = kubectl.run("true", &["logs", "q", "--previous"], "").await;
    assert_eq!(code, 1);
    assert!(err.contains("previous terminated container \"refuses\""), "{err}");
    rig.is_free().await;
    rig.plane.stop().await;
}

/// The port that `kubectl port-forward` says that it listens on.
async fn listening(out: &mut (impl AsyncReadExt + Unpin)) -> u16 {
    let mut said = Vec::new();
    let reading = async {
        while !said.contains(&b'\n') {
            assert!(out.read_buf(&mut said).await.expect("output") > 0, "kubectl ends");
        }
    };
    tokio::time::timeout(test_support::PATIENCE, reading)
        .await
        .expect("a port in time");
    let text = String::from_utf8_lossy(&said);
    let port = text
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    port.and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test]
async fn kubectl_forwards_ports() {
    let rig = Rig::start().await;
    let Some(kubectl) = Kubectl::new(&rig) else {
        return rig.plane.stop().await;
    };
    rig.client
        .patch(
            "/api/v1/namespaces/default/pods/p/status",
            "merge-patch+json",
            &serde_json::json!({"status": {"phase": "Running"}}),
        )
        .await
        .expect(200);
    for (websockets, over) in OVER {
        let arguments = ["port-forward", "--address", "127.0.0.1", "pod/p", ":80"];
        let mut child = kubectl
            .command(websockets, &arguments)
            .spawn()
            .expect("kubectl runs");
        // It writes a line for each connection, and dies where nobody could read it.
        let mut out = child.stdout.take().expect("a pipe");
        let port = listening(&mut out).await;
        for _ in 0..3 {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            let (mut from, mut to) = connected.expect("a connection").into_split();
            let sent = vec![b'x'; 1_000_000];
            let sending = async {
                to.write_all(&sent).await.expect("sent");
                to.shutdown().await.expect("sent");
            };
            let mut got = Vec::new();
            let both = async { tokio::join!(sending, from.read_to_end(&mut got)) };
            let ((), read) = tokio::time::timeout(test_support::PATIENCE, both)
                .await
                .expect("an end in time");
            assert_eq!(read.expect("an answer"), sent.len(), "{over}");
        }
        child.kill().await.expect("killed");
        rig.is_free().await;
    }
    rig.plane.stop().await;
}
