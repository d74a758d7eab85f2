//! The taken addresses and ports: by the services in the store, by writes under way, and the search for what is free.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use generic_server::registry::Entry;
use imbl::ordmap::DiffItem;
use parking_lot::Mutex;
use serde_json::Value;

use crate::json::Json;
use crate::unique::Seen;

/// Something that one service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Thing {
    Ip(IpAddr),
    Port(u16),
}

/// The allocations of the stored services, as of some snapshot.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    objects: imbl::OrdMap<Arc<str>, Arc<Entry>>,
    taken: HashMap<Thing, usize>,
    /// Where the next search begins, per range.
    next: HashMap<String, u128>,
}

impl Ledger {
    /// The ports of stored services.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        ports(self.taken.keys())
    }

    /// Whether a stored service has this.
    pub(super) fn is_taken(&self, thing: Thing) -> bool {
        self.taken.contains_key(&thing)
    }

    /// Brings the ledger to a newer snapshot; costs what changed.
    pub(super) fn follow(&mut self, objects: &imbl::OrdMap<Arc<str>, Arc<Entry>>) {
        let old = std::mem::replace(&mut self.objects, objects.clone());
        let mut steps: Vec<(Thing, bool)> = Vec::new();
        for change in old.diff(objects) {
            let (gone, came) = match change {
                DiffItem::Add(_, new) => (None, Some(new)),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
                DiffItem::Remove(_, old) => (Some(old), None),
            };
            for (entry, add) in [(gone, false), (came, true)] {
                if let Some(entry) = entry {
                    steps.extend(things(&entry.value()).into_iter().map(|thing| (thing, add)));
                }
            }
        }
        for (thing, add) in steps {
            let count = self.taken.entry(thing).or_default();
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.taken.remove(&thing);
            }
        }
    }
}

/// The allocations of a service.
pub(super) fn things(service: &Value) -> Vec<Thing> {
    let ips = service
        .strings("spec.clusterIPs")
        .filter_map(|ip| ip.parse().ok());
    let ports = service.list("spec.ports").iter().map(|port| port.int("nodePort"));
    let ports = ports.chain([service.int("spec.healthCheckNodePort")]);
    let ports = ports
        .flatten()
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0);
    let mut things: Vec<Thing> = ips.map(Thing::Ip).collect();
    let mut seen = Seen::default();
    things.extend(ports.filter(|port| !seen.again(*port)).map(Thing::Port));
    things
}

/// The ports among these.
pub(super) fn ports<'t>(things: impl IntoIterator<Item = &'t Thing>) -> impl Iterator<Item = u16> {
    things.into_iter().filter_map(|thing| match thing {
        Thing::Port(port) => Some(*port),
        Thing::Ip(_) => None,
    })
}

/// Things of writes under way.
pub(super) type Pending = Arc<Mutex<HashMap<Thing, usize>>>;

/// The allocations of a write that is not yet stored; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    pending: Pending,
    things: Vec<Thing>,
}

impl Held {
    pub(super) fn new(pending: &Pending) -> Self {
        Held {
            pending: pending.clone(),
            things: Vec::new(),
        }
    }

    fn add(&mut self, thing: Thing) {
        *self.pending.lock().entry(thing).or_default() += 1;
        self.things.push(thing);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut pending = self.pending.lock();
        for thing in &self.things {
            if let Some(count) = pending.get_mut(thing) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(thing);
                }
            }
        }
    }
}

/// The search for one write.
pub(super) struct Search<'a> {
    pub(super) ledger: &'a mut Ledger,
    /// Taken by other writes under way.
    pub(super) busy: HashMap<Thing, usize>,
    /// Taken by other servers that share the store, or by another parent than a service.
    pub(super) elsewhere: &'a HashSet<Thing>,
    /// Where what is taken is held; nowhere in a dry run.
    pub(super) held: Option<&'a mut Held>,
    /// The ports that this search has taken.
    pub(super) ports: Vec<u16>,
}

impl Search<'_> {
    fn free(&self, thing: Thing) -> bool {
        !self.elsewhere.contains(&thing) && !self.ledger.is_taken(thing) && !self.busy.contains_key(&thing)
    }

    /// Takes a thing if it is free.
    pub(super) fn take(&mut self, thing: Thing) -> bool {
        let free = self.free(thing);
        if free {
            *self.busy.entry(thing).or_default() += 1;
            if let Thing::Port(port) = thing {
                self.ports.push(port);
            }
            if let Some(held) = &mut self.held {
                held.add(thing);
            }
        }
        free
    }

    /// The next free thing of a numbered range, from where the last search ended; the first `band` numbers, which clients choose
    /// from, come last.
    pub(super) fn next(
        &mut self,
        range: &str,
        size: u128,
        band: u128,
        at: impl Fn(u128) -> Thing,
    ) -> Option<Thing> {
        let band = band.min(size);
        let upper = size - band;
        let start = self.ledger.next.get(range).copied().unwrap_or_default();
        // No more numbers can be taken than there are services and ports, so this ends early in a large range.
        let upper_numbers = (0..upper).map(|step| band + (start + step) % upper.max(1));
        let found = upper_numbers
            .chain(0..band)
            .find(|number| self.free(at(*number)))?;
        if found >= band {
            self.ledger.next.insert(range.to_owned(), found - band + 1);
        }
        let thing = at(found);
        self.take(thing).then_some(thing)
    }
}
