//! Clients that read and write a few keys at once, and whether what they saw is linearizable.
//!
//! Whether the history of one key is: the algorithm of Wing and Gong with Lowe's memory of states that were seen.
//!
//! An operation takes effect at one moment between its call and its return. The checker looks for an order of all operations that
//! respects those that did not overlap and that a register explains. Keys are independent, so each has a check of its own.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The effect of an operation on an object, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The value and its revision; `None` when there was no object.
    Read(Option<(u64, u64)>),
    /// A write on the condition that the value is `from` (`None`: that there is no object).
    Write {
        /// The value that the condition expects.
        from: Option<u64>,
        /// The value after the write.
        to: Option<u64>,
        /// How it ended.
        outcome: Outcome,
    },
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done, at this revision where the answer said so.
    Done(Option<u64>),
    /// The condition did not hold.
    Refused,
    /// Unknown: there was no answer, or one that leaves it open. It may take effect at any later time, or never.
    Unknown,
}

/// One operation of a history. Moments are numbers of one counter.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// When it was begun.
    pub called: u64,
    /// When its outcome was known. Ignored where the outcome is not known.
    pub returned: u64,
    /// The action.
    pub action: Action,
}

impl Operation {
    fn is_unknown(&self) -> bool {
        matches!(
            self.action,
            Action::Write {
                outcome: Outcome::Unknown,
                ..
            }
        )
    }

    fn end(&self) -> u64 {
        if self.is_unknown() {
            u64::MAX
        } else {
            self.returned
        }
    }
}

/// A register: its value, and the newest revision that a client has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct State {
    value: Option<u64>,
    revision: u64,
    /// The revision is that of the value.
    exact: bool,
}

/// The state after, where the operation may have happened in this one.
fn step(state: State, action: Action) -> Option<State> {
    match action {
        Action::Read(None) => state.value.is_none().then_some(state),
        Action::Read(Some((value, revision))) => {
            let fits = if state.exact {
                revision == state.revision
            } else {
                revision > state.revision
            };
            (state.value == Some(value) && fits).then_some(State {
                revision,
                exact: true,
                ..state
            })
        }
        Action::Write { from, to, outcome } => match outcome {
            Outcome::Refused => (state.value != from).then_some(state),
            Outcome::Done(Some(revision)) => {
                (state.value == from && revision > state.revision).then_some(State {
                    value: to,
                    revision,
                    exact: true,
                })
            }
            Outcome::Done(None) | Outcome::Unknown => (state.value == from).then_some(State {
                value: to,
                exact: false,
                ..state
            }),
        },
    }
}

/// Whether an object that was not there at first may have had this history.
pub fn is_linearizable(history: &[Operation]) -> bool {
    let mut operations = history.to_vec();
    operations.sort_by_key(|operation| operation.called);
    let mut done = vec![false; operations.len()];
    // The operations chosen so far, each with the state before it.
    let mut chosen: Vec<(usize, State)> = Vec::new();
    // One that changes nothing may as well come first: then there is nothing else to try in its place.
    let settles = |after: State, before: State| after == before;
    let mut seen: HashSet<(Vec<bool>, State)> = HashSet::new();
    let mut state = State::default();
    let mut from = 0;
    loop {
        // Those of unknown outcome need never happen.
        let end = (0..operations.len())
            .filter(|at| !done[*at])
            .map(|at| operations[at].end())
            .min()
            .unwrap_or(u64::MAX);
        if end == u64::MAX {
            return true;
        }
        let mut next = None;
        for at in from..operations.len() {
            // An operation called after another had returned comes after it.
            if operations[at].called >= end {
                break;
            }
            if done[at] {
                continue;
            }
            let Some(after) = step(state, operations[at].action) else {
                continue;
            };
            done[at] = true;
            if seen.insert((done.clone(), after)) {
                next = Some((at, after));
                break;
            }
            done[at] = false;
        }
        match next {
            Some((at, after)) => {
                chosen.push((at, state));
                state = after;
                from = 0;
            }
            None => loop {
                let Some((at, before)) = chosen.pop() else {
                    return false;
                };
                done[at] = false;
                if !settles(state, before) {
                    state = before;
                    from = at + 1;
                    break;
                }
            },
        }
    }
}

/// The value of an object and its revision; `None` when there is no object.
pub type Found = Option<(u64, u64)>;

/// Objects that hold numbers, kept by a store or a server.
pub trait Registers: fmt::Debug + Sync {
    /// The newest state of one object; `None` when there is no answer.
    fn read(&self, key: &str) -> impl Future<Output = Option<Found>> + Send;

    /// The newest state of all objects whose keys begin with `under`, at one moment; `None` when there is no answer.
    fn read_all(&self, under: &str) -> impl Future<Output = Option<BTreeMap<String, (u64, u64)>>> + Send;

    /// A write of `to` on the condition that nothing has changed since `from` was read; `None` when it certainly did not happen.
    fn write(&self, key: &str, from: Found, to: Option<u64>) -> impl Future<Output = Option<Outcome>> + Send;
}

/// The concurrent operations of several clients and their outcomes, key by key.
#[derive(Debug, Default)]
pub struct History {
    moment: AtomicU64,
    operations: Mutex<BTreeMap<String, Vec<Operation>>>,
}

/// Keys that the clients share.
const KEYS: u64 = 4;

impl History {
    /// One client: reads, and writes on the condition that nothing has changed since. `client` numbers it, and `under` is what its
    /// keys begin with. A write that certainly did not happen is no operation.
    pub async fn run(&self, registers: &impl Registers, under: &str, client: u64, operations: u64) {
        let mut known: BTreeMap<String, Found> = BTreeMap::new();
        // The same on every run, and different for each client.
        let mut chance = client.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for n in 0..operations {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let key = format!("{under}{}", chance % KEYS);
            let called = self.now();
            match (known.remove(&key), chance % 11) {
                (Some(from), 0..7) => {
                    let gone = from.is_some() && (chance >> 20).is_multiple_of(5);
                    let to = (!gone).then_some(client << 32 | n);
                    let Some(outcome) = registers.write(&key, from, to).await else {
                        continue;
                    };
                    let from = from.map(|(value, _)| value);
                    self.note(key, called, Action::Write { from, to, outcome });
                }
                (_, 7) => {
                    let Some(all) = registers.read_all(under).await else {
                        continue;
                    };
                    for key in (0..KEYS).map(|key| format!("{under}{key}")) {
                        let found = all.get(&key).copied();
                        known.insert(key.clone(), found);
                        self.note(key, called, Action::Read(found));
                    }
                }
                _ => {
                    let Some(found) = registers.read(&key).await else {
                        continue;
                    };
                    known.insert(key.clone(), found);
                    self.note(key, called, Action::Read(found));
                }
            }
        }
    }

    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    /// Notes an operation that has ended now.
    fn note(&self, key: String, called: u64, action: Action) {
        let operation = Operation {
            called,
            returned: self.now(),
            action,
        };
        self.operations.lock().entry(key).or_default().push(operation);
    }

    /// Reads every key once, so that the check sees what has become of each write that was acknowledged. Fails where a read has no answer.
    pub async fn read_at_last(&self, registers: &impl Registers, under: &str) {
        let called = self.now();
        let all = registers.read_all(under).await;
        let all = all.expect("what is there can be read in the end");
        for key in (0..KEYS).map(|key| format!("{under}{key}")) {
            let found = all.get(&key).copied();
            self.note(key, called, Action::Read(found));
        }
    }

    /// Fails when a key's history is not linearizable. Gives the number of operations, and of those whose outcome nobody knows.
    pub fn check(&self) -> (usize, usize) {
        let operations = self.operations.lock();
        for (key, history) in &*operations {
            assert!(
                is_linearizable(history),
                "{key} is not linearizable: {history:#?}"
            );
        }
        let all = || operations.values().flatten();
        (
            all().count(),
            all().filter(|operation| operation.is_unknown()).count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(called: u64, returned: u64, found: Option<(u64, u64)>) -> Operation {
        let action = Action::Read(found);
        Operation {
            called,
            returned,
            action,
        }
    }

    fn write(called: u64, returned: u64, from: Option<u64>, to: Option<u64>, outcome: Outcome) -> Operation {
        let action = Action::Write { from, to, outcome };
        Operation {
            called,
            returned,
            action,
        }
    }

    #[track_caller]
    fn check(history: &[Operation], expected: bool) {
        assert_eq!(is_linearizable(history), expected);
        // The order of the records does not matter.
        let mut reversed = history.to_vec();
        reversed.reverse();
        assert_eq!(is_linearizable(&reversed), expected);
    }

    const DONE: Outcome = Outcome::Done(None);

    #[test]
    fn histories() {
        let at = |revision| Outcome::Done(Some(revision));
        let made = write(1, 2, None, Some(1), at(5));
        check(&[], true);
        check(&[made, read(3, 4, Some((1, 5)))], true);
        // A lost write, and one that was never made.
        check(&[made, read(3, 4, None)], false);
        check(&[made, read(3, 4, Some((2, 6)))], false);
        check(&[read(1, 2, Some((1, 5)))], false);
        // While it is being written either may be read, but not the older one after the newer one.
        let change = write(3, 10, Some(1), Some(2), at(6));
        let (old, new) = (Some((1, 5)), Some((2, 6)));
        check(&[made, change, read(4, 5, old), read(6, 7, new)], true);
        check(&[made, change, read(4, 5, new), read(6, 7, old)], false);
        // A stale read after the write was acknowledged.
        check(&[made, change, read(11, 12, old)], false);
        // One of two with the same condition is refused.
        let other = |outcome| write(4, 9, Some(1), Some(3), outcome);
        check(&[made, change, other(Outcome::Refused)], true);
        check(&[made, change, other(at(7))], false);
        check(&[made, write(3, 4, Some(1), Some(2), Outcome::Refused)], false);
        // Deleted and recreated.
        let gone = write(3, 4, Some(1), None, DONE);
        check(
            &[made, gone, read(5, 6, None), write(7, 8, None, Some(2), at(9))],
            true,
        );
        check(&[made, gone, read(5, 6, old)], false);
        // Revisions go up, and are those of their values.
        check(&[made, write(3, 4, Some(1), Some(2), at(4))], false);
        check(&[made, read(3, 4, Some((1, 6)))], false);
    }

    #[test]
    fn unknown_outcomes() {
        let made = write(1, 2, None, Some(1), Outcome::Done(Some(5)));
        let maybe = write(3, 4, Some(1), Some(2), Outcome::Unknown);
        let (old, new) = (Some((1, 5)), Some((2, 9)));
        check(&[made, maybe, read(5, 6, old)], true);
        check(&[made, maybe, read(5, 6, new)], true);
        // It may happen later, but once.
        check(&[made, maybe, read(5, 6, old), read(7, 8, new)], true);
        check(&[made, maybe, read(5, 6, new), read(7, 8, old)], false);
        check(&[made, maybe, read(5, 6, Some((2, 4)))], false);
        // Not before it was begun.
        check(
            &[
                made,
                read(3, 4, new),
                write(5, 6, Some(1), Some(2), Outcome::Unknown),
            ],
            false,
        );
    }

    #[test]
    fn many_that_overlap_are_no_trouble() {
        let mut history = Vec::new();
        for n in 0..40u64 {
            let from = n.checked_sub(1);
            history.push(write(
                n * 10,
                n * 10 + 35,
                from,
                Some(n),
                Outcome::Done(Some(n + 1)),
            ));
            for reader in 0..6 {
                history.push(read(n * 10 + reader, n * 10 + 34, Some((n, n + 1))));
            }
        }
        check(&history, true);
        history.push(read(500, 501, Some((5, 6))));
        check(&history, false);
    }
}
