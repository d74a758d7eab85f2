//! Writes of services that arrive late: after another server has taken their address over.

use std::sync::Arc;

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

use crate::client::Client;
use crate::groups::check;
use crate::json::Json;

const SERVICES: &str = "/registry/services/specs/";
const ADDRESSES: &str = "/registry/ipaddresses/";

/// A store that several servers share, as one of them sees it.
#[derive(Debug)]
struct Wire {
    engine: Arc<dyn Store>,
    /// The receiver of the next write of a service, which is delayed.
    held: Mutex<Option<oneshot::Sender<DelayedWrite>>>,
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
        let held = Self::is_under(&txn, SERVICES).then(|| self.held.lock().take());
        let Some(notify) = held.flatten() else {
            return self.engine.commit(txn).await;
        };
        let (go_on, wait) = oneshot::channel();
        let (report, arrived) = oneshot::channel();
        notify.send(DelayedWrite { go_on, arrived }).unwrap();
        let engine = self.engine.clone();
        let late = async move {
            wait.await.unwrap();
            let outcome = engine.commit(txn).await;
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

    /// As an engine elsewhere.
    fn published(&self) -> Option<Revision> {
        None
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
}

impl Server {
    fn on(engine: &Arc<dyn Store>, behind_seconds: i64) -> Server {
        let wire = Arc::new(Wire {
            engine: engine.clone(),
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
        }
    }

    /// Creates a service; its address, or the message of the error.
    async fn create(&self, name: &str, ip: Option<&str>) -> Result<String, String> {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
        });
        self.services.strategy.default(&mut service);
        let (authorized, none) = (Authorized::system(), AdmissionChain::default());
        let call = WriteCall::internal(&self.services, &authorized, &none, "default");
        let stored = write::create(&call, service).await;
        let stored = stored.map_err(|error| error.message().to_owned())?;
        let stored = stored.value(&self.services).await.unwrap();
        Ok(stored.text("spec.clusterIP").to_owned())
    }

    /// The next write of a service is delayed.
    fn hold(&self) -> oneshot::Receiver<DelayedWrite> {
        let (notify, held) = oneshot::channel();
        *self.wire.held.lock() = Some(notify);
        held
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
