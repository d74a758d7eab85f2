//! Owners and dependents by uid, and the objects that are due for judgement. Holds objects that have owners or wait for the
//! collector, and owners by their uid; an object that is neither costs nothing. Kept by events alone: it is scanned only after a gap.

use std::collections::{HashMap, HashSet};

use super::object::{Node, Owner, Place, Source, Uid};

/// A change of the objects of a source.
#[derive(Debug)]
pub(super) enum ObjectEvent {
    /// An object is there, or has changed.
    Put(Box<Node>),
    /// An object is gone.
    Gone(Uid),
    /// A source has been read. Read again, after a gap: with all uids that are there.
    Listed(Option<HashSet<Uid>>),
    /// A source cannot be read now.
    Failing,
    /// A source is empty and no longer followed.
    Left,
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It is there.
    Present,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It is not there.
    Absent,
    /// It cannot be determined: its kind is not served here, or cannot own the dependent.
    Unknown,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    nodes: HashMap<Uid, Node>,
    /// Objects that others name as owners, present or not.
    owners: HashMap<Uid, Owned>,
    work: HashSet<Uid>,
}

/// The state of an owner.
#[derive(Debug, Default)]
struct Owned {
    dependents: HashSet<Uid>,
    /// Where it was seen. The follower of that source reports its deletion.
    seen: Option<Place>,
}

impl Index {
    /// Applies an event of a source.
    pub(super) fn apply(&mut self, source: &Source, event: ObjectEvent) {
        match event {
            ObjectEvent::Put(node) => self.put(*node),
            ObjectEvent::Gone(uid) => self.gone(&uid),
            ObjectEvent::Listed(Some(present)) => self.keep(source, &present),
            ObjectEvent::Left => self.keep(source, &HashSet::new()),
            ObjectEvent::Listed(None) | ObjectEvent::Failing => {}
        }
    }

    fn put(&mut self, node: Node) {
        let uid = node.uid.clone();
        if self.nodes.get(&uid) == Some(&node) {
            return;
        }
        self.forget(&uid);
        for owner in &node.owners {
            let owned = self.owners.entry(owner.uid.clone()).or_default();
            owned.dependents.insert(uid.clone());
        }
        if node.matters() {
            self.work.insert(uid.clone());
            self.nodes.insert(uid, node);
        }
    }

    /// Takes an object out. Owners that wait may have waited for it.
    fn forget(&mut self, uid: &Uid) {
        let Some(node) = self.nodes.remove(uid) else {
            return;
        };
        for owner in &node.owners {
            if let Some(owned) = self.owners.get_mut(&owner.uid) {
                owned.dependents.remove(uid);
                if owned.dependents.is_empty() {
                    self.owners.remove(&owner.uid);
                }
            }
            if self.nodes.get(&owner.uid).is_some_and(Node::waits) {
                self.work.insert(owner.uid.clone());
            }
        }
    }

    fn gone(&mut self, uid: &Uid) {
        self.forget(uid);
        if let Some(owned) = self.owners.get_mut(uid) {
            owned.seen = None;
            self.work.extend(owned.dependents.iter().cloned());
        }
    }

    /// After a gap, or an end: known objects of a source that are not listed are gone.
    fn keep(&mut self, source: &Source, present: &HashSet<Uid>) {
        let nodes = self.nodes.values().filter(|n| n.place.source == *source);
        let mut lost: Vec<Uid> = nodes
            .map(|n| &n.uid)
            .filter(|uid| !present.contains(*uid))
            .cloned()
            .collect();
        let seen = self
            .owners
            .iter()
            .filter(|(_, o)| o.seen.as_ref().is_some_and(|p| p.source == *source));
        lost.extend(
            seen.map(|(uid, _)| uid)
                .filter(|uid| !present.contains(*uid))
                .cloned(),
        );
        lost.iter().for_each(|uid| self.gone(uid));
        // The others may be deletable now.
        let left = self.nodes.values().filter(|n| n.place.source == *source);
        self.work.extend(left.map(|n| n.uid.clone()));
    }

    /// An owner was seen; the follower of its source will report its deletion.
    pub(super) fn record_owner_location(&mut self, uid: &Uid, place: Place) {
        if let Some(owned) = self.owners.get_mut(uid) {
            owned.seen = Some(place);
        }
    }

    /// The state of an owner of a dependent, by what is known; `None` when it has to be looked up.
    pub(super) fn owner_state(&self, owner: &Owner, dependent: &Node, group: &str) -> Option<OwnerState> {
        let known = self.nodes.get(&owner.uid);
        let place = match known {
            Some(node) => &node.place,
            None => self.owners.get(&owner.uid)?.seen.as_ref()?,
        };
        let in_reach = place.namespace.is_empty() || place.namespace == dependent.place.namespace;
        if !in_reach || place.name != owner.name || &*place.source.resource.group != group {
            return None;
        }
        Some(match known.is_some_and(Node::in_foreground) {
            true => OwnerState::Waiting,
            false => OwnerState::Present,
        })
    }

    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub(super) fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Node> {
        let owned = self.owners.get(uid);
        let all = owned.into_iter().flat_map(|o| &o.dependents);
        all.filter_map(|uid| self.nodes.get(uid))
    }

    pub(super) fn look_at(&mut self, uid: Uid) {
        self.work.insert(uid);
    }

    pub(super) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    pub(super) fn take_work(&mut self, most: usize) -> Vec<Uid> {
        let taken: Vec<Uid> = self.work.iter().take(most).cloned().collect();
        for uid in &taken {
            self.work.remove(uid);
        }
        taken
    }
}

#[cfg(test)]
pub(super) mod tests {
    use machinery::GroupResource;

    use super::*;

    pub(crate) fn object(uid: &str, owners: &[&str]) -> Node {
        Node {
            uid: uid.into(),
            place: Place {
                source: Source::local(&GroupResource::new("", "pods")),
                namespace: "n".into(),
                name: uid.into(),
            },
            owners: owners
                .iter()
                .map(|uid| Owner {
                    uid: (*uid).into(),
                    name: (*uid).into(),
                    block_owner_deletion: Some(true),
                    ..Owner::default()
                })
                .collect(),
            deleting: false,
            orphan: false,
            foreground: false,
        }
    }

    pub(crate) fn index(nodes: Vec<Node>) -> Index {
        let mut index = Index::default();
        nodes.into_iter().for_each(|node| index.put(node));
        index
    }

    fn work(index: &mut Index) -> Vec<String> {
        let mut work: Vec<String> = index.take_work(9).iter().map(ToString::to_string).collect();
        work.sort();
        work
    }

    #[test]
    fn objects_without_owners_are_not_indexed() {
        let mut index = index(vec![object("o", &[])]);
        assert!(index.nodes.is_empty() && index.owners.is_empty() && index.work.is_empty());
        index.gone(&"o".into());
        assert!(index.work.is_empty());
    }

    #[test]
    fn a_deletion_wakes_dependents_and_waiting_owners() {
        let waiting = Node {
            deleting: true,
            foreground: true,
            ..object("o", &[])
        };
        let mut index = index(vec![waiting, object("d", &["o"])]);
        assert_eq!(work(&mut index), ["d", "o"]);
        index.gone(&"o".into());
        assert_eq!(work(&mut index), ["d"]);
        index.gone(&"d".into());
        assert!(index.owners.is_empty() && index.nodes.is_empty());
    }

    #[test]
    fn letting_go_wakes_an_owner_that_waits() {
        let waiting = Node {
            deleting: true,
            foreground: true,
            ..object("o", &[])
        };
        let mut index = index(vec![waiting, object("d", &["o"])]);
        work(&mut index);
        index.put(object("d", &[]));
        assert_eq!(work(&mut index), ["o"]);
        assert_eq!(index.dependents_of("o").count(), 0);
    }

    #[test]
    fn a_gap_is_made_up_for() {
        let mut index = index(vec![object("d", &["o"]), object("e", &["p"])]);
        let (o, p): (Uid, Uid) = ("o".into(), "p".into());
        let owners = Source::local(&GroupResource::new("", "configmaps"));
        for uid in [&o, &p] {
            let place = Place {
                source: owners.clone(),
                namespace: "n".into(),
                name: uid.as_ref().into(),
            };
            index.record_owner_location(uid, place);
        }
        work(&mut index);
        let owner = |uid: &Uid| Owner {
            uid: uid.clone(),
            name: uid.as_ref().into(),
            ..Owner::default()
        };
        let owner_state = |index: &Index, uid: &Uid| index.owner_state(&owner(uid), &object("x", &[]), "");
        assert_eq!(owner_state(&index, &o), Some(OwnerState::Present));
        index.apply(&owners, ObjectEvent::Listed(Some(HashSet::from([p.clone()]))));
        assert_eq!(work(&mut index), ["d"]);
        assert_eq!(owner_state(&index, &o), None);
        assert_eq!(owner_state(&index, &p), Some(OwnerState::Present));
        index.apply(&owners, ObjectEvent::Left);
        assert_eq!(work(&mut index), ["e"]);
        index.apply(
            &object("d", &[]).place.source,
            ObjectEvent::Listed(Some(HashSet::from(["d".into()]))),
        );
        assert_eq!(work(&mut index), ["d"]);
        assert!(index.node("e").is_none());
    }
}
