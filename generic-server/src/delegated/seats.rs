//! Seats for questions to a server outside: a bounded number is under way, and a bounded number waits.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The seats of one server outside.
#[derive(Debug)]
pub(super) struct Seats {
    free: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// There is no seat, and too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

/// A question that waits, until it is dropped.
struct Waiting<'s>(&'s AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seats {
    /// Seats for so many questions at once, and room for so many that wait.
    pub(super) fn new(all: usize, most_waiting: usize) -> Self {
        Seats {
            free: Semaphore::new(all),
            waiting: AtomicUsize::new(0),
            most_waiting,
        }
    }

    /// A seat, in the order of questions, until it is dropped.
    ///
    /// # Errors
    /// Too many wait already.
    pub(super) async fn take(&self) -> Result<SemaphorePermit<'_>, Busy> {
        if let Ok(seat) = self.free.try_acquire() {
            return Ok(seat);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.most_waiting {
            return Err(Busy);
        }
        self.free.acquire().await.map_err(|_| Busy)
    }

    /// Seats that are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Questions that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn seats_and_places_to_wait_are_bounded() {
        let seats = Seats::new(2, 2);
        let first = seats.take().await;
        let second = seats.take().await;
        assert_eq!((first.is_ok(), second.is_ok()), (true, true));
        let (mut third, mut fourth) = (Box::pin(seats.take()), Box::pin(seats.take()));
        assert!(poll!(&mut third).is_pending());
        assert!(poll!(&mut fourth).is_pending());
        assert_eq!((seats.free(), seats.waiting()), (0, 2));
        // One past the places to wait is refused at once.
        assert_eq!(seats.take().await.err(), Some(Busy));
        assert_eq!(seats.waiting(), 2);
        // One that is given up makes room; a seat that is given back goes to the first that waits.
        drop(fourth);
        assert_eq!(seats.waiting(), 1);
        drop(first);
        let third = third.await;
        assert!(third.is_ok());
        assert_eq!((seats.free(), seats.waiting()), (0, 0));
        drop((second, third));
        assert_eq!((seats.free(), seats.waiting()), (2, 0));
    }
}
