//! All watches of a store on one gRPC stream.
//!
//! One task owns the stream and the watches on it. When the stream breaks it opens another, on the next member if need be,
//! and asks for each watch from the revision after the last one delivered: nothing is lost, and duplicates are dropped.
//! One progress request on the one stream brings every sink up to date.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::client::{Client, Repeat};
use super::messages::{
    self, Answer, Request, RequestOp, TxnRequest, TxnResponse, WatchCancelRequest, WatchCreateRequest,
    WatchProgressRequest, WatchRequest, WatchRequestKind, WatchResponse,
};
use super::{keys, shut_down};
use crate::{Event, EventKind, Revision, StorageError, WatchHandle, WatchSink};

/// How often progress is requested while a caller waits for it, as upstream's cacher.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// However many wait, it is not asked for more often than this.
const PROGRESS_PAUSE: Duration = Duration::from_millis(5);
const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_MOST: Duration = Duration::from_secs(2);
/// Watches asked about at once where progress messages cannot be trusted.
const MAX_CHECKS: usize = 32;
/// The watch id of messages that are about all watches.
const ALL: i64 = -1;

#[derive(Debug)]
pub(super) enum Command {
    Add {
        watch: Watch,
        handle: oneshot::Sender<Result<WatchHandle, StorageError>>,
    },
    /// Sinks under the prefix should learn that they have reached the revision.
    Reach { prefix: String, revision: u64 },
}

pub(super) struct Watch {
    prefix: String,
    sink: Arc<dyn WatchSink>,
    /// Everything up to here has been delivered.
    delivered: u64,
    /// A caller waits for the sink to reach this revision.
    wanted: u64,
    created: bool,
    checking: bool,
}

impl Watch {
    /// A watch of what comes after a revision, whose sink learns when it has seen the past up to `now`.
    pub(super) fn new(prefix: String, after: Revision, now: u64, sink: Arc<dyn WatchSink>) -> Watch {
        Watch {
            prefix,
            sink,
            delivered: after.0,
            wanted: now,
            created: false,
            checking: false,
        }
    }

    fn lags(&self) -> bool {
        self.delivered < self.wanted
    }

    fn reached(&mut self, revision: u64) {
        if revision > self.delivered {
            self.delivered = revision;
            self.sink.progress(Revision(revision));
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("prefix", &self.prefix)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<(usize, Streaming<WatchResponse>), Status>> + Send>>;
type Dropped = Pin<Box<dyn Future<Output = i64> + Send>>;
type Checked = Pin<Box<dyn Future<Output = Check> + Send>>;

/// The result of a check of a watch's keys.
struct Check {
    id: i64,
    from: u64,
    to: u64,
    quiet: bool,
}

/// The state of the one stream.
enum Stream {
    /// There are no watches.
    Idle,
    /// The last one broke; the next is opened then.
    Broken(Instant),
    /// Requests are queued already: a member answers only once it has one.
    Opening(Opening, mpsc::Sender<WatchRequest>),
    Open(usize, Box<Streaming<WatchResponse>>, mpsc::Sender<WatchRequest>),
}

/// The next event of the loop.
enum Step {
    Commanded(Option<Command>),
    Opened(Result<(usize, Streaming<WatchResponse>), Status>),
    Response(Result<Option<WatchResponse>, Status>),
    Sent(bool),
    Dropped(i64),
    Checked(Check),
    Time,
}

pub(super) struct Mux {
    client: Arc<Client>,
    trusted: Arc<AtomicBool>,
    commands: mpsc::Receiver<Command>,
    /// In the order in which they are asked for, which is the order of the answers.
    watches: BTreeMap<i64, Watch>,
    next_id: i64,
    stream: Stream,
    backoff: Duration,
    /// The requests to be sent. It holds a request or two per watch at most.
    outbox: VecDeque<WatchRequest>,
    dropped: FuturesUnordered<Dropped>,
    checks: FuturesUnordered<Checked>,
    next_progress: Instant,
    last_progress: Instant,
}

impl Mux {
    pub(super) fn new(
        client: Arc<Client>,
        trusted: Arc<AtomicBool>,
        commands: mpsc::Receiver<Command>,
    ) -> Mux {
        Mux {
            client,
            trusted,
            commands,
            watches: BTreeMap::new(),
            next_id: 1,
            stream: Stream::Idle,
            backoff: RECONNECT_FIRST,
            outbox: Default::default(),
            dropped: FuturesUnordered::new(),
            checks: FuturesUnordered::new(),
            next_progress: Instant::now(),
            last_progress: Instant::now(),
        }
    }

    /// Runs until the store closes the command queue.
    pub(super) async fn run(mut self) {
        loop {
            self.open_stream();
            match self.next().await {
                Step::Commanded(None) => break,
                Step::Commanded(Some(command)) => self.command(command),
                Step::Opened(Ok((member, stream))) => {
                    if let Stream::Opening(_, requests) = std::mem::replace(&mut self.stream, Stream::Idle) {
                        self.stream = Stream::Open(member, Box::new(stream), requests);
                    }
                }
                Step::Response(Ok(Some(response))) => self.handle_response(response),
                Step::Opened(Err(status)) | Step::Response(Err(status)) => self.broken(&status),
                Step::Response(Ok(None)) | Step::Sent(false) => {
                    self.broken(&Status::unavailable("the watch stream has ended"));
                }
                Step::Sent(true) | Step::Time => {}
                Step::Dropped(id) => self.remove(id),
                Step::Checked(check) => self.checked(&check),
            }
            self.ask_for_progress();
        }
        for watch in self.watches.values() {
            watch.sink.closed(shut_down());
        }
    }

    async fn next(&mut self) -> Step {
        let lagging = self.watches.values().any(Watch::lags);
        let wake = match &self.stream {
            Stream::Broken(until) => Some(*until),
            Stream::Open(..) if lagging => Some(self.next_progress),
            _ => None,
        };
        let sleep = async {
            match wake {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let requests = match &self.stream {
            Stream::Opening(_, requests) | Stream::Open(_, _, requests) if !self.outbox.is_empty() => {
                Some(requests.clone())
            }
            _ => None,
        };
        let outbox = &mut self.outbox;
        let send = async {
            match requests {
                Some(requests) => match requests.reserve().await {
                    Ok(room) => {
                        if let Some(request) = outbox.pop_front() {
                            room.send(request);
                        }
                        Step::Sent(true)
                    }
                    Err(_) => Step::Sent(false),
                },
                None => std::future::pending().await,
            }
        };
        let stream = &mut self.stream;
        let streamed = async {
            match stream {
                Stream::Opening(opening, _) => Step::Opened(opening.await),
                Stream::Open(_, stream, _) => Step::Response(stream.message().await),
                Stream::Idle | Stream::Broken(_) => std::future::pending().await,
            }
        };
        // All of these may be dropped half-way without losing anything.
        tokio::select! {
            command = self.commands.recv() => Step::Commanded(command),
            step = streamed => step,
            happening = send => happening,
            Some(id) = self.dropped.next() => Step::Dropped(id),
            Some(check) = self.checks.next() => Step::Checked(check),
            () = sleep => Step::Time,
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Add { watch, handle } => {
                let id = self.next_id;
                self.next_id += 1;
                let (signal, dropped) = oneshot::channel();
                self.dropped.push(Box::pin(async move {
                    // Sent or dropped, it means the same.
                    let _ = dropped.await;
                    id
                }));
                if !matches!(self.stream, Stream::Idle | Stream::Broken(_)) {
                    self.outbox.push_back(create(id, &watch));
                }
                self.watches.insert(id, watch);
                self.next_progress = self.next_progress.min(self.last_progress + PROGRESS_PAUSE);
                // The caller may be gone; the handle's drop then ends the watch.
                let _ = handle.send(Ok(WatchHandle::signalling(signal)));
            }
            Command::Reach { prefix, revision } => {
                for watch in self.watches.values_mut() {
                    if watch.prefix.starts_with(&prefix) || prefix.starts_with(&watch.prefix) {
                        watch.wanted = watch.wanted.max(revision);
                    }
                }
                self.next_progress = self.next_progress.min(self.last_progress + PROGRESS_PAUSE);
            }
        }
    }

    fn remove(&mut self, id: i64) {
        if self.watches.remove(&id).is_some() && matches!(self.stream, Stream::Opening(..) | Stream::Open(..))
        {
            self.outbox
                .push_back(request(WatchRequestKind::Cancel(WatchCancelRequest {
                    watch_id: id,
                })));
        }
    }

    fn open_stream(&mut self) {
        if self.watches.is_empty() {
            if matches!(self.stream, Stream::Broken(_)) {
                self.stream = Stream::Idle;
            }
            return;
        }
        match &self.stream {
            Stream::Idle => {}
            Stream::Broken(until) if Instant::now() >= *until => {}
            _ => return,
        }
        self.outbox = self
            .watches
            .iter()
            .map(|(id, watch)| create(*id, watch))
            .collect();
        let (requests, queue) = mpsc::channel(64);
        let client = self.client.clone();
        let opening = Box::pin(async move { client.watch(ReceiverStream::new(queue)).await });
        self.stream = Stream::Opening(opening, requests);
    }

    fn broken(&mut self, status: &Status) {
        tracing::debug!(reason = status.message(), "the etcd watch stream broke");
        if let Stream::Open(member, ..) = &self.stream {
            self.client.turn_from(*member);
        }
        self.stream = Stream::Broken(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(RECONNECT_MOST);
        self.watches.values_mut().for_each(|watch| watch.created = false);
    }

    fn handle_response(&mut self, response: WatchResponse) {
        self.backoff = RECONNECT_FIRST;
        let revision = response.revision();
        self.client.observe_revision(revision);
        if response.watch_id == ALL {
            if response.canceled {
                self.refused(response.cancel_reason);
                return;
            }
            if !response.created && self.trusted.load(Ordering::Relaxed) {
                self.watches
                    .values_mut()
                    .filter(|watch| watch.created)
                    .for_each(|watch| watch.reached(revision));
            }
            return;
        }
        let Some(watch) = self.watches.get_mut(&response.watch_id) else {
            return;
        };
        if response.created && !watch.created && !response.canceled {
            watch.created = true;
            // Where it begins is where it is.
            watch.sink.progress(Revision(watch.delivered));
        }
        if response.canceled {
            let error = if response.compact_revision > 0 {
                let oldest = messages::unsigned(response.compact_revision);
                self.client.observe_compacted(oldest);
                StorageError::Compacted {
                    asked: Revision(watch.delivered),
                    oldest: Revision(oldest),
                }
            } else {
                StorageError::Unavailable {
                    message: format!("etcd ended the watch: {}", response.cancel_reason),
                    source: None,
                }
            };
            watch.sink.closed(error);
            self.watches.remove(&response.watch_id);
            return;
        }
        if response.events.is_empty() {
            if !response.created {
                watch.reached(revision);
            }
            return;
        }
        match events(response.events, watch.delivered) {
            Ok(events) => {
                if let Some(last) = events.last() {
                    watch.delivered = last.kv.mod_revision.0;
                    watch.sink.events(last.kv.mod_revision, &events);
                }
            }
            Err(error) => {
                watch.sink.closed(error);
                self.remove(response.watch_id);
            }
        }
    }

    /// A watch was not even made; the answer does not say which, but answers come in order.
    fn refused(&mut self, reason: String) {
        let first = self
            .watches
            .iter()
            .find(|(_, watch)| !watch.created)
            .map(|(id, _)| *id);
        if let Some(watch) = first.and_then(|id| self.watches.remove(&id)) {
            let message = format!("etcd refused the watch: {reason}");
            watch.sink.closed(StorageError::Unavailable {
                message,
                source: None,
            });
        }
    }

    /// While a caller waits for a sink: requests progress, or where the member's answer cannot be trusted, checks the keys.
    fn ask_for_progress(&mut self) {
        let now = Instant::now();
        if now < self.next_progress || !matches!(self.stream, Stream::Open(..)) {
            return;
        }
        let mut lagging = self
            .watches
            .iter_mut()
            .filter(|(_, watch)| watch.lags() && watch.created)
            .peekable();
        if lagging.peek().is_none() {
            return;
        }
        self.last_progress = now;
        self.next_progress = now + PROGRESS_EVERY;
        if self.trusted.load(Ordering::Relaxed) {
            self.outbox
                .push_back(request(WatchRequestKind::Progress(WatchProgressRequest {})));
            return;
        }
        for (id, watch) in lagging {
            if self.checks.len() >= MAX_CHECKS {
                break;
            }
            if !watch.checking {
                watch.checking = true;
                let (client, prefix) = (self.client.clone(), watch.prefix.clone());
                self.checks.push(Box::pin(check(
                    client,
                    *id,
                    prefix,
                    watch.delivered,
                    watch.wanted,
                )));
            }
        }
    }

    fn checked(&mut self, check: &Check) {
        if let Some(watch) = self.watches.get_mut(&check.id) {
            watch.checking = false;
            // Unless something was delivered meanwhile, nothing lies between.
            if check.quiet && watch.delivered == check.from {
                watch.reached(check.to);
            }
        }
    }
}

/// Whether nothing under a prefix has changed between two revisions: no key is newer, and none is missing.
async fn check(client: Arc<Client>, id: i64, prefix: String, from: u64, to: u64) -> Check {
    let range = |revision: u64| messages::RangeRequest {
        key: keys::first(&prefix),
        range_end: keys::end(&prefix),
        revision: messages::signed(revision),
        ..messages::RangeRequest::default()
    };
    let newer = messages::RangeRequest {
        min_mod_revision: messages::signed(from + 1),
        keys_only: true,
        limit: 1,
        ..range(to)
    };
    let count = |revision| messages::RangeRequest {
        count_only: true,
        ..range(revision)
    };
    // Revision zero would mean the newest, and nothing was there before the first.
    let ranges = if from == 0 {
        vec![newer]
    } else {
        vec![newer, count(from), count(to)]
    };
    let op = |range| RequestOp {
        request: Some(Request::Range(range)),
    };
    let request = TxnRequest {
        success: ranges.into_iter().map(op).collect(),
        ..TxnRequest::default()
    };
    let quiet = match client
        .call::<_, TxnResponse>(messages::TXN, request, Repeat::Freely, from)
        .await
    {
        Ok(response) => {
            let mut found = response.responses.iter().map(|op| op.range.as_ref());
            let newer = found.next().flatten().is_none_or(|range| !range.kvs.is_empty());
            let counts: Vec<_> = found.map(|range| range.map(|range| range.count)).collect();
            !newer && counts.windows(2).all(|pair| pair[0] == pair[1])
        }
        // It is asked again in a moment.
        Err(_) => false,
    };
    Check { id, from, to, quiet }
}

fn request(kind: WatchRequestKind) -> WatchRequest {
    WatchRequest { request: Some(kind) }
}

fn create(id: i64, watch: &Watch) -> WatchRequest {
    // From the last revision delivered rather than the one after it: a member answers no progress request at all while any watch on
    // the stream begins in the future, and the next write may be long in coming. Duplicates are dropped.
    request(WatchRequestKind::Create(WatchCreateRequest {
        key: keys::first(&watch.prefix),
        range_end: keys::end(&watch.prefix),
        start_revision: messages::signed(watch.delivered.max(1)),
        progress_notify: true,
        prev_kv: true,
        watch_id: id,
    }))
}

/// The events after a revision.
fn events(raw: Vec<messages::WatchEvent>, after: u64) -> Result<Vec<Event>, StorageError> {
    let mut events = Vec::with_capacity(raw.len());
    for event in raw {
        let Some(kv) = event.kv else { continue };
        if messages::unsigned(kv.mod_revision) <= after {
            continue;
        }
        events.push(Event {
            kind: if event.kind == 0 {
                EventKind::Put
            } else {
                EventKind::Delete
            },
            kv: keys::pair(kv)?,
            prev: event.prev_kv.map(keys::pair).transpose()?,
        });
    }
    Ok(events)
}
