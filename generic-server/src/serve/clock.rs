//! The one clock of a connection: it ends silent connections of any protocol.
//!
//! The clock is set when it fires and when a head comes in pieces, so a request on a connection that is in use sets no timer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::registry::Requests;
use crate::metrics::Closed;

/// How long a connection that is ending may send nothing to speak of. Go gives HTTP/2 one second.
const LINGER: Duration = Duration::from_secs(5);
/// The bytes that it must send in that time to stay open: the rest of an answer does, replies to PINGs do not.
const PROGRESS: u64 = 1024;
/// The connection preface of HTTP/2 and the head of the frame that has to follow it.
const H2_OPENING: u64 = 24 + 9;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A head is awaited since then; a part of it, or nothing of the first, is there.
    Head(Instant),
    /// There is no request.
    Idle,
    /// It was asked to end, and is looked at again then.
    Ending(Instant),
}

struct Clock<'a> {
    requests: &'a Requests,
    protocol: Protocol,
    phase: Phase,
    /// The counters when the connection was last looked at.
    begun: u64,
    read: u64,
    written: u64,
    busy: bool,
}

/// Drives a connection to its end: by itself, by the clock, or because it is asked to end. `shut` is the protocol's orderly end.
pub(super) async fn drive<C, E>(
    connection: C,
    shut: impl Fn(Pin<&mut C>),
    protocol: Protocol,
    requests: &Requests,
) -> Result<(), E>
where
    C: Future<Output = Result<(), E>>,
{
    let mut connection = pin!(connection);
    let mut clock = Clock {
        requests,
        protocol,
        phase: Phase::Head(requests.activity().opened()),
        begun: 0,
        read: 0,
        written: 0,
        busy: false,
    };
    let mut alarm = pin!(tokio::time::sleep_until(clock.deadline()));
    let mut closing = pin!(requests.activity().closing.cancelled());
    std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            if clock.observe() && clock.deadline() < alarm.deadline() {
                alarm.as_mut().reset(clock.deadline());
            }
            let ending = matches!(clock.phase, Phase::Ending(_));
            let asked = !ending && closing.as_mut().poll(cx).is_ready();
            if !asked {
                if alarm.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let deadline = clock.deadline();
                if deadline > Instant::now() {
                    alarm.as_mut().reset(deadline);
                    continue;
                }
                match clock.phase {
                    Phase::Head(_) => {
                        requests.closed(Closed::Head);
                        return Poll::Ready(Ok(()));
                    }
                    Phase::Ending(_) => {
                        if !clock.is_going_on() {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Phase::Idle => requests.closed(Closed::Idle),
                }
            }
            if !ending {
                shut(connection.as_mut());
            }
            // Its descriptor is another connection's by now: it may say goodbye, and wait for nothing.
            if requests.activity().is_evicted() {
                return match connection.as_mut().poll(cx) {
                    Poll::Ready(outcome) => Poll::Ready(outcome),
                    Poll::Pending => Poll::Ready(Ok(())),
                };
            }
            clock.phase = Phase::Ending(Instant::now() + LINGER);
            alarm.as_mut().reset(clock.deadline());
        }
    })
    .await
}

impl Clock<'_> {
    /// When the connection has to be looked at again.
    fn deadline(&self) -> Instant {
        let limits = self.requests.limits();
        match self.phase {
            Phase::Head(since) => since + limits.head,
            Phase::Idle if self.requests.activity().is_busy() => Instant::now() + limits.idle,
            Phase::Idle => self.requests.activity().idle_since() + limits.idle,
            Phase::Ending(until) => until,
        }
    }

    /// Takes note of what the connection just did. Says whether its phase is another, which may make the deadline
    /// earlier.
    fn observe(&mut self) -> bool {
        let activity = self.requests.activity();
        let (begun, read, busy) = (
            activity.begun(),
            activity.read.load(Ordering::Relaxed),
            activity.is_busy(),
        );
        let first = begun != std::mem::replace(&mut self.begun, begun);
        let arrived = read != std::mem::replace(&mut self.read, read);
        // Bytes that come while a request is answered are its body.
        let used = busy || first || self.busy;
        self.busy = busy;
        if matches!(self.phase, Phase::Ending(_)) {
            return false;
        }
        let written = activity.written.load(Ordering::Relaxed);
        let sent = written != std::mem::replace(&mut self.written, written);
        let before = self.phase;
        match (self.phase, self.protocol) {
            (Phase::Head(_), _) if first => self.phase = Phase::Idle,
            (Phase::Head(_), Protocol::Http2) if read >= H2_OPENING => {
                activity.touch();
                self.phase = Phase::Idle;
            }
            (Phase::Idle, Protocol::Http1) if arrived && !used => {
                self.phase = Phase::Head(Instant::now());
            }
            // The end of an answer that the client takes slowly.
            (Phase::Idle, Protocol::Http1) if sent && !used => activity.touch(),
            _ => {}
        }
        before != self.phase
    }

    /// Whether a connection that is ending answers a request still, or sends the rest of an answer.
    fn is_going_on(&mut self) -> bool {
        let activity = self.requests.activity();
        let written = activity.written.load(Ordering::Relaxed);
        let sent = written - std::mem::replace(&mut self.written, written);
        activity.is_busy() || sent >= PROGRESS
    }
}
