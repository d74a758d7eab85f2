//! Guards, atomicity, revisions, sizes.
#![allow(missing_docs)]

use std::collections::HashSet;

use bytes::Bytes;

use super::Subject;
use crate::{KeyValue, Outcome, Revision, StorageError, Txn};

const ABSENT: Revision = Revision(0);

#[track_caller]
fn conflict(outcome: Outcome) -> (usize, Option<KeyValue>, Revision) {
    match outcome {
        Outcome::Conflict {
            guard,
            current,
            revision,
        } => (guard, current, revision),
        Outcome::Committed(revision) => panic!("committed at {revision}, a conflict was due"),
    }
}

pub async fn create_wants_absence(s: &Subject) {
    let created = s.commit(vec![s.guard("a", ABSENT)], vec![s.put("a", "1")]).await;
    let again = Txn {
        guards: vec![s.guard("a", ABSENT)],
        ops: vec![s.put("a", "2")],
    };
    let (guard, current, revision) = conflict(s.store.commit(again).await.unwrap());
    let current = current.unwrap();
    assert_eq!(
        (guard, &current.value[..], current.mod_revision),
        (0, &b"1"[..], created)
    );
    assert!(revision >= created);
    let read = s.read("a", None).await.unwrap();
    assert_eq!(read, current);
    assert_eq!((read.create_revision, &*read.key), (created, &*s.key("a")));
}

pub async fn update_wants_the_revision(s: &Subject) {
    let first = s.write("a", "1").await;
    let second = s.commit(vec![s.guard("a", first)], vec![s.put("a", "2")]).await;
    assert!(second > first);
    let stale = Txn {
        guards: vec![s.guard("a", first)],
        ops: vec![s.put("a", "3")],
    };
    let (_, current, _) = conflict(s.store.commit(stale).await.unwrap());
    assert_eq!(current.unwrap().mod_revision, second);
    let absent = Txn {
        guards: vec![s.guard("b", second)],
        ops: vec![s.put("b", "3")],
    };
    assert_eq!(conflict(s.store.commit(absent).await.unwrap()).1, None);
    let read = s.read("a", None).await.unwrap();
    assert_eq!(
        (read.create_revision, read.mod_revision, &read.value[..]),
        (first, second, &b"2"[..])
    );
}

pub async fn delete_wants_the_revision(s: &Subject) {
    let first = s.write("a", "1").await;
    let second = s.write("a", "2").await;
    let stale = Txn {
        guards: vec![s.guard("a", first)],
        ops: vec![s.delete("a")],
    };
    conflict(s.store.commit(stale).await.unwrap());
    let deleted = s.commit(vec![s.guard("a", second)], vec![s.delete("a")]).await;
    assert!(deleted > second);
    assert_eq!(s.read("a", None).await, None);
    let gone = Txn {
        guards: vec![s.guard("a", second)],
        ops: vec![s.delete("a")],
    };
    assert_eq!(conflict(s.store.commit(gone).await.unwrap()).1, None);
}

pub async fn all_guards_hold_or_nothing_happens(s: &Subject) {
    let a = s.write("a", "1").await;
    let guards = vec![s.guard("a", a), s.guard("b", ABSENT), s.guard("c", a)];
    let ops = vec![s.put("a", "2"), s.put("b", "2"), s.delete("a2")];
    let (guard, current, _) = conflict(
        s.store
            .commit(Txn {
                guards,
                ops: ops.clone(),
            })
            .await
            .unwrap(),
    );
    assert_eq!((guard, current), (2, None));
    assert_eq!(s.list("", None).await, [("a".to_owned(), Bytes::from("1"))]);
    s.commit(vec![s.guard("a", a), s.guard("b", ABSENT)], ops).await;
    let two = Bytes::from("2");
    assert_eq!(
        s.list("", None).await,
        [("a".to_owned(), two.clone()), ("b".to_owned(), two)]
    );
}

pub async fn a_transaction_is_one_revision(s: &Subject) {
    s.write("old", "x").await;
    let ops = vec![s.put("a", "1"), s.put("b", "2"), s.delete("old"), s.put("c", "3")];
    let revision = s.commit(vec![], ops).await;
    for name in ["a", "b", "c"] {
        let pair = s.read(name, None).await.unwrap();
        assert_eq!((pair.create_revision, pair.mod_revision), (revision, revision));
    }
    assert_eq!(s.read("old", None).await, None);
    let before = Revision(revision.0 - 1);
    assert_eq!(s.list("", Some(before)).await.len(), 1);
}

pub async fn a_change_of_nothing_takes_no_revision(s: &Subject) {
    let first = s.write("a", "1").await;
    assert!(s.remove("absent").await >= first);
    assert!(s.commit(vec![s.guard("a", first)], vec![]).await >= first);
    let pair = s.read("a", None).await.unwrap();
    assert_eq!(pair.mod_revision, first);
    if s.publishes_before_acknowledging {
        assert_eq!(s.store.fresh().await.unwrap(), first);
        assert_eq!(s.write("a", "1").await, Revision(first.0 + 1));
    }
}

pub async fn a_key_is_written_once_per_transaction(s: &Subject) {
    let twice = Txn {
        guards: vec![],
        ops: vec![s.put("a", "1"), s.put("a", "2")],
    };
    assert!(s.store.commit(twice).await.is_err());
    assert_eq!(s.read("a", None).await, None);
}

pub async fn recreation_begins_a_new_incarnation(s: &Subject) {
    let first = s.write("a", "1").await;
    s.remove("a").await;
    let again = s.commit(vec![s.guard("a", ABSENT)], vec![s.put("a", "2")]).await;
    let pair = s.read("a", None).await.unwrap();
    assert_eq!((pair.create_revision, pair.mod_revision), (again, again));
    assert_eq!(s.read("a", Some(first)).await.unwrap().create_revision, first);
}

pub async fn concurrent_creates_have_one_winner(s: &Subject) {
    let tries = (0..16).map(|who| {
        let txn = Txn {
            guards: vec![s.guard("a", ABSENT)],
            ops: vec![s.put("a", format!("{who}"))],
        };
        async move { (who, s.store.commit(txn).await.unwrap()) }
    });
    let outcomes = futures_util::future::join_all(tries).await;
    let winners: Vec<_> = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Committed(_)))
        .map(|(who, _)| who)
        .collect();
    assert_eq!(winners.len(), 1);
    let value = s.read("a", None).await.unwrap().value;
    assert_eq!(value, format!("{}", winners[0]));
    for (_, outcome) in outcomes {
        if let Outcome::Conflict { current, .. } = outcome {
            assert_eq!(current.unwrap().value, value);
        }
    }
}

pub async fn concurrent_increments_lose_nothing(s: &Subject) {
    const CLIENTS: usize = 8;
    const EACH: usize = 8;
    s.write("n", "0").await;
    let clients = (0..CLIENTS).map(|_| async {
        let mut revisions = Vec::new();
        while revisions.len() < EACH {
            let pair = s.read("n", None).await.unwrap();
            let n: usize = std::str::from_utf8(&pair.value).unwrap().parse().unwrap();
            let txn = Txn {
                guards: vec![s.guard("n", pair.mod_revision)],
                ops: vec![s.put("n", format!("{}", n + 1))],
            };
            if let Outcome::Committed(revision) = s.store.commit(txn).await.unwrap() {
                revisions.push(revision);
            }
        }
        revisions
    });
    let revisions: Vec<_> = futures_util::future::join_all(clients).await.concat();
    assert_eq!(revisions.iter().collect::<HashSet<_>>().len(), CLIENTS * EACH);
    assert_eq!(
        s.read("n", None).await.unwrap().value,
        format!("{}", CLIENTS * EACH)
    );
}

pub async fn large_values_survive(s: &Subject) {
    // Around the lengths at which engines change their ways, up to what an API server writes.
    let sizes = [
        4095,
        4096,
        98_303,
        98_304,
        98_305,
        131_073,
        400_000,
        (3 << 19) - 64 * 1024,
    ];
    for size in sizes {
        let value: Bytes = (0..size)
            .map(|at| (at * 31 + at / 251) as u8)
            .collect::<Vec<_>>()
            .into();
        let name = format!("large-{size}");
        s.write(&name, value.clone()).await;
        assert_eq!(s.read(&name, None).await.unwrap().value, value);
    }
    assert_eq!(s.list("large-", None).await.len(), sizes.len());
    for size in sizes {
        s.remove(&format!("large-{size}")).await;
    }
    assert_eq!(s.list("large-", None).await.len(), 0);
}

pub async fn empty_values_are_values(s: &Subject) {
    let revision = s.write("a", "").await;
    let pair = s.read("a", None).await.unwrap();
    assert_eq!((pair.value.len(), pair.mod_revision), (0, revision));
    assert_eq!(s.list("", None).await.len(), 1);
}

pub async fn too_large_values_are_refused(s: &Subject) {
    let txn = Txn {
        guards: vec![],
        ops: vec![s.put("a", vec![0; 9 << 20])],
    };
    let error = s.store.commit(txn).await.unwrap_err();
    assert!(matches!(error, StorageError::TooLarge(_)), "{error:?}");
    s.write("a", "1").await;
}
