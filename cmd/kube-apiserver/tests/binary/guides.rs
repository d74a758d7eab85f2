//! Every command of `docs/guides` is run, as it stands there, in order: the blocks that are marked `sh`, in one shell for each guide.
//!
//! `sh needs PROGRAM` is run where the program is found; `sh skip: WHY` cannot be run here, and there are few of them. Ports and the
//! directory are the test's own: 6443, 6444, 2379 and 2380 stand for free ones.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use test_support::tool;
use tokio::process::Command;

/// How long a guide may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How many blocks of a guide may be for the reader alone.
const MOST_SKIPPED: usize = 2;
/// The ports of the guides.
const PORTS: [&str; 4] = ["6443", "6444", "2379", "2380"];
/// What is started in a guide ends with its shell.
const PREAMBLE: &str = "set -eu\ntrap 'status=$?; trap - EXIT; for job in $(jobs -p); do kill -9 \"$job\" 2>/dev/null || true; done; exit $status' EXIT\n";

fn guides() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides")
}

/// The shell blocks of a guide: what stands behind `sh`, and the commands.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.to_string(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, body)), None) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks.retain(|(info, _)| info.split(' ').next() == Some("sh"));
    blocks
        .into_iter()
        .map(|(info, body)| (info.trim_start_matches("sh").trim().to_string(), body))
        .collect()
}

/// In bash a command that is to fail does not end the shell when it succeeds: it is asked for.
fn strict(line: &str) -> String {
    match line.strip_prefix("! ") {
        Some(command) => format!(
            "if {command}; then echo 'it was to fail: {}' >&2; exit 1; fi",
            command.replace('\'', "")
        ),
        None => line.to_string(),
    }
}

/// Runs a guide in a directory of its own.
async fn follow(name: &str) {
    let text = std::fs::read_to_string(guides().join(format!("{name}.md"))).expect("a guide");
    let mut script = String::from(PREAMBLE);
    let mut skipped = 0;
    for (what, body) in blocks(&text) {
        if what.starts_with("skip: ") {
            skipped += 1;
            continue;
        }
        if let Some(program) = what.strip_prefix("needs ")
            && tool(program).is_none()
        {
            return;
        }
        let body: Vec<String> = body.lines().map(strict).collect();
        script.push_str(&body.join("\n"));
        script.push('\n');
    }
    assert!(skipped <= MOST_SKIPPED, "{name}: {skipped} blocks are not run");
    if script.contains("kubectl") && tool("kubectl").is_none() {
        return;
    }
    // Held at once, so that they differ.
    let free: Vec<std::net::TcpListener> = PORTS
        .iter()
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    for (port, listener) in PORTS.iter().zip(&free) {
        let own = listener.local_addr().expect("an address").port();
        script = script.replace(port, &own.to_string());
    }
    drop(free);
    let dir = tempfile::tempdir().expect("a directory");
    let binary = Path::new(env!("CARGO_BIN_EXE_kube-apiserver"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(binary.parent().expect("a directory").to_path_buf())
        .chain(std::env::split_paths(&path));
    let run = Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir.path())
        .env("PATH", std::env::join_paths(path).expect("a path"))
        .env("HOME", dir.path())
        .env_remove("KUBECONFIG")
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, run).await.expect("it ends in time");
    let output = output.expect("bash runs");
    let logs: String = std::fs::read_dir(dir.path())
        .expect("a directory")
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .collect();
    assert!(
        output.status.success(),
        "{name}: {}\n{script}\n---\n{}\n{}\n{logs}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn guide_backup() {
    follow("backup").await;
}

#[tokio::test]
async fn guide_crd() {
    follow("crd").await;
}

#[tokio::test]
async fn guide_extension_server() {
    follow("extension-server").await;
}

#[tokio::test]
async fn guide_kubeadm() {
    follow("kubeadm").await;
}

#[tokio::test]
async fn guide_operator_tests() {
    follow("operator-tests").await;
}

#[tokio::test]
async fn guide_replicas() {
    follow("replicas").await;
}

#[tokio::test]
async fn guide_single_node() {
    follow("single-node").await;
}

#[tokio::test]
async fn guide_tenants() {
    follow("tenants").await;
}

#[tokio::test]
async fn guide_upgrade() {
    follow("upgrade").await;
}

#[test]
fn every_guide_is_followed() {
    for entry in std::fs::read_dir(guides()).expect("guides").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path()).expect("text");
        let call = format!("follow(\"{}\")", file.trim_end_matches(".md"));
        let followed = include_str!("guides.rs").contains(&call);
        assert!(followed || blocks(&text).is_empty(), "{file}: give it a test");
    }
}

#[test]
fn blocks_are_those_of_the_shell() {
    let text = "a\n```sh\nb\n```\n```rust\nc\n```\n```sh skip: no\nd\n```\n```sh needs etcd\ne\nf\n```\n";
    let expected = [("", "b\n"), ("skip: no", "d\n"), ("needs etcd", "e\nf\n")];
    let expected = expected.map(|(what, body)| (what.to_string(), body.to_string()));
    assert_eq!(blocks(text), expected);
}
