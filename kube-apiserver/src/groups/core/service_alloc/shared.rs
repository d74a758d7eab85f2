//! Node ports on a store that several servers share. Each enters a port before it stores the service that has it, so that no two
//! give out the same one: into `ranges/servicenodeports`, upstream's RangeAllocation, which a kube-apiserver beside this one keeps, too.
//!
//! A port without a service is released after a while, and the write that it was entered for may still arrive. So each entry
//! makes a claim of its own, a key beside the range, and the service may be stored for as long as its claims are as they were made.
//! Whoever enters the port next makes the claim again, and then looks once more whether a service has it: either the late write is
//! seen there, or it is refused. Upstream's servers make no claims; a write that is late by nine minutes may meet a service of theirs.
//!
//! Mirrors `pkg/registry/core/service/allocator/storage` and `portallocator/controller`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use generic_server::ApiError;
use generic_server::registry::cache::{BuiltinCodec, StorageCodec, ValueError};
use generic_server::registry::from_storage;
use machinery::GroupResource;
use machinery::schema::builtin;
use parking_lot::Mutex;
use serde_json::{Value, json};
use storage::{Guard, Op, Outcome, Revision, StorageError, Store, Txn};

use super::ledger::{allocations, ports};
use crate::client::Client;
use crate::deps::Deps;
use crate::json::Json;
use crate::rules::{Kind, Rules};

/// Ports that are entered, and claims that are removed, in one transaction at most: an etcd takes 128 operations.
pub(super) const CLAIMS_PER_WRITE: usize = 50;

/// How often one change is tried again because another server was first.
const ATTEMPTS: usize = 32;
/// How often the range is compared with the services, and how often a port is found without a service before it is free again. Both
/// are upstream's.
const REPAIR_EVERY: Duration = Duration::from_secs(180);
pub(super) const REPAIRS_BEFORE_RELEASE: u32 = 3;

static PLAIN: Rules = Rules::PLAIN;

/// The range as it is stored.
struct Stored {
    taken: BTreeSet<u16>,
    /// The revision that it was read at; zero when there is none.
    revision: Revision,
}

/// How entering ports ended.
pub(super) enum Entered {
    /// They are this server's: their claims as they were made.
    Yes(Vec<Guard>),
    /// At least one is not free; these are taken.
    No(BTreeSet<u16>),
}

/// The node ports that are taken, as all servers see it.
#[derive(Debug)]
pub(crate) struct SharedPorts {
    engine: Arc<dyn Store>,
    codec: Arc<dyn StorageCodec>,
    resource: GroupResource,
    key: String,
    /// Where the claims are.
    claims: String,
    range: RangeInclusive<u16>,
    /// Given up by this server, but not yet taken out.
    given_up: Mutex<BTreeSet<u16>>,
    /// Held while the range is changed: this process does not compete with itself.
    changing: tokio::sync::Mutex<()>,
}

impl SharedPorts {
    /// The range of a store that others may share; `None` for one that is this process's own.
    pub(crate) fn of(deps: &Deps) -> Option<Arc<Self>> {
        let resource = GroupResource::new("", "servicenodeportallocations");
        let engine = deps.storage.engine_of(&resource).clone();
        if engine.published().is_some() {
            return None;
        }
        let codec = BuiltinCodec {
            schema: builtin().kind("", "v1", "RangeAllocation")?,
            api_version: "v1".into(),
            form: deps.stored_form,
            defaults: Arc::new(Kind::new(&PLAIN)),
        };
        Some(Arc::new(SharedPorts {
            engine,
            codec: deps.storage.codec_of(&resource, Arc::new(codec)),
            resource,
            key: format!("{}/ranges/servicenodeports", deps.prefix),
            // No name of an API group or resource has an underscore, so nobody lists them by accident.
            claims: format!("{}/_servers/nodeports/", deps.prefix),
            range: deps.node_ports.clone(),
            given_up: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }))
    }

    /// Enters ports, all or none, [`CLAIMS_PER_WRITE`] at most. `services` are the ports of stored services, from which the range is
    /// built when there is none.
    pub(super) async fn enter(&self, wanted: &[u16], services: &BTreeSet<u16>) -> Result<Entered, ApiError> {
        let _changing = self.changing.lock().await;
        for _ in 0..ATTEMPTS {
            let stored = self.read().await?;
            let given_up = self.given_up.lock().clone();
            let mut taken = match &stored {
                Some(stored) => stored.taken.clone(),
                None => services
                    .iter()
                    .copied()
                    .filter(|port| self.range.contains(port))
                    .collect(),
            };
            taken.retain(|port| !given_up.contains(port));
            if wanted.iter().any(|port| taken.contains(port)) {
                return Ok(Entered::No(taken));
            }
            taken.extend(wanted);
            let revision = stored.map_or(Revision(0), |stored| stored.revision);
            let gone = given_up.iter().copied().filter(|port| !wanted.contains(port));
            if let Some(written) = self.write(&taken, revision, wanted, gone).await? {
                self.given_up.lock().retain(|port| !given_up.contains(port));
                let claim = |port: &u16| Guard {
                    key: self.claim(*port),
                    mod_revision: written,
                };
                return Ok(Entered::Yes(wanted.iter().map(claim).collect()));
            }
        }
        Err(ApiError::server_timeout(&self.resource, "update", 1))
    }

    /// The ports that are taken, for a dry run.
    pub(super) async fn taken(&self) -> Result<BTreeSet<u16>, ApiError> {
        let mut taken = self.read().await?.map(|stored| stored.taken).unwrap_or_default();
        let given_up = self.given_up.lock();
        taken.retain(|port| !given_up.contains(port));
        Ok(taken)
    }

    /// These ports are free again: at once for this server, for others with the next [`SharedPorts::release`].
    pub(super) fn give_up(&self, ports: impl IntoIterator<Item = u16>) {
        self.given_up.lock().extend(ports);
    }

    /// Takes out what was given up.
    pub(super) async fn release(&self) {
        if self.given_up.lock().is_empty() {
            return;
        }
        let released = match self.read().await {
            Ok(Some(_)) => self.enter(&[], &BTreeSet::new()).await.map(|_| ()),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            tracing::warn!(%error, "node ports of deleted services are still entered");
        }
    }

    async fn read(&self) -> Result<Option<Stored>, ApiError> {
        let failed = |error: StorageError| from_storage(&error, &self.resource, "get");
        let (found, _) = self.engine.get(&self.key, None).await.map_err(failed)?;
        let Some(found) = found else { return Ok(None) };
        self.codec.prepare(&found.value).await;
        let decoded = self
            .codec
            .decode(&self.key, &found.value)
            .and_then(|json| serde_json::from_slice(&json).map_err(ValueError::undecodable));
        let object: Value = decoded.map_err(ApiError::internal)?;
        // A range of other numbers, from before the flag changed, says nothing of these.
        let taken = match object.text("range") == self.text() {
            true => self.numbers(&BASE64.decode(object.text("data")).unwrap_or_default()),
            false => BTreeSet::new(),
        };
        Ok(Some(Stored {
            taken,
            revision: found.mod_revision,
        }))
    }

    fn claim(&self, port: u16) -> String {
        format!("{}{port}", self.claims)
    }

    /// Whether a guard that names a claim holds for writes to this engine.
    pub(super) fn guards(&self, engine: &Arc<dyn Store>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Stores what is taken, makes claims and removes those of other ports (as many as there is room for: a claim that stays does no
    /// harm). Gives the revision of the write, `None` when another server was first.
    async fn write(
        &self,
        taken: &BTreeSet<u16>,
        revision: Revision,
        claimed: &[u16],
        gone: impl Iterator<Item = u16>,
    ) -> Result<Option<Revision>, ApiError> {
        let object = json!({
            "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {},
            "range": self.text(), "data": BASE64.encode(self.bits(taken)),
        });
        let json = object.to_string().into();
        let value = self.codec.encode(&self.key, &object, &json);
        let mut ops = vec![Op::Put {
            key: self.key.clone(),
            value: value.map_err(ApiError::internal)?,
            ttl: None,
        }];
        ops.extend(claimed.iter().map(|port| Op::Put {
            key: self.claim(*port),
            value: "claimed".into(),
            ttl: None,
        }));
        ops.extend(gone.take(CLAIMS_PER_WRITE).map(|port| Op::Delete {
            key: self.claim(port),
        }));
        let txn = Txn {
            guards: vec![Guard {
                key: self.key.clone(),
                mod_revision: revision,
            }],
            ops,
        };
        match self.engine.commit(txn).await {
            Ok(Outcome::Committed(revision)) => Ok(Some(revision)),
            Ok(Outcome::Conflict { .. }) => Ok(None),
            Err(error) => Err(from_storage(&error, &self.resource, "update")),
        }
    }

    fn text(&self) -> String {
        format!("{}-{}", self.range.start(), self.range.end())
    }

    /// One bit for each port, as the bytes of a number: the last byte has the first eight ports, the lowest bit the first of them.
    fn bits(&self, taken: &BTreeSet<u16>) -> Vec<u8> {
        let places = || {
            taken
                .iter()
                .filter_map(|port| port.checked_sub(*self.range.start()))
        };
        let length = places().last().map_or(0, |last| usize::from(last / 8) + 1);
        let mut bits = vec![0; length];
        for place in places() {
            bits[length - 1 - usize::from(place / 8)] |= 1 << (place % 8);
        }
        bits
    }

    fn numbers(&self, bits: &[u8]) -> BTreeSet<u16> {
        let first = *self.range.start();
        let set = |place: &u16| {
            let byte = bits.len().checked_sub(1 + usize::from(place / 8));
            byte.is_some_and(|byte| bits[byte] & (1 << (place % 8)) != 0)
        };
        let places = (0..=self.range.end() - first).filter(set);
        places.map(|place| first + place).collect()
    }

    /// Compares the range with the services once: ports of services are entered, and ports of none are released after they were
    /// found so often enough. `leaks` says how often.
    pub(super) async fn repair(
        &self,
        client: &Client,
        leaks: &mut BTreeMap<u16, u32>,
    ) -> Result<(), ApiError> {
        for _ in 0..ATTEMPTS {
            // In this order: a server that enters a port later makes the write below fail.
            let stored = self.read().await?;
            let services = client
                .resource(("", "services"))?
                .store
                .as_system()
                .fresh()
                .await?;
            let mut used = BTreeSet::new();
            for entry in services.objects.values() {
                used.extend(ports(&allocations(&entry.value())).filter(|port| self.range.contains(port)));
            }
            let (entered, revision) = match stored {
                Some(stored) => (stored.taken, stored.revision),
                None => (BTreeSet::new(), Revision(0)),
            };
            if !services.unreadable.is_empty() {
                // Any of the ports may be of a service that cannot be read.
                used.extend(&entered);
            }
            let mut found = BTreeMap::new();
            for port in entered.difference(&used) {
                let times = leaks.get(port).copied().unwrap_or_default() + 1;
                if times < REPAIRS_BEFORE_RELEASE {
                    found.insert(*port, times);
                }
            }
            let wanted: BTreeSet<u16> = used.iter().chain(found.keys()).copied().collect();
            let released = entered.difference(&wanted).copied();
            let done = revision != Revision(0) && wanted == entered
                || self.write(&wanted, revision, &[], released).await?.is_some();
            if done {
                for port in wanted.difference(&entered).filter(|_| revision != Revision(0)) {
                    tracing::warn!(port, "the node port of a service was not entered");
                }
                for port in entered.difference(&wanted) {
                    tracing::warn!(port, "a node port without a service is free again");
                }
                *leaks = found;
                return Ok(());
            }
        }
        Err(ApiError::server_timeout(&self.resource, "update", 1))
    }
}

/// Keeps the node ports that are entered and those of the services in line, at the start and then every three minutes. Ends at once
/// where the store is not shared.
pub async fn keep_node_ports(deps: Deps) {
    let Some(shared) = SharedPorts::of(&deps) else {
        return;
    };
    let client = Client::new(deps.directory);
    let mut leaks = BTreeMap::new();
    loop {
        if let Err(error) = shared.repair(&client, &mut leaks).await {
            tracing::warn!(%error, "the node ports that are entered cannot be compared with the services");
        }
        tokio::time::sleep(REPAIR_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(range: RangeInclusive<u16>) -> SharedPorts {
        SharedPorts {
            engine: storage::memory(),
            codec: Arc::new(generic_server::registry::cache::JsonCodec),
            resource: GroupResource::new("", "servicenodeportallocations"),
            key: "/registry/ranges/servicenodeports".into(),
            claims: "/registry/_servers/nodeports/".into(),
            range,
            given_up: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    #[test]
    fn bits_are_a_number_of_upstreams() {
        let shared = shared(30000..=32767);
        // As kube-apiserver v1.36 stored them.
        let taken = BTreeSet::from([30000, 30008, 30017]);
        assert_eq!(shared.bits(&taken), [0b10, 1, 1]);
        assert_eq!(shared.numbers(&[0b10, 1, 1]), taken);
        assert!(shared.bits(&BTreeSet::new()).is_empty());
        let all: BTreeSet<u16> = (30000..=32767).collect();
        assert_eq!(shared.bits(&all), vec![0xff; 346]);
        assert_eq!(shared.numbers(&vec![0xff; 400]), all);
    }

    #[tokio::test]
    async fn a_port_is_entered_once() {
        let shared = shared(30000..=30015);
        let services = BTreeSet::from([30001]);
        let enter = async |ports: &[u16]| match shared.enter(ports, &services).await.expect("an answer") {
            Entered::Yes(_) => None,
            Entered::No(taken) => Some(taken.into_iter().collect::<Vec<_>>()),
        };
        assert_eq!(enter(&[30001]).await, Some(vec![30001]), "a service has it");
        assert_eq!(enter(&[30002, 30003]).await, None);
        assert_eq!(enter(&[30004, 30003]).await, Some(vec![30001, 30002, 30003]));
        shared.give_up([30002]);
        assert_eq!(enter(&[30002]).await, None, "given up and taken again");
        shared.release().await;
        assert_eq!(
            shared.taken().await.expect("the range"),
            BTreeSet::from([30001, 30002, 30003])
        );
        shared.give_up([30003]);
        shared.release().await;
        assert_eq!(
            shared.taken().await.expect("the range"),
            BTreeSet::from([30001, 30002])
        );
    }

    #[tokio::test]
    async fn servers_that_compete_get_different_ports() {
        let one = Arc::new(shared(30000..=30015));
        let other = Arc::new(SharedPorts {
            engine: one.engine.clone(),
            ..shared(30000..=30015)
        });
        let race = |shared: Arc<SharedPorts>| async move {
            let mut own = Vec::new();
            for port in 30000..=30015 {
                if let Ok(Entered::Yes(_)) = shared.enter(&[port], &BTreeSet::new()).await {
                    own.push(port);
                }
            }
            own
        };
        let (a, b) = tokio::join!(race(one.clone()), race(other));
        assert_eq!(a.len() + b.len(), 16);
        assert!(a.iter().all(|port| !b.contains(port)));
        assert_eq!(one.taken().await.expect("the range").len(), 16);
    }
}
