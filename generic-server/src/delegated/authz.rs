//! Delegated authorization: SubjectAccessReviews, remembered for a moment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::client::KubeClient;
use crate::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use crate::request::User;

/// Upstream's `AllowCacheTTL` and `DenyCacheTTL` of delegating servers.
const LIFETIME: Duration = Duration::from_secs(10);
/// Beyond this many, those whose time is over go; if that does not help, all.
const MOST: usize = 16 * 1024;

/// Authorizes requests by asking the main server.
#[derive(Debug)]
pub struct AccessReviews {
    client: KubeClient,
    /// Paths that need no permission: health checks.
    always: Vec<String>,
    known: Mutex<HashMap<String, (Instant, Decision)>>,
}

impl AccessReviews {
    /// Asks this server; the health endpoints are open to everybody.
    pub fn new(client: KubeClient) -> Self {
        AccessReviews {
            client,
            always: ["/healthz", "/livez", "/readyz"].map(str::to_string).into(),
            known: Mutex::default(),
        }
    }

    fn remember(&self, key: String, decision: &Decision) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= MOST {
            known.retain(|_, (until, _)| *until > now);
            if known.len() >= MOST {
                known.clear();
            }
        }
        known.insert(key, (now + LIFETIME, decision.clone()));
    }
}

fn spec(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = json!({
        "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
    });
    if attributes.is_resource {
        spec["resourceAttributes"] = json!({
            "namespace": attributes.namespace, "verb": attributes.verb, "group": attributes.group,
            "version": attributes.version, "resource": attributes.resource,
            "subresource": attributes.subresource, "name": attributes.name,
        });
    } else {
        spec["nonResourceAttributes"] = json!({"path": attributes.path, "verb": attributes.verb});
    }
    spec
}

#[async_trait::async_trait]
impl Authorizer for AccessReviews {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if !attributes.is_resource && self.always.iter().any(|path| path == attributes.path) {
            return Decision::Allow(String::new());
        }
        let spec = spec(attributes);
        let key = spec.to_string();
        if let Some((_, decision)) = self
            .known
            .lock()
            .get(&key)
            .filter(|(until, _)| *until > Instant::now())
        {
            return decision.clone();
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = match self.client.create(path, &review).await {
            Ok(answer) => answer,
            // Not remembered: the next request asks again.
            Err(error) => {
                tracing::warn!(%error, "cannot ask the API server for an access review");
                return Decision::NoOpinion(error.to_string());
            }
        };
        let says =
            |key: &str| answer.get("status").and_then(|status| status.get(key)?.as_bool()) == Some(true);
        let reason = answer
            .get("status")
            .and_then(|status| status.get("reason")?.as_str());
        let reason = reason.unwrap_or_default().to_string();
        let decision = if says("denied") {
            Decision::Deny(reason)
        } else if says("allowed") {
            Decision::Allow(reason)
        } else {
            Decision::NoOpinion(reason)
        };
        self.remember(key, &decision);
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
