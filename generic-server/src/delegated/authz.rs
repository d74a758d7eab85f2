//! Delegated authorization: SubjectAccessReviews, remembered for a moment.

use std::time::Duration;

use machinery::limits;
use serde_json::json;

use super::access_review::{AccessReviewVersion, Decisions, key, spec};
use super::client::KubeClient;
use super::seats::Seats;
use crate::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use crate::request::User;

/// Upstream's `AllowCacheTTL` and `DenyCacheTTL` of delegating servers.
const LIFETIME: Duration = Duration::from_secs(10);

/// Authorizes requests by asking the main server.
#[derive(Debug)]
pub struct AccessReviews {
    client: KubeClient,
    /// Paths that need no permission: health checks.
    always: Vec<String>,
    known: Decisions,
    seats: Seats,
}

impl AccessReviews {
    /// Asks this server; the health endpoints are open to everybody.
    pub fn new(client: KubeClient) -> Self {
        AccessReviews {
            client,
            always: ["/healthz", "/livez", "/readyz"].map(str::to_string).into(),
            known: Decisions::new(LIFETIME, LIFETIME),
            seats: Seats::new(limits::ACCESS_REVIEWS, limits::ACCESS_REVIEWS_WAITING),
        }
    }
}

#[async_trait::async_trait]
impl Authorizer for AccessReviews {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if !attributes.is_resource && self.always.iter().any(|path| path == attributes.path) {
            return Decision::Allow(String::new());
        }
        let spec = spec(attributes);
        let key = key(&spec.to_string());
        if let Some(decision) = self.known.get(&key) {
            return decision;
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let Ok(seat) = self.seats.take().await else {
            return Decision::NoOpinion("too many requests wait for an access review".into());
        };
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = match self.client.create(path, &review).await {
            Ok(answer) => answer,
            // Not remembered: the next request asks again.
            Err(error) => {
                tracing::warn!(%error, "cannot ask the API server for an access review");
                return Decision::NoOpinion(error.to_string());
            }
        };
        drop(seat);
        let decision = match AccessReviewVersion::V1.decision(&answer) {
            Ok(decision) => decision,
            Err(error) => return Decision::NoOpinion(error),
        };
        self.known.remember(key, &decision);
        decision
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules {
            incomplete: true,
            evaluation_error: "delegated authorization does not list rules".into(),
            ..ResolvedRules::default()
        }
    }
}
