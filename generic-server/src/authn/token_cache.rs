//! Remembers for a moment which tokens were good, so that a busy client costs one verification per ten seconds.
//!
//! Tokens are kept as keyed hashes only. Failures are not remembered; unknown tokens are, where the caller asks for it. Entries
//! from before the deletion of an object that tokens depend on do not count any more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::limits;
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;

use super::token_metrics::TokenCacheMetrics;
use super::{TokenAuthenticator, TokenVerdict};
use crate::request::User;

/// Upstream's `TokenSuccessCacheTTL`.
const LIFETIME: Duration = Duration::from_secs(10);
/// Tokens whose time is over that one more makes room for: memory shrinks again, and no request pays for a flood before it.
const FORGOTTEN_AT_ONCE: usize = 4;

type Key = [u8; 32];

/// What is remembered. All of a cache is kept for the same time, so that the oldest is over first.
#[derive(Default)]
struct Known {
    by_token: HashMap<Key, Remembered>,
    /// In the order of their end. A token that was remembered again is in it twice; an entry that is not that of `until` is out of date.
    order: VecDeque<(Instant, Key)>,
}

#[derive(Clone)]
struct Remembered {
    until: Instant,
    /// The count of `gone` before the token was verified.
    gone: u64,
    /// `None`: the token is unknown.
    user: Option<(User, Vec<String>)>,
}

impl Known {
    fn remember(&mut self, key: Key, remembered: Remembered, now: Instant) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let is_over = self.order.front().is_some_and(|(until, _)| *until <= now);
            if !is_over && self.order.len() < limits::TOKENS_REMEMBERED {
                break;
            }
            self.forget_oldest();
        }
        self.order.push_back((remembered.until, key));
        self.by_token.insert(key, remembered);
    }

    fn forget_oldest(&mut self) {
        if let Some((until, key)) = self.order.pop_front()
            && self.by_token.get(&key).is_some_and(|known| known.until == until)
        {
            self.by_token.remove(&key);
        }
    }

    fn clear(&mut self) {
        self.by_token.clear();
        self.order.clear();
    }
}

/// A cache before other token authenticators.
pub struct TokenCache {
    inner: Arc<dyn TokenAuthenticator>,
    key: hmac::Key,
    known: Mutex<Known>,
    /// Rises when an object goes that tokens depend on.
    gone: Box<dyn Fn() -> u64 + Send + Sync>,
    lifetime: Duration,
    keeps_unknown: bool,
    metrics: Arc<TokenCacheMetrics>,
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCache")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl TokenCache {
    /// A cache before `inner`. `gone` rises whenever an object goes that a token may depend on: a service account, or what a
    /// token is bound to.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(
        inner: Arc<dyn TokenAuthenticator>,
        gone: Box<dyn Fn() -> u64 + Send + Sync>,
        metrics: Arc<TokenCacheMetrics>,
    ) -> Result<Arc<Self>, ring::error::Unspecified> {
        Ok(Arc::new(TokenCache {
            inner,
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            known: Mutex::default(),
            gone,
            lifetime: LIFETIME,
            keeps_unknown: false,
            metrics,
        }))
    }

    /// A cache before an authenticator on the network: of users, and of unknown tokens, for `lifetime`. That authenticator counts its lookups itself.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn of_remote(
        inner: Arc<dyn TokenAuthenticator>,
        lifetime: Duration,
        metrics: Arc<TokenCacheMetrics>,
    ) -> Result<Arc<Self>, ring::error::Unspecified> {
        Ok(Arc::new(TokenCache {
            inner,
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            known: Mutex::default(),
            gone: Box::new(|| 0),
            lifetime,
            keeps_unknown: true,
            metrics,
        }))
    }

    /// Forgets everything: keys have changed.
    pub fn clear(&self) {
        self.known.lock().clear();
    }

    fn key(&self, token: &str, audiences: &[String]) -> Key {
        let mut context = hmac::Context::with_key(&self.key);
        // The length before each part: TokenReviews may hold any character, and no part may be read as two.
        for part in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        key
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for TokenCache {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let key = self.key(token, audiences);
        let now = Instant::now();
        let gone = (self.gone)();
        let current = |hit: &&Remembered| hit.until > now && hit.gone == gone;
        if let Some(hit) = self.known.lock().by_token.get(&key).filter(current) {
            let verdict = match hit.user.clone() {
                Some((user, audiences)) => TokenVerdict::User(user, audiences),
                None => TokenVerdict::NotMine,
            };
            self.metrics.looked_up(true, now.elapsed());
            return verdict;
        }
        let verdict = match self.keeps_unknown {
            true => self.inner.authenticate_token(token, audiences).await,
            false => {
                let _waiting = self.metrics.waiting();
                let fetch = self.metrics.fetch();
                let verdict = self.inner.authenticate_token(token, audiences).await;
                fetch.done(&verdict);
                verdict
            }
        };
        self.metrics.looked_up(false, now.elapsed());
        let kept = match &verdict {
            TokenVerdict::User(user, audiences) => Some(Some((user.clone(), audiences.clone()))),
            TokenVerdict::NotMine if self.keeps_unknown => Some(None),
            TokenVerdict::NotMine | TokenVerdict::Failed(_) => None,
        };
        if let Some(user) = kept.filter(|_| !self.lifetime.is_zero()) {
            let remembered = Remembered {
                until: now + self.lifetime,
                gone,
                user,
            };
            self.known.lock().remember(key, remembered, now);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    /// Answers by the beginning of a token, and counts the questions.
    #[derive(Debug, Default)]
    struct Inner(AtomicUsize);

    #[async_trait::async_trait]
    impl TokenAuthenticator for Inner {
        async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
            self.0.fetch_add(1, Ordering::Relaxed);
            match token.split_once('-') {
                Some(("good", name)) => {
                    let name = name.to_string();
                    TokenVerdict::User(
                        User {
                            name,
                            ..User::default()
                        },
                        audiences.to_vec(),
                    )
                }
                Some(("bad", why)) => TokenVerdict::Failed(why.into()),
                _ => TokenVerdict::NotMine,
            }
        }
    }

    /// Asks twice: the answers are the same, after so many questions to the authenticator behind the cache.
    #[track_caller]
    fn check(cache: &TokenCache, inner: &Inner, token: &str, expected: &str, questions: usize) {
        let before = inner.0.load(Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..2 {
            let audiences = ["a".to_string()];
            let verdict = match runtime.block_on(cache.authenticate_token(token, &audiences)) {
                TokenVerdict::User(user, audiences) => format!("{} for {}", user.name, audiences.join(",")),
                TokenVerdict::Failed(why) => format!("failed: {why}"),
                TokenVerdict::NotMine => "nobody".into(),
            };
            assert_eq!(verdict, expected, "{token}");
        }
        assert_eq!(inner.0.load(Ordering::Relaxed) - before, questions, "{token}");
    }

    #[test]
    fn what_is_remembered() {
        let inner = Arc::new(Inner::default());
        let local = TokenCache::new(inner.clone(), Box::new(|| 0), Arc::default()).unwrap();
        check(&local, &inner, "good-u", "u for a", 1);
        check(&local, &inner, "good-u", "u for a", 0);
        check(&local, &inner, "good-", " for a", 1);
        check(&local, &inner, "bad-old", "failed: old", 2);
        check(&local, &inner, "", "nobody", 2);

        let remote = TokenCache::of_remote(inner.clone(), LIFETIME, Arc::default()).unwrap();
        check(&remote, &inner, "good-u", "u for a", 1);
        check(&remote, &inner, "bad-old", "failed: old", 2);
        check(&remote, &inner, "", "nobody", 1);
        let off = TokenCache::of_remote(inner.clone(), Duration::ZERO, Arc::default()).unwrap();
        check(&off, &inner, "good-u", "u for a", 2);
        check(&off, &inner, "", "nobody", 2);
    }

    #[test]
    fn hits_misses_and_fetches_are_counted() {
        let (inner, metrics) = (Arc::new(Inner::default()), Arc::new(TokenCacheMetrics::default()));
        let cache = TokenCache::new(inner.clone(), Box::new(|| 0), metrics.clone()).unwrap();
        check(&cache, &inner, "good-u", "u for a", 1);
        check(&cache, &inner, "bad-old", "failed: old", 2);
        let mut text = String::new();
        crate::metrics::Collect::collect(&*metrics, &mut text);
        for line in [
            "authentication_token_cache_request_total{status=\"hit\"} 1",
            "authentication_token_cache_request_total{status=\"miss\"} 3",
            "authentication_token_cache_request_duration_seconds_count{status=\"miss\"} 3",
            "authentication_token_cache_fetch_total{status=\"ok\"} 1",
            "authentication_token_cache_fetch_total{status=\"error\"} 2",
            "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 0",
            "authentication_token_cache_active_fetch_count{status=\"blocked\"} 0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_forgotten() {
        let (inner, gone) = (Arc::new(Inner::default()), Arc::new(AtomicU64::new(0)));
        let count = gone.clone();
        let cache = TokenCache::new(
            inner.clone(),
            Box::new(move || count.load(Ordering::Relaxed)),
            Arc::default(),
        )
        .unwrap();
        check(&cache, &inner, "good-u", "u for a", 1);
        gone.fetch_add(1, Ordering::Relaxed);
        check(&cache, &inner, "good-u", "u for a", 1);
        cache.clear();
        check(&cache, &inner, "good-u", "u for a", 1);
        cache
            .known
            .lock()
            .by_token
            .values_mut()
            .for_each(|hit| hit.until = Instant::now());
        check(&cache, &inner, "good-u", "u for a", 1);
    }

    #[test]
    fn tokens_are_told_apart_by_audiences_too() {
        let cache = TokenCache::new(Arc::new(Inner::default()), Box::new(|| 0), Arc::default()).unwrap();
        let texts = |list: &[&str]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
        let keys = [
            cache.key("t", &texts(&[])),
            cache.key("t", &texts(&["a"])),
            cache.key("t", &texts(&["a", "b"])),
            cache.key("t", &texts(&["ab"])),
            cache.key("ta", &texts(&[])),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
        assert_eq!(cache.key("t", &texts(&["a"])), keys[1]);
    }

    /// A cache with tokens that were remembered one after the other, each for a second from its number on.
    fn filled(tokens: usize, since: Instant) -> Known {
        let mut known = Known::default();
        for number in 0..tokens {
            remember(&mut known, number, since + Duration::from_millis(number as u64));
        }
        known
    }

    fn remember(known: &mut Known, number: usize, now: Instant) {
        let remembered = Remembered {
            until: now + Duration::from_secs(1),
            gone: 0,
            user: None,
        };
        known.remember(key(number), remembered, now);
    }

    fn key(number: usize) -> Key {
        let mut key = Key::default();
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let (now, most) = (Instant::now(), limits::TOKENS_REMEMBERED);
        let mut known = Known::default();
        for number in 0..most {
            remember(&mut known, number, now);
        }
        assert_eq!(known.by_token.len(), most);
        // One past the bound takes the place of the oldest, and of no other.
        remember(&mut known, most, now);
        assert_eq!(known.by_token.len(), most);
        assert!(!known.by_token.contains_key(&key(0)));
        assert!(known.by_token.contains_key(&key(1)) && known.by_token.contains_key(&key(most)));
        // The order does not outgrow them when one token is remembered again and again.
        for _ in 0..2 * most {
            remember(&mut known, most, now);
        }
        assert_eq!(known.order.len(), most);
        assert!(known.by_token.contains_key(&key(most)));
    }

    #[test]
    fn tokens_whose_time_is_over_are_forgotten() {
        let since = Instant::now();
        let mut known = filled(100, since);
        assert_eq!(known.by_token.len(), 100);
        let later = since + Duration::from_secs(10);
        // Each new one makes room, and none for all at once.
        remember(&mut known, 1_000, later);
        assert_eq!(known.by_token.len(), 100 - FORGOTTEN_AT_ONCE + 1);
        for number in 1_001..1_040 {
            remember(&mut known, number, later);
        }
        assert_eq!(known.by_token.len(), 40, "the new ones alone");
        assert_eq!(known.order.len(), 40);
        // One that was remembered again stays when the time of its first entry is over.
        let mut known = filled(1, since);
        let half = since + Duration::from_millis(500);
        remember(&mut known, 0, half);
        remember(&mut known, 1, since + Duration::from_millis(1_200));
        assert!(known.by_token.contains_key(&key(0)));
        assert_eq!(known.order.len(), 2);
    }
}
