//! Which resources are followed, and the followers: of resources that have objects, one task each, which reads the resource's cache;
//! of resources of aggregated servers that can be listed, watched and deleted, one task each, which watches the server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use generic_server::directory::{Registered, RemoteResource, RemoteResources};
use generic_server::registry::cache::{ChangeKind, Snapshot};
use generic_server::registry::{Event, Reflector};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use machinery::{GroupKind, GroupResource};
use storage::{RangeRequest, Store, WatchHandle};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use super::super::REST;
use super::arrivals::Arrivals;
use super::index::ObjectEvent;
use super::object::{Metadata, Node, Source, concerns};
use crate::client::Client;

/// How many events are reported together.
const BATCH: usize = 256;
/// How long a resource is followed after its last object has gone.
const LINGER: Duration = Duration::from_secs(30);
/// Resources counted at once.
const COUNTS: usize = 32;
/// Resources of aggregated servers that are followed at most.
const MOST_REMOTE: usize = 512;
/// How long the first list of an aggregated server's resource is waited for.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a remote watch has ended, at first and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// Events of one follower.
#[derive(Debug)]
pub(super) struct Report {
    id: u64,
    events: Vec<ObjectEvent>,
}

/// The followers.
#[derive(Debug)]
pub(super) struct Follows {
    client: Client,
    prefix: String,
    reports: mpsc::Sender<Report>,
    pub(super) arrivals: Arc<Arrivals>,
    /// Each engine's watch.
    engines: Vec<(Arc<dyn Store>, WatchHandle)>,
    /// The stores when they were last looked at.
    listing: Arc<OrdMap<GroupResource, Registered>>,
    followed: HashMap<Source, Follower>,
    /// By number, whose reports count.
    sources: HashMap<u64, Source>,
    tasks: JoinSet<()>,
    next: u64,
}

#[derive(Debug)]
struct Follower {
    id: u64,
    state: State,
    since: Instant,
    task: AbortHandle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has not been read yet.
    Reading,
    /// It cannot be read.
    Failing,
    /// Its events are reported as they happen.
    Following,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The changes to the set of resources.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// No longer served: nothing is known of their objects.
    pub(super) gone: Vec<Source>,
    /// Kinds that are served now.
    pub(super) kinds: Vec<GroupKind>,
}

impl Follows {
    pub(super) fn new(client: Client, prefix: String, reports: mpsc::Sender<Report>) -> Self {
        Follows {
            client,
            prefix,
            reports,
            arrivals: Arc::default(),
            engines: Vec::new(),
            listing: Arc::default(),
            followed: HashMap::new(),
            sources: HashMap::new(),
            tasks: JoinSet::new(),
            next: 0,
        }
    }

    /// Something of this process has not been read yet: nothing can be judged.
    pub(super) fn reading(&self) -> bool {
        let mut all = self.followed.iter();
        all.any(|(source, f)| f.state == State::Reading && !source.remote)
    }

    /// Something here cannot be read, or has just been found at an aggregated server: decisions that depend on knowing all
    /// dependents have to wait.
    pub(super) fn unsure(&self) -> bool {
        let mut all = self.followed.iter();
        all.any(|(source, f)| match f.state {
            State::Reading => f.since.elapsed() < FIRST_LIST_TIMEOUT,
            State::Failing => !source.remote,
            State::Following => false,
        })
    }

    /// Whether the deletion of an object that was just seen in a source will be reported.
    pub(super) fn is_following(&self, source: &Source) -> bool {
        let found = self.followed.get(source);
        found.is_some_and(|f| f.state == State::Following)
    }

    /// Follows a resource of this process, which has or had an object a moment ago.
    pub(super) fn follow(&mut self, resource: &GroupResource) {
        let source = Source::local(resource);
        if self.followed.contains_key(&source) {
            return;
        }
        if let Some(registered) = self.listing.get(resource).cloned() {
            self.arrivals.join(resource);
            self.start(source, ObjectSource::Local(registered));
        }
    }

    fn start(&mut self, source: Source, kept: ObjectSource) {
        self.stop(&source);
        self.next += 1;
        let reporter = Reporter {
            id: self.next,
            reports: self.reports.clone(),
        };
        let arrivals = self.arrivals.clone();
        let task = match kept {
            ObjectSource::Local(registered) => {
                let resource = source.resource.clone();
                self.tasks
                    .spawn(follow_local(resource, registered, arrivals, reporter))
            }
            ObjectSource::Remote(server, resource) => {
                self.tasks.spawn(follow_remote(server, resource, reporter))
            }
        };
        self.sources.insert(self.next, source.clone());
        let follower = Follower {
            id: self.next,
            state: State::Reading,
            since: Instant::now(),
            task,
        };
        self.followed.insert(source, follower);
    }

    fn stop(&mut self, source: &Source) {
        if let Some(follower) = self.followed.remove(source) {
            self.sources.remove(&follower.id);
        }
        // Followers that have ended are removed.
        while self.tasks.try_join_next().is_some() {}
    }

    /// A follower's events, with their source; nothing when it is followed no longer.
    pub(super) fn open(&mut self, report: Report) -> Option<(Source, Vec<ObjectEvent>)> {
        let source = self.sources.get(&report.id)?.clone();
        for event in &report.events {
            match event {
                ObjectEvent::Listed(_) => self.set(&source, State::Following),
                ObjectEvent::Failing => self.set(&source, State::Failing),
                ObjectEvent::Left => self.stop(&source),
                ObjectEvent::Put(_) | ObjectEvent::Gone(_) => {}
            }
        }
        Some((source, report.events))
    }

    fn set(&mut self, source: &Source, state: State) {
        if let Some(follower) = self.followed.get_mut(source) {
            follower.state = state;
        }
    }

    /// Takes over what has become of the resources of this process since the last time.
    pub(super) async fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        let arrived = self.arrivals.take();
        if arrived.ended {
            // Arrivals that were missed are found by counting everything again.
            self.engines.clear();
            self.listing = Arc::default();
        }
        let listing = self.client.directory().all();
        if !Arc::ptr_eq(&listing, &self.listing) {
            let before = std::mem::replace(&mut self.listing, listing.clone());
            let mut new: Vec<(GroupResource, Registered)> = Vec::new();
            for item in before.diff(&listing) {
                match item {
                    DiffItem::Add(key, now) => new.push((key.clone(), now.clone())),
                    DiffItem::Update { old, new: now } => {
                        if !Arc::ptr_eq(&old.1.store, &now.1.store) {
                            self.end(old.0, &mut turn);
                            new.push((now.0.clone(), now.1.clone()));
                        }
                    }
                    DiffItem::Remove(key, _) => self.end(key, &mut turn),
                }
            }
            let kinds = new.iter().map(|(_, one)| one.resource.gvk.group_kind());
            turn.kinds = kinds.collect();
            self.watch_engines(&new).await;
            for resource in inhabited(new).await {
                self.follow(&resource);
            }
        }
        for resource in &arrived.resources {
            // One that leaves at this very moment is followed again.
            self.stop(&Source::local(resource));
            self.follow(resource);
        }
        turn
    }

    fn end(&mut self, resource: &GroupResource, turn: &mut Turn) {
        let source = Source::local(resource);
        self.stop(&source);
        self.arrivals.forget(resource);
        turn.gone.push(source);
    }

    /// Watches the engines of these stores, before their objects are counted.
    async fn watch_engines(&mut self, stores: &[(GroupResource, Registered)]) {
        let ignored = events();
        for (_, registered) in stores {
            let engine = registered.store.as_system().engine();
            if self.engines.iter().any(|(known, _)| Arc::ptr_eq(known, engine)) {
                continue;
            }
            let watch = self
                .arrivals
                .watch(engine, &self.prefix, self.client.directory(), &ignored);
            match watch.await {
                Ok(handle) => self.engines.push((engine.clone(), handle)),
                Err(error) => {
                    // Everything is looked at again after a rest.
                    warn!(%error, "cannot watch the store for objects that have owners");
                    tokio::time::sleep(REST).await;
                    self.arrivals.begin_again();
                    return;
                }
            }
        }
    }

    /// Follows what aggregated servers have, as it is now.
    pub(super) fn turn_remote(&mut self, server: &Arc<dyn RemoteResources>, turn: &mut Turn) {
        let mut wanted = server.resources();
        turn.kinds.extend(wanted.iter().map(|r| r.kind.group_kind()));
        wanted.retain(|resource| resource.followable);
        if wanted.len() > MOST_REMOTE {
            warn!(
                resources = wanted.len(),
                "too many resources of aggregated servers to watch all of them for objects that have owners"
            );
            wanted.truncate(MOST_REMOTE);
        }
        let source = |resource: &RemoteResource| Source {
            resource: resource.group_resource(),
            remote: true,
        };
        let keep: HashSet<Source> = wanted.iter().map(|r| source(r)).collect();
        let gone: Vec<Source> = self
            .followed
            .keys()
            .filter(|source| source.remote && !keep.contains(*source))
            .cloned()
            .collect();
        for source in gone {
            // An unreachable server still has its objects: the known ones stay until it is back.
            self.stop(&source);
        }
        for resource in wanted {
            let source = source(&resource);
            if !self.followed.contains_key(&source) {
                self.start(source, ObjectSource::Remote(server.clone(), resource));
            }
        }
    }
}

/// Where a resource's objects are.
enum ObjectSource {
    Local(Registered),
    Remote(Arc<dyn RemoteResources>, Arc<RemoteResource>),
}

/// The Events, which own nothing and have no owners.
pub(super) fn events() -> GroupResource {
    GroupResource::new("", "events")
}

/// Those that have objects. One that cannot be counted is taken to.
async fn inhabited(stores: Vec<(GroupResource, Registered)>) -> Vec<GroupResource> {
    let events = events();
    let counts = stores
        .into_iter()
        .filter(|(resource, _)| *resource != events)
        .map(|(resource, registered)| async move {
            let store = registered.store;
            let request = RangeRequest {
                prefix: format!("{}/", store.config().prefix),
                count_only: true,
                ..RangeRequest::default()
            };
            let found = store.as_system().engine().range(request).await;
            found.map_or(true, |found| found.count > 0).then_some(resource)
        });
    let counted = stream::iter(counts).buffer_unordered(COUNTS);
    counted.filter_map(std::future::ready).collect().await
}

/// The sending side of a follower.
struct Reporter {
    id: u64,
    reports: mpsc::Sender<Report>,
}

impl Reporter {
    /// Sends the events; false when the collector is gone.
    async fn send(&self, events: &mut Vec<ObjectEvent>) -> bool {
        if events.is_empty() {
            return true;
        }
        let report = Report {
            id: self.id,
            events: std::mem::take(events),
        };
        self.reports.send(report).await.is_ok()
    }
}

fn is_empty(snapshot: &Snapshot) -> bool {
    snapshot.objects.is_empty() && snapshot.unreadable.is_empty()
}

/// Reports everything that matters about one resource of this process, for as long as it has objects.
async fn follow_local(
    resource: GroupResource,
    registered: Registered,
    arrivals: Arc<Arrivals>,
    reporter: Reporter,
) {
    let source = Source::local(&resource);
    let mut events = Vec::new();
    let mut first = true;
    let mut reflector = Reflector::new(registered.store.clone());
    let mut changes = Vec::new();
    loop {
        let empty = reflector.newest().is_some_and(|newest| is_empty(&newest));
        let next = reflector.next(&mut changes);
        let event = if empty {
            match tokio::time::timeout(LINGER, next).await {
                Ok(event) => event,
                Err(_) => {
                    let now = reflector.newest().filter(|now| is_empty(now));
                    if now.is_some_and(|now| arrivals.leave(&resource, now.revision)) {
                        events.push(ObjectEvent::Left);
                        reporter.send(&mut events).await;
                        return;
                    }
                    continue;
                }
            }
        } else {
            next.await
        };
        match event {
            Event::Failed(_) => events.push(ObjectEvent::Failing),
            Event::Listed(snapshot) => {
                let mut present = HashSet::new();
                for entry in snapshot.objects.values() {
                    // After a gap also what has no owners: it may have had.
                    if first && !concerns(entry) {
                        continue;
                    }
                    let Some(node) = Node::of(&source, entry) else {
                        continue;
                    };
                    if !first {
                        present.insert(node.uid.clone());
                    }
                    events.push(ObjectEvent::Put(Box::new(node)));
                    if events.len() >= BATCH && !reporter.send(&mut events).await {
                        return;
                    }
                }
                events.push(ObjectEvent::Listed((!first).then_some(present)));
                first = false;
            }
            Event::Changed => {
                for change in changes.drain(..) {
                    let before = change.previous.as_ref();
                    events.extend(match change.kind {
                        ChangeKind::Deleted => Metadata::of(&change.entry).map(|m| ObjectEvent::Gone(m.uid)),
                        _ if concerns(&change.entry) || before.is_some_and(|e| concerns(e)) => {
                            Node::of(&source, &change.entry).map(|node| ObjectEvent::Put(Box::new(node)))
                        }
                        _ => None,
                    });
                }
            }
        }
        if !reporter.send(&mut events).await {
            return;
        }
    }
}

/// Reports everything that matters about one resource of an aggregated server.
async fn follow_remote(server: Arc<dyn RemoteResources>, resource: Arc<RemoteResource>, reporter: Reporter) {
    let source = Source {
        resource: resource.group_resource(),
        remote: true,
    };
    let mut pause = AGAIN;
    let mut events = Vec::new();
    loop {
        let mut lines = server.follow(&resource);
        let mut present = Some(HashSet::new());
        let mut why = String::from("the watch has ended");
        while let Some(line) = lines.next().await {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    why = error;
                    break;
                }
            };
            let kind = line.get("type").and_then(|t| t.as_str()).unwrap_or_default();
            let node = line.get("object").and_then(|o| Node::of_value(&source, o));
            match (kind, node) {
                ("BOOKMARK", _) => {
                    // Only the first one says that everything has come.
                    if let Some(present) = present.take() {
                        events.push(ObjectEvent::Listed(Some(present)));
                        pause = AGAIN;
                    }
                }
                ("DELETED", Some(node)) => events.push(ObjectEvent::Gone(node.uid)),
                ("ADDED" | "MODIFIED", Some(node)) => {
                    if let Some(present) = &mut present {
                        present.insert(node.uid.clone());
                    }
                    events.push(ObjectEvent::Put(Box::new(node)));
                }
                _ => continue,
            }
            let listing = present.is_some() && events.len() < BATCH;
            if !listing && !reporter.send(&mut events).await {
                return;
            }
        }
        if present.is_some() {
            events.push(ObjectEvent::Failing);
            let resource = source.resource.to_string();
            warn!(
                resource,
                error = why,
                "cannot read a resource of an aggregated server"
            );
        }
        if !reporter.send(&mut events).await {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MOST);
    }
}
