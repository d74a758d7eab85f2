//! Service account tokens that a program beside the server signs (`--service-account-signing-endpoint`): it has the private keys, and says
//! which public ones are trusted.
//!
//! Mirrors upstream's `pkg/serviceaccount/externaljwt`. The keys are fetched before the server is ready, then as often as the program says,
//! and for a token that names a key that is not known, at most once a second.

mod messages;
mod metrics;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use generic_server::metrics::Collect;
use generic_server::spawn::Tasks;
use machinery::go::quote;
use machinery::limits;
use parking_lot::Mutex;
use storage::grpc::{self, SocketClient};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::issuer::{NewToken, TokenClaims, payload};
use super::keys::PublicKeys;
use messages::{Empty, KeysResponse, MetadataResponse, SignRequest, SignResponse, Timestamp};
use metrics::SignerMetrics;

/// Upstream's figures: for a fetch of keys, for the program's word on the times of tokens, and after a fetch that failed.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(10);
/// The least that a program has to offer, in seconds.
const LEAST_EXPIRATION: i64 = 600;
const KEY_ID_BYTES: usize = 1024;
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];

const SIGN: &str = "/v1.ExternalJWTSigner/Sign";
const FETCH_KEYS: &str = "/v1.ExternalJWTSigner/FetchKeys";
const METADATA: &str = "/v1.ExternalJWTSigner/Metadata";

/// Called with the keys after they have changed.
type Changed = Box<dyn Fn(&PublicKeys) + Send + Sync>;

/// The program, and its keys.
pub struct ExternalSigner {
    issuer: String,
    client: SocketClient,
    keys: Arc<ArcSwap<PublicKeys>>,
    /// The moment that the keys are of, and when they are to be fetched again.
    data: Mutex<(Option<Timestamp>, Instant)>,
    /// When they were last fetched or tried to; its holder fetches, and others wait for the outcome.
    fetched: tokio::sync::Mutex<Option<Instant>>,
    /// Who may wait for that.
    waiting: Semaphore,
    /// How long tokens may hold, in seconds.
    most_seconds: OnceLock<i64>,
    changed: OnceLock<Changed>,
    metrics: Arc<SignerMetrics>,
}

impl std::fmt::Debug for ExternalSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalSigner")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// Why a call came to nothing, with its code for metrics.
#[derive(Debug)]
struct Failure {
    code: &'static str,
    text: String,
}

impl Failure {
    /// Of an answer that cannot be used.
    fn answer(text: impl Into<String>) -> Self {
        Failure {
            code: "unknown-non-grpc",
            text: text.into(),
        }
    }

    fn within(self, doing: &str) -> Self {
        Failure {
            text: format!("{doing}: {}", self.text),
            ..self
        }
    }
}

/// The header of a token, with these members alone.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(default)]
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    typ: String,
}

impl ExternalSigner {
    /// A program at a socket, which is not called before [`ExternalSigner::connect`]. `@name` is a socket of Linux' abstract namespace.
    pub fn new(issuer: &str, socket: PathBuf) -> Arc<Self> {
        Arc::new(ExternalSigner {
            issuer: issuer.into(),
            client: SocketClient::new(socket, SYNC_TIMEOUT),
            keys: Arc::default(),
            data: Mutex::new((None, Instant::now())),
            fetched: tokio::sync::Mutex::default(),
            waiting: Semaphore::new(limits::TOKEN_LOOKUPS),
            most_seconds: OnceLock::new(),
            changed: OnceLock::new(),
            metrics: Arc::default(),
        })
    }

    /// Has a function called whenever the keys have changed. The first function counts.
    pub fn when_changed(&self, changed: impl Fn(&PublicKeys) + Send + Sync + 'static) {
        let _ = self.changed.set(Box::new(changed));
    }

    /// For how many seconds the keys hold that were fetched last.
    pub fn keys_last(&self) -> u64 {
        let next = self.data.lock().1;
        next.saturating_duration_since(Instant::now()).as_secs()
    }

    /// The metrics of its calls.
    pub fn metrics(&self) -> Arc<dyn Collect> {
        self.metrics.clone()
    }

    /// How long the program's tokens may hold, in seconds; nothing before it has been asked.
    pub fn most_seconds(&self) -> Option<i64> {
        self.most_seconds.get().copied()
    }

    /// Fetches the keys, asks how long tokens may hold, and keeps the keys in the background from then on. `asked` is the longest that the
    /// server was told to allow.
    ///
    /// # Errors
    /// The program cannot be asked, or says what cannot be.
    pub async fn connect(self: &Arc<Self>, asked: Option<i64>, tasks: &Tasks) -> Result<(), String> {
        const SETTING_UP: &str = "while setting up external-jwt-signer";
        let filled = self.fetch().await.map_err(|failure| {
            failure
                .within("while performing initial cache fill")
                .within("while initially filling key cache")
        });
        filled.map_err(|failure| failure.within(SETTING_UP).text)?;
        let metadata = self.call::<_, MetadataResponse>(METADATA, Empty {});
        let metadata = match tokio::time::timeout(METADATA_TIMEOUT, metadata).await {
            Ok(answer) => answer.map_err(|failure| failure.within(SETTING_UP).text)?,
            Err(_) => {
                return Err(format!(
                    "{SETTING_UP}: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
                ));
            }
        };
        let most = metadata.max_token_expiration_seconds;
        if most < LEAST_EXPIRATION {
            return Err(format!(
                "max token life supported by external-jwt-signer ({most}s) is less than acceptable (min {LEAST_EXPIRATION}s)"
            ));
        }
        if let Some(asked) = asked.filter(|asked| *asked > most) {
            let shown = |seconds: i64| machinery::time::GoDuration(seconds.saturating_mul(1_000_000_000));
            return Err(format!(
                "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: {} > {}",
                shown(asked),
                shown(most)
            ));
        }
        let _ = self.most_seconds.set(most);
        tasks.spawn("token signer", follow(Arc::downgrade(self)));
        Ok(())
    }

    /// Has a token signed, good from now on.
    ///
    /// # Errors
    /// The program does not sign, or answers what is no signature.
    pub async fn issue(&self, claims: &TokenClaims) -> Result<NewToken, String> {
        let unsigned = payload(&self.issuer, claims);
        let signed = self.sign(BASE64.encode(unsigned.payload.to_string())).await;
        self.metrics
            .signed(signed.as_ref().map_or_else(|failure| failure.code, |_| "OK"));
        signed
            .map(|token| unsigned.signed(token))
            .map_err(|failure| failure.text)
    }

    async fn sign(&self, claims: String) -> Result<String, Failure> {
        let request = SignRequest {
            claims: claims.clone(),
        };
        let SignResponse { header, signature } = self
            .call(SIGN, request)
            .await
            .map_err(|failure| failure.within("while signing jwt"))?;
        self.check(&header)
            .await
            .map_err(|text| Failure::answer(text).within("while validating header"))?;
        if signature.is_empty() {
            return Err(Failure::answer("empty signature returned"));
        }
        Ok(format!("{header}.{claims}.{signature}"))
    }

    async fn check(&self, header: &str) -> Result<(), String> {
        let decoded = BASE64
            .decode(header)
            .map_err(|error| format!("while unwrapping header: {error}"))?;
        let header: Header = serde_json::from_slice(&decoded)
            .map_err(|error| format!("while parsing header JSON: {error}"))?;
        if header.typ != "JWT" {
            return Err("bad type".into());
        }
        if header.kid.is_empty() {
            return Err("key id missing".into());
        }
        if header.kid.len() > KEY_ID_BYTES {
            return Err("key id longer than 1 kb".into());
        }
        if !ALGORITHMS.contains(&&*header.alg) {
            return Err(format!("bad signing algorithm {}", quote(&header.alg)));
        }
        if self.keys_for(&header.kid).await.withholds(&header.kid) {
            return Err(format!(
                "key used for signing JWT (kid: {}) is excluded from OIDC discovery docs",
                header.kid
            ));
        }
        Ok(())
    }

    /// The keys for a token that names one: fetched again when it is not known, unless they just were.
    pub(super) async fn keys_for(&self, id: &str) -> Arc<PublicKeys> {
        let known = self.keys.load_full();
        if known.knows(id) {
            return known;
        }
        // Anybody can name a key that is not known.
        let Ok(_place) = self.waiting.try_acquire() else {
            return known;
        };
        let mut fetched = self.fetched.lock().await;
        let current = self.keys.load_full();
        let just = fetched.is_some_and(|at| at.elapsed() < limits::ISSUER_KEYS_PAUSE);
        if just || current.knows(id) {
            return current;
        }
        // A request may go away while it waits for the answer.
        *fetched = Some(Instant::now());
        if let Err(failure) = self.fetch().await {
            tracing::error!(
                error = failure.text,
                "the keys of the token signer cannot be fetched"
            );
        }
        *fetched = Some(Instant::now());
        self.keys.load_full()
    }

    /// Fetches the keys. Those in use stay when that fails.
    async fn fetch(&self) -> Result<(), Failure> {
        let outcome = self.call::<_, KeysResponse>(FETCH_KEYS, Empty {}).await;
        let outcome = outcome
            .map_err(|failure| failure.within("while getting externally supported jwt signing keys"))
            .and_then(|answer| read(&answer).map_err(Failure::answer));
        let (keys, data, refresh) = match outcome {
            Ok(found) => found,
            Err(failure) => {
                self.metrics.fetched(failure.code, None);
                return Err(failure.within("while fetching token verification keys"));
            }
        };
        self.metrics.fetched("OK", Some(data.as_seconds()));
        let now = Instant::now();
        // A time beyond the clock's is none that would be waited for.
        let next = now.checked_add(refresh).unwrap_or(now + RETRY);
        let before = std::mem::replace(&mut *self.data.lock(), (Some(data), next)).0;
        let old = self.keys.load_full();
        let keys = Arc::new(keys);
        self.keys.store(keys.clone());
        if (before != Some(data) || !old.ids().eq(keys.ids()))
            && let Some(changed) = self.changed.get()
        {
            changed(&keys);
        }
        Ok(())
    }

    async fn call<Req, Resp>(&self, method: &'static str, request: Req) -> Result<Resp, Failure>
    where
        Req: prost::Message + Clone + 'static,
        Resp: prost::Message + Default + 'static,
    {
        let started = std::time::Instant::now();
        let answer = self.client.call(method, request).await.map_err(|status| Failure {
            code: grpc::code_name(&status),
            text: grpc::text(&status),
        });
        let code = answer.as_ref().map_or_else(|failure| failure.code, |_| "OK");
        self.metrics.called(method, code, started.elapsed());
        answer
    }
}

/// The keys of an answer, the moment that they are of, and how long they are good for.
fn read(answer: &KeysResponse) -> Result<(PublicKeys, Timestamp, Duration), String> {
    let hint = answer.refresh_hint_seconds;
    let refresh = u64::try_from(hint).ok().filter(|seconds| *seconds > 0);
    let refresh = refresh.ok_or_else(|| format!("found invalid refresh hint ({hint}s)"))?;
    if answer.keys.is_empty() {
        return Err("found no keys".into());
    }
    if answer.keys.len() > limits::ISSUER_KEYS {
        return Err(format!("found more than {} keys", limits::ISSUER_KEYS));
    }
    let data = answer.data_timestamp.filter(|moment| moment.is_valid());
    let data = data.ok_or("invalid data timestamp")?;
    let mut keys = PublicKeys::default();
    for key in &answer.keys {
        if key.key_id.is_empty() || key.key_id.len() > KEY_ID_BYTES {
            return Err(format!("found invalid public key id {}", quote(&key.key_id)));
        }
        if key.key.is_empty() {
            return Err("found empty public key".into());
        }
        keys.add_der(&key.key_id, &key.key, !key.exclude_from_oidc_discovery)
            .map_err(|error| format!("while parsing external public keys: {error}"))?;
    }
    Ok((keys, data, Duration::from_secs(refresh)))
}

/// Keeps the keys. Ends when the signer is dropped.
async fn follow(signer: Weak<ExternalSigner>) {
    loop {
        let Some(known) = signer.upgrade() else { return };
        let next = known.data.lock().1;
        drop(known);
        tokio::time::sleep_until(next).await;
        let Some(known) = signer.upgrade() else { return };
        if let Err(failure) = known.fetch().await {
            tracing::error!(
                error = failure.text,
                "the keys of the token signer cannot be fetched, those before stay in use"
            );
            known.data.lock().1 = Instant::now() + RETRY;
        }
    }
}
