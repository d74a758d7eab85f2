//! EventRateLimit: bounds on how many events are written in a second: by all, to a namespace, by a user, or about an object.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::Instant;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::status::Reason;
use machinery::{FieldError, FieldPath, GroupVersionResource, go, limits};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::is;
use crate::json::Json;

const TYPES: [&str; 4] = ["Server", "Namespace", "User", "SourceAndObject"];

/// `Configuration` of `eventratelimit.admission.k8s.io/v1alpha1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventLimits {
    limits: Vec<LimitConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct LimitConfig {
    r#type: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

impl EventLimits {
    /// The faults of these limits, in upstream's words.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut found = Vec::new();
        let root = FieldPath::new("limits");
        if self.limits.is_empty() {
            found.push(FieldError::invalid(&root, &Value::Null, "must not be empty"));
        }
        for (index, limit) in self.limits.iter().enumerate() {
            let at = root.index(index);
            if !TYPES.contains(&limit.r#type.as_str()) {
                let path = at.child("type");
                found.push(FieldError::not_supported(
                    &path,
                    &limit.r#type.as_str().into(),
                    &TYPES,
                ));
            }
            let mut require = |holds: bool, name: &str, value: i32, why: &str| {
                if !holds {
                    found.push(FieldError::invalid(&at.child(name), &value.into(), why));
                }
            };
            require(limit.burst > 0, "burst", limit.burst, "must be positive");
            require(limit.qps > 0, "qps", limit.qps, "must be positive");
            let sized = limit.r#type == "Server" || limit.cache_size >= 0;
            require(sized, "cacheSize", limit.cache_size, "must not be negative");
        }
        found.iter().map(ToString::to_string).collect()
    }
}

#[derive(Debug)]
pub(super) struct EventRateLimit {
    limits: Vec<Limit>,
    /// Keys are as long as clients make them: buckets are found by a hash of them.
    hasher: RandomState,
}

impl EventRateLimit {
    pub(super) fn new(config: &EventLimits) -> Self {
        EventRateLimit {
            limits: config.limits.iter().map(Limit::new).collect(),
            hasher: RandomState::new(),
        }
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        // As upstream: events of events.k8s.io are not limited.
        matches!(operation, Operation::Create | Operation::Update) && is(gvr, "", "events")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        if attributes.dry_run {
            return Ok(());
        }
        let now = Instant::now();
        let mut refusals = Vec::new();
        for limit in &self.limits {
            let key = limit.key(attributes, object);
            if !limit.accepts(self.hasher.hash_one(&key), now) {
                let name = TYPES[limit.by as usize];
                refusals.push(format!("limit reached on type {name} for key {key}"));
            }
        }
        match refusals.is_empty() {
            true => Ok(()),
            false => {
                let text = format!("Too many requests: {}", go::aggregate(&refusals));
                Err(ApiError::new(429, Reason::TooManyRequests, text))
            }
        }
    }
}

/// The events that share a bucket. The order is that of [`TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

#[derive(Debug)]
struct Limit {
    by: By,
    qps: f64,
    burst: f64,
    buckets: Mutex<Buckets>,
}

impl Limit {
    /// The limit of a configuration without faults.
    fn new(config: &LimitConfig) -> Self {
        let by = match config.r#type.as_str() {
            "Server" => By::Server,
            "Namespace" => By::Namespace,
            "User" => By::User,
            _ => By::SourceAndObject,
        };
        let most = match usize::try_from(config.cache_size).unwrap_or_default() {
            0 => limits::EVENT_BUCKETS,
            size => size,
        };
        Limit {
            by,
            qps: config.qps.into(),
            burst: config.burst.into(),
            buckets: Mutex::new(Buckets {
                most,
                ..Buckets::default()
            }),
        }
    }

    fn key(&self, attributes: &Attributes<'_>, event: Option<&Value>) -> String {
        match (self.by, event) {
            (By::Namespace, _) => attributes.namespace.to_string(),
            (By::User, _) => attributes.authorized.user().name.to_string(),
            (By::SourceAndObject, Some(event)) => [
                "source.component",
                "source.host",
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
            ]
            .map(|path| event.text(path))
            .concat(),
            (By::Server, _) | (By::SourceAndObject, None) => String::new(),
        }
    }

    /// Takes a token from a bucket, if there is one.
    fn accepts(&self, key: u64, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        let bucket = buckets.get(key, || Bucket {
            tokens: self.burst,
            at: now,
        });
        let passed = now.saturating_duration_since(bucket.at);
        bucket.tokens = (bucket.tokens + passed.as_secs_f64() * self.qps).min(self.burst);
        bucket.at = now;
        let accepted = bucket.tokens >= 1.0;
        if accepted {
            bucket.tokens -= 1.0;
        }
        accepted
    }
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The buckets that were used last. When there are too many, the one that was not used for longest goes; it is full when it comes back.
#[derive(Debug, Default)]
struct Buckets {
    most: usize,
    uses: u64,
    by_key: HashMap<u64, (u64, Bucket)>,
    by_use: BTreeMap<u64, u64>,
}

impl Buckets {
    fn get(&mut self, key: u64, full: impl FnOnce() -> Bucket) -> &mut Bucket {
        self.uses += 1;
        if let Some((used, _)) = self.by_key.get(&key) {
            self.by_use.remove(used);
        } else if self.by_key.len() >= self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.by_use.insert(self.uses, key);
        let (used, bucket) = self.by_key.entry(key).or_insert_with(|| (0, full()));
        *used = self.uses;
        bucket
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn limits_of(value: Value) -> EventLimits {
        serde_json::from_value(json!({"limits": value})).expect("limits")
    }

    #[test]
    fn configurations() {
        #[track_caller]
        fn check(value: Value, expected: &[&str]) {
            assert_eq!(limits_of(value).faults(), expected);
        }
        check(
            json!([{"type": "Server", "qps": 1, "burst": 1, "cacheSize": -1}]),
            &[],
        );
        check(json!([]), &["limits: Invalid value: null: must not be empty"]);
        check(
            json!([{"type": "x", "qps": 1, "burst": 1}, {"type": "User", "cacheSize": -1}]),
            &[
                "limits[0].type: Unsupported value: \"x\": supported values: \"Server\", \"Namespace\", \"User\", \"SourceAndObject\"",
                "limits[1].burst: Invalid value: 0: must be positive",
                "limits[1].qps: Invalid value: 0: must be positive",
                "limits[1].cacheSize: Invalid value: -1: must not be negative",
            ],
        );
    }

    #[test]
    fn buckets_fill_up_again() {
        let config = limits_of(json!([{"type": "User", "qps": 2, "burst": 3, "cacheSize": 2}]));
        let limit = Limit::new(&config.limits[0]);
        let start = Instant::now();
        let taken = |key, seconds| {
            let now = start + Duration::from_secs(seconds);
            (0..10).filter(|_| limit.accepts(key, now)).count()
        };
        assert_eq!((taken(1, 0), taken(1, 0), taken(2, 0)), (3, 0, 3));
        assert_eq!((taken(1, 1), taken(2, 1)), (2, 2));
        assert_eq!(taken(1, 61), 3, "no more than the burst");
        // A third bucket takes the place of the second, which was not used for longest and comes back full.
        assert_eq!((taken(3, 61), taken(1, 61), taken(2, 61)), (3, 0, 3));
        assert_eq!(limit.buckets.lock().by_key.len(), 2);
        assert_eq!(limit.buckets.lock().by_use.len(), 2);
    }

    #[test]
    fn buckets_are_bounded() {
        let config = limits_of(json!([{"type": "User", "qps": 1, "burst": 1}]));
        let limit = Limit::new(&config.limits[0]);
        let now = Instant::now();
        let most = u64::try_from(limits::EVENT_BUCKETS).expect("a small number");
        assert!((0..most).all(|key| limit.accepts(key, now)));
        assert!(!limit.accepts(0, now), "as many as there may be");
        assert!(limit.accepts(most, now));
        assert!(limit.accepts(1, now), "the second made room and is full again");
        assert_eq!(limit.buckets.lock().by_key.len(), limits::EVENT_BUCKETS);
    }
}
