//! The suite that every engine and every decorator of one passes: the contract, case by case.
//!
//! A crate runs it with [`conformance_tests!`](crate::conformance_tests), giving an expression that makes a [`Subject`].
//! Cases touch only keys under their subject's prefix and expect nothing of the revision they begin at, so that engines
//! with a history, such as a shared etcd, can be subjects. Failures panic: this is test code.
#![allow(clippy::unwrap_used)]

mod history;
#[cfg(test)]
mod racing;
mod ranges;
mod recorder;
mod transactions;
mod watches;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

#[cfg(test)]
pub use self::racing::Racing;
pub use self::recorder::Recorder;
use crate::{Guard, KeyValue, Op, Outcome, RangeRequest, Revision, Store, Txn};

/// Every wait of the suite ends after this long.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The cases, by area.
pub mod cases {
    pub use super::history::*;
    pub use super::ranges::*;
    pub use super::transactions::*;
    pub use super::watches::*;
}

/// A store under test.
pub struct Subject {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Goes before every key.
    pub prefix: String,
    /// Whether sinks have their events before a commit is acknowledged.
    pub publishes_before_acknowledging: bool,
    keep: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("store", &self.store)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// A subject of an engine in this process.
    pub fn in_process(store: Arc<dyn Store>) -> Subject {
        Subject {
            store,
            prefix: "/registry/".into(),
            publishes_before_acknowledging: true,
            keep: None,
        }
    }

    /// A subject of an engine elsewhere, in a part of it of its own.
    pub fn remote(store: Arc<dyn Store>, prefix: impl Into<String>) -> Subject {
        Subject {
            store,
            prefix: prefix.into(),
            publishes_before_acknowledging: false,
            keep: None,
        }
    }

    /// Keeps something (a temporary directory, a server) for as long as the subject.
    pub fn keeping(mut self, what: impl Any + Send + Sync) -> Subject {
        self.keep = Some(Box::new(what));
        self
    }

    /// The whole key of a name.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A put of a name.
    pub fn put(&self, name: &str, value: impl Into<Bytes>) -> Op {
        Op::Put {
            key: self.key(name),
            value: value.into(),
            ttl: None,
        }
    }

    /// A delete of a name.
    pub fn delete(&self, name: &str) -> Op {
        Op::Delete { key: self.key(name) }
    }

    /// A guard on a name.
    pub fn guard(&self, name: &str, revision: Revision) -> Guard {
        Guard {
            key: self.key(name),
            mod_revision: revision,
        }
    }

    /// Commits a transaction that has to succeed.
    pub async fn commit(&self, guards: Vec<Guard>, ops: Vec<Op>) -> Revision {
        match self.store.commit(Txn { guards, ops }).await.unwrap() {
            Outcome::Committed(revision) => revision,
            Outcome::Conflict { guard, current, .. } => panic!("guard {guard} failed, current: {current:?}"),
        }
    }

    /// Writes one name.
    pub async fn write(&self, name: &str, value: impl Into<Bytes>) -> Revision {
        self.commit(vec![], vec![self.put(name, value)]).await
    }

    /// Deletes one name.
    pub async fn remove(&self, name: &str) -> Revision {
        self.commit(vec![], vec![self.delete(name)]).await
    }

    /// Reads one name.
    pub async fn read(&self, name: &str, at: Option<Revision>) -> Option<KeyValue> {
        self.store.get(&self.key(name), at).await.unwrap().0
    }

    /// Names and values under a name's prefix at a revision.
    pub async fn list(&self, under: &str, at: Option<Revision>) -> Vec<(String, Bytes)> {
        let request = RangeRequest {
            prefix: self.key(under),
            at,
            ..RangeRequest::default()
        };
        let response = self.store.range(request).await.unwrap();
        assert_eq!(response.count, response.kvs.len() as u64);
        response
            .kvs
            .into_iter()
            .map(|pair| (self.name(&pair), pair.value))
            .collect()
    }

    /// The name of a pair.
    pub fn name(&self, pair: &KeyValue) -> String {
        pair.key.strip_prefix(&*self.prefix).unwrap().to_owned()
    }

    /// Releases the engine.
    pub async fn finish(self) {
        self.store.shutdown().await;
        drop(self.keep);
    }
}

/// Makes one test of each case. `$make` is an expression for a future of a [`Subject`]; it is evaluated per case.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests! { @cases $make,
            create_wants_absence
            update_wants_the_revision
            delete_wants_the_revision
            all_guards_hold_or_nothing_happens
            a_transaction_is_one_revision
            a_change_of_nothing_takes_no_revision
            a_key_is_written_once_per_transaction
            recreation_begins_a_new_incarnation
            concurrent_creates_have_one_winner
            concurrent_increments_lose_nothing
            large_values_survive
            empty_values_are_values
            too_large_values_are_refused
            ranges_are_in_order
            ranges_begin_at_start
            ranges_page_at_one_revision
            ranges_count
            prefixes_are_not_paths
            ranges_equal_gets
            many_keys
            reads_of_the_past
            reads_of_the_future_are_refused
            compacted_reads_are_refused
            compaction_keeps_current_values
            keys_with_a_time_to_live_end
            rewriting_resets_the_time_to_live
            watches_see_each_change_once_in_order
            watches_carry_previous_values
            watches_replay_the_past
            watches_join_without_a_gap
            watches_see_whole_revisions
            watches_see_their_prefix_only
            watches_of_the_compacted_are_refused
            dropped_watches_are_quiet
            sinks_become_fresh
            acknowledged_writes_are_published
            shutdown_is_final
        }
    };
    (@cases $make:expr, $($case:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            if let Some(subject) = $crate::conformance::IntoSubject::into_subject($make.await) {
                $crate::conformance::cases::$case(&subject).await;
                subject.finish().await;
            }
        }
    )*};
}

/// The result of a maker: a subject, or none where the engine is not installed (which it has reported).
pub trait IntoSubject {
    /// The subject, if there is one.
    fn into_subject(self) -> Option<Subject>;
}

impl IntoSubject for Subject {
    fn into_subject(self) -> Option<Subject> {
        Some(self)
    }
}

impl IntoSubject for Option<Subject> {
    fn into_subject(self) -> Option<Subject> {
        self
    }
}
