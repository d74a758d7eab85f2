//! kubectl.

use std::path::Path;

use tokio::process::Command;

/// Runs kubectl with a kubeconfig and a cache of its own; gives whether it succeeded, and what it printed on both streams.
pub async fn kubectl(program: &Path, kubeconfig: &Path, arguments: &[&str], input: &str) -> (bool, String) {
    use tokio::io::AsyncWriteExt;
    let cache = kubeconfig.with_extension("cache");
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cache-dir")
        .arg(cache)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("kubectl runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).await.expect("kubectl reads");
    drop(stdin);
    let output = tokio::time::timeout(crate::PATIENCE, child.wait_with_output()).await;
    let output = output.expect("kubectl ends in time").expect("kubectl ends");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}
