//! Events: what a request is at one of its stages, as `audit.k8s.io/v1` or as one line of text.

use std::collections::BTreeMap;

use bytes::Bytes;
use machinery::go;
use machinery::time::Timestamp;
use serde_json::Value;

use super::{Level, Stage};
use crate::request::User;
use crate::request::audit::{Capture, ObjectRef};
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
        members.object("user", |members| members.user(&facts.user));
        if let Some(impersonated) = &state.impersonated {
            members.object("impersonatedUser", |members| members.user(&impersonated.user));
            if let Some(constraint) = &impersonated.constraint {
                members.object("authenticationMetadata", |members| {
                    members.text("impersonationConstraint", constraint);
                });
            }
        }
        members.list("sourceIPs", &facts.sources);
        members.non_empty("userAgent", &facts.agent);
        if let Some(object) = &facts.object {
            members.object("objectRef", |members| members.reference(object, &state.object));
        }
        members.status(state.status.as_ref(), self.code);
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
    /// The name of a member, which needs no escapes.
    fn name(&mut self, name: &'static str) {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// Any name.
    fn key(&mut self, key: &str) {
        self.separate();
        json::text(self.out, key);
        self.out.push(b':');
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        json::text(self.out, text);
    }

    fn non_empty(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    fn object(&mut self, name: &'static str, write: impl FnOnce(&mut Members<'_>)) {
        self.name(name);
        self.out.push(b'{');
        write(&mut Members {
            out: self.out,
            first: true,
        });
        self.out.push(b'}');
    }

    /// Left out when empty.
    fn list(&mut self, name: &'static str, texts: &[String]) {
        if !texts.is_empty() {
            self.name(name);
            self.texts(texts);
        }
    }

    fn texts(&mut self, texts: &[String]) {
        self.out.push(b'[');
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            json::text(self.out, text);
        }
        self.out.push(b']');
    }

    /// JSON as it is. An event is one line: JSON of several, which none of this server's is, is encoded anew, and what is no JSON is null.
    fn raw(&mut self, name: &'static str, json: &[u8]) {
        self.name(name);
        let json = json.trim_ascii();
        // Without an end before the last byte, so that many are looked at together.
        if !json.iter().fold(false, |found, byte| found | (*byte < b' ')) {
            return self.out.extend_from_slice(json);
        }
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    /// Of `UserInfo` of `authentication.k8s.io/v1`.
    fn user(&mut self, user: &User) {
        self.non_empty("username", &user.name);
        self.non_empty("uid", &user.uid);
        self.list("groups", &user.groups);
        if !user.extra.is_empty() {
            self.object("extra", |members| {
                for (key, values) in &user.extra {
                    members.key(key);
                    members.texts(values);
                }
            });
        }
    }

    /// What the path names, and what it leaves to the object that was sent.
    fn reference(&mut self, path: &ObjectRef, sent: &ObjectRef) {
        fn either<'s>(path: &'s str, sent: &'s str) -> &'s str {
            if path.is_empty() { sent } else { path }
        }
        self.non_empty("resource", &path.resource);
        self.non_empty("namespace", either(&path.namespace, &sent.namespace));
        self.non_empty("name", either(&path.name, &sent.name));
        self.non_empty("uid", &sent.uid);
        self.non_empty("apiGroup", &path.group);
        self.non_empty("apiVersion", &path.version);
        self.non_empty("resourceVersion", &sent.resource_version);
        self.non_empty("subresource", &path.subresource);
    }

    /// The Status of the answer: its code at least, once there is one.
    fn status(&mut self, known: Option<&Value>, code: Option<u16>) {
        let known = known.and_then(Value::as_object);
        if known.is_none() && code.is_none() {
            return;
        }
        self.object("responseStatus", |members| {
            if known.is_none_or(|known| !known.contains_key("metadata")) {
                members.raw("metadata", b"{}");
            }
            for (key, value) in known.into_iter().flatten() {
                if key != "code" || code.is_none() {
                    members.key(key);
                    json::value(members.out, value);
                }
            }
            if let Some(code) = code {
                members.raw("code", code.to_string().as_bytes());
            }
        });
    }

    fn annotations(&mut self, annotations: &BTreeMap<String, String>) {
        if annotations.is_empty() {
            return;
        }
        self.object("annotations", |members| {
            for (key, value) in annotations {
                members.key(key);
                json::text(members.out, value);
            }
        });
    }
}
