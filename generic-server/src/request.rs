//! The facts of a request, as types that travel with it: [`RequestInfo`], then [`User`], then [`Authorized`].

pub mod audit;
mod body;
mod connection;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use machinery::limits;
use parking_lot::Mutex;

pub use body::{GuardedBody, ReadError, Wrapped, read_bounded};
pub(crate) use connection::CachedVerdict;
pub use connection::{CertificateIdentity, ConnectionInfo};

pub use crate::request_info::RequestInfo;

/// Any failure below a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of requests and responses inside the chain.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A request inside the chain.
pub type Request = http::Request<Body>;
/// A response inside the chain.
pub type Response = http::Response<Body>;

/// In a response's extensions: bytes of a stream that are made before the first is sent, beside its first piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held(pub(crate) usize);

/// In the extensions of a watch's request: its seat, which is given back when the chain and the watch's body have dropped it. The body holds it
/// while it sends the initial events.
#[derive(Clone)]
pub(crate) struct InitialSeat(#[allow(dead_code, reason = "held for its drop")] Arc<Mutex<dyn Any + Send>>);

impl InitialSeat {
    /// This seat.
    pub(crate) fn new(seat: impl Any + Send) -> Self {
        InitialSeat(Arc::new(Mutex::new(seat)))
    }
}

impl fmt::Debug for InitialSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InitialSeat").finish_non_exhaustive()
    }
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// No body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The uid, or empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Anything else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
    /// What the authenticator says of the credential, if anything.
    pub notes: Option<Arc<CredentialNotes>>,
}

/// What is to be said of a credential with each request that it authenticates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialNotes {
    /// `Warning` headers of the answer.
    pub warnings: Vec<String>,
    /// Audit annotations, keys and values.
    pub annotations: Vec<(String, String)>,
}

impl CredentialNotes {
    /// Adds an annotation, by its name behind the prefix.
    pub fn annotate(&mut self, name: &str, value: impl Into<String>) {
        let key = format!("authentication.k8s.io/{name}");
        self.annotations.push((key, value.into()));
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty() && self.annotations.is_empty()
    }
}

impl User {
    /// The identity of the server's own controllers and loopback calls.
    pub fn system() -> Self {
        User {
            name: "system:apiserver".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        }
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// Everything known of the request being served. Shared by the chain, the handlers and admission.
#[derive(Debug)]
pub struct RequestContext {
    /// The facts from the path.
    pub info: RequestInfo,
    /// The user (after impersonation).
    pub user: User,
    /// `Audit-Id` of this request; none of the server's own.
    pub audit_id: Option<HeaderValue>,
    /// The `User-Agent`.
    pub user_agent: String,
    /// When the request arrived.
    pub received: Instant,
    warnings: Mutex<Vec<String>>,
    audit: Option<Arc<audit::Capture>>,
    routed: AtomicU8,
    /// Microseconds that webhooks took: those that are asked one after the other together, and the slowest of those asked at once.
    webhooks: [AtomicU64; 2],
    /// The release that the deprecated API goes with that was asked for; empty where that is not known.
    deprecated: OnceLock<Box<str>>,
}

/// How much of what a path names is there. The rest is the client's invention, and no metric is labelled with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routed {
    /// No route was found.
    Nothing,
    /// The group version is served by another server, which alone knows its resources.
    GroupVersion,
    /// The resource is served here, but not this subresource.
    Resource,
    /// All of it.
    Everything,
}

impl RequestContext {
    /// A context that keeps no audit annotations; the chain makes one per request.
    pub fn new(info: RequestInfo, user: User, user_agent: String) -> Self {
        RequestContext {
            info,
            user,
            audit_id: None,
            user_agent,
            received: Instant::now(),
            warnings: Mutex::default(),
            audit: None,
            routed: AtomicU8::new(Routed::Nothing as u8),
            webhooks: Default::default(),
            deprecated: OnceLock::new(),
        }
    }

    /// The `Audit-Id` as text; empty where there is none.
    pub(crate) fn shown_id(&self) -> &str {
        let id = self.audit_id.as_ref();
        id.and_then(|id| id.to_str().ok()).unwrap_or_default()
    }

    /// The same, for the request with this id.
    pub(crate) fn with_audit_id(self, id: HeaderValue) -> Self {
        RequestContext {
            audit_id: Some(id),
            ..self
        }
    }

    /// What auditing gathers of the request, if it is recorded.
    pub(crate) fn with_audit(self, audit: Option<Arc<audit::Capture>>) -> Self {
        RequestContext { audit, ..self }
    }

    /// What auditing gathers of the request, if it is recorded.
    pub(crate) fn audit(&self) -> Option<&audit::Capture> {
        self.audit.as_deref()
    }

    /// A layer of the chain took this time.
    pub(crate) fn took(&self, layer: audit::Layer, time: Duration) {
        if let Some(capture) = &self.audit {
            capture.took(layer, time);
        }
    }

    /// A webhook of admission took this time: one of several that are asked at once, or one of a row.
    pub(crate) fn webhook_took(&self, at_once: bool, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let [in_row, slowest] = &self.webhooks;
        match at_once {
            true => slowest.fetch_max(micros, Ordering::Relaxed),
            false => in_row.fetch_add(micros, Ordering::Relaxed),
        };
    }

    /// What the request waited for webhooks of admission.
    pub(crate) fn waited_for_webhooks(&self) -> Duration {
        let micros = self.webhooks.iter().map(|micros| micros.load(Ordering::Relaxed));
        Duration::from_micros(micros.fold(0, u64::saturating_add))
    }

    /// The request is for a deprecated API, which goes with this release (empty where that is not known).
    pub(crate) fn is_deprecated(&self, release: &str) {
        self.deprecated.get_or_init(|| release.into());
    }

    /// The release that the deprecated API goes with, where the request is for one.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        self.deprecated.get().map(|release| &**release)
    }

    /// Records how far the route was found.
    pub fn routed(&self, routed: Routed) {
        self.routed.store(routed as u8, Ordering::Relaxed);
    }

    /// How far the route was found.
    pub(crate) fn route(&self) -> Routed {
        let known = [Routed::GroupVersion, Routed::Resource, Routed::Everything];
        let stored = self.routed.load(Ordering::Relaxed);
        let found = known.into_iter().find(|routed| *routed as u8 == stored);
        found.unwrap_or(Routed::Nothing)
    }

    /// Adds a `Warning` header to the answer, once per text; warnings past upstream's bounds are dropped there.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if warnings.len() < limits::WARNINGS && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// The warnings so far, taken out.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    /// Passes on what an authenticator says of the request's credential.
    pub fn note(&self, notes: &CredentialNotes) {
        for warning in &notes.warnings {
            self.warn(warning);
        }
        for annotation in &notes.annotations {
            self.annotate(|| annotation.clone());
        }
    }

    /// Adds an audit annotation, a key and its value; the first value of a key wins, as upstream has it. It is only formatted
    /// when the request is audited.
    pub fn annotate<K: Into<String>, V: Into<String>>(&self, annotation: impl FnOnce() -> (K, V)) {
        let Some(capture) = &self.audit else { return };
        let (key, value) = annotation();
        capture.annotate(key.into(), value.into());
    }
}

/// A `User-Agent` as it is logged and recorded: cut past upstream's bound, and empty when it is not visible ASCII.
pub(crate) fn shown_agent(agent: Option<&http::HeaderValue>) -> String {
    let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
    match agent.get(..limits::USER_AGENT_BYTES) {
        Some(start) if start.len() < agent.len() => format!("{start}...TRUNCATED"),
        _ => agent.to_string(),
    }
}

/// The proof that a request passed authorization. Registry calls take it, so skipping authorization does not compile.
#[derive(Debug, Clone)]
pub struct Authorized(Arc<RequestContext>);

impl Authorized {
    /// Made by the authorization filter alone.
    pub(crate) fn new(context: Arc<RequestContext>) -> Self {
        Authorized(context)
    }

    /// For the server's own work (controllers, bootstrap): acts as [`User::system`].
    pub fn system() -> Self {
        let agent = concat!("kube-apiserver/", env!("CARGO_PKG_VERSION")).to_string();
        Authorized(Arc::new(RequestContext::new(
            RequestInfo::default(),
            User::system(),
            agent,
        )))
    }

    /// The same, for a request that the server sends to itself.
    ///
    /// # Errors
    /// When the path is none of the API's.
    pub fn system_asking(
        method: &http::Method,
        uri: &http::Uri,
    ) -> Result<Self, crate::request_info::InfoError> {
        let agent = concat!("kube-apiserver/", env!("CARGO_PKG_VERSION")).to_string();
        Ok(Authorized(Arc::new(RequestContext::new(
            crate::request_info::resolve(method, uri)?,
            User::system(),
            agent,
        ))))
    }

    /// The request it stands for.
    pub fn context(&self) -> &Arc<RequestContext> {
        &self.0
    }

    /// The user.
    pub fn user(&self) -> &User {
        &self.0.user
    }

    /// The attributes of the request.
    pub fn info(&self) -> &RequestInfo {
        &self.0.info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_formatted_for_an_audit_alone() {
        #[track_caller]
        fn check(audited: bool, expected: &[(&str, &str)]) {
            let info = RequestInfo::default();
            let capture = audited.then(Arc::default);
            let context =
                RequestContext::new(info, User::default(), String::new()).with_audit(capture.clone());
            let mut formatted = 0;
            for value in ["first", "second"] {
                context.annotate(|| {
                    formatted += 1;
                    ("key", value)
                });
            }
            let found = capture
                .map(|capture: Arc<audit::Capture>| capture.annotations())
                .unwrap_or_default();
            let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(found, expected);
            assert_eq!(formatted > 0, audited);
        }
        check(false, &[]);
        check(true, &[("key", "first")]);
    }

    #[test]
    fn warnings_are_few_and_different() {
        #[track_caller]
        fn check(texts: impl Iterator<Item = usize>, expected: usize) {
            let context = RequestContext::new(RequestInfo::default(), User::default(), String::new());
            texts.for_each(|text| context.warn(text.to_string()));
            assert_eq!(context.take_warnings().len(), expected);
        }
        check(0..limits::WARNINGS, limits::WARNINGS);
        check(0..limits::WARNINGS + 1, limits::WARNINGS);
        check((0..10).chain(0..10), 10);
    }

    #[test]
    fn agents_are_cut() {
        let check = |agent: &str, expected: &str| {
            let value = http::HeaderValue::from_bytes(agent.as_bytes()).unwrap();
            assert_eq!(shown_agent(Some(&value)), expected);
        };
        let most = "a".repeat(limits::USER_AGENT_BYTES);
        check("kubectl/v1", "kubectl/v1");
        check(&most, &most);
        check(&format!("{most}b"), &format!("{most}...TRUNCATED"));
        check("zoë", "");
        check("a\tb", "a\tb");
        assert_eq!(shown_agent(None), "");
    }
}
