//! Role-based access control over an index in memory.
//!
//! The watches of roles and bindings feed [`Rbac::apply`]; deciding reads one immutable [`Index`] and never the store. A binding
//! is found by its subjects, so that the cost of a decision follows what the user holds and not how many bindings there are.
//! Mirrors upstream's `plugin/pkg/auth/authorizer/rbac` and `pkg/registry/rbac/validation`.

mod admission;
mod coverage;
pub mod escalation;
mod index;
mod role;
mod rule;
mod usage;

use std::sync::Arc;

use arc_swap::ArcSwap;
use generic_server::User;
use generic_server::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use machinery::limits;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use admission::Escalation;
pub use index::{Change, Index, Kind};
pub use rule::PolicyRule;
pub use usage::Usage;

/// How the reason of what is allowed begins.
const ALLOWED: &str = "RBAC: allowed by";

/// The authorizer.
#[derive(Debug, Default)]
pub struct Rbac {
    index: ArcSwap<Index>,
    /// Writers one after the other; readers never wait.
    writing: Mutex<()>,
    usage: Usage,
}

impl Rbac {
    /// An authorizer that allows nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes in what changed, all at once.
    pub fn apply<'a>(&self, changes: impl IntoIterator<Item = Change<'a>>) {
        let _writing = self.writing.lock();
        let mut index = Index::clone(&self.index.load());
        for change in changes {
            index.apply(&change);
        }
        self.index.store(Arc::new(index));
    }

    /// Replaces everything of a kind by these objects (after a new list).
    pub fn replace<'a>(&self, kind: Kind, objects: impl IntoIterator<Item = &'a Value>) {
        let _writing = self.writing.lock();
        let mut index = Index::clone(&self.index.load());
        index.clear(kind);
        for object in objects {
            index.apply(&Change::put(kind, object));
        }
        self.index.store(Arc::new(index));
    }

    /// Who uses which rules, while it is recorded.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The current index.
    pub fn index(&self) -> Arc<Index> {
        self.index.load_full()
    }
}

#[async_trait::async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.index.load().decide(attributes)
    }

    fn used(&self, attributes: &Attributes<'_>, reason: &str) {
        // Another authorizer may have allowed it before this one was asked.
        if self.usage.records() && reason.starts_with(ALLOWED) {
            let index = self.index.load();
            if let Some(found) = index.matched(attributes) {
                self.usage.record(attributes, &found);
            }
        }
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let index = self.index.load_full();
        let (rules, errors) = index.rules_for(user, namespace);
        let mut resolved = ResolvedRules {
            evaluation_error: index::aggregate(&errors),
            ..ResolvedRules::default()
        };
        let mut bytes = 0usize;
        for rule in rules {
            bytes = bytes.saturating_add(rule.bytes());
            if bytes > limits::RESOLVED_RULES_BYTES {
                resolved.incomplete = true;
                if !resolved.evaluation_error.is_empty() {
                    resolved.evaluation_error.push_str(", ");
                }
                resolved.evaluation_error.push_str("too many rules to list");
                break;
            }
            if !rule.resources.is_empty() {
                let mut value =
                    json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
                if !rule.resource_names.is_empty() {
                    value["resourceNames"] = json!(rule.resource_names);
                }
                resolved.resource_rules.push(value);
            }
            if !rule.non_resource_urls.is_empty() {
                let value = json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls});
                resolved.non_resource_rules.push(value);
            }
        }
        resolved
    }
}

#[cfg(test)]
mod tests;
