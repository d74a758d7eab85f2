//! Writes of services that arrive late: after another server has taken their address or node port over, or another request of the
//! same server.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use generic_server::Authorized;
use generic_server::admission::AdmissionChain;
use generic_server::registry::StorageFactory;
use generic_server::resource::ServedResource;
use generic_server::write::{self, WriteCall};
use machinery::meta;
use machinery::time::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use storage::{
    CompactionInfo, KeyValue, Op, Outcome, RangeRequest, RangeResponse, Revision, StorageError, Store,
    StoreStatus, Txn, WatchHandle, WatchSink,
};
use tokio::sync::oneshot;

use super::ledger::{Allocation, allocations};
use super::shared::{REPAIRS_BEFORE_RELEASE, SharedPorts};
use crate::client::Client;
use crate::groups::check;
use crate::json::Json;

const SERVICES: &str = "/registry/services/specs/";
const ADDRESSES: &str = "/registry/ipaddresses/";
const CLAIMS: &str = "/registry/_servers/nodeports/";

/// A store as one of the servers on it sees it.
#[derive(Debug)]
struct Wire {
    engine: Arc<dyn Store>,
    /// Whether other servers use it; else it takes writes in their order.
    shared: bool,
    order: Arc<tokio::sync::Mutex<()>>,
    /// The receiver of the next write under a prefix, which is delayed.
    held: Mutex<Option<(&'static str, oneshot::Sender<DelayedWrite>)>>,
    /// How far behind this server's clock is, as the times of its IPAddress objects say.
    behind_seconds: i64,
}

/// A write on its way, whatever becomes of its request.
#[derive(Debug)]
struct DelayedWrite {
    go_on: oneshot::Sender<()>,
    /// Whether it was committed.
    arrived: oneshot::Receiver<bool>,
}

impl Wire {
    fn is_under(txn: &Txn, prefix: &str) -> bool {
        let put = |op: &Op| matches!(op, Op::Put { key, .. } if key.starts_with(prefix));
        txn.ops.iter().any(put)
    }

    /// The same object made that much earlier.
    fn earlier(&self, op: Op) -> Op {
        let Op::Put { key, value, ttl } = op else {
            return op;
        };
        let mut object: Value = serde_json::from_slice(&value).unwrap();
        let created = object.text("metadata.creationTimestamp");
        let created = Timestamp::parse_rfc3339(created).unwrap().unix() - self.behind_seconds;
        let created = Timestamp::from_unix(created).to_rfc3339();
        meta::set(&mut object, "creationTimestamp", created);
        let value = object.to_string().into();
        Op::Put { key, value, ttl }
    }
}

#[async_trait::async_trait]
impl Store for Wire {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        self.engine.get(key, at).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        self.engine.range(request).await
    }

    async fn commit(&self, mut txn: Txn) -> Result<Outcome, StorageError> {
        if Self::is_under(&txn, ADDRESSES) {
            txn.ops = txn.ops.into_iter().map(|op| self.earlier(op)).collect();
        }
        let held = {
            let mut held = self.held.lock();
            held.take_if(|(prefix, _)| Self::is_under(&txn, prefix))
        };
        let order = match self.shared {
            true => None,
            false => Some(self.order.clone().lock_owned().await),
        };
        let Some((_, notify)) = held else {
            return self.engine.commit(txn).await;
        };
        let (go_on, wait) = oneshot::channel();
        let (report, arrived) = oneshot::channel();
        notify.send(DelayedWrite { go_on, arrived }).unwrap();
        let engine = self.engine.clone();
        let late = async move {
            wait.await.unwrap();
            let outcome = engine.commit(txn).await;
            drop(order);
            report.send(matches!(outcome, Ok(Outcome::Committed(_)))).unwrap();
            outcome
        };
        tokio::spawn(late).await.unwrap()
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        self.engine.watch(prefix, after, sink).await
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        self.engine.fresh().await
    }

    fn published(&self) -> Option<Revision> {
        self.engine.published().filter(|_| !self.shared)
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        self.engine.compact(revision).await
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.engine.status().await
    }

    async fn shutdown(&self) {
        self.engine.shutdown().await;
    }
}

/// One of the servers.
struct Server {
    wire: Arc<Wire>,
    client: Client,
    services: Arc<ServedResource>,
    /// `None` on a store of its own.
    ports: Option<Arc<SharedPorts>>,
}

impl Server {
    fn on(engine: &Arc<dyn Store>, behind_seconds: i64) -> Server {
        Server::with(engine, behind_seconds, true)
    }

    fn with(engine: &Arc<dyn Store>, behind_seconds: i64, shared: bool) -> Server {
        let wire = Arc::new(Wire {
            engine: engine.clone(),
            shared,
            order: Arc::default(),
            held: Mutex::default(),
            behind_seconds,
        });
        let mut deps = check::deps();
        deps.storage = StorageFactory::new(wire.clone());
        // Two addresses, the first of which the tests ask for.
        deps.service_cidrs = vec!["10.0.0.0/30".parse().unwrap()];
        crate::groups::groups(&deps);
        let client = Client::new(deps.directory.clone());
        let services = client.resource(("", "services")).unwrap().resource;
        Server {
            wire,
            client,
            services,
            ports: SharedPorts::of(&deps),
        }
    }

    /// Creates a service; its address, or the message of the error.
    async fn create(&self, name: &str, ip: Option<&str>) -> Result<String, String> {
        let spec = json!({"clusterIP": ip, "ports": [{"port": 80}]});
        let stored = self.create_with(name, spec).await?;
        Ok(stored.text("spec.clusterIP").to_owned())
    }

    /// Creates a service with this node port; or the message of the error.
    async fn create_on_port(&self, name: &str, port: u16) -> Result<(), String> {
        let spec = json!({"type": "NodePort", "clusterIP": null, "ports": [{"port": 80, "nodePort": port}]});
        self.create_with(name, spec).await.map(drop)
    }

    async fn create_with(&self, name: &str, spec: Value) -> Result<Value, String> {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        self.services.strategy.default(&mut service);
        let (authorized, none) = (Authorized::system(), AdmissionChain::default());
        let call = WriteCall::internal(&self.services, &authorized, &none, "default");
        let stored = write::create(&call, service).await;
        let stored = stored.map_err(|error| error.message().to_owned())?;
        Ok(stored.value(&self.services).await.unwrap())
    }

    /// The next write of a service is delayed.
    fn hold(&self) -> oneshot::Receiver<DelayedWrite> {
        self.hold_under(SERVICES)
    }

    fn hold_under(&self, prefix: &'static str) -> oneshot::Receiver<DelayedWrite> {
        let (notify, held) = oneshot::channel();
        *self.wire.held.lock() = Some((prefix, notify));
        held
    }

    /// Finds ports without services so often that they are released.
    async fn release_ports(&self) {
        let mut leaks = BTreeMap::new();
        for _ in 0..REPAIRS_BEFORE_RELEASE {
            let ports = self.ports.as_ref().unwrap();
            ports.repair(&self.client, &mut leaks).await.unwrap();
        }
    }

    /// Releases ports that no service has, as a server does that makes no claims.
    async fn forget_ports(&self) {
        let key = "/registry/ranges/servicenodeports".to_owned();
        let ops = vec![Op::Delete { key }];
        let done = self.wire.commit(Txn { guards: vec![], ops }).await;
        assert!(matches!(done, Ok(Outcome::Committed(_))), "{done:?}");
    }

    /// The services that have a node port.
    async fn with_port(&self, port: u16) -> Vec<String> {
        let services = self.client.list(("", "services"), "").await.unwrap();
        let services = services.iter().map(|entry| entry.value());
        let with_it = services.filter(|service| allocations(service).contains(&Allocation::Port(port)));
        with_it.map(|service| meta::name(&service).to_owned()).collect()
    }

    /// The services that have an address, and the one that its object names.
    async fn owners(&self, ip: &str) -> (Vec<String>, Option<String>) {
        let services = self.client.list(("", "services"), "").await.unwrap();
        let services = services.iter().map(|entry| entry.value());
        let with_it = services.filter(|service| service.text("spec.clusterIP") == ip);
        let names = with_it.map(|service| meta::name(&service).to_owned()).collect();
        let address = self
            .client
            .find(("networking.k8s.io", "ipaddresses"), "", ip)
            .await;
        let parent = address
            .unwrap()
            .map(|found| found.text("spec.parentRef.name").to_owned());
        (names, parent)
    }
}

const IP: &str = "10.0.0.1";

/// A service is written so late that the claim of its address is `old`, by the other server's clock. The other one wants the
/// address meanwhile.
async fn late(old: i64, expected_of_other: Result<&str, &str>, expected_of_late: Result<&str, &str>) {
    let engine: Arc<dyn Store> = storage::memory();
    let (slow, other) = (Server::on(&engine, old), Server::on(&engine, 0));
    let held = slow.hold();
    let writing = slow.create("late", Some(IP));
    let meanwhile = async {
        let DelayedWrite { go_on, arrived } = held.await.unwrap();
        let made = other.create("other", Some(IP)).await;
        go_on.send(()).unwrap();
        assert_eq!(arrived.await.unwrap(), made.is_err());
        made
    };
    let (written, made) = tokio::join!(writing, meanwhile);
    let of = |result: &Result<String, String>, expected: Result<&str, &str>| match (result, expected) {
        (Ok(ip), Ok(expected)) => assert_eq!(ip, expected),
        (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
        (result, expected) => panic!("{result:?} is not {expected:?}"),
    };
    of(&made, expected_of_other);
    of(&written, expected_of_late);
    // In every view the address is of one service, and its object says of which.
    let winner = if made.is_ok() { "other" } else { "late" };
    for server in [&slow, &other] {
        assert_eq!(
            server.owners(IP).await,
            (vec![winner.to_owned()], Some(winner.to_owned()))
        );
    }
}

const AGAIN: &str = "could not be completed at this time, please try again";

#[tokio::test]
async fn a_service_that_is_stored_late_does_not_get_an_address_that_was_taken_over() {
    late(61, Ok(IP), Err(AGAIN)).await;
    late(3600, Ok(IP), Err(AGAIN)).await;
}

#[tokio::test]
async fn a_claim_that_is_young_keeps_its_address() {
    late(0, Err("provided IP is already allocated"), Ok(IP)).await;
    late(-3600, Err("provided IP is already allocated"), Ok(IP)).await;
}

#[tokio::test]
async fn a_write_that_was_given_up_and_arrives_late_is_refused() {
    let engine: Arc<dyn Store> = storage::memory();
    let (slow, other) = (Server::on(&engine, 0), Server::on(&engine, 0));
    let held = slow.hold();
    let DelayedWrite { go_on, arrived } = {
        let writing = slow.create("late", Some(IP));
        tokio::pin!(writing);
        tokio::select! {
            _ = &mut writing => panic!("it is held up"),
            held = held => held.unwrap(),
        }
    };
    // The request has ended, and gives its address back in the background.
    let mut made = other.create("other", Some(IP)).await;
    for _ in 0..10_000 {
        if made.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        made = other.create("other", Some(IP)).await;
    }
    assert_eq!(made.as_deref(), Ok(IP));
    go_on.send(()).unwrap();
    assert!(!arrived.await.unwrap(), "it is refused");
    assert_eq!(
        other.owners(IP).await,
        (vec!["other".into()], Some("other".into()))
    );
}

const PORT: u16 = 30_500;

#[tokio::test]
async fn a_service_that_is_stored_late_does_not_get_a_port_that_was_taken_over() {
    let engine: Arc<dyn Store> = storage::memory();
    let (slow, other) = (Server::on(&engine, 0), Server::on(&engine, 0));
    let held = slow.hold();
    let writing = slow.create_on_port("late", PORT);
    let meanwhile = async {
        let DelayedWrite { go_on, arrived } = held.await.unwrap();
        let made = other.create_on_port("other", PORT).await;
        assert!(made.unwrap_err().contains("provided port is already allocated"));
        other.release_ports().await;
        other.create_on_port("other", PORT).await.unwrap();
        go_on.send(()).unwrap();
        assert!(!arrived.await.unwrap(), "it is refused");
    };
    let (written, ()) = tokio::join!(writing, meanwhile);
    assert!(written.unwrap_err().contains(AGAIN));
    for server in [&slow, &other] {
        assert_eq!(server.with_port(PORT).await, ["other"]);
    }
}

/// The late write arrives before, and amid, the write that would take its port over.
#[tokio::test]
async fn a_port_that_was_released_and_is_used_after_all_is_not_given_out() {
    for amid in [false, true] {
        let engine: Arc<dyn Store> = storage::memory();
        let (slow, other) = (Server::on(&engine, 0), Server::on(&engine, 0));
        let held = slow.hold();
        let writing = slow.create_on_port("late", PORT);
        let meanwhile = async {
            let DelayedWrite { go_on, arrived } = held.await.unwrap();
            other.forget_ports().await;
            let arrive = async {
                go_on.send(()).unwrap();
                assert!(arrived.await.unwrap(), "nobody has the port");
            };
            if !amid {
                arrive.await;
                return other.create_on_port("other", PORT).await;
            }
            // Its search is over, and it enters the port.
            let entering = other.hold_under(CLAIMS);
            let taking = other.create_on_port("other", PORT);
            let between = async {
                let entering = entering.await.unwrap();
                arrive.await;
                entering.go_on.send(()).unwrap();
                assert!(entering.arrived.await.unwrap(), "nobody changed the range");
            };
            tokio::join!(taking, between).0
        };
        let (written, made) = tokio::join!(writing, meanwhile);
        written.unwrap();
        let why = made.unwrap_err();
        assert!(why.contains("provided port is already allocated"), "{why}");
        for server in [&slow, &other] {
            assert_eq!(server.with_port(PORT).await, ["late"]);
        }
        // It stays so, whatever was released meanwhile.
        slow.release_ports().await;
        other.create_on_port("again", PORT).await.unwrap_err();
    }
}

/// The request ends while its write is under way; another one asks for the same port.
async fn given_up(slow: &Server, other: &Server) -> (bool, Result<(), String>) {
    let held = slow.hold();
    let DelayedWrite { go_on, arrived } = {
        let writing = slow.create_on_port("late", PORT);
        tokio::pin!(writing);
        tokio::select! {
            _ = &mut writing => panic!("it is held up"),
            held = held => held.unwrap(),
        }
    };
    let made = other.create_on_port("other", PORT);
    tokio::pin!(made);
    // As far as it gets without the other.
    let mut done = None;
    for _ in 0..1_000 {
        if let Some(made) = made.as_mut().now_or_never() {
            done = Some(made);
            break;
        }
        tokio::task::yield_now().await;
    }
    go_on.send(()).unwrap();
    let arrived = arrived.await.unwrap();
    let made = match done {
        Some(made) => made,
        None => made.await,
    };
    (arrived, made)
}

#[tokio::test]
async fn a_write_that_was_given_up_and_its_port() {
    for shared in [true, false] {
        let engine: Arc<dyn Store> = storage::memory();
        let server = Server::with(&engine, 0, shared);
        let (arrived, made) = given_up(&server, &server).await;
        let holders = server.with_port(PORT).await;
        assert_eq!(holders.len(), 1, "{shared}: {holders:?}");
        assert_eq!(
            (arrived, made.is_ok()),
            (holders == ["late"], holders == ["other"])
        );
    }
}

#[tokio::test]
async fn the_ports_of_a_service_that_cannot_be_decrypted_are_not_given_out() {
    let engine: Arc<dyn Store> = storage::memory();
    let sealed = Op::Put {
        key: format!("{SERVICES}default/sealed"),
        value: "k8s:enc:aescbc:v1:key:sealed".into(),
        ttl: None,
    };
    let txn = Txn {
        guards: vec![],
        ops: vec![sealed],
    };
    engine.commit(txn).await.unwrap();
    let server = Server::with(&engine, 0, false);
    let why = server.create_on_port("other", PORT).await.unwrap_err();
    assert!(why.contains("its ports are unknown"), "{why}");
    server.create("without", None).await.unwrap();
}
