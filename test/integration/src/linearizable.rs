//! Clients that race for a few ConfigMaps over HTTP: what they see is linearizable, with one server on its own disk and with two on one
//! etcd, one of which is cut off from it now and then.
//!
//! `STORAGE_LINEAR_OPERATIONS` sets how often each client reads or writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use control_plane::ControlPlane;
use serde_json::{Value, json};
use test_support::linearizable::{Found, History, Outcome, Registers};
use test_support::{Answer, Client, Etcd, Proxy, eventually};

use crate::etcd::{replica, replica_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLIENTS: u64 = 6;
/// Operations of one client in one history: the check looks at each history as a whole.
const OPERATIONS: u64 = 40;
/// How long one request may take: less than a wire is cut for.
const LIMIT: &str = "timeout=1s";

/// A server whose ConfigMaps hold numbers, as one client sees it.
#[derive(Debug, Clone)]
struct Maps(Client);

impl Maps {
    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Option<Answer> {
        let body = body.map_or(Bytes::new(), |body| body.to_string().into());
        let path = format!("{path}?{LIMIT}");
        let answer = self.0.try_raw(method, &path, "application/json", body).await;
        answer.ok().filter(|answer| !uncertain(answer.status))
    }
}

/// Whether an answer says nothing of what has happened.
fn uncertain(status: u16) -> bool {
    status >= 500
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.expect("a version").parse().expect("a number")
}

fn number(object: &Value) -> (u64, u64) {
    let value = object["data"]["value"].as_str().expect("a value");
    (value.parse().expect("a number"), revision(object))
}

impl Registers for Maps {
    async fn read(&self, key: &str) -> Option<Found> {
        let answer = self.send("GET", &format!("{MAPS}/{key}"), None).await?;
        match answer.status {
            200 => Some(Some(number(&answer.json))),
            404 => Some(None),
            429 => None,
            other => panic!("{other}: {}", answer.json),
        }
    }

    async fn read_all(&self, under: &str) -> Option<BTreeMap<String, (u64, u64)>> {
        let answer = self.send("GET", MAPS, None).await?;
        if answer.status == 429 {
            return None;
        }
        let list = answer.expect(200);
        let items = list["items"].as_array().expect("items").iter();
        let name = |item: &Value| item["metadata"]["name"].as_str().expect("a name").to_owned();
        let all = items.filter(|item| name(item).starts_with(under));
        Some(all.map(|item| (name(item), number(item))).collect())
    }

    async fn write(&self, key: &str, from: Found, to: Option<u64>) -> Option<Outcome> {
        let one = format!("{MAPS}/{key}");
        let version = from.map(|(_, revision)| revision.to_string());
        let map = |to: u64| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": key, "resourceVersion": version}, "data": {"value": to.to_string()},
            })
        };
        let answer = match (from, to) {
            (None, to) => self.send("POST", MAPS, to.map(map)).await,
            (Some(_), Some(to)) => self.send("PUT", &one, Some(map(to))).await,
            (Some(_), None) => {
                let options = json!({"preconditions": {"resourceVersion": version}});
                self.send("DELETE", &one, Some(options)).await
            }
        };
        let Some(answer) = answer else {
            return Some(Outcome::Unknown);
        };
        match answer.status {
            // The answer to a deletion names no revision.
            200 | 201 => Some(Outcome::Done(to.map(|_| revision(&answer.json)))),
            404 if from.is_some() => Some(Outcome::Refused),
            409 => Some(Outcome::Refused),
            429 => None,
            other => panic!("{other}: {}", answer.json),
        }
    }
}

/// How many histories there are to be.
fn rounds() -> u64 {
    let operations = std::env::var("STORAGE_LINEAR_OPERATIONS").ok();
    let operations: u64 = operations.map_or(OPERATIONS, |text| text.parse().expect("a number"));
    operations.div_ceil(OPERATIONS)
}

/// The clients of one history, turn by turn on each of the servers.
async fn race(history: &History, servers: &[Maps], round: u64) {
    let under = format!("round-{round}-");
    let clients = (0..CLIENTS).map(|n| {
        let server = servers[usize::try_from(n).expect("few") % servers.len()].clone();
        let under = under.clone();
        async move {
            history
                .run(&server, &under, round * CLIENTS + n + 1, OPERATIONS)
                .await
        }
    });
    futures_util::future::join_all(clients).await;
}

/// The last look on each of the servers, and the check.
async fn check(history: &History, servers: &[Maps], round: u64) {
    for server in servers {
        let under = format!("round-{round}-");
        history.read_at_last(server, &under).await;
    }
    let (all, unknown) = history.check();
    println!("{all} operations are linearizable, {unknown} of unknown outcome");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_server_on_its_own_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let builder = ControlPlane::builder().on_free_port().data_dir(dir.path());
    let plane = builder.start().await.expect("it starts");
    let server = [Maps(Client::from_kubeconfig(plane.kubeconfig().as_bytes()))];
    for round in 0..rounds() {
        let history = History::default();
        race(&history, &server, round).await;
        check(&history, &server, round).await;
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_two_replicas_one_of_which_is_cut_off() {
    let Some(etcd) = Etcd::start().await else { return };
    let wire = Proxy::to(etcd.port()).await;
    let (near, on_near, _first) = replica(&etcd).await;
    let (far, on_far, _second) = replica_with(&etcd, |options| {
        options.etcd_servers = vec![format!("http://127.0.0.1:{}", wire.port())];
    })
    .await;
    let servers = [Maps(on_near), Maps(on_far)];
    for round in 0..rounds() {
        let history = History::default();
        let harm = async {
            for n in 0..2 {
                let map = |side: &str| json!({"metadata": {"name": format!("{side}-{round}-{n}")}});
                // The clients go on meanwhile.
                for server in servers.iter().cycle().take(10) {
                    server.read("elsewhere").await;
                }
                wire.cut();
                let path = format!("{MAPS}?{LIMIT}");
                let refused = servers[1].0.post(&path, &map("far")).await;
                assert_eq!(refused.status, 504, "{}", refused.json);
                servers[0].0.post(&path, &map("near")).await.expect(201);
                wire.heal();
                eventually("that the other replica writes again", || async {
                    let answer = servers[1].0.post(&path, &map("back")).await;
                    matches!(answer.status, 201 | 409).then_some(())
                })
                .await;
            }
        };
        tokio::join!(race(&history, &servers, round), harm);
        check(&history, &servers, round).await;
    }
    far.stop().await;
    near.stop().await;
}
