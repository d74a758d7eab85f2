//! The authorizers that look at nothing or at the group alone, and several authorizers as one.

use std::sync::Arc;

use machinery::go;
use serde_json::json;

use super::{Attributes, Authorizer, Decision, Failure, ResolvedRules};
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

/// Asks one after the other until one allows or denies. An authorizer that fails is passed over unless its failure denies; when no
/// other decides, the failure is the answer.
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

impl Privileged {
    /// Whether a user is in one of the groups.
    pub fn includes(&self, user: &User) -> bool {
        self.0.iter().any(|group| user.in_group(group))
    }
}

#[async_trait::async_trait]
impl Authorizer for Privileged {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if self.includes(attributes.user) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    async fn rules_for(&self, user: &User, _namespace: &str) -> ResolvedRules {
        if self.includes(user) {
            everything()
        } else {
            ResolvedRules::default()
        }
    }
}

impl Union {
    /// The decision, and which of the authorizers allowed or denied.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> (Decision, Option<usize>) {
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for (index, one) in self.0.iter().enumerate() {
            match one.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                Decision::Failed(failure) if !failure.denies => errors.push(failure.error),
                decided => return (decided, Some(index)),
            }
        }
        let reason = reasons.join("\n");
        if errors.is_empty() {
            return (Decision::NoOpinion(reason), None);
        }
        let failure = Failure {
            error: go::aggregate(&errors).into_owned(),
            reason,
            denies: false,
        };
        (Decision::Failed(failure), None)
    }
}

#[async_trait::async_trait]
impl Authorizer for Union {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.decide(attributes).await.0
    }

    fn used(&self, attributes: &Attributes<'_>, reason: &str) {
        for one in &self.0 {
            one.used(attributes, reason);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(Decision);

    #[async_trait::async_trait]
    impl Authorizer for Fixed {
        async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
            self.0.clone()
        }

        async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
            ResolvedRules::default()
        }
    }

    #[tokio::test]
    async fn the_first_that_decides_counts_and_failures_are_passed_over() {
        let user = User::default();
        let check = async |decisions: &[Decision], expected: (Decision, Option<usize>)| {
            let info = crate::request::RequestInfo::default();
            let authorizers = decisions.iter().map(|one| Arc::new(Fixed(one.clone())) as _);
            let union = Union(authorizers.collect());
            let found = union.decide(&Attributes::of(&user, &info)).await;
            assert_eq!(found, expected, "{decisions:?}");
        };
        let none = |reason: &str| Decision::NoOpinion(reason.into());
        let failed = |error: &str, reason: &str, denies| {
            Decision::Failed(Failure {
                error: error.into(),
                reason: reason.into(),
                denies,
            })
        };
        let allow = || Decision::Allow("yes".into());
        check(&[], (none(""), None)).await;
        check(&[none("a"), none(""), none("b")], (none("a\nb"), None)).await;
        check(
            &[none("a"), allow(), Decision::Deny("no".into())],
            (allow(), Some(1)),
        )
        .await;
        check(&[failed("e", "", false), allow()], (allow(), Some(1))).await;
        check(
            &[failed("e", "", false), none("a"), failed("f", "", false)],
            (failed("[e, f]", "a", false), None),
        )
        .await;
        check(
            &[failed("e", "", true), allow()],
            (failed("e", "", true), Some(0)),
        )
        .await;
    }
}
