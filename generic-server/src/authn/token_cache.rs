//! Remembers for a moment which tokens were good, so that a busy client costs one verification per ten seconds.
//!
//! Tokens are kept as keyed hashes only. Failures are not remembered; unknown tokens are, where the caller asks for it. Entries
//! from before the deletion of an object that tokens depend on do not count any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;

use super::{TokenAuthenticator, TokenVerdict};
use crate::request::User;

/// Upstream's `TokenSuccessCacheTTL`.
const LIFETIME: Duration = Duration::from_secs(10);
/// Beyond this many, those whose time is over go; if that does not help, all.
const MOST: usize = 16 * 1024;

type Key = [u8; 32];

#[derive(Clone)]
struct Remembered {
    until: Instant,
    /// The count of `gone` before the token was verified.
    gone: u64,
    /// `None`: the token is unknown.
    user: Option<(User, Vec<String>)>,
}

/// A cache before other token authenticators.
pub struct TokenCache {
    inner: Arc<dyn TokenAuthenticator>,
    key: hmac::Key,
    known: Mutex<HashMap<Key, Remembered>>,
    /// Rises when an object goes that tokens depend on.
    gone: Box<dyn Fn() -> u64 + Send + Sync>,
    lifetime: Duration,
    keeps_unknown: bool,
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
    ) -> Result<Arc<Self>, ring::error::Unspecified> {
        Ok(Arc::new(TokenCache {
            inner,
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            known: Mutex::default(),
            gone,
            lifetime: LIFETIME,
            keeps_unknown: false,
        }))
    }

    /// A cache before an authenticator on the network: of users, and of unknown tokens, for `lifetime`.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn of_remote(
        inner: Arc<dyn TokenAuthenticator>,
        lifetime: Duration,
    ) -> Result<Arc<Self>, ring::error::Unspecified> {
        Ok(Arc::new(TokenCache {
            inner,
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            known: Mutex::default(),
            gone: Box::new(|| 0),
            lifetime,
            keeps_unknown: true,
        }))
    }

    /// Forgets everything: keys have changed.
    pub fn clear(&self) {
        self.known.lock().clear();
    }

    fn key(&self, token: &str, audiences: &[String]) -> Key {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(token.as_bytes());
        for audience in audiences {
            // No token or audience holds a zero byte that could shift the border.
            context.update(&[0]);
            context.update(audience.as_bytes());
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
        if let Some(hit) = self.known.lock().get(&key).filter(current) {
            return match hit.user.clone() {
                Some((user, audiences)) => TokenVerdict::User(user, audiences),
                None => TokenVerdict::NotMine,
            };
        }
        let verdict = self.inner.authenticate_token(token, audiences).await;
        let kept = match &verdict {
            TokenVerdict::User(user, audiences) => Some(Some((user.clone(), audiences.clone()))),
            TokenVerdict::NotMine if self.keeps_unknown => Some(None),
            TokenVerdict::NotMine | TokenVerdict::Failed(_) => None,
        };
        if let Some(user) = kept.filter(|_| !self.lifetime.is_zero()) {
            let mut known = self.known.lock();
            if known.len() >= MOST {
                known.retain(|_, hit| hit.until > now);
            }
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(
                key,
                Remembered {
                    until: now + self.lifetime,
                    gone,
                    user,
                },
            );
        }
        verdict
    }
}
