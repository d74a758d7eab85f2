//! Conversion requests in flight: a second request for the same answer waits for it instead of asking again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use machinery::ApiError;
use parking_lot::Mutex;

use super::cache::{Kept, Key};

/// The answers to one question, by object.
pub(super) type Answered = Result<Arc<HashMap<Key, Bytes>>, ApiError>;
/// A conversion request in flight. It runs as long as a caller waits for it.
pub(super) type Flight = Shared<BoxFuture<'static, Answered>>;

/// The answers of a webhook and the calls under way.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Kept,
    /// By the objects of the request.
    flights: HashMap<Key, WeakShared<BoxFuture<'static, Answered>>>,
}

/// The state of one object's conversion.
pub(super) enum Known {
    /// The answer.
    Answer(Bytes),
    /// It is being asked about.
    Asked(Flight),
    /// Nothing.
    Nothing,
}

impl Answers {
    /// The cached answers for these keys, and one conversion request for the keys without an answer: `ask` builds it
    /// from their indexes. Lookup and request are one step, so that no key is requested twice.
    pub(super) fn look_up(
        self: &Arc<Self>,
        keys: &[Key],
        ask: impl FnOnce(Vec<usize>) -> Vec<(Vec<usize>, BoxFuture<'static, Answered>)>,
    ) -> Vec<Known> {
        let mut state = self.state.lock();
        let mut known: Vec<Known> = keys.iter().map(|key| state.find(key)).collect();
        let unknown: Vec<usize> = (0..keys.len())
            .filter(|i| matches!(known[*i], Known::Nothing))
            .collect();
        if unknown.is_empty() {
            return known;
        }
        for (indexes, question) in ask(unknown) {
            let about: Vec<Key> = indexes.iter().map(|i| keys[*i].clone()).collect();
            let guard = FlightGuard {
                answers: Arc::downgrade(self),
                about: about.clone(),
            };
            let flight = async move {
                let answered = question.await;
                guard.keep(&answered);
                answered
            };
            let flight = flight.boxed().shared();
            for key in about {
                if let Some(weak) = flight.downgrade() {
                    state.flights.insert(key, weak);
                }
            }
            for index in indexes {
                known[index] = Known::Asked(flight.clone());
            }
        }
        known
    }
}

impl State {
    fn find(&self, key: &Key) -> Known {
        if let Some(answer) = self.kept.get(key) {
            return Known::Answer(answer.clone());
        }
        match self.flights.get(key).and_then(WeakShared::upgrade) {
            Some(flight) => Known::Asked(flight),
            None => Known::Nothing,
        }
    }
}

/// Removes a request from the list when it is answered, or when no caller waits for it any more.
struct FlightGuard {
    answers: Weak<Answers>,
    about: Vec<Key>,
}

impl FlightGuard {
    fn keep(&self, answered: &Answered) {
        let (Some(answers), Ok(answered)) = (self.answers.upgrade(), answered) else {
            return;
        };
        let mut state = answers.state.lock();
        for (key, converted) in answered.iter() {
            state.kept.keep(key.clone(), converted.clone());
        }
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let Some(answers) = self.answers.upgrade() else {
            return;
        };
        let mut state = answers.state.lock();
        for key in &self.about {
            state.flights.remove(key);
        }
    }
}
