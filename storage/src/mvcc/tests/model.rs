//! Random operations against a model: every state ever, as a map per revision.
//!
//! A run is its seed. Seeds that once failed stay in [`SEEDS`]; `STORAGE_MODEL_SEEDS=N` runs that many fresh ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{options, reopen};
use crate::conformance::{Recorder, Subject};
use crate::{
    EngineKind, EventKind, Guard, KeyValue, Op, Outcome, RangeRequest, Revision, StorageError, Store, Txn,
};

const SEEDS: [u64; 6] = [1, 2, 3, 42, 20_260_101, 0xdead_beef];
const STEPS: usize = 250;

/// SplitMix64: the same numbers for a seed for ever, independent of other crates.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

type State = BTreeMap<String, KeyValue>;

struct Model {
    states: Vec<State>,
    oldest: u64,
}

impl Model {
    fn newest(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn state(&self) -> &State {
        self.states.last().unwrap()
    }

    fn commit(&mut self, txn: &Txn) -> Result<u64, (usize, Option<KeyValue>)> {
        for (index, guard) in txn.guards.iter().enumerate() {
            let current = self.state().get(&guard.key);
            if current.map_or(0, |pair| pair.mod_revision.0) != guard.mod_revision.0 {
                return Err((index, current.cloned()));
            }
        }
        let revision = Revision(self.newest() + 1);
        let mut state = self.state().clone();
        let mut changed = false;
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } => {
                    let create_revision = state.get(key).map_or(revision, |pair| pair.create_revision);
                    let pair = KeyValue {
                        damage: None,
                        key: key.as_str().into(),
                        value: value.clone(),
                        create_revision,
                        mod_revision: revision,
                    };
                    state.insert(key.clone(), pair);
                    changed = true;
                }
                Op::Delete { key } => changed |= state.remove(key).is_some(),
            }
        }
        if changed {
            self.states.push(state);
        }
        Ok(self.newest())
    }

    /// The events of one revision, without order.
    fn events(
        &self,
        revision: u64,
        prefix: &str,
    ) -> BTreeMap<String, (EventKind, Option<KeyValue>, Option<KeyValue>)> {
        let (before, after) = (
            &self.states[revision as usize - 1],
            &self.states[revision as usize],
        );
        let keys = before
            .keys()
            .chain(after.keys())
            .filter(|key| key.starts_with(prefix));
        keys.filter(|key| before.get(*key) != after.get(*key))
            .map(|key| {
                let (old, new) = (before.get(key).cloned(), after.get(key).cloned());
                let kind = if new.is_some() {
                    EventKind::Put
                } else {
                    EventKind::Delete
                };
                (key.clone(), (kind, new, old))
            })
            .collect()
    }
}

fn key(random: &mut Random) -> String {
    let kind = ["/pods/", "/nodes/", "/p"][random.below(3) as usize];
    format!("{kind}{}", (b'a' + random.below(6) as u8) as char)
}

fn some_txn(random: &mut Random, model: &Model) -> Txn {
    let mut txn = Txn::default();
    for _ in 0..random.below(3) {
        let key = key(random);
        let held = model.state().get(&key).map_or(0, |pair| pair.mod_revision.0);
        let mod_revision = Revision(if random.below(5) == 0 {
            random.below(model.newest() + 2)
        } else {
            held
        });
        txn.guards.push(Guard { key, mod_revision });
    }
    for _ in 0..random.below(4) {
        let key = key(random);
        if txn
            .ops
            .iter()
            .any(|op| matches!(op, Op::Put { key: k, .. } | Op::Delete { key: k } if *k == key))
        {
            continue;
        }
        txn.ops.push(match random.below(3) {
            0 => Op::Delete { key },
            _ => {
                let len = [0, 10, 3000, 200_000][(random.below(40) / 13) as usize];
                Op::Put {
                    key,
                    value: vec![random.next() as u8; len].into(),
                    ttl: None,
                }
            }
        });
    }
    txn
}

fn some_prefix(random: &mut Random) -> String {
    ["", "/p", "/pods/", "/nodes/", "/nodes/a", "/x"][random.below(6) as usize].to_owned()
}

async fn check_range(random: &mut Random, model: &Model, store: &dyn Store) {
    let at = (random.below(2) == 0).then(|| random.below(model.newest() + 2));
    let request = RangeRequest {
        prefix: some_prefix(random),
        start: (random.below(3) == 0).then(|| key(random)),
        limit: random.below(5) as usize,
        at: at.map(Revision),
        count_only: random.below(8) == 0,
    };
    let response = store.range(request.clone()).await;
    let at = at.unwrap_or(model.newest());
    if at > model.newest() {
        assert!(
            matches!(response, Err(StorageError::FutureRevision { .. })),
            "{request:?}: {response:?}"
        );
    } else if at < model.oldest {
        assert!(
            matches!(response, Err(StorageError::Compacted { .. })),
            "{request:?}: {response:?}"
        );
    } else {
        let response = response.unwrap();
        let matching: Vec<&KeyValue> = model.states[at as usize]
            .iter()
            .filter(|(key, _)| key.starts_with(&request.prefix))
            .filter(|(key, _)| request.start.as_ref().is_none_or(|start| *key >= start))
            .map(|(_, pair)| pair)
            .collect();
        let shown = match (request.count_only, request.limit) {
            (true, _) => 0,
            (false, 0) => matching.len(),
            (false, limit) => limit.min(matching.len()),
        };
        assert_eq!(
            response.kvs.iter().collect::<Vec<_>>(),
            matching[..shown],
            "{request:?}"
        );
        assert_eq!(
            (response.count, response.revision.0),
            (matching.len() as u64, at),
            "{request:?}"
        );
    }
}

async fn check_get(random: &mut Random, model: &Model, store: &dyn Store) {
    let key = key(random);
    let at = model.oldest + random.below(model.newest() - model.oldest + 1);
    let (found, revision) = store.get(&key, Some(Revision(at))).await.unwrap();
    assert_eq!(
        (found.as_ref(), revision.0),
        (model.states[at as usize].get(&key), at)
    );
    let (found, revision) = store.get(&key, None).await.unwrap();
    assert_eq!(
        (found.as_ref(), revision.0),
        (model.state().get(&key), model.newest())
    );
}

async fn check_watch(random: &mut Random, model: &Model, store: &dyn Store) {
    let after = random.below(model.newest() + 1);
    let prefix = some_prefix(random);
    let seen = Recorder::new();
    let watch = store.watch(&prefix, Revision(after), seen.clone()).await;
    if after < model.oldest {
        assert!(matches!(watch, Err(StorageError::Compacted { .. })), "{watch:?}");
        return;
    }
    let _watch = watch.unwrap();
    seen.look(|seen| {
        assert_eq!(seen.revision.0, model.newest());
        let mut events = seen.events.iter().peekable();
        for revision in after + 1..=model.newest() {
            let mut expected = model.events(revision, &prefix);
            while let Some(event) = events.next_if(|event| event.kv.mod_revision.0 == revision) {
                let (kind, new, old) = expected.remove(&*event.kv.key).expect("an event of the model");
                assert_eq!((&event.kind, &event.prev), (&kind, &old));
                match new {
                    Some(new) => assert_eq!(event.kv, new),
                    None => assert!(event.kv.value.is_empty()),
                }
            }
            assert!(expected.is_empty(), "missing events: {expected:?}");
        }
        assert!(events.next().is_none());
    });
}

async fn run(engine: EngineKind, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let mut model = Model {
        states: vec![State::new()],
        oldest: 0,
    };
    let mut store: Arc<dyn Store> = crate::open(options(engine, dir.path())).unwrap();
    for _ in 0..STEPS {
        match random.below(20) {
            0..=10 => {
                let txn = some_txn(&mut random, &model);
                let outcome = store.commit(txn.clone()).await.unwrap();
                match (outcome, model.commit(&txn)) {
                    (Outcome::Committed(revision), Ok(expected)) => assert_eq!(revision.0, expected),
                    (
                        Outcome::Conflict {
                            guard,
                            current,
                            revision,
                        },
                        Err(expected),
                    ) => {
                        assert_eq!(((guard, current), revision.0), (expected, model.newest()));
                    }
                    (outcome, expected) => panic!("{txn:?}: {outcome:?}, expected {expected:?}"),
                }
            }
            11..=13 => check_range(&mut random, &model, &*store).await,
            14..=15 => check_get(&mut random, &model, &*store).await,
            16..=17 => check_watch(&mut random, &model, &*store).await,
            18 => {
                if random.below(4) == 0 {
                    let to = random.below(model.newest() + 1);
                    model.oldest = model.oldest.max(to);
                    let info = store.compact(Revision(to)).await.unwrap();
                    assert_eq!(info.oldest.0, model.oldest);
                }
            }
            _ => {
                if engine != EngineKind::Memory && random.below(2) == 0 {
                    store.shutdown().await;
                    store = reopen(engine, dir.path()).unwrap();
                    assert_eq!(store.fresh().await.unwrap().0, model.newest());
                }
            }
        }
    }
    store.shutdown().await;
    drop(Subject::in_process(store));
}

async fn run_all(engine: EngineKind) {
    let fresh = std::env::var("STORAGE_MODEL_SEEDS")
        .ok()
        .map_or(0, |text| text.parse().unwrap());
    for seed in SEEDS.into_iter().chain((0..fresh).map(|n| 1_000_000 + n)) {
        // The name of a failed task's seed is the way to repeat it.
        let run = tokio::spawn(run(engine, seed));
        if let Err(error) = run.await {
            panic!("{engine:?} with seed {seed}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_follows_the_model() {
    run_all(EngineKind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_follows_the_model() {
    run_all(EngineKind::Redb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_follows_the_model() {
    run_all(EngineKind::Sled).await;
}
