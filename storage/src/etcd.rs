//! etcd v3 as an engine: a thin layer over its gRPC API.
//!
//! The names and contents of keys are the caller's; keys and values pass through as they are, so a cluster can be shared
//! with, taken over from and handed back to upstream's API server. Revisions are etcd's own.
//!
//! - Guards become comparisons of mod revisions in one transaction; the other branch fetches the existing values.
//! - All watches share one stream ([`watch`]), which resumes without loss or repeats.
//! - Keys with a time to live share leases ([`lease`]).
//! - [`Store::fresh`] is one linearizable read for all callers of a moment, and progress requested on the watch stream. Members
//!   before 3.4.31 and 3.5.13 send that progress too early; where there is one, the keys are looked at instead.
//! - One replica compacts ([`compactor`]).
//!
//! A write whose answer got lost is `Uncertain` and not repeated; everything else goes to the next member.

mod client;
mod compactor;
mod dial;
mod errors;
mod fresh;
mod keys;
mod lease;
mod messages;
#[cfg(test)]
mod tests;
mod version;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::client::{Client, Repeat};
pub use self::dial::Dialer;
use self::fresh::Fresh;
use self::lease::Leases;
use self::messages::{
    Answer, COMPARE_MOD, Compare, CompareTarget, DeleteRangeRequest, PutRequest, Request, RequestOp,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};
use self::watch::{Command, Mux, Watch};
use crate::{
    CompactionInfo, KeyValue, Op, Outcome, RangeRequest, RangeResponse, Revision, StorageError, Store,
    StoreStatus, Txn, WatchHandle, WatchSink,
};

/// Pairs fetched in one call of a range without a limit.
const PAGE: usize = 10_000;

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Its members' client URLs (`https://host:2379`; without a scheme, `http`). They are used in turn, the next one when one
    /// does not answer.
    pub endpoints: Vec<String>,
    /// PEM file of the authorities that members' certificates are checked against; without it, the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client certificate.
    pub cert_file: Option<PathBuf>,
    /// PEM file of its key.
    pub key_file: Option<PathBuf>,
    /// How often history is compacted, which is also how long it is kept at least; zero leaves that to others.
    pub compaction_interval: Duration,
    /// For how long a lease is shared by new keys of the same time to live, at most a twentieth of that.
    pub lease_reuse: Duration,
    /// How long one call may take.
    pub timeout: Duration,
    /// Opens the connections to members; without it they are TCP connections.
    pub dialer: Option<Dialer>,
}

impl Default for EtcdOptions {
    fn default() -> EtcdOptions {
        EtcdOptions {
            endpoints: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            compaction_interval: Duration::from_secs(5 * 60),
            lease_reuse: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            dialer: None,
        }
    }
}

/// Makes an engine on an etcd cluster. Connects when first used, so an absent cluster shows only then; fails when the options
/// make no sense. Needs a tokio runtime.
pub fn open_etcd(options: &EtcdOptions) -> Result<Arc<dyn Store>, StorageError> {
    Ok(Arc::new(EtcdStore::new(options)?))
}

/// The handle: its tasks end with it.
#[derive(Debug)]
struct EtcdStore {
    client: Arc<Client>,
    leases: Leases,
    fresh: Arc<Fresh>,
    /// `None` once shut down.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    watches: mpsc::Sender<Command>,
    mux: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The watches' task ends once its queue is closed, and closes the sinks.
        self.others.iter().for_each(JoinHandle::abort);
    }
}

impl EtcdStore {
    fn new(options: &EtcdOptions) -> Result<EtcdStore, StorageError> {
        let client = Arc::new(Client::new(options)?);
        let trusted = Arc::new(AtomicBool::new(false));
        let (watches, commands) = mpsc::channel(256);
        let mux = tokio::spawn(Mux::new(client.clone(), trusted.clone(), commands).run());
        let mut others = vec![tokio::spawn(version::learn(client.clone(), trusted))];
        if !options.compaction_interval.is_zero() {
            others.push(tokio::spawn(compactor::run(
                client.clone(),
                options.compaction_interval,
            )));
        }
        Ok(EtcdStore {
            client,
            leases: Leases::new(options.lease_reuse),
            fresh: Arc::default(),
            running: Mutex::new(Some(Running { watches, mux, others })),
        })
    }

    fn check_running(&self) -> Result<mpsc::Sender<Command>, StorageError> {
        self.running
            .lock()
            .as_ref()
            .map(|running| running.watches.clone())
            .ok_or_else(shut_down)
    }

    async fn fresh_under(&self, prefix: &str) -> Result<Revision, StorageError> {
        let watches = self.check_running()?;
        let revision = self.fresh.get(&self.client).await?;
        watches
            .send(Command::Reach {
                prefix: prefix.to_owned(),
                revision,
            })
            .await
            .map_err(|_| shut_down())?;
        Ok(Revision(revision))
    }

    async fn page(
        &self,
        key: Bytes,
        end: Bytes,
        limit: usize,
        at: u64,
    ) -> Result<messages::RangeResponse, StorageError> {
        let request = messages::RangeRequest {
            key,
            range_end: end,
            limit: i64::try_from(limit).unwrap_or(0),
            revision: messages::signed(at),
            ..messages::RangeRequest::default()
        };
        self.client
            .call(messages::RANGE, request, Repeat::Freely, at)
            .await
    }

    async fn request(&self, txn: &Txn) -> Result<TxnRequest, StorageError> {
        let key = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        let op = |request| RequestOp {
            request: Some(request),
        };
        let mut request = TxnRequest::default();
        for guard in &txn.guards {
            request.compare.push(Compare {
                result: 0,
                target: COMPARE_MOD,
                key: key(&guard.key),
                value: Some(CompareTarget::ModRevision(messages::signed(guard.mod_revision.0))),
            });
            let there = messages::RangeRequest {
                key: key(&guard.key),
                ..Default::default()
            };
            request.failure.push(op(Request::Range(there)));
        }
        for change in &txn.ops {
            request.success.push(op(match change {
                Op::Put {
                    key: name,
                    value,
                    ttl,
                } => {
                    let lease = match ttl {
                        Some(ttl) => self.leases.get(&self.client, *ttl).await?,
                        None => 0,
                    };
                    Request::Put(PutRequest {
                        key: key(name),
                        value: value.clone(),
                        lease,
                    })
                }
                Op::Delete { key: name } => Request::DeleteRange(DeleteRangeRequest { key: key(name) }),
            }));
        }
        Ok(request)
    }
}

fn shut_down() -> StorageError {
    StorageError::Unavailable {
        message: "the store has been shut down".into(),
        source: None,
    }
}

/// Translates the response of a transaction.
fn outcome(txn: &Txn, response: TxnResponse) -> Result<Outcome, StorageError> {
    let revision = Revision(response.revision());
    if response.succeeded {
        return Ok(Outcome::Committed(revision));
    }
    for (index, (guard, op)) in txn.guards.iter().zip(response.responses).enumerate() {
        let found = op.range.and_then(|range| range.kvs.into_iter().next());
        let mod_revision = found
            .as_ref()
            .map_or(0, |pair| messages::unsigned(pair.mod_revision));
        if mod_revision != guard.mod_revision.0 {
            let current = found.map(keys::pair).transpose()?;
            return Ok(Outcome::Conflict {
                guard: index,
                current,
                revision,
            });
        }
    }
    Err(StorageError::Engine {
        message: "etcd refused a transaction whose guards hold".into(),
        source: None,
    })
}

#[async_trait::async_trait]
impl Store for EtcdStore {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        self.check_running()?;
        if at == Some(Revision(0)) {
            // To etcd, zero is the newest.
            return Ok((None, Revision(0)));
        }
        let asked = at.map_or(0, |at| at.0);
        let response = self
            .page(Bytes::copy_from_slice(key.as_bytes()), Bytes::new(), 0, asked)
            .await?;
        let revision = at.unwrap_or(Revision(response.revision()));
        Ok((
            response.kvs.into_iter().next().map(keys::pair).transpose()?,
            revision,
        ))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        self.check_running()?;
        if request.at == Some(Revision(0)) {
            return Ok(RangeResponse::default());
        }
        let start = request
            .start
            .as_deref()
            .filter(|start| *start > request.prefix.as_str());
        let mut first = start.map_or_else(|| keys::first(&request.prefix), keys::first);
        let end = keys::end(&request.prefix);
        if start.is_some_and(|start| !start.starts_with(&request.prefix)) {
            // Past the end. A read of nothing still says whether the revision can be read.
            first = end.clone();
        }
        let asked = request.at.map_or(0, |at| at.0);
        if request.count_only {
            let counting = messages::RangeRequest {
                key: first,
                range_end: end,
                revision: messages::signed(asked),
                count_only: true,
                ..messages::RangeRequest::default()
            };
            let response: messages::RangeResponse = self
                .client
                .call(messages::RANGE, counting, Repeat::Freely, asked)
                .await?;
            return Ok(RangeResponse {
                kvs: Vec::new(),
                count: messages::unsigned(response.count),
                revision: request.at.unwrap_or(Revision(response.revision())),
            });
        }
        let mut all = RangeResponse::default();
        let mut at = asked;
        loop {
            let left = if request.limit == 0 {
                PAGE
            } else {
                (request.limit - all.kvs.len()).min(PAGE)
            };
            let page = self.page(first.clone(), end.clone(), left, at).await?;
            if all.kvs.is_empty() {
                // The first page decides on the revision of the others.
                at = if at == 0 { page.revision() } else { at };
                all.count = messages::unsigned(page.count);
                all.revision = Revision(at);
            }
            if let Some(last) = page.kvs.last() {
                first = [&last.key[..], b"\0"].concat().into();
            }
            for pair in page.kvs {
                all.kvs.push(keys::pair(pair)?);
            }
            if !page.more || (request.limit > 0 && all.kvs.len() >= request.limit) {
                return Ok(all);
            }
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError> {
        self.check_running()?;
        let repeat = if txn.ops.is_empty() {
            Repeat::Freely
        } else {
            Repeat::IfNotSent
        };
        let leased = txn
            .ops
            .iter()
            .any(|op| matches!(op, Op::Put { ttl: Some(_), .. }));
        let request = self.request(&txn).await?;
        let response = match self.client.call(messages::TXN, request, repeat, 0).await {
            Err(StorageError::Engine { message, .. }) if leased && message.contains("lease not found") => {
                // The cluster has forgotten it, perhaps it was restored from a backup.
                self.leases.forget().await;
                let request = self.request(&txn).await?;
                self.client.call(messages::TXN, request, repeat, 0).await?
            }
            response => response?,
        };
        outcome(&txn, response)
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        let watches = self.check_running()?;
        // Says at once whether the revision is compacted, or of the future; and how far the past goes.
        let probe = messages::RangeRequest {
            key: Bytes::from_static(b"compact_rev_key"),
            revision: messages::signed(after.0),
            count_only: true,
            ..messages::RangeRequest::default()
        };
        let now: messages::RangeResponse = self
            .client
            .call(messages::RANGE, probe, Repeat::Freely, after.0)
            .await?;
        let (handle, made) = oneshot::channel();
        let watch = Watch::new(prefix.to_owned(), after, now.revision(), sink);
        watches
            .send(Command::Add { watch, handle })
            .await
            .map_err(|_| shut_down())?;
        made.await.map_err(|_| shut_down())?
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        self.fresh_under("").await
    }

    async fn fresh_for(&self, prefix: &str) -> Result<Revision, StorageError> {
        self.fresh_under(prefix).await
    }

    fn published(&self) -> Option<Revision> {
        None
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        self.check_running()?;
        if revision.0 > 0 {
            compactor::compact(&self.client, revision.0).await?;
        }
        Ok(CompactionInfo {
            oldest: Revision(self.client.compacted()),
        })
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.check_running()?;
        // Without a quorum a member still reports its status; a store that cannot be read is unhealthy.
        let revision = self.fresh.get(&self.client).await?;
        let member: StatusResponse = self
            .client
            .call(messages::STATUS, StatusRequest {}, Repeat::Freely, 0)
            .await?;
        Ok(StoreStatus {
            engine: "etcd",
            revision: Revision(revision),
            oldest: Revision(self.client.compacted()),
            size_bytes: u64::try_from(member.db_size).ok(),
            keys: None,
        })
    }

    async fn shutdown(&self) {
        let Some(mut running) = self.running.lock().take() else {
            return;
        };
        // Closes the queue; senders in flight are short-lived.
        let (closed, _) = mpsc::channel(1);
        running.watches = closed;
        // It fails only if the task panicked.
        let _ = (&mut running.mux).await;
    }
}
