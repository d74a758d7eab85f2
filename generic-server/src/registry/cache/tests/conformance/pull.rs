//! A watch of the suite: a feed, pulled into a sink.

use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

use super::*;

/// A watch as its handle holds it.
#[derive(Debug)]
struct Watch {
    _pull: Arc<Pull>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One watch: a feed and the sink that it is pulled into. The suite's own commits pull, so that sinks know before the
/// acknowledgement what the cache knew; other events are pulled by a task that the feed wakes.
pub(super) struct Pull {
    pub(super) cache: Arc<ObjectCache>,
    pub(super) prefix: String,
    pub(super) sink: Arc<dyn WatchSink>,
    /// Comes back, as a client does, when its feed has ended.
    pub(super) resumes: bool,
    pub(super) shut: Arc<AtomicBool>,
    /// The revision up to which events were delivered to the sink. Locked during delivery.
    pub(super) delivered: tokio::sync::Mutex<Revision>,
    /// Gone when the watch is over.
    pub(super) reader: Mutex<Option<Reader>>,
}

pub(super) struct Reader {
    feed: Feed,
    /// Taken from the feed, not delivered yet.
    taken: Vec<Arc<Change>>,
    waker: Option<Waker>,
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Pull {
    /// Starts delivery of the events after a revision. Existing events have been delivered when this returns.
    pub(super) async fn start(self, after: Revision) -> Result<(Weak<Pull>, WatchHandle), StorageError> {
        match self.cache.feed(after, self.interest()).await {
            Ok(feed) => {
                *self.reader.lock() = Some(Reader {
                    feed,
                    taken: Vec::new(),
                    waker: None,
                });
            }
            Err(error) => return Err(failure(&self.cache, &error, after).await),
        }
        let pull = Arc::new(self);
        pull.deliver().await;
        let weak = Arc::downgrade(&pull);
        let task = tokio::spawn(Pull::run(weak.clone())).abort_handle();
        let watch = Watch { _pull: pull, task };
        Ok((weak, WatchHandle::guarding(Arc::new(watch))))
    }

    fn interest(&self) -> Interest {
        let path = self
            .prefix
            .strip_prefix(PREFIX)
            .and_then(|path| path.strip_prefix('/'));
        match path.and_then(|path| path.strip_suffix('/')) {
            Some(namespace) => Interest::Namespace(namespace.into()),
            None => Interest::All,
        }
    }

    async fn run(pull: Weak<Pull>) {
        loop {
            std::future::poll_fn(|cx| pull.upgrade().map_or(Poll::Ready(()), |pull| pull.poll(cx))).await;
            let Some(pull) = pull.upgrade() else { return };
            if !pull.deliver().await {
                return;
            }
        }
    }

    /// Ready when there is something to deliver.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut reader = self.reader.lock();
        let Some(Reader { feed, taken, waker }) = &mut *reader else {
            return Poll::Ready(());
        };
        *waker = Some(cx.waker().clone());
        feed.poll(cx, taken).map(drop)
    }

    /// Delivers pending events to the sink. False when the watch is over.
    pub(super) async fn deliver(&self) -> bool {
        let mut delivered = self.delivered.lock().await;
        loop {
            let (drained, changes) = match &mut *self.reader.lock() {
                Some(reader) => (
                    reader.feed.drain(&mut reader.taken),
                    std::mem::take(&mut reader.taken),
                ),
                None => return false,
            };
            let failed = match drained {
                Ok(reached) => match self.events(&changes).await {
                    Ok(events) => {
                        match events.is_empty() {
                            true => self.sink.progress(reached),
                            false => self.sink.events(reached, &events),
                        }
                        *delivered = reached;
                        return true;
                    }
                    Err(error) => error,
                },
                Err(FeedEnd) if !self.resumes || self.shut.load(Ordering::Acquire) => {
                    unavailable("the feed has ended")
                }
                // Events that were taken but not delivered come again.
                Err(FeedEnd) => match self.cache.feed(*delivered, self.interest()).await {
                    Ok(feed) => {
                        if let Some(reader) = &mut *self.reader.lock() {
                            reader.feed = feed;
                            reader.waker.take().into_iter().for_each(Waker::wake);
                        }
                        continue;
                    }
                    Err(error) => failure(&self.cache, &error, *delivered).await,
                },
            };
            self.reader.lock().take();
            self.sink.closed(failed);
            return false;
        }
    }

    async fn events(&self, changes: &[Arc<Change>]) -> Result<Vec<Event>, StorageError> {
        let mut events = Vec::new();
        for change in changes
            .iter()
            .filter(|change| change.entry.key.starts_with(&*self.prefix))
        {
            assert_eq!(change.entry.revision, change.revision);
            let prev = match &change.previous {
                Some(entry) => Some(pair(entry, self.created(entry, change.revision.0 - 1).await?)),
                None => None,
            };
            let (kind, kv) = match change.kind {
                ChangeKind::Deleted => {
                    let kv = KeyValue {
                        damage: None,
                        key: change.entry.key.clone(),
                        value: Bytes::new(),
                        create_revision: Revision(0),
                        mod_revision: change.revision,
                    };
                    (EventKind::Delete, kv)
                }
                ChangeKind::Added | ChangeKind::Modified => {
                    let created = self.created(&change.entry, change.revision.0).await?;
                    assert_eq!(change.kind == ChangeKind::Added, created == change.revision);
                    (EventKind::Put, pair(&change.entry, created))
                }
            };
            events.push(Event { kind, kv, prev });
        }
        Ok(events)
    }

    /// When the incarnation began that an entry was of, at a revision at which it was the newest state.
    async fn created(&self, entry: &Entry, at: u64) -> Result<Revision, StorageError> {
        let stored = self.cache.engine.get(&entry.key, Some(Revision(at))).await;
        assert!(
            !matches!(stored, Err(StorageError::Compacted { .. })),
            "{entry:?} at {at} was to be refused"
        );
        let stored = stored?.0.expect("the engine has it, too");
        assert_eq!(stored.mod_revision, entry.revision);
        Ok(stored.create_revision)
    }
}
