//! Following a resource: a list of everything, then every change to it, until the follower is dropped. For the server's own work:
//! watches of clients are in [`crate::handlers::watch`].

use std::sync::Arc;
use std::time::Duration;

use machinery::ApiError;

use super::ObjectStore;
use super::cache::{Change, Feed, Interest, ObjectCache, Snapshot};

/// How long to wait before a store that could not be read is read again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Lists a resource of this process and follows it. Every event is delivered once and in order; after a gap there is a new list.
#[derive(Debug)]
pub struct Reflector {
    store: Arc<ObjectStore>,
    interest: Interest,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was read, or the feed ended (the follower was too slow, or the cache restarted): the next step lists.
    /// To `Watching` with [`Event::Listed`]; to `Resting` with [`Event::Failed`] when the store cannot be read.
    Listing,
    /// Everything up to the feed's revision was delivered: the next step waits for changes. When the feed ends, to `Listing`, or to
    /// `Resting` if it had none (the kind is not served any more, and so it would go on).
    Watching {
        cache: Arc<ObjectCache>,
        feed: Feed,
        changed: bool,
    },
    /// The next step waits before it lists. To `Listing`.
    Resting,
}

/// One step of a [`Reflector`].
#[derive(Debug)]
pub enum Event {
    /// Everything there is, no older than any write acknowledged before. It replaces the known state: objects that are not in it
    /// are gone.
    Listed(Arc<Snapshot>),
    /// Changes were appended, in order.
    Changed,
    /// The store cannot be read. The next step tries again, after a pause.
    Failed(ApiError),
}

impl Reflector {
    /// Follows all objects of a store.
    pub fn new(store: Arc<ObjectStore>) -> Self {
        Self::of(store, Interest::All)
    }

    /// Follows the objects that an interest covers. Lists have all of them.
    pub fn of(store: Arc<ObjectStore>, interest: Interest) -> Self {
        Reflector {
            store,
            interest,
            state: State::Listing,
        }
    }

    /// The newest state that this process has read, which may be ahead of what was delivered; `None` before the first list.
    pub fn newest(&self) -> Option<Arc<Snapshot>> {
        match &self.state {
            State::Watching { cache, .. } => Some(cache.snapshot()),
            State::Listing | State::Resting => None,
        }
    }

    /// The next event; changes are appended to `changes`. Cancel-safe: nothing is taken before it is ready.
    pub async fn next(&mut self, changes: &mut Vec<Arc<Change>>) -> Event {
        loop {
            match &mut self.state {
                State::Watching { feed, changed, .. } => match feed.next(changes).await {
                    Ok(()) => {
                        *changed = true;
                        return Event::Changed;
                    }
                    Err(_) if *changed => self.state = State::Listing,
                    Err(_) => self.state = State::Resting,
                },
                State::Resting => {
                    tokio::time::sleep(RETRY_DELAY).await;
                    self.state = State::Listing;
                }
                State::Listing => match self.list().await {
                    Ok((snapshot, watching)) => {
                        self.state = watching;
                        return Event::Listed(snapshot);
                    }
                    Err(error) => {
                        self.state = State::Resting;
                        return Event::Failed(error);
                    }
                },
            }
        }
    }

    async fn list(&self) -> Result<(Arc<Snapshot>, State), ApiError> {
        let cache = self.store.cache().await?;
        let snapshot = cache.fresh().await?;
        let feed = cache.feed(snapshot.revision, self.interest.clone()).await?;
        let watching = State::Watching {
            cache,
            feed,
            changed: false,
        };
        Ok((snapshot, watching))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::fixture::fixture;
    use crate::registry::cache::ChangeKind;

    /// The next event in short: a list's names, or what became of which object.
    async fn step(reflector: &mut Reflector) -> String {
        let mut changes = Vec::new();
        match reflector.next(&mut changes).await {
            Event::Listed(snapshot) => {
                let names: Vec<&str> = snapshot.objects.values().map(|entry| entry.name()).collect();
                format!("listed {}", names.join(" "))
            }
            Event::Changed => {
                let shown = changes.iter().map(|change| {
                    let gone = if change.kind == ChangeKind::Deleted {
                        "-"
                    } else {
                        "+"
                    };
                    format!("{gone}{}", change.entry.name())
                });
                shown.collect::<Vec<_>>().join(" ")
            }
            Event::Failed(error) => error.message().to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_follow_the_list_and_a_gap_lists_again() {
        let f = fixture(false);
        f.put("ns", "one", "", "").await;
        let mut reflector = Reflector::new(f.store().clone());
        assert!(reflector.newest().is_none());
        assert_eq!(step(&mut reflector).await, "listed one");
        f.put("ns", "two", "", "").await;
        assert_eq!(step(&mut reflector).await, "+two");
        f.remove("ns", "one").await;
        assert_eq!(step(&mut reflector).await, "-one");
        f.store().started_cache().expect("a cache").end_feeds();
        assert_eq!(step(&mut reflector).await, "listed two");
        // A feed that ends at once is not taken up again at once.
        let before = tokio::time::Instant::now();
        assert_eq!(step(&mut reflector).await, "listed two");
        assert!(before.elapsed() >= RETRY_DELAY);
        assert_eq!(reflector.newest().expect("a list").objects.len(), 1);
    }
}
