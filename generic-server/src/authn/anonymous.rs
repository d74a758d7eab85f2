//! Requests without credentials: `system:anonymous`, where the operator allows it.

use http::request::Parts;

use super::{Authenticator, Verdict};
use crate::request::User;

/// The user name of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of users without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of users with accepted credentials.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Says `system:anonymous` to every request, or only to those for certain paths.
#[derive(Debug, Clone, Default)]
pub struct Anonymous {
    /// Paths that anonymous requests may ask for; empty for all.
    pub paths: Vec<String>,
}

/// The anonymous user.
pub fn user() -> User {
    User {
        name: ANONYMOUS.into(),
        groups: vec![UNAUTHENTICATED.into()],
        ..User::default()
    }
}

#[async_trait::async_trait]
impl Authenticator for Anonymous {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        if !self.paths.is_empty() && !self.paths.iter().any(|path| path == head.uri.path()) {
            return Verdict::NotRequested;
        }
        Verdict::User(user())
    }
}
