//! `--authorization-webhook-config-file` and authorizers of type Webhook: a server outside the cluster that authorizes requests,
//! through SubjectAccessReviews.
//!
//! Mirrors upstream's `authorizer/webhook`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::limits;
use parking_lot::Mutex;

use super::access_review::{AccessReviewVersion, Decisions, key, spec};
use super::client::{ClientError, KubeClient};
use super::retry::{self, Pauses};
use super::seats::Seats;
use crate::authz::{Attributes, Authorizer, Decision, Failure, ResolvedRules};
use crate::metrics::{Collect, DEFAULT_BUCKETS, Histogram, family, sample};
use crate::request::User;

/// How a webhook is asked and its answers are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessWebhookOptions {
    /// The name of the authorizer, for metrics.
    pub name: String,
    /// The form of the reviews.
    pub version: AccessReviewVersion,
    /// How long one answer may take.
    pub timeout: Duration,
    /// How long an allowed request is remembered; zero asks every time.
    pub authorized_ttl: Duration,
    /// How long any other answer is remembered; zero asks every time.
    pub unauthorized_ttl: Duration,
    /// Whether requests are denied, rather than left to the next authorizer, while the webhook fails.
    pub fails_closed: bool,
}

/// Authorizes requests by a webhook.
#[derive(Debug)]
pub struct AccessWebhook {
    client: KubeClient,
    options: AccessWebhookOptions,
    known: Decisions,
    metrics: Arc<AccessWebhookMetrics>,
    pauses: Pauses,
    /// Impersonated users are asked about before a request has any other bound.
    seats: Seats,
}

impl AccessWebhook {
    /// A webhook that the client asks, within the time of the options.
    pub fn new(
        client: KubeClient,
        options: AccessWebhookOptions,
        metrics: Arc<AccessWebhookMetrics>,
    ) -> Self {
        AccessWebhook {
            client,
            known: Decisions::new(options.authorized_ttl, options.unauthorized_ttl),
            options,
            metrics,
            pauses: Pauses::default(),
            seats: Seats::new(limits::ACCESS_REVIEWS, limits::ACCESS_REVIEWS_WAITING),
        }
    }

    fn failed(&self, error: String) -> Decision {
        tracing::error!(error, "failed to make webhook authorizer request");
        Decision::Failed(Failure {
            error,
            reason: String::new(),
            denies: self.options.fails_closed,
        })
    }
}

/// Whether a decision may be remembered: the attributes are the client's, and their size is, too.
fn is_small(a: &Attributes<'_>) -> bool {
    let all = [
        a.namespace,
        a.verb,
        a.group,
        a.version,
        a.resource,
        a.subresource,
        a.name,
        a.path,
        a.field_selector,
        a.label_selector,
    ];
    all.iter().map(|text| text.len()).sum::<usize>() < limits::ACCESS_DECISION_BYTES
}

#[async_trait::async_trait]
impl Authorizer for AccessWebhook {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let spec = spec(attributes);
        let key = key(&spec.to_string());
        if let Some(decision) = self.known.get(&key) {
            return decision;
        }
        let seat = tokio::time::timeout(self.options.timeout, self.seats.take()).await;
        let Ok(Ok(seat)) = seat else {
            return self.failed("too many requests wait for the authorization webhook".to_string());
        };
        let review = self.options.version.review(&spec);
        let answer = retry::with_pauses(self.pauses, || async {
            // Counted as canceled when the request ends before the answer is there.
            let call = self.metrics.begin(&self.options.name);
            let answer = self.client.create("", &review).await;
            call.end(Outcome::of(&answer));
            answer
        })
        .await;
        drop(seat);
        let decision = match &answer {
            Ok(answer) => self.options.version.decision(answer),
            Err(error) => Err(error.to_string()),
        };
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                if !self.options.fails_closed {
                    self.metrics.failed_open(&self.options.name, Outcome::of(&answer));
                }
                return self.failed(error);
            }
        };
        if is_small(attributes) {
            self.known.remember(key, &decision);
        }
        decision
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules {
            incomplete: true,
            evaluation_error: "webhook authorizer does not support user rule resolution".into(),
            ..ResolvedRules::default()
        }
    }
}

/// How a call of a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Canceled,
    Error,
    Success,
    Timeout,
}

impl Outcome {
    fn of<T>(answer: &Result<T, ClientError>) -> Self {
        match answer {
            Ok(_) => Outcome::Success,
            Err(ClientError::TimedOut(_)) => Outcome::Timeout,
            Err(_) => Outcome::Error,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Outcome::Canceled => "canceled",
            Outcome::Error => "error",
            Outcome::Success => "success",
            Outcome::Timeout => "timeout",
        }
    }
}

/// The metrics of all webhooks, under upstream's names. Webhooks are configured, so that their names are bounded.
#[derive(Debug, Default)]
pub struct AccessWebhookMetrics {
    calls: Mutex<BTreeMap<(String, Outcome), Arc<Histogram>>>,
    failed_open: Mutex<BTreeMap<(String, Outcome), u64>>,
}

/// A call that is under way.
struct Call<'m> {
    metrics: &'m AccessWebhookMetrics,
    name: &'m str,
    since: Instant,
    outcome: Outcome,
}

impl Call<'_> {
    fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let key = (self.name.to_string(), self.outcome);
        let mut calls = self.metrics.calls.lock();
        let histogram = calls
            .entry(key)
            .or_insert_with(|| Arc::new(Histogram::new(DEFAULT_BUCKETS)));
        histogram.observe(self.since.elapsed());
    }
}

impl AccessWebhookMetrics {
    fn begin<'m>(&'m self, name: &'m str) -> Call<'m> {
        Call {
            metrics: self,
            name,
            since: Instant::now(),
            outcome: Outcome::Canceled,
        }
    }

    fn failed_open(&self, name: &str, outcome: Outcome) {
        let key = (name.to_string(), outcome);
        *self.failed_open.lock().entry(key).or_default() += 1;
    }
}

impl Collect for AccessWebhookMetrics {
    fn collect(&self, out: &mut String) {
        let calls = self.calls.lock();
        if calls.is_empty() {
            return;
        }
        let total = "apiserver_authorization_webhook_evaluations_total";
        family(out, total, "counter", "Round-trips to authorization webhooks.");
        for ((name, outcome), histogram) in &*calls {
            let labels = [("name", &**name), ("result", outcome.label())];
            sample(out, total, &labels, histogram.count());
        }
        let duration = "apiserver_authorization_webhook_duration_seconds";
        family(out, duration, "histogram", "Request latency in seconds.");
        for ((name, outcome), histogram) in &*calls {
            let labels = [("name", &**name), ("result", outcome.label())];
            histogram.write(out, duration, &labels);
        }
        drop(calls);
        let open = "apiserver_authorization_webhook_evaluations_fail_open_total";
        let help = "NoOpinion results due to webhook timeout or error.";
        family(out, open, "counter", help);
        for ((name, outcome), count) in &*self.failed_open.lock() {
            let labels = [("name", &**name), ("result", outcome.label())];
            sample(out, open, &labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::poll;
    use tokio::net::TcpListener;

    use super::super::{Kubeconfig, ServerTrust};
    use super::*;
    use crate::client::egress::Route;
    use crate::pki::Authority;

    /// A webhook at a port on which nothing is ever said.
    async fn silent() -> (TcpListener, AccessWebhook) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let kubeconfig = Kubeconfig {
            server: format!("https://{}", listener.local_addr().unwrap()),
            trust: ServerTrust::Authorities(Authority::generate("webhook").unwrap().certificate),
            server_name: None,
            certificate: None,
            token: None,
            token_file: None,
            password: None,
        };
        let options = AccessWebhookOptions {
            name: "silent".into(),
            version: AccessReviewVersion::V1,
            timeout: Duration::from_secs(30),
            authorized_ttl: Duration::from_secs(30),
            unauthorized_ttl: Duration::from_secs(30),
            fails_closed: false,
        };
        let client = KubeClient::of_webhook(&kubeconfig, &Route::Direct, options.timeout).unwrap();
        (listener, AccessWebhook::new(client, options, Arc::default()))
    }

    fn attributes<'a>(user: &'a User, name: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb: "get",
            is_resource: true,
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "",
            namespace: "",
            name,
            path: "",
            field_selector: "",
            label_selector: "",
        }
    }

    #[tokio::test]
    async fn questions_to_a_webhook_are_bounded() {
        // One task polls all of them: its budget is not the subject.
        tokio::task::unconstrained(bounded()).await;
    }

    async fn bounded() {
        let (_listener, webhook) = silent().await;
        let user = User::default();
        let most = limits::ACCESS_REVIEWS + limits::ACCESS_REVIEWS_WAITING;
        let attributes = attributes(&user, "a");
        let mut asked: Vec<_> = (0..most).map(|_| webhook.authorize(&attributes)).collect();
        for one in &mut asked {
            assert!(poll!(one).is_pending());
        }
        let busy = Decision::Failed(Failure {
            error: "too many requests wait for the authorization webhook".into(),
            reason: String::new(),
            denies: false,
        });
        assert_eq!(webhook.authorize(&attributes).await, busy);
        assert_eq!(webhook.seats.free(), 0);
        assert_eq!(webhook.seats.waiting(), limits::ACCESS_REVIEWS_WAITING);
        asked.pop();
        let mut past = webhook.authorize(&attributes);
        assert!(poll!(&mut past).is_pending(), "one that is given up makes room");
    }

    #[test]
    fn large_requests_are_not_remembered() {
        let (user, rest) = (User::default(), "getv1pods".len());
        let is_small = |bytes: usize| is_small(&attributes(&user, &"x".repeat(bytes - rest)));
        assert!(is_small(limits::ACCESS_DECISION_BYTES - 1));
        assert!(!is_small(limits::ACCESS_DECISION_BYTES));
    }
}
