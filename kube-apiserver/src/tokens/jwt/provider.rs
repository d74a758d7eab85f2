//! An issuer as its discovery document describes it, and its keys: found in the background, kept, and fetched again for tokens that
//! none of them has signed.
//!
//! Mirrors go-oidc's provider and remote key set. Keys are also fetched from time to time, so that one that the issuer has withdrawn is
//! not trusted for ever.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use generic_server::spawn::Tasks;
use machinery::go::quote;
use machinery::limits;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::super::jws::Jws;
use super::client::{Answer, IssuerClient};
use super::keys::KeySet;
use super::metrics::JwtMetrics;

/// How long an issuer that cannot be reached is left alone: the double of this at first, then the double of the time before, up to the
/// other, which is upstream's figure from the beginning.
const FIRST_RETRY: Duration = Duration::from_millis(125);
const RETRY: Duration = Duration::from_secs(10);
/// How often keys are fetched again in any case. Upstream has none.
const REFRESH: Duration = Duration::from_secs(300);

/// An issuer.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    discovery_url: String,
    client: IssuerClient,
    /// Counts its fetches of keys, unless it is of distributed claims.
    metrics: Option<Arc<JwtMetrics>>,
    keys: OnceLock<RemoteKeys>,
    health: Mutex<Result<(), String>>,
}

/// Keys at a URL.
#[derive(Debug)]
struct RemoteKeys {
    url: String,
    current: ArcSwap<KeySet>,
    /// When they were last fetched or tried to; its holder fetches, and others wait for the outcome.
    fetched: tokio::sync::Mutex<Option<Instant>>,
}

impl Provider {
    /// An issuer that is not known yet. `discovery_url`: where its document is, when that is not the place that its URL implies.
    pub(super) fn new(
        issuer: &str,
        discovery_url: &str,
        client: IssuerClient,
        metrics: Option<Arc<JwtMetrics>>,
    ) -> Arc<Self> {
        let discovery_url = match discovery_url {
            "" => {
                let base = issuer.strip_suffix('/').unwrap_or(issuer);
                format!("{base}/.well-known/openid-configuration")
            }
            given => given.to_owned(),
        };
        let health = format!(
            "oidc: authenticator for issuer {} is not initialized",
            quote(issuer)
        );
        Arc::new(Provider {
            issuer: issuer.to_owned(),
            discovery_url,
            client,
            metrics,
            keys: OnceLock::new(),
            health: Mutex::new(Err(health)),
        })
    }

    /// An issuer that is known already, with its keys at a URL.
    #[cfg(test)]
    pub(super) fn known(issuer: &str, url: &str, keys: KeySet) -> Arc<Self> {
        use generic_server::client::egress::Route;

        let client = IssuerClient::new("", &Route::Direct).expect("a client");
        let provider = Provider::new(issuer, "", client, None);
        let remote = RemoteKeys {
            url: url.to_owned(),
            current: ArcSwap::from_pointee(keys),
            fetched: tokio::sync::Mutex::default(),
        };
        provider.keys.set(remote).expect("it was not known");
        provider
    }

    /// Gets to know the issuer in the background, and keeps its keys. Ends when the issuer is dropped.
    pub(super) fn start(self: &Arc<Self>, tasks: &Tasks) {
        tasks.spawn("token issuer", follow(Arc::downgrade(self)));
    }

    /// Whether its keys can be fetched; else why not.
    pub(super) fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// Whether the issuer is known.
    pub(super) fn is_known(&self) -> bool {
        self.keys.get().is_some()
    }

    /// Whether a key of the issuer that is known signed the token.
    pub(super) fn has_signed(&self, jws: &Jws<'_>) -> bool {
        let keys = self.keys.get();
        keys.is_some_and(|keys| keys.current.load().verify(jws))
    }

    /// Whether a key of the issuer signed the token. Fetches the keys when none of those that are known did.
    ///
    /// # Errors
    /// None did, or the keys cannot be fetched.
    pub(super) async fn verify(&self, jws: &Jws<'_>) -> Result<(), String> {
        const WRONG: &str = "failed to verify id token signature";
        let keys = self.keys.get().ok_or(WRONG)?;
        let known = keys.current.load_full();
        if known.verify(jws) {
            return Ok(());
        }
        match self.fetch_after(keys, &known).await {
            Ok(found) if found.verify(jws) => Ok(()),
            Ok(_) => Err(WRONG.into()),
            Err(why) => Err(format!("fetching keys {why}")),
        }
    }

    /// The keys after those that were in use: newer ones that another request has fetched meanwhile, else fetched now, unless they just
    /// were.
    async fn fetch_after(&self, keys: &RemoteKeys, known: &Arc<KeySet>) -> Result<Arc<KeySet>, String> {
        let mut fetched = keys.fetched.lock().await;
        let current = keys.current.load_full();
        let just = fetched.is_some_and(|at| at.elapsed() < limits::ISSUER_KEYS_PAUSE);
        if just || !Arc::ptr_eq(&current, known) {
            return Ok(current);
        }
        // A request may go away while it waits for the answer.
        *fetched = Some(Instant::now());
        let outcome = self.fetch(keys).await;
        *fetched = Some(Instant::now());
        let found = Arc::new(outcome?);
        keys.current.store(found.clone());
        Ok(found)
    }

    async fn fetch(&self, keys: &RemoteKeys) -> Result<KeySet, String> {
        let found = self.fetch_body(&keys.url).await.and_then(|body| {
            let set = KeySet::parse(&body);
            set.map(|set| (set, body))
                .map_err(|why| format!("oidc: failed to decode keys: {why}"))
        });
        if let Some(metrics) = &self.metrics {
            metrics.fetched(&self.issuer, found.as_ref().ok().map(|(_, body)| &**body));
        }
        found.map(|(set, _)| set)
    }

    async fn fetch_body(&self, url: &str) -> Result<Vec<u8>, String> {
        let answer = self.client.get(url, None).await;
        let answer = answer.map_err(|why| format!("oidc: get keys failed {why}"))?;
        match answer.status.as_u16() {
            200 => Ok(answer.body),
            _ => Err(format!("oidc: get keys failed: {}", answer.shown())),
        }
    }

    /// Reads the discovery document.
    async fn discover(&self) -> Result<RemoteKeys, String> {
        let answer = self.client.get(&self.discovery_url, None).await?;
        let url = self.keys_url(&answer)?;
        Ok(RemoteKeys {
            url,
            current: ArcSwap::default(),
            fetched: tokio::sync::Mutex::new(None),
        })
    }

    fn keys_url(&self, answer: &Answer) -> Result<String, String> {
        if answer.status.as_u16() != 200 {
            return Err(answer.shown());
        }
        let document: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("issuer") != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                quote(&self.issuer),
                quote(text("issuer"))
            ));
        }
        match text("jwks_uri") {
            "" => Err("provider did not return JWKS URL".into()),
            url => Ok(url.to_owned()),
        }
    }

    /// Asks once who the issuer is. Says whether it is known now.
    async fn look(&self) -> bool {
        match self.discover().await {
            Ok(keys) => {
                // The first tokens do not wait. What goes wrong here goes wrong again for them, and is logged then.
                if let Ok(found) = self.fetch(&keys).await {
                    keys.current.store(Arc::new(found));
                }
                let _ = self.keys.set(keys);
                *self.health.lock() = Ok(());
                true
            }
            Err(error) => {
                tracing::error!(issuer = self.issuer, %error, "oidc authenticator: initializing plugin");
                *self.health.lock() = Err(error);
                false
            }
        }
    }

    /// Fetches the keys again. Those in use stay when that fails.
    async fn refresh(&self) {
        let Some(keys) = self.keys.get() else { return };
        let known = keys.current.load_full();
        if let Err(error) = self.fetch_after(keys, &known).await {
            tracing::warn!(issuer = self.issuer, %error, "the keys of a token issuer cannot be fetched");
        }
    }
}

async fn follow(provider: Weak<Provider>) {
    let mut retry = FIRST_RETRY;
    loop {
        let Some(found) = provider.upgrade() else { return };
        let pause = match found.is_known() {
            true => {
                found.refresh().await;
                REFRESH
            }
            false => match found.look().await {
                true => REFRESH,
                false => {
                    retry = RETRY.min(retry * 2);
                    retry
                }
            },
        };
        drop(found);
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use generic_server::client::egress::Route;

    use super::*;

    #[track_caller]
    fn check(status: StatusCode, body: &str, expected: Result<&str, &str>) {
        let client = IssuerClient::new("", &Route::Direct).expect("a client");
        let provider = Provider::new("https://i/", "", client, None);
        let body = body.as_bytes().to_vec();
        let url = provider.keys_url(&Answer { status, body });
        assert_eq!(url, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn discovery_documents_are_checked() {
        let ok = StatusCode::OK;
        check(
            ok,
            r#"{"issuer":"https://i/","jwks_uri":"https://k"}"#,
            Ok("https://k"),
        );
        check(
            ok,
            r#"{"issuer":"https://i","jwks_uri":"https://k"}"#,
            Err(
                r#"oidc: issuer did not match the issuer returned by provider, expected "https://i/" got "https://i""#,
            ),
        );
        check(
            ok,
            r#"{"issuer":"https://i/"}"#,
            Err("provider did not return JWKS URL"),
        );
        check(
            ok,
            "",
            Err(
                "oidc: failed to decode provider discovery object: EOF while parsing a value at line 1 column 0",
            ),
        );
        check(StatusCode::NOT_FOUND, "gone", Err("404 Not Found: gone"));
        // Long answers are not repeated whole.
        let long = format!("404 Not Found: {}", "x".repeat(256));
        check(StatusCode::NOT_FOUND, &"x".repeat(257), Err(&long));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_fetched_once_in_a_pause() {
        // Nothing listens there.
        let provider = Provider::known("https://i", "https://127.0.0.1:1/keys", KeySet::default());
        let keys = provider.keys.get().expect("it is known");
        let known = keys.current.load_full();
        let is_tried = async || provider.fetch_after(keys, &known).await.is_err();
        assert!(is_tried().await);
        tokio::time::advance(limits::ISSUER_KEYS_PAUSE - Duration::from_millis(1)).await;
        assert!(!is_tried().await);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(is_tried().await);
    }

    #[test]
    fn discovery_is_below_the_issuer_or_elsewhere() {
        #[track_caller]
        fn check(issuer: &str, given: &str, expected: &str) {
            let client = IssuerClient::new("", &Route::Direct).expect("a client");
            let provider = Provider::new(issuer, given, client, None);
            assert_eq!(provider.discovery_url, expected);
            let why = provider.health().expect_err("it is not known yet");
            assert!(why.ends_with("is not initialized"), "{why}");
        }
        check("https://i", "", "https://i/.well-known/openid-configuration");
        check("https://i/a/", "", "https://i/a/.well-known/openid-configuration");
        check("https://i", "https://d/x", "https://d/x");
    }
}
