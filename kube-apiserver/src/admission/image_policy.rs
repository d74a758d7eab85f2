//! ImagePolicyWebhook: a server outside the cluster says whether pods may run the images that they name, through ImageReviews.
//!
//! Answers are remembered by what was asked about, for as long as the configuration says.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::client::egress::Route;
use generic_server::delegated::{KubeClient, Kubeconfig, is_of_kind, review};
use machinery::time::GoDuration;
use machinery::{GroupVersionResource, limits, meta};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{forbidden, is};
use crate::config_file::typed;
use crate::json::Json;

const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// Annotations of pods that the server is shown have this in their key.
const SHOWN: &str = ".image-policy.k8s.io/";
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// How long an answer may take. Upstream's figure.
const TIMEOUT: Duration = Duration::from_secs(30);
const EPHEMERAL: &str = "ephemeralcontainers";

/// The file of the plugin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImagePolicyFile {
    image_policy: Settings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    kube_config_file: String,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    retry_backoff: i64,
    default_allow: bool,
}

/// The configuration of the plugin, with the client of its server.
#[derive(Debug, Clone)]
pub(super) struct ImagePolicy {
    client: KubeClient,
    allowed_for: Duration,
    denied_for: Duration,
    retry_after: Duration,
    fails_open: bool,
}

/// A duration of the configuration: -1 is none, 0 the default.
fn duration(value: i64, unit: i64, [least, most]: [i64; 2], default: i64) -> Result<Duration, String> {
    let nanos = match value {
        -1 => 0,
        0 => default,
        value => {
            let nanos = value.saturating_mul(unit);
            if !(least..=most).contains(&nanos) {
                let [least, most, nanos] = [least, most, nanos].map(GoDuration);
                return Err(format!("valid value is between {least} and {most}, got {nanos}"));
            }
            nanos
        }
    };
    Ok(GoDuration(nanos).to_std().unwrap_or_default())
}

impl ImagePolicy {
    /// Reads the plugin's file, and the kubeconfig that it names.
    pub(super) fn read(value: Value) -> Result<Self, String> {
        const SECOND: i64 = 1_000_000_000;
        let settings = typed::<ImagePolicyFile>(value)?.image_policy;
        let ttl = [SECOND, 30 * 60 * SECOND];
        let retry_after = duration(
            settings.retry_backoff,
            SECOND / 1000,
            [1, 5 * 60 * SECOND],
            SECOND / 2,
        )?;
        let allowed_for = duration(settings.allow_ttl, SECOND, ttl, 5 * 60 * SECOND)?;
        let denied_for = duration(settings.deny_ttl, SECOND, ttl, 30 * SECOND)?;
        let kubeconfig = Kubeconfig::read(settings.kube_config_file.as_ref());
        let kubeconfig = kubeconfig.map_err(|error| format!("kubeConfigFile: {error}"))?;
        let client = KubeClient::of_webhook(&kubeconfig, &Route::Direct, TIMEOUT)
            .map_err(|error| format!("kubeConfigFile: {error}"))?;
        Ok(ImagePolicy {
            client,
            allowed_for,
            denied_for,
            retry_after,
            fails_open: settings.default_allow,
        })
    }
}

/// The server's verdict.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Verdict {
    allowed: bool,
    reason: String,
    audit_annotations: Map<String, Value>,
}

impl Verdict {
    fn of(answer: &Value) -> Result<Self, String> {
        is_of_kind(answer, API_VERSION, KIND)?;
        let status = answer.dig("status");
        match status.is_null() {
            true => Ok(Verdict::default()),
            false => Verdict::deserialize(status).map_err(|error| error.to_string()),
        }
    }

    /// Whether it is small enough to be remembered.
    fn is_kept(&self) -> bool {
        self.bytes() <= limits::IMAGE_VERDICT_BYTES
    }

    /// Its size in memory, about.
    fn bytes(&self) -> usize {
        let annotations = self.audit_annotations.iter();
        let annotations =
            annotations.map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len());
        self.reason.len() + annotations.sum::<usize>()
    }
}

/// The hash of what was asked: pods may be large.
type Question = [u8; 32];

/// The verdicts of a short while, the oldest first to go.
#[derive(Debug, Default)]
struct Verdicts {
    known: HashMap<Question, (Instant, Arc<Verdict>)>,
    /// In the order in which they came. A question that came again is in it twice, and the first time counts no more.
    order: VecDeque<(Question, Instant)>,
}

impl Verdicts {
    fn get(&self, question: &Question, now: Instant) -> Option<Arc<Verdict>> {
        let (until, verdict) = self.known.get(question)?;
        (now < *until).then(|| verdict.clone())
    }

    fn keep(&mut self, question: Question, until: Instant, verdict: Arc<Verdict>) {
        while self.order.len() >= limits::IMAGE_VERDICTS {
            if let Some((oldest, until)) = self.order.pop_front()
                && self.known.get(&oldest).is_some_and(|(known, _)| *known == until)
            {
                self.known.remove(&oldest);
            }
        }
        self.order.push_back((question, until));
        self.known.insert(question, (until, verdict));
    }
}

#[derive(Debug)]
pub(super) struct ImagePolicyWebhook {
    policy: ImagePolicy,
    verdicts: Mutex<Verdicts>,
}

impl ImagePolicyWebhook {
    pub(super) fn new(policy: ImagePolicy) -> Self {
        ImagePolicyWebhook {
            policy,
            verdicts: Mutex::default(),
        }
    }

    async fn verdict(&self, spec: &Value) -> Result<Arc<Verdict>, String> {
        let mut question: Question = [0; 32];
        question.copy_from_slice(digest(&SHA256, spec.to_string().as_bytes()).as_ref());
        if let Some(known) = self.verdicts.lock().get(&question, Instant::now()) {
            return Ok(known);
        }
        let body = json!({"kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "spec": spec, "status": {"allowed": false}});
        let client = &self.policy.client;
        let answer = review(client, "", &body, self.policy.retry_after)
            .await
            .map_err(|error| error.to_string())?;
        let verdict = Arc::new(Verdict::of(&answer)?);
        let ttl = match verdict.allowed {
            true => self.policy.allowed_for,
            false => self.policy.denied_for,
        };
        if !ttl.is_zero() && verdict.is_kept() {
            let until = Instant::now() + ttl;
            self.verdicts.lock().keep(question, until, verdict.clone());
        }
        Ok(verdict)
    }
}

/// What the server is asked about: images, and the annotations that are meant for it.
fn question(pod: &Value, subresource: &str, namespace: &str) -> Value {
    let lists: &[&str] = match subresource {
        EPHEMERAL => &["spec.ephemeralContainers"],
        _ => &["spec.containers", "spec.initContainers"],
    };
    let containers = lists.iter().flat_map(|list| pod.list(list));
    let containers = containers.map(|container| match container.text("image") {
        "" => json!({}),
        image => json!({"image": image}),
    });
    let containers: Vec<Value> = containers.collect();
    let annotations = meta::annotations(pod).into_iter().flatten();
    let annotations: Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(SHOWN))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut spec = json!({"namespace": namespace});
    // Empty lists are left out, as upstream does.
    if !containers.is_empty() {
        spec["containers"] = containers.into();
    }
    if !annotations.is_empty() {
        spec["annotations"] = annotations.into();
    }
    spec
}

#[async_trait::async_trait]
impl AdmissionPlugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && matches!(subresource, "" | EPHEMERAL)
            && is(gvr, "", "pods")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let context = attributes.authorized.context();
        let spec = question(pod, attributes.subresource, attributes.namespace);
        let verdict = match self.verdict(&spec).await {
            Ok(verdict) => verdict,
            Err(why) if self.policy.fails_open => {
                tracing::warn!(
                    why,
                    "the image policy webhook cannot be asked; the pod is let past"
                );
                context.annotate(|| (format!("{AUDIT_PREFIX}failed-open"), "true"));
                return Ok(());
            }
            Err(why) => return Err(forbidden(attributes, object, why)),
        };
        for (key, value) in &verdict.audit_annotations {
            context.annotate(|| (format!("{AUDIT_PREFIX}{key}"), value.as_str().unwrap_or_default()));
        }
        match (verdict.allowed, verdict.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err(forbidden(
                attributes,
                object,
                "one or more images rejected by webhook backend",
            )),
            (false, reason) => Err(forbidden(
                attributes,
                object,
                format!("image policy webhook backend denied one or more images: {reason}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_defaults_and_bounds() {
        let second = 1_000_000_000;
        let check = |value, expected: Result<u64, &str>| {
            let found = duration(value, second, [second, 60 * second], 7 * second);
            assert_eq!(
                found,
                expected.map(Duration::from_secs).map_err(str::to_string),
                "{value}"
            );
        };
        check(-1, Ok(0));
        check(0, Ok(7));
        check(1, Ok(1));
        check(60, Ok(60));
        check(61, Err("valid value is between 1s and 1m0s, got 1m1s"));
        check(-2, Err("valid value is between 1s and 1m0s, got -2s"));
    }

    #[test]
    fn the_server_is_asked_about_images_and_its_own_annotations() {
        let pod = json!({
            "metadata": {"annotations": {"a.image-policy.k8s.io/b": "c", "other": "d"}},
            "spec": {"containers": [{"image": "one"}, {"name": "none"}], "initContainers": [{"image": "two"}],
                "ephemeralContainers": [{"image": "three"}]}});
        let annotations = json!({"a.image-policy.k8s.io/b": "c"});
        assert_eq!(
            question(&pod, "", "d"),
            json!({"containers": [{"image": "one"}, {}, {"image": "two"}], "annotations": annotations, "namespace": "d"})
        );
        assert_eq!(
            question(&pod, EPHEMERAL, "d"),
            json!({"containers": [{"image": "three"}], "annotations": annotations, "namespace": "d"})
        );
        assert_eq!(question(&json!({}), EPHEMERAL, "d"), json!({"namespace": "d"}));
    }

    #[test]
    fn answers_of_another_kind_are_none() {
        let answer = |version: &str| json!({"kind": KIND, "apiVersion": version, "status": {"allowed": true, "auditAnnotations": {"a": "b"}}});
        assert!(Verdict::of(&answer(API_VERSION)).expect("a verdict").allowed);
        assert!(Verdict::of(&answer("v1")).is_err());
        assert!(Verdict::of(&Value::Null).is_err());
        let without = json!({"kind": KIND, "apiVersion": API_VERSION});
        assert_eq!(Verdict::of(&without), Ok(Verdict::default()));
        let wrong = json!({"kind": KIND, "apiVersion": API_VERSION, "status": {"allowed": "true"}});
        assert!(Verdict::of(&wrong).is_err());
    }

    #[test]
    fn large_verdicts_are_not_remembered() {
        for (more, kept) in [(0, true), (1, false)] {
            let reason = "x".repeat(limits::IMAGE_VERDICT_BYTES + more);
            let answer = json!({"kind": KIND, "apiVersion": API_VERSION, "status": {"allowed": false, "reason": reason}});
            assert_eq!(Verdict::of(&answer).expect("a verdict").is_kept(), kept);
        }
    }

    #[test]
    fn verdicts_are_forgotten_in_their_time_and_when_there_are_too_many() {
        let mut verdicts = Verdicts::default();
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let question = |index: usize| {
            let mut question = [0; 32];
            question[..8].copy_from_slice(&index.to_be_bytes());
            question
        };
        for index in 0..limits::IMAGE_VERDICTS {
            verdicts.keep(question(index), until, Arc::default());
        }
        assert!(verdicts.get(&question(0), now).is_some());
        assert!(verdicts.get(&question(0), until).is_none());
        // One that is renewed is kept by its second time.
        let later = until + Duration::from_secs(1);
        verdicts.keep(question(1), later, Arc::default());
        assert!(verdicts.get(&question(0), now).is_none());
        verdicts.keep(question(limits::IMAGE_VERDICTS), until, Arc::default());
        assert!(verdicts.get(&question(1), until).is_some());
        assert!(verdicts.order.len() <= limits::IMAGE_VERDICTS);
        assert!(verdicts.known.len() <= limits::IMAGE_VERDICTS);
    }
}
