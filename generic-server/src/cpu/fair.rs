//! Units that are granted to waiting requests, one user after the other.
//!
//! Users have their turns round-robin, and the requests of one user are served in order of arrival. A user with many requests therefore
//! delays another user's by one turn at most.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A user, by a hash of the name. Users with the same hash count as one.
pub(crate) type UserKey = u64;

/// A number of units.
#[derive(Debug)]
pub(super) struct Fair {
    all: usize,
    most_per_user: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    held_by: HashMap<UserKey, usize>,
    /// Users with waiting requests, in the order of their turns, each with those requests.
    queues: VecDeque<(UserKey, VecDeque<Arc<Waiter>>)>,
    waiting: usize,
}

#[derive(Debug)]
struct Waiter {
    units: usize,
    granted: AtomicBool,
    waker: Mutex<Waker>,
}

impl Fair {
    /// So many units, of which one user holds at most `most_per_user`.
    pub(super) fn new(all: usize, most_per_user: usize) -> Arc<Self> {
        Arc::new(Fair {
            all: all.max(1),
            most_per_user: most_per_user.max(1),
            state: Mutex::default(),
        })
    }

    /// Units that are held.
    pub(super) fn held(&self) -> usize {
        self.state.lock().held
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Grants all requests that fit. One larger than the whole gets its turn when nothing else is held, so that all turns come.
    fn dispatch(&self, state: &mut State) {
        let mut passed = 0;
        while passed < state.queues.len() {
            let Some((user, waiters)) = state.queues.front() else {
                return;
            };
            let (user, own) = (*user, state.held_by.get(user).copied().unwrap_or_default());
            let Some(first) = waiters.front() else {
                state.queues.pop_front();
                continue;
            };
            if own > 0 && own + first.units > self.most_per_user {
                passed += 1;
                state.queues.rotate_left(1);
                continue;
            }
            if state.held > 0 && state.held + first.units > self.all {
                // The head of the queue is not overtaken, or a large request would starve.
                return;
            }
            passed = 0;
            let Some((_, mut waiters)) = state.queues.pop_front() else {
                return;
            };
            if let Some(waiter) = waiters.pop_front() {
                state.waiting -= 1;
                state.held += waiter.units;
                *state.held_by.entry(user).or_default() += waiter.units;
                waiter.granted.store(true, Ordering::Release);
                waiter.waker.lock().wake_by_ref();
            }
            if !waiters.is_empty() {
                state.queues.push_back((user, waiters));
            }
        }
    }

    fn release(&self, user: UserKey, units: usize) {
        let mut state = self.state.lock();
        state.held -= units;
        if let Some(own) = state.held_by.get_mut(&user) {
            *own -= units;
            if *own == 0 {
                state.held_by.remove(&user);
            }
        }
        self.dispatch(&mut state);
    }

    fn enqueue(&self, user: UserKey, units: usize, waker: &Waker) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            units,
            granted: AtomicBool::new(false),
            waker: Mutex::new(waker.clone()),
        });
        let mut state = self.state.lock();
        match state.queues.iter_mut().find(|(other, _)| *other == user) {
            Some((_, waiters)) => waiters.push_back(waiter.clone()),
            None => state.queues.push_back((user, [waiter.clone()].into())),
        }
        state.waiting += 1;
        self.dispatch(&mut state);
        waiter
    }

    /// Gives up waiting; false when the units were granted meanwhile.
    fn leave(&self, user: UserKey, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        if waiter.granted.load(Ordering::Acquire) {
            return false;
        }
        if let Some((_, waiters)) = state.queues.iter_mut().find(|(other, _)| *other == user) {
            waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        state.waiting -= 1;
        // It may have been what held up the rest.
        self.dispatch(&mut state);
        true
    }
}

/// A place in the queue, then the units, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    of: Arc<Fair>,
    user: UserKey,
    units: usize,
    waiter: Option<Arc<Waiter>>,
    held: bool,
}

impl Ticket {
    /// A ticket that waits for nothing yet.
    pub(super) fn new(of: &Arc<Fair>, user: UserKey, units: usize) -> Self {
        Ticket {
            of: of.clone(),
            user,
            units,
            waiter: None,
            held: false,
        }
    }

    /// Waits for the units; at once when they are held already.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.held {
            return Poll::Ready(());
        }
        let waiter = match &self.waiter {
            Some(waiter) => {
                let mut waker = waiter.waker.lock();
                if !waker.will_wake(cx.waker()) {
                    *waker = cx.waker().clone();
                }
                drop(waker);
                waiter
            }
            None => self
                .waiter
                .insert(self.of.enqueue(self.user, self.units, cx.waker())),
        };
        if !waiter.granted.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.waiter = None;
        self.held = true;
        Poll::Ready(())
    }

    /// Gives the units back, or the place in the queue.
    pub(super) fn release(&mut self) {
        let granted = match self.waiter.take() {
            Some(waiter) => !self.of.leave(self.user, &waiter),
            None => self.held,
        };
        self.held = false;
        if granted {
            self.of.release(self.user, self.units);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls a ticket; whether it holds its units.
    fn has(ticket: &mut Ticket) -> bool {
        ticket.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn turns_go_round_among_users() {
        let fair = Fair::new(1, 1);
        let mut first = Ticket::new(&fair, 0, 1);
        assert!(has(&mut first));
        let users = [1, 1, 1, 2, 3, 2];
        let mut waiting: Vec<Ticket> = users.iter().map(|user| Ticket::new(&fair, *user, 1)).collect();
        for ticket in &mut waiting {
            assert!(!has(ticket));
        }
        assert_eq!((fair.held(), fair.waiting()), (1, 6));
        first.release();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let at = waiting.iter_mut().position(has).expect("one has its turn");
            order.push(waiting.remove(at).user);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
        assert_eq!((fair.held(), fair.waiting()), (0, 0));
        assert!(fair.state.lock().held_by.is_empty());
    }

    #[test]
    fn one_user_leaves_room_for_another() {
        let fair = Fair::new(8, 4);
        let mut tickets =
            [(1, 3), (1, 3), (2, 3), (2, 1), (3, 2)].map(|(user, units)| Ticket::new(&fair, user, units));
        let had: Vec<bool> = tickets.iter_mut().map(has).collect();
        // Of the first user the second has to wait; the third user waits for room.
        assert_eq!(had, [true, false, true, true, false]);
        tickets[3].release();
        assert!(has(&mut tickets[4]) && !has(&mut tickets[1]));
        tickets[0].release();
        assert!(has(&mut tickets[1]));
    }

    #[test]
    fn a_request_larger_than_the_whole_runs_alone() {
        let fair = Fair::new(8, 4);
        let mut small = Ticket::new(&fair, 1, 1);
        let mut large = Ticket::new(&fair, 2, 100);
        let mut late = Ticket::new(&fair, 3, 1);
        assert!(has(&mut small) && !has(&mut large) && !has(&mut late));
        small.release();
        assert!(has(&mut large) && !has(&mut late));
        large.release();
        assert!(has(&mut late));
    }

    #[test]
    fn a_waiter_that_leaves_blocks_no_other() {
        let fair = Fair::new(2, 2);
        let mut held = Ticket::new(&fair, 1, 1);
        assert!(has(&mut held));
        let mut large = Ticket::new(&fair, 2, 2);
        let mut small = Ticket::new(&fair, 3, 1);
        assert!(!has(&mut large) && !has(&mut small));
        drop(large);
        assert!(has(&mut small));
        // Granted and not taken.
        let mut next = Ticket::new(&fair, 4, 1);
        assert!(!has(&mut next));
        small.release();
        drop(next);
        assert_eq!((fair.held(), fair.waiting()), (1, 0));
    }
}
