//! Replicas on one etcd that were given different certificates: they do not overwrite each other's `kube-root-ca.crt` without end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use generic_server::pki::{Authority, kubeconfig};
use serde_json::json;
use test_support::{Client, Etcd, PATIENCE, eventually};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::command_on;

const ROOT_CAS: &str = "/api/v1/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt";
const YIELDS: &str = "another server keeps writing something else";

struct Replica {
    _process: Child,
    client: Client,
    log: PathBuf,
    /// The authority of its certificates.
    ca: String,
}

impl Replica {
    async fn start(etcd: &Etcd, dir: &Path, name: &str) -> Replica {
        let dir = dir.join(name);
        std::fs::create_dir(&dir).expect("a directory");
        let authority = Authority::generate(name).expect("an authority");
        let serving = authority.server("kube-apiserver", &["127.0.0.1".into()]);
        let serving = serving.expect("a certificate");
        let file = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let certificate = file("tls.crt", &serving.certificate);
        let key = file("tls.key", &serving.key);
        let ca = file("ca.crt", &authority.certificate);
        let log = dir.join("server.log");
        let etcd = etcd.url();
        let flags = [
            ("--etcd-servers", &etcd),
            ("--tls-cert-file", &certificate),
            ("--tls-private-key-file", &key),
            ("--client-ca-file", &ca),
        ];
        let flags: Vec<&str> = flags
            .iter()
            .flat_map(|(flag, value)| [*flag, value.as_str()])
            .collect();
        let mut process = command_on(&dir, 0, &flags)
            .stderr(std::fs::File::create(&log).expect("a log file"))
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let greeting = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let greeting = greeting
            .expect("a greeting in time")
            .expect("a line")
            .expect("a line");
        let url = greeting
            .split_whitespace()
            .find(|word| word.starts_with("https://"));
        let url = url.expect("its URL").trim_end_matches(['.', ',']);
        let admin = authority
            .client("admin", "system:masters")
            .expect("a certificate");
        let config = kubeconfig(url, &authority.certificate, &admin);
        Replica {
            _process: process,
            client: Client::from_kubeconfig(config.as_bytes()),
            log,
            ca: authority.certificate,
        }
    }

    fn yielded(&self) -> bool {
        let log = std::fs::read_to_string(&self.log).expect("a log");
        log.contains(YIELDS)
    }

    /// By namespace, the content of each `kube-root-ca.crt` and its version.
    async fn root_cas(&self) -> BTreeMap<String, (String, String)> {
        let list = self.client.get(ROOT_CAS).await.expect(200);
        let items = list["items"].as_array().expect("items").iter();
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        items
            .map(|item| {
                let meta = &item["metadata"];
                let content = (text(&item["data"]["ca.crt"]), text(&meta["resourceVersion"]));
                (text(&meta["namespace"]), content)
            })
            .collect()
    }

    /// Waits until a number of namespaces have this replica's authority, and no other.
    async fn prevails(&self, namespaces: usize) -> BTreeMap<String, (String, String)> {
        eventually("that one authority is everywhere", || async {
            let all = self.root_cas().await;
            let same = all.values().all(|(ca, _)| *ca == self.ca);
            (same && all.len() == namespaces).then_some(all)
        })
        .await
    }
}

async fn make_namespace(client: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "more-"}});
    client.post("/api/v1/namespaces", &namespace).await.expect(201);
}

#[tokio::test]
async fn replicas_with_different_given_certificates_do_not_fight() {
    let Some(etcd) = Etcd::start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let one = Replica::start(&etcd, dir.path(), "one").await;
    let namespaces = one.client.get("/api/v1/namespaces").await.expect(200);
    let namespaces = namespaces["items"].as_array().expect("items").len();
    one.prevails(namespaces).await;

    let other = Replica::start(&etcd, dir.path(), "other").await;
    let (stays, yields) = eventually("that one of the two yields", || async {
        match (one.yielded(), other.yielded()) {
            (false, false) => None,
            (false, true) => Some((&one, &other)),
            (true, false) => Some((&other, &one)),
            (true, true) => panic!("both yield"),
        }
    })
    .await;
    let settled = stays.prevails(namespaces).await;
    // Nothing is written that was written, whatever else happens.
    for replica in [stays, yields] {
        make_namespace(&replica.client).await;
    }
    let mut later = stays.prevails(namespaces + 2).await;
    later.retain(|namespace, _| settled.contains_key(namespace));
    assert_eq!(later, settled);
    assert!(yields.yielded() && !stays.yielded());
}
