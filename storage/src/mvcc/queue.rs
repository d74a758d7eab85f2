//! The queue in front of the writer thread: bounded on the callers' side, taken in groups on the writer's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::StorageError;

/// Requests waiting at most; more callers wait in line.
const CAPACITY: usize = 4096;
/// A group ends at this many requests or about this many bytes: one flush for all of them, but not an endless one.
const GROUP_REQUESTS: usize = 1024;
const GROUP_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Inner<T> {
    waiting: VecDeque<Waiting<T>>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    request: T,
    bytes: usize,
    _room: OwnedSemaphorePermit,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue {
            inner: Mutex::new(Inner {
                waiting: VecDeque::new(),
                closed: false,
            }),
            arrived: Condvar::new(),
            room: Arc::new(Semaphore::new(CAPACITY)),
        }
    }

    /// Waits for room, then hands the request over. Nothing is handed over when the future is dropped before.
    pub(crate) async fn push(&self, request: T, bytes: usize) -> Result<(), StorageError> {
        let Ok(room) = self.room.clone().acquire_owned().await else {
            return Err(shut_down());
        };
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(shut_down());
        }
        inner.waiting.push_back(Waiting {
            request,
            bytes,
            _room: room,
        });
        drop(inner);
        self.arrived.notify_one();
        Ok(())
    }

    /// The next group: empty when `until` passed without a request, `None` when the queue is closed and drained.
    pub(crate) fn take(&self, until: Option<Instant>) -> Option<Vec<T>> {
        let mut inner = self.inner.lock();
        while inner.waiting.is_empty() {
            if inner.closed {
                return None;
            }
            match until {
                Some(until) => {
                    if self.arrived.wait_until(&mut inner, until).timed_out() {
                        break;
                    }
                }
                None => self.arrived.wait(&mut inner),
            }
        }
        let mut bytes = 0;
        let mut group = Vec::new();
        while group.len() < GROUP_REQUESTS && bytes < GROUP_BYTES {
            let Some(next) = inner.waiting.pop_front() else {
                break;
            };
            bytes += next.bytes;
            group.push(next.request);
        }
        Some(group)
    }

    /// Accepts no more items. Items already queued are still handed out.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.room.close();
        self.arrived.notify_all();
    }

    /// Closes, and drops waiting items, which no consumer will take any more.
    pub(crate) fn abandon(&self) {
        self.close();
        let waiting = std::mem::take(&mut self.inner.lock().waiting);
        drop(waiting);
    }
}

pub(crate) fn shut_down() -> StorageError {
    StorageError::Unavailable {
        message: "the store has been shut down".into(),
        source: None,
    }
}
