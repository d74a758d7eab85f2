//! The index of watchers by the events that concern them. Watchers of one namespace, one object or one field value (`spec.nodeName=n1`) are not
//! disturbed by what happens elsewhere, so thousands of them cost an event nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use super::{Change, Entry};

/// The events that can concern a watcher at most. It still filters what it gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Everything.
    All,
    /// Objects of one namespace.
    Namespace(Box<str>),
    /// One object, by its storage key.
    Key(Box<str>),
    /// Objects whose selectable field (by index in the store's list) has this value, before or after.
    Field(usize, Box<str>),
}

/// No event is waiting.
const NONE: u64 = u64::MAX;

/// A watcher's bell: the number of the first event that concerns it since it last looked.
#[derive(Debug)]
pub(super) struct Bell {
    first: AtomicU64,
    waker: AtomicWaker,
}

impl Bell {
    /// The number of the first event since the last call, if any.
    pub(super) fn take(&self) -> Option<u64> {
        match self.first.swap(NONE, Ordering::AcqRel) {
            NONE => None,
            first => Some(first),
        }
    }

    /// Registers the waker of the watcher.
    pub(super) fn register(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }

    fn ring(&self, number: u64) {
        // Only the first counts: the watcher reads on from there.
        let _ = self
            .first
            .compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// How many field interests there are per field index: fields without interests are not looked at.
    fields: Vec<usize>,
    bells: HashMap<Interest, HashMap<u64, Arc<Bell>>>,
}

/// All bells of a cache.
#[derive(Debug, Default)]
pub(super) struct Interests(Mutex<State>);

impl Interests {
    /// A bell for an interest; the number takes it down again.
    pub(super) fn hang(&self, interest: &Interest) -> (u64, Arc<Bell>) {
        let bell = Arc::new(Bell {
            first: AtomicU64::new(NONE),
            waker: AtomicWaker::new(),
        });
        let mut state = self.0.lock();
        state.next_id += 1;
        let id = state.next_id;
        if let Interest::Field(index, _) = interest {
            if state.fields.len() <= *index {
                state.fields.resize(index + 1, 0);
            }
            state.fields[*index] += 1;
        }
        state
            .bells
            .entry(interest.clone())
            .or_default()
            .insert(id, bell.clone());
        (id, bell)
    }

    /// Takes a bell down.
    pub(super) fn remove(&self, interest: &Interest, id: u64) {
        let mut state = self.0.lock();
        if let Some(bells) = state.bells.get_mut(interest) {
            bells.remove(&id);
            if bells.is_empty() {
                state.bells.remove(interest);
            }
        }
        if let Interest::Field(index, _) = interest {
            state.fields[*index] -= 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().bells.values().map(HashMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().bells.is_empty()
    }

    /// Rings for events that are in the ring from number `first` on.
    pub(super) fn offer(&self, first: u64, changes: &[Arc<Change>]) {
        let mut woken: Vec<Arc<Bell>> = Vec::new();
        {
            let state = self.0.lock();
            if state.bells.is_empty() {
                return;
            }
            for (number, change) in (first..).zip(changes) {
                state.concerned(change, |bell| {
                    bell.ring(number);
                    woken.push(bell.clone());
                });
            }
        }
        // Outside the lock, because a wake-up may drop a watcher, which removes its bell.
        for bell in woken {
            bell.waker.wake();
        }
    }

    /// Wakes everybody: the cache has restarted.
    pub(super) fn wake_all(&self) {
        let bells: Vec<Arc<Bell>> = self
            .0
            .lock()
            .bells
            .values()
            .flat_map(|b| b.values().cloned())
            .collect();
        for bell in bells {
            bell.ring(0);
            bell.waker.wake();
        }
    }
}

impl State {
    fn concerned(&self, change: &Change, mut found: impl FnMut(&Arc<Bell>)) {
        let mut visit = |interest: &Interest| {
            if let Some(bells) = self.bells.get(interest) {
                bells.values().for_each(&mut found);
            }
        };
        let entry: &Entry = &change.entry;
        visit(&Interest::All);
        if !entry.namespace().is_empty() {
            visit(&Interest::Namespace(entry.namespace().into()));
        }
        visit(&Interest::Key((&*entry.key).into()));
        for (index, asked) in self.fields.iter().enumerate() {
            if *asked == 0 {
                continue;
            }
            let now = entry.field(index);
            visit(&Interest::Field(index, now.into()));
            if let Some(before) = change.previous.as_deref().map(|p| p.field(index))
                && before != now
            {
                visit(&Interest::Field(index, before.into()));
            }
        }
    }
}
