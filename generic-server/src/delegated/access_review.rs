//! SubjectAccessReviews as they are sent and answered, and the answers that are remembered.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use machinery::field::clip_text;
use machinery::limits;
use machinery::selector::label::Operator;
use machinery::selector::{FieldSelector, LabelSelector};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::answer::is_of_kind;
use crate::authz::{Attributes, Decision, Failure};

/// The version of the SubjectAccessReviews that are sent and expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessReviewVersion {
    /// `authorization.k8s.io/v1`.
    V1,
    /// `authorization.k8s.io/v1beta1`, where the groups are called `group`.
    V1beta1,
}

impl AccessReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            AccessReviewVersion::V1 => "authorization.k8s.io/v1",
            AccessReviewVersion::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }

    /// The review of a specification that [`spec`] made.
    pub(super) fn review(self, spec: &Value) -> Value {
        let mut spec = spec.clone();
        if self == AccessReviewVersion::V1beta1
            && let Some(spec) = spec.as_object_mut()
            && let Some(groups) = spec.remove("groups")
        {
            spec.insert("group".into(), groups);
        }
        json!({
            "apiVersion": self.api_version(), "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        })
    }

    /// The decision that an answer has.
    ///
    /// # Errors
    /// The answer is no SubjectAccessReview of this version.
    pub(super) fn decision(self, answer: &Value) -> Result<Decision, String> {
        is_of_kind(answer, self.api_version(), "SubjectAccessReview")?;
        let status = answer.get("status").unwrap_or(&Value::Null);
        if !status.is_object() && !status.is_null() {
            return Err("the status of the SubjectAccessReview is no object".into());
        }
        // What is not understood is no answer: a denial that is badly written must not pass for an allowance.
        let says = |key: &str| match status.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(format!(
                "{key} in the status of the SubjectAccessReview is no bool"
            )),
        };
        let reason = match status.get("reason") {
            None | Some(Value::Null) => "",
            Some(Value::String(reason)) => reason,
            Some(_) => return Err("reason in the status of the SubjectAccessReview is no string".into()),
        };
        let reason = clip_text(limits::SHOWN_VALUE_BYTES, reason.to_string());
        Ok(match (says("denied")?, says("allowed")?) {
            (true, true) => Decision::Failed(Failure {
                error: "webhook subject access review returned both allow and deny response".into(),
                reason,
                denies: true,
            }),
            (true, false) => Decision::Deny(reason),
            (false, true) => Decision::Allow(reason),
            (false, false) => Decision::NoOpinion(reason),
        })
    }
}

/// The `spec` of a review: of version 1, with the user's and the request's attributes. Empty ones are left out.
pub fn spec(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = Map::new();
    let mut put = |key: &str, value: Value| {
        let is_empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty() && key == "extra",
            _ => false,
        };
        if !is_empty {
            spec.insert(key.into(), value);
        }
    };
    if attributes.is_resource {
        put("resourceAttributes", resource_attributes(attributes));
    } else {
        let path = texts(&[("path", attributes.path), ("verb", attributes.verb)]);
        put("nonResourceAttributes", Value::Object(path));
    }
    put("user", user.name.as_str().into());
    put("groups", json!(user.groups));
    put("extra", json!(user.extra));
    put("uid", user.uid.as_str().into());
    Value::Object(spec)
}

fn texts(members: &[(&str, &str)]) -> Map<String, Value> {
    members
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| ((*key).to_string(), Value::from(*text)))
        .collect()
}

fn resource_attributes(attributes: &Attributes<'_>) -> Value {
    let mut found = texts(&[
        ("namespace", attributes.namespace),
        ("verb", attributes.verb),
        ("group", attributes.group),
        ("version", attributes.version),
        ("resource", attributes.resource),
        ("subresource", attributes.subresource),
        ("name", attributes.name),
    ]);
    let selectors = [
        ("fieldSelector", field_requirements(attributes.field_selector)),
        ("labelSelector", label_requirements(attributes.label_selector)),
    ];
    for (key, requirements) in selectors {
        if !requirements.is_empty() {
            found.insert(key.into(), json!({"requirements": requirements}));
        }
    }
    Value::Object(found)
}

/// The requirements of a selector; none of one that cannot be read, which asks for a broader permission.
fn field_requirements(text: &str) -> Vec<Value> {
    let selector = FieldSelector::parse(text).unwrap_or_default();
    let requirement = |one: &machinery::selector::field::FieldRequirement| {
        let operator = if one.negated { "NotIn" } else { "In" };
        json!({"key": one.field, "operator": operator, "values": [one.value]})
    };
    selector.requirements().iter().map(requirement).collect()
}

fn label_requirements(text: &str) -> Vec<Value> {
    if text.is_empty() {
        return Vec::new();
    }
    let Ok(selector) = LabelSelector::parse(text) else {
        return Vec::new();
    };
    let requirements = selector.requirements().iter().filter_map(|one| {
        let operator = match one.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut requirement = json!({"key": one.key(), "operator": operator});
        if !one.values().is_empty() {
            requirement["values"] = json!(one.values());
        }
        Some(requirement)
    });
    requirements.collect()
}

/// The hash of a specification: what is remembered has one size, whatever a client writes into it.
pub(super) type Key = [u8; 32];

pub(super) fn key(spec: &str) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, spec.as_bytes()).as_ref());
    key
}

/// Decisions by the specification of their review. Beyond [`limits::ACCESS_DECISIONS`] the oldest go.
#[derive(Debug)]
pub(super) struct Decisions {
    /// How long an allowed request is remembered, and any other; zero does not remember it.
    allowed: Duration,
    other: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    decisions: HashMap<Key, (Instant, Decision)>,
    /// The keys in the order in which they came; one that came again is there twice.
    order: VecDeque<Key>,
}

impl Decisions {
    pub(super) fn new(allowed: Duration, other: Duration) -> Self {
        Decisions {
            allowed,
            other,
            known: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Decision> {
        let known = self.known.lock();
        let (until, decision) = known.decisions.get(key)?;
        (*until > Instant::now()).then(|| decision.clone())
    }

    pub(super) fn remember(&self, key: Key, decision: &Decision) {
        let lifetime = match decision {
            Decision::Allow(_) => self.allowed,
            Decision::Deny(_) | Decision::NoOpinion(_) | Decision::Failed(_) => self.other,
        };
        if lifetime.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut known = self.known.lock();
        while known.order.len() >= limits::ACCESS_DECISIONS {
            if let Some(oldest) = known.order.pop_front() {
                known.decisions.remove(&oldest);
            }
        }
        known.order.push_back(key);
        known.decisions.insert(key, (now + lifetime, decision.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::User;

    fn attributes(user: &User) -> Attributes<'_> {
        Attributes {
            user,
            verb: "list",
            is_resource: true,
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "",
            namespace: "ns",
            name: "",
            path: "/api/v1/namespaces/ns/pods",
            field_selector: "spec.nodeName=n,a!=b",
            label_selector: "a in (b,c),d!=e,f,!g,h>1",
        }
    }

    #[test]
    fn reviews_have_upstreams_form() {
        let user = User {
            name: "u".into(),
            uid: "1".into(),
            groups: vec!["g".into()],
            extra: [("k".to_string(), vec!["v".to_string()])].into(),
            ..User::default()
        };
        let of_user = json!({"user": "u", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}});
        let mut expected = of_user.clone();
        expected["resourceAttributes"] = json!({
            "namespace": "ns", "verb": "list", "version": "v1", "resource": "pods",
            "fieldSelector": {"requirements": [
                {"key": "a", "operator": "NotIn", "values": ["b"]},
                {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
            ]},
            "labelSelector": {"requirements": [
                {"key": "a", "operator": "In", "values": ["b", "c"]},
                {"key": "d", "operator": "NotIn", "values": ["e"]},
                {"key": "f", "operator": "Exists"},
                {"key": "g", "operator": "DoesNotExist"},
            ]},
        });
        assert_eq!(spec(&attributes(&user)), expected);
        let unreadable = Attributes {
            field_selector: "x",
            label_selector: "a in",
            ..attributes(&user)
        };
        let found = spec(&unreadable);
        assert_eq!(
            found["resourceAttributes"],
            json!({"namespace": "ns", "verb": "list", "version": "v1", "resource": "pods"})
        );
        let path = Attributes {
            is_resource: false,
            path: "/healthz",
            verb: "get",
            ..attributes(&user)
        };
        let mut expected = of_user;
        expected["nonResourceAttributes"] = json!({"path": "/healthz", "verb": "get"});
        assert_eq!(spec(&path), expected);
        assert_eq!(
            spec(&Attributes {
                user: &User::default(),
                ..path
            }),
            json!({"nonResourceAttributes": {"path": "/healthz", "verb": "get"}})
        );
        let review = AccessReviewVersion::V1beta1.review(&expected);
        assert_eq!(review["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(review["spec"]["group"], json!(["g"]));
        assert_eq!(review["spec"].get("groups"), None);
    }

    #[test]
    fn answers_are_judged() {
        #[track_caller]
        fn check(status: Value, expected: Decision) {
            let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status});
            assert_eq!(
                AccessReviewVersion::V1.decision(&answer),
                Ok(expected),
                "{answer}"
            );
        }
        check(
            json!({"allowed": true, "reason": "r"}),
            Decision::Allow("r".into()),
        );
        check(
            json!({"allowed": false, "reason": "r"}),
            Decision::NoOpinion("r".into()),
        );
        check(json!({"denied": true}), Decision::Deny(String::new()));
        check(Value::Null, Decision::NoOpinion(String::new()));
        check(
            json!({"allowed": true, "denied": true}),
            Decision::Failed(Failure {
                error: "webhook subject access review returned both allow and deny response".into(),
                reason: String::new(),
                denies: true,
            }),
        );
        for status in [
            json!({"allowed": "true"}),
            json!({"allowed": true, "denied": "true"}),
            json!({"allowed": true, "reason": 1}),
            json!([]),
        ] {
            let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status});
            assert!(AccessReviewVersion::V1.decision(&answer).is_err(), "{answer}");
        }
        let long = "x".repeat(limits::SHOWN_VALUE_BYTES + 1);
        let answer = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": {"allowed": true, "reason": long}});
        let Ok(Decision::Allow(reason)) = AccessReviewVersion::V1.decision(&answer) else {
            panic!("it is allowed");
        };
        assert!(
            reason.len() < long.len() + 4 && reason.ends_with("..."),
            "{}",
            reason.len()
        );
        for answer in [
            Value::Null,
            json!({"apiVersion": "authorization.k8s.io/v1beta1", "kind": "SubjectAccessReview"}),
        ] {
            assert!(AccessReviewVersion::V1.decision(&answer).is_err(), "{answer}");
        }
    }

    #[test]
    fn decisions_are_remembered_for_their_time_and_number() {
        let minute = Duration::from_secs(60);
        let decisions = Decisions::new(minute, Duration::ZERO);
        let allow = Decision::Allow(String::new());
        let keys: Vec<Key> = (0..=limits::ACCESS_DECISIONS)
            .map(|n| key(&n.to_string()))
            .collect();
        let [first, second, .., last] = keys[..] else {
            panic!("there are many")
        };
        decisions.remember(first, &Decision::Deny(String::new()));
        assert_eq!(decisions.get(&first), None);
        for key in &keys[..limits::ACCESS_DECISIONS] {
            decisions.remember(*key, &allow);
        }
        assert_eq!(decisions.get(&first), Some(allow.clone()));
        decisions.remember(last, &allow);
        assert_eq!(decisions.get(&first), None);
        assert_eq!(decisions.get(&second), Some(allow.clone()));
        assert_eq!(decisions.get(&last), Some(allow));
        assert_eq!(decisions.known.lock().decisions.len(), limits::ACCESS_DECISIONS);
    }
}
