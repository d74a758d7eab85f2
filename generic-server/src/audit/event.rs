//! Events: what a request is at one of its stages, as `audit.k8s.io/v1` or as one line of text.

use std::collections::BTreeMap;

use bytes::Bytes;
use machinery::go;
use machinery::time::Timestamp;
use serde_json::{Map, Value};

use super::{Level, Stage};
use crate::request::User;
use crate::request::audit::{Capture, ObjectRef, State};
use crate::respond::json;

/// An event, until it has been taken by all sinks.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub(super) capture: &'a Capture,
    pub(super) stage: Stage,
    pub(super) at: Timestamp,
    /// Of the answer, once there is one.
    pub(super) code: Option<u16>,
}

/// The start of an event that stands by itself.
const HEAD: &[u8] = b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",";

impl<'a> Event<'a> {
    pub(super) fn new(capture: &'a Capture, stage: Stage, code: Option<u16>) -> Self {
        let at = match stage {
            Stage::RequestReceived => capture.facts.received,
            _ => Timestamp::now(),
        };
        Event {
            capture,
            stage,
            at,
            code,
        }
    }

    /// How much is recorded of the request.
    pub fn level(&self) -> Level {
        self.capture.level()
    }

    /// Bytes of its objects.
    pub(super) fn size(&self) -> usize {
        let state = self.capture.state.lock();
        let objects = [&state.request, &state.response].into_iter().flatten();
        objects.map(Bytes::len).sum()
    }

    /// The event as JSON, of a kind of its own.
    pub fn json(&self) -> Bytes {
        self.encode(HEAD, true)
    }

    /// The same without the objects of the request and the answer, and marked as such.
    pub(super) fn truncated(&self) -> Bytes {
        self.encode(HEAD, false)
    }

    /// An encoded event as an item of a list.
    pub(super) fn item(encoded: &Bytes) -> (&'static [u8], &[u8]) {
        (b"{", encoded.get(HEAD.len()..).unwrap_or_default())
    }

    fn encode(&self, head: &[u8], objects: bool) -> Bytes {
        let facts = &self.capture.facts;
        let state = self.capture.state.lock();
        let held = |object: &Option<Bytes>| object.as_ref().filter(|_| objects).cloned();
        let (request, response) = (held(&state.request), held(&state.response));
        let sizes = [&request, &response].map(|object| object.as_ref().map_or(0, Bytes::len));
        let mut out = Vec::with_capacity(head.len() + 1024 + facts.uri.len() + sizes.iter().sum::<usize>());
        out.extend_from_slice(head);
        let mut members = Members {
            out: &mut out,
            first: true,
        };
        members.text("level", self.level().name());
        members.text("auditID", &facts.audit_id);
        members.text("stage", self.stage.name());
        members.text("requestURI", &facts.uri);
        members.text("verb", &facts.verb);
        members.value("user", &user(&facts.user));
        if let Some(impersonated) = &state.impersonated {
            members.value("impersonatedUser", &user(&impersonated.user));
            if let Some(constraint) = &impersonated.constraint {
                members.value(
                    "authenticationMetadata",
                    &serde_json::json!({"impersonationConstraint": constraint}),
                );
            }
        }
        if !facts.sources.is_empty() {
            members.value("sourceIPs", &facts.sources.clone().into());
        }
        members.non_empty("userAgent", &facts.agent);
        if let Some(object) = &facts.object {
            members.value("objectRef", &reference(object, &state.object));
        }
        if let Some(status) = self.status(&state) {
            members.value("responseStatus", &status);
        }
        if let Some(request) = request {
            members.raw("requestObject", &request);
        }
        if let Some(response) = response {
            members.raw("responseObject", &response);
        }
        members.text("requestReceivedTimestamp", &facts.received.to_rfc3339_micro());
        members.text("stageTimestamp", &self.at.to_rfc3339_micro());
        if objects {
            members.annotations(&state.annotations);
        } else {
            let mut annotations = state.annotations.clone();
            annotations.insert("audit.k8s.io/truncated".into(), "true".into());
            members.annotations(&annotations);
        }
        drop(state);
        out.push(b'}');
        out.into()
    }

    /// The Status of the answer: its code at least, once there is one.
    fn status(&self, state: &State) -> Option<Value> {
        if state.status.is_none() && self.code.is_none() {
            return None;
        }
        let mut status = Map::new();
        status.insert("metadata".into(), Map::new().into());
        if let Some(Value::Object(known)) = &state.status {
            status.extend(known.clone());
        }
        if let Some(code) = self.code {
            status.insert("code".into(), code.into());
        }
        Some(status.into())
    }

    /// The event in one line of text, without an end.
    pub(super) fn line(&self) -> String {
        let facts = &self.capture.facts;
        let state = self.capture.state.lock();
        let list = |groups: &[String]| {
            let quoted: Vec<String> = groups.iter().map(|group| go::quote(group)).collect();
            quoted.join(",")
        };
        let or = |text: &str, other: &str| {
            if text.is_empty() {
                other.to_string()
            } else {
                text.to_string()
            }
        };
        let groups = match facts.user.name.is_empty() {
            true => String::new(),
            false => list(&facts.user.groups),
        };
        let (as_user, as_groups) = match &state.impersonated {
            None => ("<self>".to_string(), "<lookup>".to_string()),
            Some(other) => (other.user.name.clone(), or(&list(&other.user.groups), "<lookup>")),
        };
        let namespace = facts
            .object
            .as_ref()
            .map_or("", |object| match object.namespace.is_empty() {
                true => &state.object.namespace,
                false => &object.namespace,
            });
        let code = self
            .code
            .map(u64::from)
            .or_else(|| state.status.as_ref()?.get("code")?.as_u64());
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} response=\"{}\"",
            nano(facts.received),
            go::quote(&facts.audit_id),
            go::quote(self.stage.name()),
            go::quote(&or(facts.sources.first().map_or("", String::as_str), "<unknown>")),
            go::quote(&facts.verb),
            go::quote(&or(&facts.user.name, "<none>")),
            go::quote(&or(&groups, "<none>")),
            go::quote(&as_user),
            go::quote(&as_groups),
            go::quote(&facts.agent),
            go::quote(&or(namespace, "<none>")),
            go::quote(&facts.uri),
            code.map_or("<deferred>".to_string(), |code| code.to_string()),
        )
    }
}

/// Go's RFC3339Nano of a time in microseconds: without zeros at its end.
fn nano(at: Timestamp) -> String {
    let text = at.to_rfc3339_micro();
    let text = text.trim_end_matches('Z').trim_end_matches('0');
    format!("{}Z", text.trim_end_matches('.'))
}

/// Writes the members of an object.
struct Members<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Members<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        json::text(self.out, name);
        self.out.push(b':');
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        json::text(self.out, text);
    }

    fn non_empty(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    fn value(&mut self, name: &str, value: &Value) {
        self.raw(name, value.to_string().as_bytes());
    }

    /// JSON as it is. An event is one line: JSON of several, which none of this server's is, is encoded anew, and what is no JSON is null.
    fn raw(&mut self, name: &str, json: &[u8]) {
        self.name(name);
        let json = json.trim_ascii();
        if json.iter().all(|byte| *byte >= b' ') {
            return self.out.extend_from_slice(json);
        }
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn annotations(&mut self, annotations: &BTreeMap<String, String>) {
        if annotations.is_empty() {
            return;
        }
        self.name("annotations");
        self.out.push(b'{');
        let mut members = Members {
            out: self.out,
            first: true,
        };
        for (key, value) in annotations {
            members.text(key, value);
        }
        self.out.push(b'}');
    }
}

fn insert(object: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key.into(), text.into());
    }
}

/// `UserInfo` of `authentication.k8s.io/v1`.
fn user(user: &User) -> Value {
    let mut info = Map::new();
    insert(&mut info, "username", &user.name);
    insert(&mut info, "uid", &user.uid);
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), values.clone().into()));
        info.insert("extra".into(), extra.collect::<Map<_, Value>>().into());
    }
    info.into()
}

/// What the path names, and what it leaves to the object that was sent.
fn reference(path: &ObjectRef, sent: &ObjectRef) -> Value {
    fn either<'s>(path: &'s str, sent: &'s str) -> &'s str {
        if path.is_empty() { sent } else { path }
    }
    let mut object = Map::new();
    insert(&mut object, "resource", &path.resource);
    insert(&mut object, "namespace", either(&path.namespace, &sent.namespace));
    insert(&mut object, "name", either(&path.name, &sent.name));
    insert(&mut object, "uid", &sent.uid);
    insert(&mut object, "apiGroup", &path.group);
    insert(&mut object, "apiVersion", &path.version);
    insert(&mut object, "resourceVersion", &sent.resource_version);
    insert(&mut object, "subresource", &path.subresource);
    object.into()
}
