//! Who may load the page's files: everybody who is authenticated, as with upstream's paths that are always allowed.

use std::sync::Arc;

use generic_server::User;
use generic_server::authz::{Attributes, Authorizer, Decision, ResolvedRules};

/// Allows reading the page's files, and leaves all else to the authorizer in it.
#[derive(Debug)]
pub(crate) struct PagePaths(pub(crate) Arc<dyn Authorizer>);

fn is_page(attributes: &Attributes<'_>) -> bool {
    let below = attributes.path.strip_prefix(super::PATH);
    !attributes.is_resource
        && matches!(attributes.verb, "get" | "head")
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[async_trait::async_trait]
impl Authorizer for PagePaths {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if is_page(attributes) {
            return Decision::Allow(String::new());
        }
        self.0.authorize(attributes).await
    }

    fn used(&self, attributes: &Attributes<'_>, reason: &str) {
        self.0.used(attributes, reason);
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        self.0.rules_for(user, namespace).await
    }
}
