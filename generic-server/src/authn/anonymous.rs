//! Requests without credentials: `system:anonymous`, where the operator allows it.

use std::sync::Arc;

use http::header;
use http::request::Parts;

use super::{Authenticator, Verdict};
use crate::request::{CredentialNotes, User};

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
        let notes = extra_space(head).map(|warning| {
            Arc::new(CredentialNotes {
                warnings: vec![warning.to_string()],
                ..CredentialNotes::default()
            })
        });
        Verdict::User(User { notes, ..user() })
    }
}

/// What to tell whoever brings a token that is not taken, because there is more than one space before it.
fn extra_space(head: &Parts) -> Option<&'static str> {
    let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.splitn(3, ' ');
    let is_meant = words.next()?.eq_ignore_ascii_case("bearer") && words.next()?.is_empty();
    (is_meant && words.next().is_some()).then_some(
        "the provided Authorization header contains extra space before the bearer token, and is ignored",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_behind_two_spaces_is_warned_of() {
        #[track_caller]
        fn check(value: &str, warned: bool) {
            let request = http::Request::get("/").header(header::AUTHORIZATION, value);
            let (head, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(extra_space(&head).is_some(), warned, "{value}");
        }
        check("Bearer  t", true);
        check("bearer   t", true);
        check("Bearer t", false);
        check("Bearer ", false);
        check("Basic  t", false);
    }
}
