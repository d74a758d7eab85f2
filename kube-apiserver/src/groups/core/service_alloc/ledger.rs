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

/// An address or a port, which one service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Allocation {
    Ip(IpAddr),
    Port(u16),
}

/// The allocations of the stored services, as of some snapshot.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    objects: imbl::OrdMap<Arc<str>, Arc<Entry>>,
    taken: HashMap<Allocation, usize>,
    /// So many of the writes that were given up have arrived, or never will.
    pub(super) settled: u64,
    /// Where the next search begins, per range.
    next: HashMap<String, u128>,
}

impl Ledger {
    /// The ports of stored services.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        ports(self.taken.keys())
    }

    /// Whether a stored service has this.
    pub(super) fn is_taken(&self, allocation: Allocation) -> bool {
        self.taken.contains_key(&allocation)
    }

    /// Brings the ledger to a newer snapshot; costs what changed.
    pub(super) fn follow(&mut self, objects: &imbl::OrdMap<Arc<str>, Arc<Entry>>) {
        let old = std::mem::replace(&mut self.objects, objects.clone());
        let mut steps: Vec<(Allocation, bool)> = Vec::new();
        for change in old.diff(objects) {
            let (gone, came) = match change {
                DiffItem::Add(_, new) => (None, Some(new)),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
                DiffItem::Remove(_, old) => (Some(old), None),
            };
            for (entry, add) in [(gone, false), (came, true)] {
                if let Some(entry) = entry {
                    steps.extend(
                        allocations(&entry.value())
                            .into_iter()
                            .map(|allocation| (allocation, add)),
                    );
                }
            }
        }
        for (allocation, add) in steps {
            let count = self.taken.entry(allocation).or_default();
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.taken.remove(&allocation);
            }
        }
    }
}

/// The allocations of a service.
pub(super) fn allocations(service: &Value) -> Vec<Allocation> {
    let ips = service
        .strings("spec.clusterIPs")
        .filter_map(|ip| ip.parse().ok());
    let ports = service.list("spec.ports").iter().map(|port| port.int("nodePort"));
    let ports = ports.chain([service.int("spec.healthCheckNodePort")]);
    let ports = ports
        .flatten()
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0);
    let mut allocations: Vec<Allocation> = ips.map(Allocation::Ip).collect();
    let mut seen = Seen::default();
    allocations.extend(ports.filter(|port| !seen.again(*port)).map(Allocation::Port));
    allocations
}

/// The ports among these.
pub(super) fn ports<'t>(allocations: impl IntoIterator<Item = &'t Allocation>) -> impl Iterator<Item = u16> {
    allocations.into_iter().filter_map(|allocation| match allocation {
        Allocation::Port(port) => Some(*port),
        Allocation::Ip(_) => None,
    })
}

/// Allocations of writes under way.
pub(super) type Pending = Arc<Mutex<HashMap<Allocation, usize>>>;

/// The allocations of a write that is not yet stored; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    pending: Pending,
    allocations: Vec<Allocation>,
}

impl Held {
    pub(super) fn new(pending: &Pending) -> Self {
        Held {
            pending: pending.clone(),
            allocations: Vec::new(),
        }
    }

    fn add(&mut self, allocation: Allocation) {
        *self.pending.lock().entry(allocation).or_default() += 1;
        self.allocations.push(allocation);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut pending = self.pending.lock();
        for allocation in &self.allocations {
            if let Some(count) = pending.get_mut(allocation) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(allocation);
                }
            }
        }
    }
}

/// The search for one write.
pub(super) struct Search<'a> {
    pub(super) ledger: &'a mut Ledger,
    /// Taken by other writes under way.
    pub(super) busy: HashMap<Allocation, usize>,
    /// Taken by other servers that share the store, or by another parent than a service.
    pub(super) elsewhere: &'a HashSet<Allocation>,
    /// Where what is taken is held; nowhere in a dry run.
    pub(super) held: Option<&'a mut Held>,
    /// The ports that this search has taken.
    pub(super) ports: Vec<u16>,
}

impl Search<'_> {
    fn free(&self, allocation: Allocation) -> bool {
        !self.elsewhere.contains(&allocation)
            && !self.ledger.is_taken(allocation)
            && !self.busy.contains_key(&allocation)
    }

    /// Takes an address or a port if it is free.
    pub(super) fn take(&mut self, allocation: Allocation) -> bool {
        let free = self.free(allocation);
        if free {
            *self.busy.entry(allocation).or_default() += 1;
            if let Allocation::Port(port) = allocation {
                self.ports.push(port);
            }
            if let Some(held) = &mut self.held {
                held.add(allocation);
            }
        }
        free
    }

    /// The next free number of a range, from where the last search ended; the first `band` numbers, which clients choose
    /// from, come last.
    pub(super) fn next(
        &mut self,
        range: &str,
        size: u128,
        band: u128,
        at: impl Fn(u128) -> Allocation,
    ) -> Option<Allocation> {
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
        let allocation = at(found);
        self.take(allocation).then_some(allocation)
    }
}

#[cfg(test)]
mod tests {
    use generic_server::registry::cache::{JsonCodec, Prepared};
    use generic_server::registry::config::StoreConfig;
    use machinery::{GroupKind, GroupResource};
    use serde_json::json;
    use storage::Revision;

    use super::*;

    /// The allocations of a service with this specification, shown.
    fn shown(allocations: &[Allocation]) -> String {
        let shown = allocations.iter().map(|allocation| match allocation {
            Allocation::Ip(ip) => ip.to_string(),
            Allocation::Port(port) => port.to_string(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn allocations_of_services() {
        #[track_caller]
        fn check(spec: &Value, expected: &str) {
            assert_eq!(shown(&allocations(&json!({"spec": spec}))), expected, "{spec}");
        }
        check(
            &json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ports": [{"nodePort": 30001}, {}], "healthCheckNodePort": 30002}),
            "10.0.0.1 fd00::1 30001 30002",
        );
        // TCP and UDP may share a port.
        check(
            &json!({"ports": [{"nodePort": 30001}, {"nodePort": 30001}]}),
            "30001",
        );
        check(&json!({"clusterIPs": ["None"], "ports": [{"nodePort": 0}]}), "");
        check(
            &json!({"clusterIPs": ["10.0.0.300", "", "x"], "ports": [{"nodePort": 65536}, {"nodePort": -1}, {"nodePort": "30001"}]}),
            "",
        );
        check(&json!({"clusterIPs": [7, null], "ports": "none"}), "");
        check(&json!(null), "");
        assert!(allocations(&json!("x")).is_empty());
    }

    /// The entry of a service with these ports.
    fn entry(name: &str, ports: &[u16]) -> Arc<Entry> {
        // Entries of one key are the same when their revisions are.
        let revision = ports.iter().fold(1, |all, port| all * 31 + u64::from(*port));
        let ports: Vec<Value> = ports.iter().map(|port| json!({"nodePort": port})).collect();
        let config = StoreConfig {
            resource: GroupResource::new("", "services"),
            kind: GroupKind::new("", "Service"),
            prefix: "/services".into(),
            namespaced: true,
            fields: Vec::new(),
            ttl: None,
        };
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"ports": ports}});
        let prepared = Prepared::from_value(&config, &object, &JsonCodec).unwrap();
        Arc::new(prepared.finish(Revision(revision)))
    }

    #[test]
    fn the_ledger_follows_snapshots() {
        #[track_caller]
        fn check(ledger: &mut Ledger, services: &[(&str, &[u16])], expected: &[u16]) {
            let objects = services
                .iter()
                .map(|(name, ports)| (Arc::<str>::from(*name), entry(name, ports)));
            ledger.follow(&objects.collect());
            let mut found: Vec<u16> = ledger.ports().collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{services:?}");
        }
        let mut ledger = Ledger::default();
        check(&mut ledger, &[("a", &[1, 2]), ("b", &[3])], &[1, 2, 3]);
        check(&mut ledger, &[("a", &[2, 4]), ("b", &[3])], &[2, 3, 4]);
        // A store that other servers write to may hold an address of two services: it is free when both are gone.
        check(&mut ledger, &[("a", &[2]), ("b", &[2])], &[2]);
        check(&mut ledger, &[("b", &[2])], &[2]);
        check(&mut ledger, &[], &[]);
    }

    /// Searches in a range of ports from 0 to `size`, of which these are taken.
    #[track_caller]
    fn check_next(taken: &[u16], size: u16, band: u128, expected: &[Option<u16>]) {
        let mut ledger = Ledger::default();
        ledger.follow(&[(Arc::<str>::from("a"), entry("a", taken))].into_iter().collect());
        let elsewhere = HashSet::new();
        let mut search = Search {
            ledger: &mut ledger,
            busy: HashMap::new(),
            elsewhere: &elsewhere,
            held: None,
            ports: Vec::new(),
        };
        for expected in expected {
            let at = |number| Allocation::Port(u16::try_from(number).unwrap() + 1);
            let found = search.next("r", size.into(), band, at);
            assert_eq!(found, expected.map(Allocation::Port));
        }
    }

    #[test]
    fn the_band_comes_last() {
        check_next(&[], 4, 2, &[Some(3), Some(4), Some(1), Some(2), None]);
        check_next(&[3], 4, 2, &[Some(4), Some(1), Some(2), None]);
        check_next(&[1, 2, 3, 4], 4, 2, &[None]);
        // A band as wide as the range, or wider.
        check_next(&[], 2, 2, &[Some(1), Some(2), None]);
        check_next(&[], 1, 9, &[Some(1), None]);
        check_next(&[], 0, 0, &[None]);
    }

    #[test]
    fn allocations_of_writes_are_given_back() {
        let pending = Pending::default();
        let (mut ledger, elsewhere) = (Ledger::default(), HashSet::from([Allocation::Port(7)]));
        let mut held = Held::new(&pending);
        let mut search = Search {
            ledger: &mut ledger,
            busy: HashMap::from([(Allocation::Port(8), 1)]),
            elsewhere: &elsewhere,
            held: Some(&mut held),
            ports: Vec::new(),
        };
        for (port, expected) in [(7, false), (8, false), (9, true), (9, false), (10, true)] {
            assert_eq!(search.take(Allocation::Port(port)), expected, "{port}");
        }
        assert_eq!(search.ports, [9, 10]);
        // Another write holds one of them too.
        let mut other = Held::new(&pending);
        other.add(Allocation::Port(9));
        drop(held);
        assert_eq!(*pending.lock(), HashMap::from([(Allocation::Port(9), 1)]));
        drop(other);
        assert!(pending.lock().is_empty());
    }
}
