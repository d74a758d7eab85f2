//! Garbage collection: an object whose owners are all gone goes too. Foreground deletion waits for blocking dependents,
//! orphaning cuts them loose. Mirrors upstream's `pkg/controller/garbagecollector`, on the caches of this process.
//!
//! One task owns the graph of uids; one follower per resource feeds it through a bounded channel and waits when it is full.
//! Nothing is judged before every resource known at the start has been read once: an owner not yet seen is not an owner gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::registry::Entry;
use generic_server::registry::cache::{ChangeKind, Interest};
use generic_server::registry::directory::Registered;
use generic_server::registry::write::{DeleteOptions, Preconditions};
use machinery::{GroupResource, Reason, meta};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::REST;
use crate::client::Client;
use crate::json::Json;

/// Events that may wait for the graph.
const QUEUE: usize = 1024;
/// How long new resources may go unnoticed when no other event comes.
const LOOK_AROUND: Duration = Duration::from_millis(500);
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
        tokio::select! {
            Some(item) = news.recv() => {
                let mut batch = vec![item];
                while let Ok(more) = news.try_recv() {
                    batch.push(more);
                }
                for item in batch {
                    match item {
                        News::Put(node) => graph.put(*node),
                        News::Gone(uid) => graph.gone(&uid),
                        News::Synced(resource) => { unsynced.remove(&resource); }
                    }
                }
            }
            _ = directory.changed() => {}
            () = tokio::time::sleep(LOOK_AROUND), if graph.has_work() => {}
        }
        if unsynced.is_empty() {
            for uid in graph.take_work() {
                if let Err(error) = attend(&client, &graph, &uid).await {
                    warn!(error = error.message(), "cannot collect an object");
                    graph.look_at(uid);
                }
            }
        }
    }
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
}

impl Graph {
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

    fn take_work(&mut self) -> Vec<String> {
        self.work.drain().collect()
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Node> {
        let set = self.dependents.get(uid).into_iter().flatten();
        set.filter_map(|uid| self.nodes.get(uid))
    }

    /// Whether an owner is there, where it can own this dependent: in its namespace, or in none.
    fn present(&self, owner: &Owner, dependent: &Node) -> bool {
        self.nodes
            .get(&owner.uid)
            .is_some_and(|node| node.namespace.is_empty() || node.namespace == dependent.namespace)
    }
}

/// What an object asks for now.
#[derive(Debug, PartialEq)]
enum Verdict {
    Nothing,
    /// It is garbage; with the policy that its dependents call for.
    Delete(&'static str),
    /// It stays, without the owners of these uids.
    Release(HashSet<String>),
    /// Its dependents are cut loose, then its own finalizer goes.
    Orphan,
    /// Its dependents are deleted; when none blocks any more its own finalizer goes.
    Foreground,
}

fn judge(graph: &Graph, node: &Node) -> Verdict {
    if node.deleting {
        if node.finalizers.iter().any(|f| f == ORPHAN) {
            return Verdict::Orphan;
        }
        if node.finalizers.iter().any(|f| f == FOREGROUND) {
            return Verdict::Foreground;
        }
        return Verdict::Nothing;
    }
    let (mut solid, mut waiting, mut dangling) = (0, HashSet::new(), HashSet::new());
    for owner in &node.owners {
        if !graph.present(owner, node) {
            dangling.insert(owner.uid.clone());
            continue;
        }
        let going = graph
            .nodes
            .get(&owner.uid)
            .is_some_and(|o| o.deleting && o.finalizers.iter().any(|f| f == FOREGROUND));
        if going {
            waiting.insert(owner.uid.clone());
        } else {
            solid += 1;
        }
    }
    if dangling.is_empty() && waiting.is_empty() {
        return Verdict::Nothing;
    }
    if solid > 0 {
        dangling.extend(waiting);
        return Verdict::Release(dangling);
    }
    if !waiting.is_empty() && graph.dependents_of(&node.uid).next().is_some() {
        // An owner waits in the foreground: this one must not be gone before its own dependents are.
        return Verdict::Delete("Foreground");
    }
    Verdict::Delete("Background")
}

async fn attend(client: &Client, graph: &Graph, uid: &str) -> Result<(), ApiError> {
    let Some(node) = graph.nodes.get(uid) else {
        return Ok(());
    };
    let at = (&*node.resource.group, &*node.resource.resource);
    match judge(graph, node) {
        Verdict::Nothing => Ok(()),
        Verdict::Delete(policy) => {
            let options = DeleteOptions {
                propagation: Some(policy.into()),
                preconditions: Preconditions {
                    uid: Some(node.uid.clone()),
                    resource_version: None,
                },
                ..DeleteOptions::default()
            };
            match client.delete(at, &node.namespace, &node.name, &options).await {
                // Another object of that name: not what the graph knew.
                Err(error) if error.reason() == Reason::Conflict => Ok(()),
                done => done.map(|_| ()),
            }
        }
        Verdict::Release(owners) => release(client, node, &owners).await,
        Verdict::Orphan => {
            let owner = HashSet::from([node.uid.clone()]);
            for dependent in graph.dependents_of(uid) {
                release(client, dependent, &owner).await?;
            }
            drop_finalizer(client, node, ORPHAN).await
        }
        Verdict::Foreground => {
            let mut blocked = false;
            for dependent in graph.dependents_of(uid) {
                let blocks = |o: &Owner| o.uid == uid && o.block_owner_deletion == Some(true);
                blocked |= dependent.owners.iter().any(blocks);
                if !dependent.deleting {
                    Box::pin(attend(client, graph, &dependent.uid)).await?;
                }
            }
            match blocked {
                true => Ok(()),
                false => drop_finalizer(client, node, FOREGROUND).await,
            }
        }
    }
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
        assert_eq!(judge(&graph, &graph.nodes[uid]), expected);
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
        graph.take_work();
        graph.gone("o");
        assert_eq!(graph.take_work(), ["d"]);
        graph.gone("d");
        assert!(graph.dependents.is_empty());
    }
}
