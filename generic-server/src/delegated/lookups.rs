//! Lookups of tokens on the network: one for all requests that bring the same token, and a bounded number of all.
//!
//! Whoever reaches the port can bring tokens that nobody has seen, so their number bounds nothing. Upstream's token cache shares lookups in
//! the same way and gives each the same time, but bounds neither those under way nor those that wait.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use machinery::limits;
use parking_lot::Mutex;

use super::seats::{Busy, Seats};
use crate::authn::token_metrics::TokenCacheMetrics;
use crate::authn::{TokenAuthenticator, TokenVerdict};
use crate::metrics::{Collect, family, sample};

/// Token and audiences.
type Question = (String, Vec<String>);
type Answer = Pin<Box<dyn Future<Output = TokenVerdict> + Send>>;

/// Shares and bounds the lookups of an authenticator on the network. Put a [`crate::authn::token_cache::TokenCache`] before it.
#[derive(Debug)]
pub struct Lookups {
    inner: Arc<dyn TokenAuthenticator>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    seats: Seats,
    /// Those that wait or are under way, each with its number.
    lookups: Mutex<HashMap<Question, (u64, WeakShared<Answer>)>>,
    next: AtomicU64,
    shed: AtomicU64,
    metrics: Arc<TokenCacheMetrics>,
}

/// Takes a lookup out of the state when it has ended or everybody has left it.
struct Entry {
    question: Question,
    number: u64,
    state: Arc<State>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut lookups = self.state.lookups.lock();
        if lookups
            .get(&self.question)
            .is_some_and(|(number, _)| *number == self.number)
        {
            lookups.remove(&self.question);
        }
    }
}

impl Lookups {
    /// Those of `inner`, counted in the metrics of the cache before them.
    pub fn new(inner: Arc<dyn TokenAuthenticator>, metrics: Arc<TokenCacheMetrics>) -> Arc<Self> {
        Arc::new(Lookups {
            inner,
            state: Arc::new(State {
                seats: Seats::new(
                    limits::TOKEN_LOOKUPS,
                    limits::TOKEN_LOOKUPS_WAITING - limits::TOKEN_LOOKUPS,
                ),
                lookups: Mutex::default(),
                next: AtomicU64::new(0),
                shed: AtomicU64::new(0),
                metrics,
            }),
        })
    }

    /// The lookup of this token: the one under way or a new one.
    fn lookup(&self, question: Question) -> Shared<Answer> {
        let mut lookups = self.state.lookups.lock();
        if let Some(lookup) = lookups.get(&question).and_then(|(_, weak)| weak.upgrade()) {
            return lookup;
        }
        let entry = Entry {
            question: question.clone(),
            number: self.state.next.fetch_add(1, Ordering::Relaxed),
            state: self.state.clone(),
        };
        let number = entry.number;
        let lookup = run(self.inner.clone(), entry).boxed().shared();
        if let Some(weak) = lookup.downgrade() {
            lookups.insert(question, (number, weak));
        }
        lookup
    }
}

async fn run(inner: Arc<dyn TokenAuthenticator>, entry: Entry) -> TokenVerdict {
    let (token, audiences) = &entry.question;
    let fetch = entry.state.metrics.fetch();
    let answer = async {
        let _seat = entry.state.seats.take().await?;
        Ok::<_, Busy>(inner.authenticate_token(token, audiences).await)
    };
    let verdict = match tokio::time::timeout(limits::TOKEN_LOOKUP_TIME, answer).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(Busy)) => {
            entry.state.shed.fetch_add(1, Ordering::Relaxed);
            return TokenVerdict::Failed("too many tokens are being looked up".into());
        }
        Err(_) => TokenVerdict::Failed("context deadline exceeded".into()),
    };
    fetch.done(&verdict);
    verdict
}

#[async_trait::async_trait]
impl TokenAuthenticator for Lookups {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let lookup = self.lookup((token.to_owned(), audiences.to_vec()));
        let _waiting = self.state.metrics.waiting();
        lookup.await
    }
}

impl Collect for Lookups {
    fn collect(&self, out: &mut String) {
        let name = "apiserver_token_lookups_shed_total";
        family(
            out,
            name,
            "counter",
            "Tokens that were refused because too many others were being looked up.",
        );
        sample(out, name, &[], self.state.shed.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;
    use futures_util::poll;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::authn::token_metrics::Gauged;

    /// Says `NotMine` to every token once it is let, and counts.
    #[derive(Debug)]
    struct Inner {
        asked: AtomicUsize,
        at_once: AtomicUsize,
        most: AtomicUsize,
        gate: Semaphore,
    }

    impl Default for Inner {
        fn default() -> Self {
            Inner {
                asked: AtomicUsize::new(0),
                at_once: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
                gate: Semaphore::new(0),
            }
        }
    }

    #[async_trait::async_trait]
    impl TokenAuthenticator for Inner {
        async fn authenticate_token(&self, token: &str, _: &[String]) -> TokenVerdict {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let counted = Gauged::of(&self.at_once);
            let now = self.at_once.load(Ordering::Relaxed);
            self.most.fetch_max(now, Ordering::Relaxed);
            let _ = self.gate.acquire().await;
            drop(counted);
            match token {
                "bad" => TokenVerdict::Failed("bad".into()),
                _ => TokenVerdict::NotMine,
            }
        }
    }

    fn open(inner: &Inner) {
        inner.gate.add_permits(1);
    }

    fn gauge(lookups: &Lookups, line: &str) {
        let mut text = String::new();
        lookups.collect(&mut text);
        lookups.state.metrics.collect(&mut text);
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }

    #[tokio::test]
    async fn requests_share_the_lookup_of_one_token() {
        let inner = Arc::new(Inner::default());
        let lookups = Lookups::new(inner.clone(), Arc::default());
        let audiences = ["a".to_string()];
        let mut same: Vec<_> = (0..50)
            .map(|_| lookups.authenticate_token("t", &audiences))
            .collect();
        for one in &mut same {
            assert!(poll!(one).is_pending());
        }
        // Other audiences are another question.
        let mut other = lookups.authenticate_token("t", &[]);
        assert!(poll!(&mut other).is_pending());
        assert_eq!(inner.asked.load(Ordering::Relaxed), 2);
        gauge(
            &lookups,
            "authentication_token_cache_active_fetch_count{status=\"blocked\"} 51",
        );
        gauge(
            &lookups,
            "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 2",
        );
        // The first one leaves: the others have their answer all the same.
        drop(same.remove(0));
        open(&inner);
        assert_eq!(join_all(same).await, vec![TokenVerdict::NotMine; 49]);
        assert_eq!(other.await, TokenVerdict::NotMine);
        assert_eq!(inner.asked.load(Ordering::Relaxed), 2);
        // Nothing is remembered.
        assert_eq!(
            lookups.authenticate_token("bad", &[]).await,
            TokenVerdict::Failed("bad".into())
        );
        assert_eq!(
            lookups.authenticate_token("t", &audiences).await,
            TokenVerdict::NotMine
        );
        assert_eq!(inner.asked.load(Ordering::Relaxed), 4);
        assert!(lookups.state.lookups.lock().is_empty());
        gauge(
            &lookups,
            "authentication_token_cache_fetch_total{status=\"ok\"} 3",
        );
        gauge(
            &lookups,
            "authentication_token_cache_fetch_total{status=\"error\"} 1",
        );
        gauge(
            &lookups,
            "authentication_token_cache_active_fetch_count{status=\"blocked\"} 0",
        );
    }

    #[tokio::test]
    async fn lookups_are_bounded() {
        // One task polls all of them: its budget is not the subject.
        tokio::task::unconstrained(bounded()).await;
    }

    async fn bounded() {
        let inner = Arc::new(Inner::default());
        let lookups = Lookups::new(inner.clone(), Arc::default());
        let tokens: Vec<String> = (0..limits::TOKEN_LOOKUPS_WAITING)
            .map(|index| index.to_string())
            .collect();
        let mut waiting: Vec<_> = tokens
            .iter()
            .map(|token| lookups.authenticate_token(token, &[]))
            .collect();
        for one in &mut waiting {
            assert!(poll!(one).is_pending());
        }
        assert_eq!(inner.most.load(Ordering::Relaxed), limits::TOKEN_LOOKUPS);
        // One past the bound is refused, one of a token that is being looked up is not.
        let refused = lookups.authenticate_token("another", &[]).await;
        assert_eq!(
            refused,
            TokenVerdict::Failed("too many tokens are being looked up".into())
        );
        gauge(&lookups, "apiserver_token_lookups_shed_total 1");
        let mut same = lookups.authenticate_token("0", &[]);
        assert!(poll!(&mut same).is_pending());
        // One that is given up makes room.
        waiting.pop();
        let mut another = lookups.authenticate_token("another", &[]);
        assert!(poll!(&mut another).is_pending());
        open(&inner);
        let all = join_all(waiting).await;
        assert!(all.iter().all(|verdict| *verdict == TokenVerdict::NotMine));
        assert_eq!(another.await, TokenVerdict::NotMine);
        assert_eq!(same.await, TokenVerdict::NotMine);
        assert_eq!(inner.most.load(Ordering::Relaxed), limits::TOKEN_LOOKUPS);
        assert_eq!(inner.asked.load(Ordering::Relaxed), limits::TOKEN_LOOKUPS_WAITING);
        assert!(lookups.state.lookups.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_has_its_time() {
        let inner = Arc::new(Inner::default());
        let lookups = Lookups::new(inner.clone(), Arc::default());
        let since = tokio::time::Instant::now();
        let verdict = lookups.authenticate_token("t", &[]).await;
        assert_eq!(verdict, TokenVerdict::Failed("context deadline exceeded".into()));
        assert_eq!(since.elapsed(), limits::TOKEN_LOOKUP_TIME);
        assert_eq!(inner.at_once.load(Ordering::Relaxed), 0);
        assert!(lookups.state.lookups.lock().is_empty());
    }
}
