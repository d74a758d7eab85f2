//! Answers on their way: the bytes that are made and not yet taken by connections, counted and bounded, and the body that keeps
//! its request's seat and deadline until its last byte is taken.
//!
//! Small answers are handed over at once and pass by all of this. Of a large one, every piece is counted until the connection drops
//! it; a client that does not read thus stops the making of its own answer, and at the request's deadline the answer is cut. As
//! upstream, where the handler writes the answer, the request is in flight all that time.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use machinery::limits;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::metrics::{Collect, Counted, Metrics, family, sample};
use crate::request::{Body, BoxError, Held, Response, User};

/// How many bytes of answers may be untaken.
#[derive(Debug)]
pub(crate) struct ResponseBudget {
    total: AtomicUsize,
    most: usize,
    most_per_user: usize,
    /// By user name; an account is here as long as an answer is charged to it.
    accounts: Mutex<HashMap<Arc<str>, Arc<Account>>>,
}

impl Collect for ResponseBudget {
    fn collect(&self, out: &mut String) {
        let name = "apiserver_response_bytes_in_flight";
        family(
            out,
            name,
            "gauge",
            "Bytes of large answers that connections have not taken yet.",
        );
        sample(out, name, &[], self.bytes());
    }
}

#[derive(Debug)]
struct Account {
    user: Arc<str>,
    bytes: AtomicUsize,
}

impl Default for ResponseBudget {
    fn default() -> Self {
        Self::new(limits::RESPONSE_BYTES, limits::RESPONSE_BYTES_PER_USER)
    }
}

impl ResponseBudget {
    /// With these bounds for all answers, and for those of one user.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Self {
        ResponseBudget {
            total: AtomicUsize::new(0),
            most,
            most_per_user,
            accounts: Mutex::default(),
        }
    }

    /// How many bytes are untaken.
    pub(crate) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether a user may be answered this many bytes more. Administrators always get an answer.
    pub(crate) fn admits(&self, user: &User, bytes: usize) -> bool {
        let total = self.bytes();
        // While all users together stay below the bound of one, no user's account has to be checked.
        if total.saturating_add(bytes) <= self.most_per_user.min(self.most) || user.in_group("system:masters")
        {
            return true;
        }
        let own = self
            .accounts
            .lock()
            .get(&*user.name)
            .map(|account| account.bytes.load(Ordering::Relaxed));
        total.saturating_add(bytes) <= self.most
            && own.unwrap_or_default().saturating_add(bytes) <= self.most_per_user
    }

    /// Charges bytes to a user.
    pub(crate) fn charge(self: &Arc<Self>, user: &str, bytes: usize) -> Charge {
        let mut accounts = self.accounts.lock();
        let account = match accounts.get(user) {
            Some(account) => account.clone(),
            None => {
                let user: Arc<str> = user.into();
                let account = Arc::new(Account {
                    user: user.clone(),
                    bytes: AtomicUsize::new(0),
                });
                accounts.insert(user, account.clone());
                account
            }
        };
        drop(accounts);
        let charge = Charge {
            budget: self.clone(),
            account,
            bytes: AtomicUsize::new(0),
        };
        charge.add(bytes);
        charge
    }
}

/// The charge of one answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<ResponseBudget>,
    account: Arc<Account>,
    bytes: AtomicUsize,
}

impl Charge {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.total.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sub(self.bytes.load(Ordering::Relaxed));
        let mut accounts = self.budget.accounts.lock();
        // The map's and this one: new ones are made with the map locked.
        if Arc::strong_count(&self.account) == 2 {
            accounts.remove(&self.account.user);
        }
    }
}

/// The charge of an answer before it is sent; nothing for a small one.
pub(crate) fn size(response: &Response) -> Option<usize> {
    match response.body().size_hint().exact() {
        Some(bytes) => usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > limits::SMALL_RESPONSE_BYTES),
        // A stream: its first piece is there, and what it has made in advance.
        None => {
            let held = response.extensions().get::<Held>().map_or(0, |held| held.0);
            Some(limits::PIECE_BYTES + held)
        }
    }
}

/// How an answer is sent.
pub(crate) struct SendLimits {
    /// The charge, from [`size`].
    pub(crate) charge: Charge,
    /// When it is cut.
    pub(crate) deadline: Option<std::time::Instant>,
    /// Whether the body goes to a connection, which drops each piece once it is sent. A caller in this process may gather them.
    pub(crate) connection: bool,
    /// Where answers that were cut are counted.
    pub(crate) metrics: Arc<Metrics>,
    /// The series of the request.
    pub(crate) counted: Counted,
    /// Kept until the answer is taken: the seat, and what counts the request as running.
    pub(crate) guard: Box<dyn Any + Send>,
}

/// Keeps what `limits` say until the answer is taken, or its deadline cuts it.
pub(crate) fn bind(response: Response, limits: SendLimits) -> Response {
    response.map(|body| {
        let prepaid = limits.charge.bytes.load(Ordering::Relaxed);
        // A length that was known before has been counted.
        let is_stream = body.size_hint().exact().is_none();
        Sending {
            body,
            prepaid,
            channel: Arc::new(BodyChannel {
                charge: limits.charge,
                untaken: AtomicUsize::new(0),
                taken: AtomicWaker::new(),
            }),
            connection: limits.connection,
            deadline: limits
                .deadline
                .map(|at| Box::pin(tokio::time::sleep_until(Instant::from_std(at)))),
            state: State::Making,
            sent: (is_stream && limits.counted.counts_sizes()).then_some(0),
            metrics: limits.metrics,
            counted: limits.counted,
            guard: Some(limits.guard),
        }
        .boxed_unsync()
    })
}

/// The pieces of one answer between its body and the connection.
#[derive(Debug)]
struct BodyChannel {
    charge: Charge,
    untaken: AtomicUsize,
    taken: AtomicWaker,
}

/// A piece, until the connection drops it.
struct Piece {
    bytes: Bytes,
    channel: Arc<BodyChannel>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.channel.charge.sub(self.bytes.len());
        self.channel.untaken.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.channel.taken.wake();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// More pieces may follow.
    Making,
    /// All pieces are made; some may be untaken.
    Made,
    /// It is taken, or was cut.
    Over,
}

struct Sending {
    body: Body,
    /// Bytes that are charged already and not in a piece yet.
    prepaid: usize,
    channel: Arc<BodyChannel>,
    connection: bool,
    deadline: Option<Pin<Box<Sleep>>>,
    state: State,
    /// The bytes so far of a stream whose length is counted.
    sent: Option<u64>,
    metrics: Arc<Metrics>,
    counted: Counted,
    guard: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("channel", &self.channel)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Why an answer ends early.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not taken within the request's time")]
struct Expired;

impl Sending {
    fn end(&mut self) {
        self.state = State::Over;
        if let Some(sent) = self.sent.take() {
            self.counted.sent(sent);
        }
        self.guard = None;
        self.deadline = None;
    }

    /// Whether the connection has taken all but this many bytes.
    fn poll_taken(&self, but: usize, cx: &Context<'_>) -> Poll<()> {
        let taken = || self.channel.untaken.load(Ordering::Acquire) <= but;
        if taken() {
            return Poll::Ready(());
        }
        self.channel.taken.register(cx.waker());
        // It may have been taken before the waker was there.
        if taken() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn piece(&mut self, bytes: Bytes) -> Bytes {
        if !self.connection {
            return bytes;
        }
        let paid = self.prepaid.min(bytes.len());
        self.prepaid -= paid;
        self.channel.charge.add(bytes.len() - paid);
        self.channel.untaken.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Piece {
            bytes,
            channel: self.channel.clone(),
        })
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.state == State::Over {
            return Poll::Ready(None);
        }
        if this
            .deadline
            .as_mut()
            .is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
        {
            this.metrics.timeouts.fetch_add(1, Ordering::Relaxed);
            this.counted.aborted();
            this.end();
            return Poll::Ready(Some(Err(Expired.into())));
        }
        if this.state == State::Making {
            std::task::ready!(this.poll_taken(limits::RESPONSE_WINDOW_BYTES, cx));
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let (Some(sent), Some(data)) = (&mut this.sent, frame.data_ref()) {
                        *sent += data.len() as u64;
                    }
                    let frame = frame.map_data(|bytes| this.piece(bytes));
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(error)) => {
                    this.end();
                    return Poll::Ready(Some(Err(error)));
                }
                None => this.state = State::Made,
            }
        }
        std::task::ready!(this.poll_taken(0, cx));
        this.end();
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Over
    }
}

#[cfg(test)]
mod tests;
