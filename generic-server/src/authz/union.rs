//! The authorizers that look at nothing or at the group alone, and several authorizers as one.

use std::sync::Arc;

use machinery::go;
use serde_json::json;

use super::{Attributes, Authorizer, Decision, ResolvedRules};
use crate::request::User;

/// Allows everything (`--authorization-mode=AlwaysAllow`).
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysAllow;

/// Has no opinion on any request: alone it denies everything (`AlwaysDeny`).
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysDeny;

/// Allows everything to members of a group; it comes before all other authorizers with `system:masters`.
#[derive(Debug, Clone)]
pub struct Privileged(pub Vec<String>);

impl Default for Privileged {
    fn default() -> Self {
        Privileged(vec!["system:masters".into()])
    }
}

/// Asks one after the other until one allows or denies.
#[derive(Debug, Default)]
pub struct Union(pub Vec<Arc<dyn Authorizer>>);

fn everything() -> ResolvedRules {
    ResolvedRules {
        resource_rules: vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})],
        non_resource_rules: vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]})],
        ..ResolvedRules::default()
    }
}

#[async_trait::async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::Allow(String::new())
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        everything()
    }
}

#[async_trait::async_trait]
impl Authorizer for AlwaysDeny {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".into())
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

#[async_trait::async_trait]
impl Authorizer for Privileged {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if self.0.iter().any(|group| attributes.user.in_group(group)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    async fn rules_for(&self, user: &User, _namespace: &str) -> ResolvedRules {
        if self.0.iter().any(|group| user.in_group(group)) {
            everything()
        } else {
            ResolvedRules::default()
        }
    }
}

#[async_trait::async_trait]
impl Authorizer for Union {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons = Vec::new();
        for one in &self.0 {
            match one.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut all = ResolvedRules::default();
        let mut errors = Vec::new();
        for one in &self.0 {
            let rules = one.rules_for(user, namespace).await;
            all.resource_rules.extend(rules.resource_rules);
            all.non_resource_rules.extend(rules.non_resource_rules);
            all.incomplete |= rules.incomplete;
            if !rules.evaluation_error.is_empty() {
                errors.push(rules.evaluation_error);
            }
        }
        all.evaluation_error = go::aggregate(&errors).into_owned();
        all
    }
}
