//! Snapshots and feeds while events are in flight, and after the event stream has stopped.

use std::pin::pin;
use std::task::{Context, Wake, Waker};

use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn a_feed_has_seen_its_own_events() {
    let engine = engine();
    let cache = start(&engine).await;
    let mut feed = cache.feed(Revision(0), Interest::All).await.expect("feeds");
    for n in 0..3 {
        let revision = put(&engine, Some(&cache), &pod("a", &format!("p{n}"), "n1")).await;
        let mut out = Vec::new();
        feed.next(&mut out).await.expect("one event");
        // A bookmark of less would send its client back behind the event.
        assert_eq!((out[0].revision, feed.after()), (revision, revision));
    }
}

/// Drains its feed in the very moment in which it is woken.
struct Eager {
    feed: Mutex<Feed>,
    drained: Mutex<Vec<(Revision, Vec<Revision>)>>,
}

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        let mut out = Vec::new();
        let reached = self.feed.lock().drain(&mut out).expect("fast enough");
        let events = out.iter().map(|change| change.revision).collect();
        self.drained.lock().push((reached, events));
    }
}

#[tokio::test]
async fn a_revision_that_is_offered_can_be_pulled() {
    let engine = engine();
    let cache = start(&engine).await;
    let mut feed = cache.feed(Revision(0), Interest::All).await.expect("feeds");
    feed.drain(&mut Vec::new()).expect("nothing yet");
    let eager = Arc::new(Eager {
        feed: Mutex::new(feed),
        drained: Mutex::default(),
    });
    let mut offered = cache.offered.subscribe();
    let waker = Waker::from(eager.clone());
    let mut changed = pin!(offered.changed());
    let waiting = changed.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waiting.is_pending());
    let revision = put(&engine, Some(&cache), &pod("a", "p", "n1")).await;
    assert_eq!(*eager.drained.lock(), [(revision, vec![revision])]);
}

/// Values of nodes named `late` need a key; each permit is one.
#[derive(Debug)]
struct Locked(Semaphore);

#[async_trait::async_trait]
impl StorageCodec for Locked {
    fn decode(&self, key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        JsonCodec.decode(key, stored)
    }

    fn encode(&self, key: &str, object: &Value, json: &Bytes) -> Result<Bytes, ValueError> {
        JsonCodec.encode(key, object, json)
    }

    fn lacks_key(&self, stored: &Bytes) -> bool {
        stored.windows(6).any(|part| part == b"\"late\"")
    }

    async fn prepare(&self, stored: &Bytes) {
        if self.lacks_key(stored) {
            self.0.acquire().await.expect("it stays open").forget();
        }
    }
}

#[tokio::test]
async fn reads_wait_for_events_that_wait_for_a_key() {
    let engine = engine();
    let codec = Arc::new(Locked(Semaphore::new(0)));
    let cache = ObjectCache::start(engine.clone(), &config(), codec.clone(), Budget::standard())
        .await
        .expect("starts");
    let before = put(&engine, None, &pod("a", "p0", "n1")).await;
    let late = put(&engine, None, &pod("a", "p1", "late")).await;
    let behind = put(&engine, None, &pod("a", "p2", "n1")).await;
    assert_eq!(cache.current(), before);
    let mut fresh = pin!(cache.fresh());
    assert!(futures_util::poll!(&mut fresh).is_pending());
    codec.0.add_permits(1);
    let fresh = fresh.await.expect("the key has come");
    assert_eq!((fresh.revision, fresh.objects.len()), (behind, 3));
    let then = cache.exactly(before).await.expect("the engine remembers");
    assert_eq!(then.objects.len(), 1);
    assert!(late < behind);
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_its_engine_vouches_for_nothing() {
    let engine = engine();
    let cache = start(&engine).await;
    let revision = put(&engine, Some(&cache), &pod("a", "p", "n1")).await;
    engine.shutdown().await;
    let error = cache.fresh().await.expect_err("who knows what is there");
    assert_eq!(error.reason(), Reason::ServerTimeout);
    let error = cache.wait_for(Revision(revision.0 + 1)).await;
    assert_eq!(error.expect_err("it never comes").reason(), Reason::ServerTimeout);
    // The state before the failure can still be read.
    assert_eq!(cache.current(), revision);
    assert_eq!(cache.snapshot().objects.len(), 1);
    assert!(cache.exactly(revision).await.is_ok());
}
