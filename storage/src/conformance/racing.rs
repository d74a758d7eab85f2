//! A store as registers that clients race for.

use std::collections::BTreeMap;
use std::sync::Arc;

use test_tools::linearizable::{Found, Outcome, Registers};

use crate::{Guard, KeyValue, Op, RangeRequest, Revision, StorageError, Store, Txn};

/// A store whose objects are numbers.
#[derive(Debug, Clone)]
pub struct Racing(pub Arc<dyn Store>);

impl Registers for Racing {
    async fn read(&self, key: &str) -> Option<Found> {
        let (found, _) = self.0.get(key, None).await.ok()?;
        Some(found.as_ref().map(number))
    }

    async fn read_all(&self, under: &str) -> Option<BTreeMap<String, (u64, u64)>> {
        let request = RangeRequest {
            prefix: under.to_owned(),
            ..RangeRequest::default()
        };
        let found = self.0.range(request).await.ok()?;
        let pairs = found.kvs.iter();
        Some(pairs.map(|pair| (pair.key.to_string(), number(pair))).collect())
    }

    async fn write(&self, key: &str, from: Found, to: Option<u64>) -> Option<Outcome> {
        let guard = Guard {
            key: key.to_owned(),
            mod_revision: Revision(from.map_or(0, |(_, revision)| revision)),
        };
        let key = key.to_owned();
        let op = match to {
            Some(value) => Op::Put {
                key,
                value: value.to_string().into(),
                ttl: None,
            },
            None => Op::Delete { key },
        };
        let txn = Txn {
            guards: vec![guard],
            ops: vec![op],
        };
        match self.0.commit(txn).await {
            Ok(crate::Outcome::Committed(revision)) => Some(Outcome::Done(Some(revision.0))),
            Ok(crate::Outcome::Conflict { .. }) => Some(Outcome::Refused),
            Err(StorageError::Uncertain(_)) => Some(Outcome::Unknown),
            Err(StorageError::Unavailable { .. }) => None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn number(found: &KeyValue) -> (u64, u64) {
    let text = std::str::from_utf8(&found.value).unwrap();
    (text.parse().unwrap(), found.mod_revision.0)
}
