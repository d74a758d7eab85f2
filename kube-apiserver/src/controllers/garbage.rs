//! Garbage collection: an object whose owners are all gone goes too. Foreground deletion waits for blocking dependents,
//! orphaning cuts them loose. Mirrors upstream's `pkg/controller/garbagecollector`, on the caches of this process.
//!
//! One task owns an [`index`] of owners and dependents by uid, which is kept by events alone. Each resource that has objects has a
//! follower ([`follow`]): a task that reports objects with owners, objects that wait for the collector, and deletions, through one
//! bounded channel, and waits when the channel is full. A resource without objects has none: one watch per engine ([`arrivals`])
//! reports its first object. Nothing is judged before every resource with objects has been read once.
//!
//! The followers of two resources are not in step, so an owner that the index does not know is looked up where its kind is stored
//! ([`owners`]): in its store, or at the aggregated server that serves it. An owner of a kind that is not served, or whose server is
//! unavailable, is assumed to exist.

mod arrivals;
mod follow;
mod index;
mod object;
mod owners;
mod retries;
mod writes;

use std::collections::{HashMap, HashSet};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use generic_server::ApiError;
use machinery::GroupKind;
use machinery::time::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

use self::follow::{Follows, Report, Turn};
use self::index::{Index, OwnerState};
use self::object::{FOREGROUND, Node, ORPHAN, Place, Uid};
use self::owners::Found;
use self::retries::Retries;
use self::writes::Written;
use crate::client::Client;

/// Reports that may wait for the index.
const QUEUE: usize = 64;
/// How many objects are judged before the index takes further events.
const BATCH: usize = 512;
/// How many writes are in flight at once: they share group commits.
const CONCURRENCY: usize = 64;
/// How many owners that are in another namespace are remembered.
const CROSS_NAMESPACE_OWNERS: usize = 1024;

/// Collects garbage. Keys of all stores begin with `prefix`.
pub(super) async fn run(client: Client, prefix: String) {
    let (sender, mut reports) = mpsc::channel(QUEUE);
    let mut directory = client.directory().changes();
    let mut remote = client
        .directory()
        .remote_resources()
        .map(|server| server.changes());
    if let Some(changes) = &mut remote {
        changes.mark_changed();
    }
    let mut collector = Collector {
        follows: Follows::new(client.clone(), prefix, sender),
        client,
        index: Index::default(),
        retries: Retries::default(),
        unresolved: HashMap::new(),
        unfollowed: HashSet::new(),
        cross_namespace: parking_lot::Mutex::default(),
    };
    let arrivals = collector.follows.arrivals.clone();
    loop {
        let mut turn = collector.follows.turn().await;
        if let Some(changes) = &mut remote
            && changes.has_changed().unwrap_or_default()
        {
            changes.mark_unchanged();
            if let Some(server) = collector.client.directory().remote_resources() {
                collector.follows.turn_remote(server, &mut turn);
            }
        }
        collector.take(turn);
        let ready = !collector.follows.reading() && collector.index.has_work();
        let due = collector.retries.next();
        let moved = async {
            match &mut remote {
                Some(changes) => {
                    let _ = changes.changed().await;
                    changes.mark_changed();
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(report) = reports.recv() => {
                collector.handle(report);
                for _ in 0..QUEUE {
                    let Ok(more) = reports.try_recv() else { break };
                    collector.handle(more);
                }
            }
            _ = directory.changed() => {}
            () = arrivals.changed.notified() => {}
            () = moved => {}
            () = std::future::ready(()), if ready => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
        for uid in collector.retries.take_due(Instant::now()) {
            collector.index.look_at(uid);
        }
        if !collector.follows.reading() {
            collector.work().await;
        }
    }
}

/// The collector's task.
struct Collector {
    client: Client,
    follows: Follows,
    index: Index,
    retries: Retries,
    /// Objects with an owner of a kind that is not served.
    unresolved: HashMap<GroupKind, HashSet<Uid>>,
    /// Objects with an owner that was seen before its resource was followed: its deletion may have been missed.
    unfollowed: HashSet<Uid>,
    /// Owners that are missing where they should be, and the other namespace that they are in, if they are.
    cross_namespace: parking_lot::Mutex<HashMap<Uid, Option<String>>>,
}

impl Collector {
    fn take(&mut self, turn: Turn) {
        for source in turn.gone {
            self.index.apply(&source, index::ObjectEvent::Left);
        }
        for kind in turn.kinds {
            for uid in self.unresolved.remove(&kind).into_iter().flatten() {
                self.index.look_at(uid);
            }
        }
    }

    fn handle(&mut self, report: Report) {
        let Some((source, events)) = self.follows.open(report) else {
            return;
        };
        for event in events {
            if matches!(event, index::ObjectEvent::Listed(_)) {
                self.unfollowed.drain().for_each(|uid| self.index.look_at(uid));
            }
            self.index.apply(&source, event);
        }
    }

    /// Judges some of the objects that are due.
    async fn work(&mut self) {
        let batch = self.index.take_work(BATCH);
        let looks: Vec<_> = batch.iter().map(|uid| self.attend_to(uid)).collect();
        let done: Vec<_> = stream::iter(looks).buffer_unordered(CONCURRENCY).collect().await;
        for (uid, outcome) in done {
            let outcome = outcome.unwrap_or_else(|error| {
                warn!(error = error.message(), "cannot collect an object");
                Outcome::again()
            });
            self.conclude(uid, outcome);
        }
    }

    fn conclude(&mut self, uid: Uid, outcome: Outcome) {
        for (owner, place) in outcome.seen {
            if self.follows.is_following(&place.source) {
                self.index.record_owner_location(&owner, place);
            } else if !place.source.remote {
                self.follows.follow(&place.source.resource);
                self.unfollowed.insert(uid.clone());
            }
        }
        for kind in outcome.kinds {
            self.unresolved.entry(kind).or_default().insert(uid.clone());
        }
        outcome.others.into_iter().for_each(|uid| self.index.look_at(uid));
        if outcome.again {
            self.retries.failed(uid, Instant::now());
        } else {
            self.retries.done(&uid);
        }
    }

    /// Boxed, because the compiler cannot see that the unboxed futures of a stream are `Send` for every lifetime.
    fn attend_to<'a>(&'a self, uid: &'a Uid) -> BoxFuture<'a, (Uid, Result<Outcome, ApiError>)> {
        Box::pin(async move { (uid.clone(), self.attend(uid).await) })
    }

    async fn attend(&self, uid: &Uid) -> Result<Outcome, ApiError> {
        let (client, index) = (&self.client, &self.index);
        let Some(node) = index.node(uid) else {
            return Ok(Outcome::default());
        };
        let found = match node.deleting {
            true => Found::default(),
            false => owners::find(client, index, node).await?,
        };
        let verdict = judge(index, node, &found);
        let needs_all = match &verdict {
            Verdict::Orphan | Verdict::Foreground => true,
            Verdict::Delete(_) => found.states.contains(&OwnerState::Waiting),
            Verdict::Nothing | Verdict::Release(_) => false,
        };
        if needs_all && self.follows.unsure() {
            return Ok(Outcome::again());
        }
        let done = match verdict {
            Verdict::Nothing => Written::Applied,
            Verdict::Delete(policy) => {
                self.report_cross_namespace_owners(node).await;
                let circle = index.dependents_of(uid).any(Node::in_foreground);
                if policy == "Foreground" && circle {
                    // Objects that own each other would wait for each other for ever. The change brings it here again.
                    writes::unblock(client, node).await?;
                }
                writes::delete(client, node, policy).await?
            }
            Verdict::Release(owners) => writes::release(client, node, &owners).await?,
            Verdict::Orphan => {
                let releases: Vec<BoxFuture<'_, Result<Written, ApiError>>> = index
                    .dependents_of(uid)
                    .map(|dependent| -> BoxFuture<'_, _> {
                        Box::pin(async move { writes::release(client, dependent, &[uid]).await })
                    })
                    .collect();
                let done: Vec<_> = stream::iter(releases)
                    .buffer_unordered(CONCURRENCY)
                    .collect()
                    .await;
                let done = done.into_iter().collect::<Result<Vec<Written>, _>>()?;
                match done.contains(&Written::Conflict) {
                    true => Written::Conflict,
                    false => writes::drop_finalizer(client, node, ORPHAN).await?,
                }
            }
            Verdict::Foreground => {
                let others = index.dependents_of(uid).filter(|d| !d.deleting);
                let others = others.map(|d| d.uid.clone()).collect();
                let done = match index.dependents_of(uid).any(|d| d.blocks(uid)) {
                    true => Written::Applied,
                    false => writes::drop_finalizer(client, node, FOREGROUND).await?,
                };
                return Ok(Outcome {
                    others,
                    again: done == Written::Conflict,
                    ..Outcome::default()
                });
            }
        };
        Ok(Outcome {
            seen: found.seen,
            kinds: found.kinds,
            again: done == Written::Conflict,
            ..Outcome::default()
        })
    }

    /// Records an Event about owners that are in another namespace: they cannot own this object.
    async fn report_cross_namespace_owners(&self, node: &Node) {
        if node.place.source.remote {
            return;
        }
        let resource = &node.place.source.resource;
        let at = (&*resource.group, &*resource.resource);
        for owner in &node.owners {
            let known = self.cross_namespace.lock().get(&owner.uid).cloned();
            let lives = match known {
                Some(known) => known,
                None => {
                    let found = owners::cross_namespace(&self.client, owner, node).await;
                    let mut cross_namespace = self.cross_namespace.lock();
                    if cross_namespace.len() >= CROSS_NAMESPACE_OWNERS {
                        cross_namespace.clear();
                    }
                    cross_namespace.insert(owner.uid.clone(), found.clone());
                    found
                }
            };
            let namespace = &*node.place.namespace;
            if lives.is_none_or(|lives| lives == *namespace) {
                continue;
            }
            let Ok(kind) = self.client.resource(at).map(|r| r.resource.gvk.clone()) else {
                continue;
            };
            let now = Timestamp::now().to_rfc3339();
            let text = format!(
                "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
                owner.api_version, owner.kind, owner.name, owner.uid
            );
            let event = json!({
                "metadata": {"generateName": format!("{}-", node.place.name), "namespace": namespace},
                "involvedObject": {"apiVersion": kind.api_version(), "kind": &*kind.kind, "name": &*node.place.name,
                    "namespace": namespace, "uid": &*node.uid},
                "reason": "OwnerRefInvalidNamespace", "message": text, "type": "Warning", "count": 1,
                "source": {"component": "garbage-collector-controller"},
                "reportingComponent": "garbage-collector-controller",
                "firstTimestamp": now, "lastTimestamp": now,
            });
            if let Err(error) = self.client.create(("", "events"), namespace, event).await {
                let error = error.message();
                warn!(error, "cannot record an owner in another namespace");
            }
        }
    }
}

/// The outcome of examining an object.
#[derive(Debug, Default)]
struct Outcome {
    /// To be looked at again in a while.
    again: bool,
    /// These have to be looked at now.
    others: Vec<Uid>,
    /// Owners that were seen, and where.
    seen: Vec<(Uid, Place)>,
    /// To be looked at again when one of these kinds is served.
    kinds: Vec<GroupKind>,
}

impl Outcome {
    fn again() -> Self {
        Outcome {
            again: true,
            ..Outcome::default()
        }
    }
}

/// The action for an object.
#[derive(Debug, PartialEq)]
enum Verdict<'a> {
    Nothing,
    /// It is garbage; with the policy that its dependents call for.
    Delete(&'static str),
    /// It stays, without the owners of these uids.
    Release(Vec<&'a str>),
    /// Its dependents are cut loose, then its own finalizer goes.
    Orphan,
    /// Its dependents are deleted; when none blocks any more its own finalizer goes.
    Foreground,
}

fn judge<'a>(index: &Index, node: &'a Node, found: &Found) -> Verdict<'a> {
    if node.deleting {
        return match (node.orphan, node.foreground) {
            (true, _) => Verdict::Orphan,
            (_, true) => Verdict::Foreground,
            _ => Verdict::Nothing,
        };
    }
    let of = |wanted: OwnerState| found.of(node, wanted);
    if found.states.contains(&OwnerState::Unknown) {
        return Verdict::Nothing;
    }
    let (absent, waiting) = (of(OwnerState::Absent), of(OwnerState::Waiting));
    if absent.is_empty() && waiting.is_empty() {
        return Verdict::Nothing;
    }
    if found.states.contains(&OwnerState::Present) {
        let all = absent.into_iter().chain(waiting);
        return Verdict::Release(all.map(|uid| &**uid).collect());
    }
    if !waiting.is_empty() && index.dependents_of(&node.uid).next().is_some() {
        // An owner waits in the foreground: this one must not be gone before its own dependents are.
        return Verdict::Delete("Foreground");
    }
    // The policy that a finalizer set beforehand is kept.
    Verdict::Delete(match (node.orphan, node.foreground) {
        (true, _) => "Orphan",
        (_, true) => "Foreground",
        _ => "Background",
    })
}

#[cfg(test)]
mod tests {
    use super::index::tests::{index, object};
    use super::*;

    #[track_caller]
    fn check(nodes: Vec<Node>, uid: &str, states: &[OwnerState], expected: Verdict<'_>) {
        let index = index(nodes);
        let node = index.node(uid).expect("a node");
        let found = Found {
            states: states.to_vec(),
            ..Found::default()
        };
        assert_eq!(judge(&index, node, &found), expected);
    }

    #[test]
    fn owners_decide() {
        use OwnerState::{Absent, Present, Unknown, Waiting};
        let one = || vec![object("d", &["o"])];
        check(one(), "d", &[Present], Verdict::Nothing);
        check(one(), "d", &[Absent], Verdict::Delete("Background"));
        check(one(), "d", &[Waiting], Verdict::Delete("Background"));
        check(one(), "d", &[Unknown], Verdict::Nothing);
        let two = || vec![object("d", &["o", "gone"])];
        check(two(), "d", &[Present, Absent], Verdict::Release(vec!["gone"]));
        check(two(), "d", &[Unknown, Absent], Verdict::Nothing);
        let both = vec!["gone", "o"];
        let three = vec![object("d", &["o", "gone", "p"])];
        check(three, "d", &[Waiting, Absent, Present], Verdict::Release(both));
        let chain = vec![object("d", &["o"]), object("e", &["d"])];
        check(chain, "d", &[Waiting], Verdict::Delete("Foreground"));
        let asked = Node {
            orphan: true,
            ..object("d", &["o"])
        };
        check(vec![asked], "d", &[Absent], Verdict::Delete("Orphan"));
    }

    #[test]
    fn an_object_being_deleted_waits_for_dependents() {
        let going = |orphan: bool, foreground: bool| Node {
            deleting: true,
            orphan,
            foreground,
            ..object("o", &["p"])
        };
        check(vec![going(true, true)], "o", &[], Verdict::Orphan);
        check(vec![going(false, true)], "o", &[], Verdict::Foreground);
        check(vec![going(false, false)], "o", &[], Verdict::Nothing);
    }
}
