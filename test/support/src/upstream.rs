//! A real kube-apiserver beside ours: the program that `UPSTREAM_KUBE_APISERVER` names, on an etcd and with the keys of one of our
//! data directories, so that both are replicas of one cluster.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use test_tools::{free_port, listening, named_tool};

use crate::{Client, eventually};

/// A running kube-apiserver. Ends when dropped.
#[derive(Debug)]
pub struct Upstream {
    process: Child,
    client: Client,
}

impl Upstream {
    /// The program; prints which tests are skipped when there is none.
    pub fn program() -> Option<PathBuf> {
        named_tool("UPSTREAM_KUBE_APISERVER")
    }

    /// Starts it on an etcd, with the `pki/` and the administrator of a data directory, and waits until it is ready. Its log is
    /// `upstream.log` there.
    pub async fn start(program: &Path, dir: &Path, etcd: &str, more: &[&str]) -> Upstream {
        let port = free_port();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("upstream.log"));
        let mut command = Command::new(program);
        let files = [
            ("--client-ca-file", "ca.crt"),
            ("--tls-cert-file", "apiserver.crt"),
            ("--tls-private-key-file", "apiserver.key"),
            ("--service-account-key-file", "sa.pub"),
            ("--service-account-signing-key-file", "sa.key"),
            ("--requestheader-client-ca-file", "front-proxy-ca.crt"),
            ("--proxy-client-cert-file", "front-proxy-client.crt"),
            ("--proxy-client-key-file", "front-proxy-client.key"),
        ];
        for (flag, file) in files {
            command.arg(flag).arg(dir.join("pki").join(file));
        }
        command
            .arg(format!("--etcd-servers={etcd}"))
            .arg(format!("--secure-port={port}"))
            .args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC"])
            .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg("--requestheader-allowed-names=front-proxy-client")
            .arg("--requestheader-username-headers=X-Remote-User")
            .arg("--requestheader-group-headers=X-Remote-Group")
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .args(more)
            .stdout(Stdio::null())
            .stderr(log.expect("a log file"));
        let process = command.spawn().expect("kube-apiserver runs");
        let config = std::fs::read_to_string(dir.join("admin.kubeconfig")).expect("a kubeconfig");
        let config: Vec<String> = config
            .lines()
            .map(|line| match line.split_once("server: ") {
                Some((indent, _)) => format!("{indent}server: https://127.0.0.1:{port}"),
                None => line.to_string(),
            })
            .collect();
        let config = config.join("\n");
        let upstream = Upstream {
            process,
            client: Client::from_kubeconfig(config.as_bytes()),
        };
        listening(port).await;
        eventually("kube-apiserver is ready", async || {
            (upstream.client.get("/readyz").await.status == 200).then_some(())
        })
        .await;
        upstream
    }

    /// A client of its administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
