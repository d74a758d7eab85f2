//! What is gathered of one request while it is served, for the events of its stages.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use machinery::time::{GoDuration, Timestamp};
use machinery::{limits, meta};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{RequestInfo, User, shown_agent};

/// How much of a request is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what, and the outcome.
    Metadata,
    /// The object of the request, too.
    Request,
    /// The object of the answer, too.
    RequestResponse,
}

impl Level {
    /// In the order of upstream's messages.
    pub(crate) const ALL: [Level; 4] = [
        Level::None,
        Level::Metadata,
        Level::Request,
        Level::RequestResponse,
    ];

    /// As policies and events name it.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// Where a request is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known; nothing was done yet.
    RequestReceived,
    /// The head of a long-running answer is sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// In the order of upstream's messages.
    pub(crate) const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// As policies and events name it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stages(u8);

impl Stages {
    pub(crate) fn with(self, stage: Stage) -> Self {
        Stages(self.0 | 1 << stage as u8)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Stages(self.0 | other.0)
    }

    pub(crate) fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// What a policy says about a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    /// Stages without an event.
    pub(crate) omitted: Stages,
    /// Whether objects are recorded without their managed fields.
    pub(crate) without_managed_fields: bool,
}

/// A part of a request's way whose time is recorded when the request is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Finding out who asks.
    Authentication,
    /// Finding out whom they may act as.
    Impersonation,
    /// Waiting for a seat.
    Queue,
    /// Finding out what they may do.
    Authorization,
}

impl Layer {
    const ALL: [Layer; 4] = [
        Layer::Authentication,
        Layer::Impersonation,
        Layer::Queue,
        Layer::Authorization,
    ];

    /// The end of its annotation's key.
    fn name(self) -> &'static str {
        match self {
            Layer::Authentication => "authentication",
            Layer::Impersonation => "impersonation",
            Layer::Queue => "apf-queue-wait",
            Layer::Authorization => "authorization",
        }
    }
}

/// Upstream's figure: requests that took no longer have no annotations about their time.
const SLOW: Duration = Duration::from_millis(500);
const LATENCY: &str = "apiserver.latency.k8s.io";

/// In a request's extensions: the object that it is answered is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordsObjects;

/// In a response's extensions: the Status that it says, as JSON, where its body is not that.
#[derive(Debug, Clone)]
pub(crate) struct StatusText(pub(crate) Bytes);

/// In a response's extensions: the object that it answers, as JSON.
#[derive(Debug, Clone)]
pub(crate) struct ResponseObject(pub(crate) Bytes);

/// A request that has been authenticated, or refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// `None` for one whose credentials were refused.
    pub(crate) user: Option<&'a User>,
    pub(crate) head: &'a Parts,
    pub(crate) info: &'a RequestInfo,
    pub(crate) audit_id: &'a HeaderValue,
    /// The other end of the connection, where there is one.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) received: Instant,
}

/// What is gathered of one request.
#[derive(Debug)]
pub struct Capture {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Facts,
    pub(crate) state: Mutex<State>,
}

/// What is known from the start.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) audit_id: String,
    pub(crate) uri: String,
    pub(crate) verb: String,
    pub(crate) user: User,
    pub(crate) sources: Vec<String>,
    pub(crate) agent: String,
    /// `None` for paths that are not about resources.
    pub(crate) object: Option<ObjectRef>,
    pub(crate) received: Timestamp,
    pub(crate) arrived: Instant,
}

/// The object that a request is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectRef {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource_version: String,
    pub(crate) subresource: String,
}

/// What becomes known later.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) impersonated: Option<Impersonated>,
    /// From the object that was sent.
    pub(crate) object: ObjectRef,
    /// JSON.
    pub(crate) request: Option<Bytes>,
    /// JSON.
    pub(crate) response: Option<Bytes>,
    /// The members of the Status that was answered.
    pub(crate) status: Option<Value>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The time of each layer.
    pub(crate) latencies: [Duration; Layer::ALL.len()],
}

/// The user that a request runs as.
#[derive(Debug)]
pub(crate) struct Impersonated {
    pub(crate) user: User,
    /// The verb of the constrained mode that it was allowed by.
    pub(crate) constraint: Option<String>,
}

#[cfg(test)]
impl Default for Capture {
    fn default() -> Self {
        let (head, ()) = http::Request::new(()).into_parts();
        Capture::new(
            Verdict::default(),
            &Arrival {
                user: None,
                head: &head,
                info: &RequestInfo::default(),
                audit_id: &HeaderValue::from_static("an-id"),
                peer: None,
                received: Instant::now(),
            },
        )
    }
}

impl Capture {
    pub(crate) fn new(verdict: Verdict, arrival: &Arrival<'_>) -> Self {
        let info = arrival.info;
        let object = info.is_resource.then(|| ObjectRef {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            group: info.group.clone(),
            version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..ObjectRef::default()
        });
        let ago = i128::try_from(arrival.received.elapsed().as_nanos()).unwrap_or_default();
        let now = Timestamp::now().unix_nanos();
        let uri = &arrival.head.uri;
        Capture {
            verdict,
            facts: Facts {
                audit_id: String::from_utf8_lossy(arrival.audit_id.as_bytes()).into_owned(),
                // Without the authority that HTTP/2 puts before it.
                uri: uri.path_and_query().map_or("", |uri| uri.as_str()).to_string(),
                verb: info.verb.to_string(),
                user: arrival.user.cloned().unwrap_or_default(),
                sources: sources(&arrival.head.headers, arrival.peer),
                agent: shown_agent(arrival.head.headers.get(http::header::USER_AGENT)),
                object,
                received: Timestamp::from_unix_nanos(now - ago),
                arrived: arrival.received,
            },
            state: Mutex::default(),
        }
    }

    /// How much is recorded.
    pub fn level(&self) -> Level {
        self.verdict.level
    }

    /// A layer took this time.
    pub(crate) fn took(&self, layer: Layer, time: Duration) {
        self.state.lock().latencies[layer as usize] += time;
    }

    /// Says where the time of a request has gone, if it was slow. The time of layers that took none is left out.
    pub(crate) fn note_latencies(&self) {
        let total = self.facts.arrived.elapsed();
        if total <= SLOW {
            return;
        }
        let shown = |time: Duration| {
            let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            GoDuration(nanos).to_string()
        };
        let mut state = self.state.lock();
        let state = &mut *state;
        for (layer, time) in Layer::ALL.into_iter().zip(state.latencies) {
            if !time.is_zero() {
                let key = format!("{LATENCY}/{}", layer.name());
                state.annotations.entry(key).or_insert_with(|| shown(time));
            }
        }
        let key = format!("{LATENCY}/total");
        state.annotations.entry(key).or_insert_with(|| shown(total));
    }

    /// The request runs as another user from here on.
    pub(crate) fn impersonates(&self, user: User, constraint: Option<String>) {
        self.state.lock().impersonated = Some(Impersonated { user, constraint });
    }

    /// Adds an annotation. The first value of a key stays, as upstream has it.
    pub(crate) fn annotate(&self, key: String, value: String) {
        self.state.lock().annotations.entry(key).or_insert(value);
    }

    #[cfg(test)]
    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        self.state.lock().annotations.clone()
    }

    /// Records the object that was sent, as it was decoded.
    pub(crate) fn request_object(&self, object: &Value) {
        let text = |value: &str| value.to_string();
        let named = ObjectRef {
            namespace: text(meta::namespace(object)),
            name: text(meta::name(object)),
            uid: text(meta::uid(object)),
            resource_version: text(meta::resource_version(object)),
            ..ObjectRef::default()
        };
        let request =
            (self.verdict.level >= Level::Request).then(|| match self.verdict.without_managed_fields {
                true => {
                    let mut object = object.clone();
                    drop_managed_fields(&mut object);
                    object.to_string()
                }
                false => object.to_string(),
            });
        let mut state = self.state.lock();
        state.object = named;
        state.request = request.map(Bytes::from);
    }

    /// Records a patch, as the request's own decoder has read it.
    pub(crate) fn request_patch(&self, patch: &Value) {
        if self.verdict.level < Level::Request {
            return;
        }
        self.state.lock().request = Some(patch.to_string().into());
    }

    /// Records the object that is answered, which is JSON.
    pub(crate) fn response_object(&self, text: Bytes) {
        if self.verdict.level < Level::RequestResponse {
            return;
        }
        if text.len() > limits::AUDIT_OBJECT_BYTES {
            self.annotate("audit.k8s.io/truncated".into(), "true".into());
            return;
        }
        let text = match self.verdict.without_managed_fields {
            true => without_managed_fields(&text).unwrap_or(text),
            false => text,
        };
        self.state.lock().response = Some(text);
    }

    /// Records the Status that is answered, which is JSON.
    pub(crate) fn status(&self, text: &Bytes) {
        let Ok(Value::Object(mut status)) = serde_json::from_slice(text) else {
            return;
        };
        if status.get("kind").and_then(Value::as_str) != Some("Status") {
            return;
        }
        // Encoded anew: one line, whatever the text was.
        let whole = Value::Object(status.clone()).to_string();
        status.retain(|key, _| matches!(key.as_str(), "status" | "message" | "reason" | "details" | "code"));
        self.state.lock().status = Some(status.into());
        self.response_object(whole.into());
    }

    /// Records a failure that answers no Status.
    pub(crate) fn failure(&self, reason: &str, message: &str, code: Option<u16>) {
        let mut status = json!({"status": "Failure", "message": message});
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        if let Some(code) = code {
            status["code"] = code.into();
        }
        self.state.lock().status = Some(status);
    }
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// An object, list or table without the managed fields of its objects.
fn without_managed_fields(text: &[u8]) -> Option<Bytes> {
    let mut object: Value = serde_json::from_slice(text).ok()?;
    drop_managed_fields(&mut object);
    for item in object
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        drop_managed_fields(item);
    }
    for row in object
        .get_mut("rows")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        row.get_mut("object").into_iter().for_each(drop_managed_fields);
    }
    Some(object.to_string().into())
}

/// The addresses that a request says it went through, and the one that it came from. All but the last are the client's words.
fn sources(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut found: Vec<IpAddr> = text("x-forwarded-for")
        .split(',')
        .filter_map(|part| part.trim().parse().ok())
        .collect();
    if let Ok(real) = text("x-real-ip").parse()
        && !found.contains(&real)
    {
        found.push(real);
    }
    let peer = peer.map(|peer| peer.to_canonical());
    found.extend(peer.filter(|peer| found.last() != Some(peer)));
    found.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_end_with_the_peer() {
        #[track_caller]
        fn check(forwarded: &str, real: &str, expected: &[&str]) {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            headers.insert("x-real-ip", real.parse().unwrap());
            let peer = Some("::ffff:10.0.0.9".parse().unwrap());
            assert_eq!(sources(&headers, peer), expected);
        }
        check("", "", &["10.0.0.9"]);
        check("1.1.1.1, x,2.2.2.2", "", &["1.1.1.1", "2.2.2.2", "10.0.0.9"]);
        check("1.1.1.1", "1.1.1.1", &["1.1.1.1", "10.0.0.9"]);
        check("1.1.1.1", "3.3.3.3", &["1.1.1.1", "3.3.3.3", "10.0.0.9"]);
        check("1.1.1.1,10.0.0.9", "", &["1.1.1.1", "10.0.0.9"]);
    }

    #[test]
    fn managed_fields_are_left_out_of_objects_lists_and_tables() {
        #[track_caller]
        fn check(object: Value, expected: &Value) {
            let text = without_managed_fields(object.to_string().as_bytes()).unwrap();
            assert_eq!(&serde_json::from_slice::<Value>(&text).unwrap(), expected);
        }
        let with = json!({"metadata": {"name": "a", "managedFields": [{}]}});
        let without = json!({"metadata": {"name": "a"}});
        check(with.clone(), &without);
        check(json!({"items": [with, 3]}), &json!({"items": [without, 3]}));
        check(
            json!({"rows": [{"object": with}, {}]}),
            &json!({"rows": [{"object": without}, {}]}),
        );
    }
}
