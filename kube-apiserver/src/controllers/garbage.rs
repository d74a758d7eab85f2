//! Garbage collection: an object whose owners are all gone goes too. Foreground deletion waits for blocking dependents,
//! orphaning cuts them loose. Mirrors upstream's `pkg/controller/garbagecollector`, on the caches of this process.
//!
//! One task owns the graph of uids; one follower per resource feeds it through a bounded channel and waits when it is full.
//! Nothing is judged before every resource known at the start has been read once. The followers of two resources are not in
//! step, so an owner that the graph does not know is looked for in its store before anything is done about it; an owner of a
//! kind that is not served here is taken to be there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use generic_server::ApiError;
use generic_server::registry::Entry;
use generic_server::registry::cache::{ChangeKind, Interest};
use generic_server::registry::directory::Registered;
use generic_server::registry::write::{DeleteOptions, Preconditions};
use machinery::time::Timestamp;
use machinery::{GroupResource, GroupVersion, Reason, meta};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

use super::REST;
use crate::client::Client;
use crate::json::Json;

/// Events that may wait for the graph.
const QUEUE: usize = 1024;
/// When what failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How many objects are looked at before the graph is told more.
const BATCH: usize = 512;
/// How many writes are under way at once: they share group commits.
const ABREAST: usize = 64;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What the graph is told.
#[derive(Debug)]
enum News {
    /// An object is there, or has changed.
    Put(Box<Node>),
    /// An object is gone.
    Gone(String),
    /// A resource has been read once.
    Synced(GroupResource),
}

/// An object as the graph knows it.
#[derive(Debug, Clone, PartialEq)]
struct Node {
    uid: String,
    resource: GroupResource,
    namespace: String,
    name: String,
    owners: Vec<Owner>,
    deleting: bool,
    finalizers: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    uid: String,
    name: String,
    kind: String,
    api_version: String,
    block_owner_deletion: Option<bool>,
}

/// The part of metadata that matters here; the rest is skipped unread.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    owner_references: Option<Vec<Owner>>,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
}

fn node(resource: &GroupResource, entry: &Entry) -> Option<Node> {
    let head: Head = serde_json::from_slice(&entry.json).ok()?;
    let metadata = head.metadata;
    (!metadata.uid.is_empty()).then(|| Node {
        uid: metadata.uid,
        resource: resource.clone(),
        namespace: entry.namespace().to_string(),
        name: entry.name().to_string(),
        owners: metadata.owner_references.unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
    })
}

/// Collects garbage.
pub(super) async fn run(client: Client) {
    let (sender, mut news) = mpsc::channel(QUEUE);
    let mut graph = Graph::default();
    let mut followed: HashMap<GroupResource, tokio::task::AbortHandle> = HashMap::new();
    let mut followers = tokio::task::JoinSet::new();
    let mut unsynced: HashSet<GroupResource> = HashSet::new();
    let mut failed: HashSet<String> = HashSet::new();
    let mut directory = client.directory().changes();
    loop {
        let stores = client.directory().all();
        followed.retain(|resource, task| {
            let served = stores.contains_key(resource);
            if !served {
                task.abort();
                unsynced.remove(resource);
            }
            served
        });
        for (resource, registered) in stores.iter() {
            if resource.group.is_empty() && &*resource.resource == "events" {
                // Events own nothing and are owned by nobody.
                continue;
            }
            if !followed.contains_key(resource) {
                unsynced.insert(resource.clone());
                let task = followers.spawn(feed(resource.clone(), registered.clone(), sender.clone()));
                followed.insert(resource.clone(), task);
            }
        }
        let ready = unsynced.is_empty() && graph.has_work();
        tokio::select! {
            biased;
            Some(item) = news.recv() => {
                graph.tell(item, &mut unsynced);
                for _ in 0..QUEUE {
                    let Ok(more) = news.try_recv() else { break };
                    graph.tell(more, &mut unsynced);
                }
            }
            // Owners of kinds that were not served may be now.
            _ = directory.changed() => graph.look_at_unresolved(),
            () = std::future::ready(()), if ready => {}
            () = tokio::time::sleep(AGAIN), if !failed.is_empty() => {
                failed.drain().for_each(|uid| graph.look_at(uid));
            }
        }
        if !unsynced.is_empty() {
            continue;
        }
        let batch = graph.take_work(BATCH);
        let looks: Vec<_> = batch.iter().map(|uid| attend_to(&client, &graph, uid)).collect();
        let done: Vec<_> = stream::iter(looks).buffer_unordered(ABREAST).collect().await;
        for (uid, outcome) in done {
            match outcome {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Unresolved) => graph.unresolved(uid),
                Ok(Outcome::Again) => {
                    failed.insert(uid);
                }
                Ok(Outcome::Others(others)) => others.into_iter().for_each(|uid| graph.look_at(uid)),
                Err(error) => {
                    warn!(error = error.message(), "cannot collect an object");
                    failed.insert(uid);
                }
            }
        }
    }
}

/// Boxed, because the compiler cannot see that the unboxed futures of a stream are `Send` for every lifetime.
fn attend_to<'a>(
    client: &'a Client,
    graph: &'a Graph,
    uid: &'a str,
) -> BoxFuture<'a, (String, Result<Outcome, ApiError>)> {
    Box::pin(async move { (uid.to_owned(), attend(client, graph, uid).await) })
}

/// Tells the graph everything about one resource.
async fn feed(resource: GroupResource, registered: Registered, sender: mpsc::Sender<News>) {
    let mut known: HashMap<Arc<str>, String> = HashMap::new();
    loop {
        let store = &registered.store;
        let (Ok(snapshot), Ok(cache)) = (store.fresh().await, store.cache().await) else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let mut now = HashMap::new();
        for (key, entry) in snapshot.objects.iter() {
            if let Some(node) = node(&resource, entry) {
                now.insert(key.clone(), node.uid.clone());
                if sender.send(News::Put(Box::new(node))).await.is_err() {
                    return;
                }
            }
        }
        // After a gap: what was known and is no more.
        for (key, uid) in known.drain() {
            if now.get(&key) != Some(&uid) && sender.send(News::Gone(uid)).await.is_err() {
                return;
            }
        }
        known = now;
        if sender.send(News::Synced(resource.clone())).await.is_err() {
            return;
        }
        let Ok(mut feed) = cache.feed(snapshot.revision, Interest::All).await else {
            continue;
        };
        drop(snapshot);
        let mut changes = Vec::new();
        while feed.next(&mut changes).await.is_ok() {
            for change in changes.drain(..) {
                let Some(node) = node(&resource, &change.entry) else {
                    continue;
                };
                let news = match change.kind {
                    ChangeKind::Deleted => {
                        known.remove(&change.entry.key);
                        News::Gone(node.uid)
                    }
                    _ => {
                        known.insert(change.entry.key.clone(), node.uid.clone());
                        News::Put(Box::new(node))
                    }
                };
                if sender.send(news).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Who is there and who owns whom.
#[derive(Debug, Default)]
struct Graph {
    nodes: HashMap<String, Node>,
    /// Uids of dependents by the uid of the owner, present or not.
    dependents: HashMap<String, HashSet<String>>,
    /// Whom to look at.
    work: HashSet<String>,
    /// Who has an owner of a kind that is not served.
    unresolved: HashSet<String>,
}

impl Graph {
    fn tell(&mut self, news: News, unsynced: &mut HashSet<GroupResource>) {
        match news {
            News::Put(node) => self.put(*node),
            News::Gone(uid) => self.gone(&uid),
            News::Synced(resource) => {
                unsynced.remove(&resource);
            }
        }
    }

    fn put(&mut self, node: Node) {
        let uid = node.uid.clone();
        if let Some(old) = self.nodes.get(&uid) {
            if *old == node {
                return;
            }
            for owner in &old.owners {
                if let Some(set) = self.dependents.get_mut(&owner.uid) {
                    set.remove(&uid);
                }
                // An owner may have waited for this one to let go.
                self.work.insert(owner.uid.clone());
            }
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        let waits = node.deleting && node.finalizers.iter().any(|f| f == ORPHAN || f == FOREGROUND);
        if !node.owners.is_empty() || waits {
            self.work.insert(uid.clone());
        }
        self.nodes.insert(uid, node);
    }

    fn gone(&mut self, uid: &str) {
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                if let Some(set) = self.dependents.get_mut(&owner.uid) {
                    set.remove(uid);
                    if set.is_empty() {
                        self.dependents.remove(&owner.uid);
                    }
                }
                self.work.insert(owner.uid.clone());
            }
        }
        if let Some(dependents) = self.dependents.get(uid) {
            self.work.extend(dependents.iter().cloned());
        }
    }

    fn look_at(&mut self, uid: String) {
        self.work.insert(uid);
    }

    fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    fn take_work(&mut self, most: usize) -> Vec<String> {
        let taken: Vec<String> = self.work.iter().take(most).cloned().collect();
        for uid in &taken {
            self.work.remove(uid);
        }
        taken
    }

    fn unresolved(&mut self, uid: String) {
        self.unresolved.insert(uid);
    }

    fn look_at_unresolved(&mut self) {
        self.work.extend(self.unresolved.drain());
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Node> {
        let set = self.dependents.get(uid).into_iter().flatten();
        set.filter_map(|uid| self.nodes.get(uid))
    }

    /// How an owner stands to a dependent that it can own, being in its namespace or in none; `None` when it is not known.
    fn standing(&self, owner: &Owner, dependent: &Node) -> Option<Standing> {
        let node = self.nodes.get(&owner.uid)?;
        if !node.namespace.is_empty() && node.namespace != dependent.namespace {
            return None;
        }
        Some(match node.in_foreground() {
            true => Standing::Waiting,
            false => Standing::Solid,
        })
    }
}

impl Node {
    fn in_foreground(&self) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == FOREGROUND)
    }
}

/// How an owner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there.
    Solid,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It is not there.
    Dangling,
    /// Nobody can tell: its kind is not served here, or cannot own what it is said to own.
    Unknown,
}

/// How every owner of an object stands.
async fn standings(client: &Client, graph: &Graph, node: &Node) -> Result<Vec<Standing>, ApiError> {
    let mut out = Vec::with_capacity(node.owners.len());
    for owner in &node.owners {
        out.push(match graph.standing(owner, node) {
            Some(standing) => standing,
            None => look_up(client, owner, node).await?,
        });
    }
    Ok(out)
}

/// Looks for an owner in its store, by its kind and name, as upstream asks the server.
async fn look_up(client: &Client, owner: &Owner, node: &Node) -> Result<Standing, ApiError> {
    let Some(version) = GroupVersion::parse(&owner.api_version) else {
        return Ok(Standing::Unknown);
    };
    let stores = client.directory().all();
    let found = stores.iter().find(|(resource, registered)| {
        resource.group == version.group && *registered.resource.gvk.kind == *owner.kind
    });
    let Some((_, registered)) = found else {
        return Ok(Standing::Unknown);
    };
    let namespaced = registered.store.config().namespaced;
    if namespaced && node.namespace.is_empty() {
        return Ok(Standing::Unknown);
    }
    let namespace = if namespaced { node.namespace.as_str() } else { "" };
    let entry = registered.store.find(namespace, &owner.name).await?;
    let uid = entry.and_then(|entry| serde_json::from_slice::<Head>(&entry.json).ok());
    Ok(match uid {
        Some(head) if head.metadata.uid == owner.uid => Standing::Solid,
        _ => Standing::Dangling,
    })
}

/// What an object asks for now.
#[derive(Debug, PartialEq)]
enum Verdict {
    Nothing,
    /// One of its owners is of a kind that is not served.
    Unresolved,
    /// It is garbage; with the policy that its dependents call for.
    Delete(&'static str),
    /// It stays, without the owners of these uids.
    Release(HashSet<String>),
    /// Its dependents are cut loose, then its own finalizer goes.
    Orphan,
    /// Its dependents are deleted; when none blocks any more its own finalizer goes.
    Foreground,
}

fn judge(graph: &Graph, node: &Node, standings: &[Standing]) -> Verdict {
    if node.deleting {
        if node.finalizers.iter().any(|f| f == ORPHAN) {
            return Verdict::Orphan;
        }
        if node.finalizers.iter().any(|f| f == FOREGROUND) {
            return Verdict::Foreground;
        }
        return Verdict::Nothing;
    }
    let of = |wanted: Standing| -> HashSet<String> {
        let owners = node.owners.iter().zip(standings);
        owners
            .filter(|(_, standing)| **standing == wanted)
            .map(|(owner, _)| owner.uid.clone())
            .collect()
    };
    if standings.contains(&Standing::Unknown) {
        return Verdict::Unresolved;
    }
    let (mut dangling, waiting) = (of(Standing::Dangling), of(Standing::Waiting));
    if dangling.is_empty() && waiting.is_empty() {
        return Verdict::Nothing;
    }
    if standings.contains(&Standing::Solid) {
        dangling.extend(waiting);
        return Verdict::Release(dangling);
    }
    if !waiting.is_empty() && graph.dependents_of(&node.uid).next().is_some() {
        // An owner waits in the foreground: this one must not be gone before its own dependents are.
        return Verdict::Delete("Foreground");
    }
    // What somebody asked for by a finalizer beforehand is kept.
    let asked = |finalizer: &str| node.finalizers.iter().any(|f| f == finalizer);
    Verdict::Delete(match () {
        () if asked(ORPHAN) => "Orphan",
        () if asked(FOREGROUND) => "Foreground",
        () => "Background",
    })
}

/// What came of looking at an object.
enum Outcome {
    Done,
    /// To be looked at again when other kinds are served.
    Unresolved,
    /// Somebody else was faster: to be looked at again.
    Again,
    /// These have to be looked at now.
    Others(Vec<String>),
}

async fn attend(client: &Client, graph: &Graph, uid: &str) -> Result<Outcome, ApiError> {
    let Some(node) = graph.nodes.get(uid) else {
        return Ok(Outcome::Done);
    };
    let standings = match node.deleting {
        true => Vec::new(),
        false => standings(client, graph, node).await?,
    };
    match judge(graph, node, &standings) {
        Verdict::Nothing => {}
        Verdict::Unresolved => return Ok(Outcome::Unresolved),
        Verdict::Delete(policy) => {
            report_strangers(client, graph, node).await;
            let circle = graph.dependents_of(uid).any(Node::in_foreground);
            if policy == "Foreground" && circle {
                // Objects that own each other would wait for each other for ever.
                unblock(client, node).await?;
            }
            return delete(client, node, policy).await;
        }
        Verdict::Release(owners) => release(client, node, &owners).await?,
        Verdict::Orphan => {
            let owner = HashSet::from([node.uid.clone()]);
            let releases: Vec<_> = graph
                .dependents_of(uid)
                .map(|dependent| release(client, dependent, &owner))
                .collect();
            let done: Vec<_> = stream::iter(releases).buffer_unordered(ABREAST).collect().await;
            done.into_iter().collect::<Result<(), _>>()?;
            drop_finalizer(client, node, ORPHAN).await?;
        }
        Verdict::Foreground => {
            let blocks = |o: &Owner| o.uid == uid && o.block_owner_deletion == Some(true);
            let blocked = graph.dependents_of(uid).any(|d| d.owners.iter().any(blocks));
            let others = graph.dependents_of(uid).filter(|d| !d.deleting);
            let others: Vec<String> = others.map(|d| d.uid.clone()).collect();
            if !blocked {
                drop_finalizer(client, node, FOREGROUND).await?;
            }
            return Ok(Outcome::Others(others));
        }
    }
    Ok(Outcome::Done)
}

/// Deletes an object that is still what the graph knows of it.
async fn delete(client: &Client, node: &Node, policy: &str) -> Result<Outcome, ApiError> {
    let at = (&*node.resource.group, &*node.resource.resource);
    let Some(entry) = client.entry(at, &node.namespace, &node.name).await? else {
        return Ok(Outcome::Done);
    };
    let current = self::node(&node.resource, &entry);
    if current
        .as_ref()
        .is_none_or(|now| now.uid != node.uid || now.owners != node.owners)
    {
        // The graph is told of it soon.
        return Ok(Outcome::Done);
    }
    let options = DeleteOptions {
        propagation: Some(policy.into()),
        preconditions: Preconditions {
            uid: Some(node.uid.clone()),
            resource_version: Some(entry.revision.to_string()),
        },
        ..DeleteOptions::default()
    };
    match client.delete(at, &node.namespace, &node.name, &options).await {
        Err(error) if error.reason() == Reason::Conflict => Ok(Outcome::Again),
        done => done.map(|_| Outcome::Done),
    }
}

/// Tells, as an Event, of owners that live in another namespace: they cannot own this object.
async fn report_strangers(client: &Client, graph: &Graph, node: &Node) {
    for owner in &node.owners {
        let elsewhere = graph
            .nodes
            .get(&owner.uid)
            .is_some_and(|o| !o.namespace.is_empty() && o.namespace != node.namespace);
        if !elsewhere {
            continue;
        }
        let at = (&*node.resource.group, &*node.resource.resource);
        let Ok(kind) = client.resource(at).map(|r| r.resource.gvk.clone()) else {
            continue;
        };
        let (now, namespace) = (Timestamp::now(), node.namespace.as_str());
        let text = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
            owner.api_version, owner.kind, owner.name, owner.uid
        );
        let event = json!({
            "metadata": {"generateName": format!("{}-", node.name), "namespace": namespace},
            "involvedObject": {"apiVersion": kind.api_version(), "kind": &*kind.kind, "name": node.name, "namespace": namespace,
                "uid": node.uid},
            "reason": "OwnerRefInvalidNamespace", "message": text, "type": "Warning", "count": 1,
            "source": {"component": "garbage-collector-controller"}, "reportingComponent": "garbage-collector-controller",
            "firstTimestamp": now.to_rfc3339(), "lastTimestamp": now.to_rfc3339(),
        });
        if let Err(error) = client.create(("", "events"), namespace, event).await {
            warn!(
                error = error.message(),
                "cannot tell of an owner in another namespace"
            );
        }
    }
}

/// Lets the owners of an object go before it.
async fn unblock(client: &Client, node: &Node) -> Result<(), ApiError> {
    let at = (&*node.resource.group, &*node.resource.resource);
    let done = client
        .update(at, &node.namespace, &node.name, "", |object| {
            let mut references = meta::owner_references(object).to_vec();
            for reference in &mut references {
                if reference.dig("blockOwnerDeletion").as_bool() == Some(true) {
                    reference.put("blockOwnerDeletion", false);
                }
            }
            meta::set(object, "ownerReferences", references);
            Ok(())
        })
        .await;
    missing_is_fine(done)
}

/// Takes owner references away.
async fn release(client: &Client, node: &Node, owners: &HashSet<String>) -> Result<(), ApiError> {
    let at = (&*node.resource.group, &*node.resource.resource);
    let done = client
        .update(at, &node.namespace, &node.name, "", |object| {
            let rest: Vec<Value> = meta::owner_references(object)
                .iter()
                .filter(|r| !owners.contains(r.text("uid")))
                .cloned()
                .collect();
            meta::set(
                object,
                "ownerReferences",
                if rest.is_empty() { Value::Null } else { rest.into() },
            );
            Ok(())
        })
        .await;
    missing_is_fine(done)
}

async fn drop_finalizer(client: &Client, node: &Node, finalizer: &str) -> Result<(), ApiError> {
    let at = (&*node.resource.group, &*node.resource.resource);
    let done = client
        .update(at, &node.namespace, &node.name, "", |object| {
            let rest: Vec<String> = meta::finalizers(object)
                .filter(|f| *f != finalizer)
                .map(str::to_string)
                .collect();
            meta::set(
                object,
                "finalizers",
                if rest.is_empty() { Value::Null } else { rest.into() },
            );
            Ok(())
        })
        .await;
    missing_is_fine(done)
}

fn missing_is_fine(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if error.reason() == Reason::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, owners: &[&str]) -> Node {
        Node {
            uid: uid.into(),
            resource: GroupResource::new("", "pods"),
            namespace: "n".into(),
            name: uid.into(),
            owners: owners
                .iter()
                .map(|uid| Owner {
                    uid: (*uid).into(),
                    block_owner_deletion: Some(true),
                    ..Owner::default()
                })
                .collect(),
            deleting: false,
            finalizers: Vec::new(),
        }
    }

    #[track_caller]
    fn check(nodes: Vec<Node>, uid: &str, expected: Verdict) {
        let mut graph = Graph::default();
        for node in nodes {
            graph.put(node);
        }
        let node = &graph.nodes[uid];
        let known = |owner| graph.standing(owner, node).unwrap_or(Standing::Dangling);
        let standings: Vec<Standing> = node.owners.iter().map(known).collect();
        assert_eq!(judge(&graph, node, &standings), expected);
    }

    #[test]
    fn owners_decide() {
        let owner = || object("o", &[]);
        check(vec![owner(), object("d", &["o"])], "d", Verdict::Nothing);
        check(vec![object("d", &["o"])], "d", Verdict::Delete("Background"));
        let two = object("d", &["o", "gone"]);
        check(
            vec![owner(), two],
            "d",
            Verdict::Release(HashSet::from(["gone".to_string()])),
        );
        let elsewhere = Node {
            namespace: "m".into(),
            ..owner()
        };
        check(
            vec![elsewhere, object("d", &["o"])],
            "d",
            Verdict::Delete("Background"),
        );
        let foreground = || Node {
            deleting: true,
            finalizers: vec![FOREGROUND.into()],
            ..owner()
        };
        check(vec![foreground()], "o", Verdict::Foreground);
        check(
            vec![foreground(), object("d", &["o"]), object("e", &["d"])],
            "d",
            Verdict::Delete("Foreground"),
        );
        let orphaning = Node {
            deleting: true,
            finalizers: vec![ORPHAN.into()],
            ..owner()
        };
        check(vec![orphaning, object("d", &["o"])], "o", Verdict::Orphan);
    }

    #[test]
    fn a_deletion_wakes_the_dependents() {
        let mut graph = Graph::default();
        graph.put(object("o", &[]));
        graph.put(object("d", &["o"]));
        graph.take_work(9);
        graph.gone("o");
        assert_eq!(graph.take_work(9), ["d"]);
        graph.gone("d");
        assert!(graph.dependents.is_empty());
    }
}
