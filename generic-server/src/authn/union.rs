//! Several authenticators as one, in upstream's order and with upstream's rule for failures.

use std::sync::Arc;

use http::request::Parts;
use machinery::go;

use super::anonymous::{ANONYMOUS, AUTHENTICATED, Anonymous, UNAUTHENTICATED};
use super::{Authenticator, Refusal, TokenAuthenticator, TokenVerdict, Verdict};
use crate::request::User;

/// The server's authentication: every way of showing a credential, then, when none was shown, anonymous if allowed.
///
/// A credential that fails does not end the search (another authenticator may know it), but it does rule out anonymous.
#[derive(Debug)]
pub struct Authentication {
    ways: Vec<Arc<dyn Authenticator>>,
    anonymous: Option<Anonymous>,
}

impl Authentication {
    /// The ways in order: request header, x509, bearer tokens.
    pub fn new(ways: Vec<Arc<dyn Authenticator>>, anonymous: Option<Anonymous>) -> Self {
        Authentication { ways, anonymous }
    }
}

#[async_trait::async_trait]
impl Authenticator for Authentication {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        let (mut failures, mut notes) = (Vec::new(), None);
        for way in &self.ways {
            match way.authenticate(head).await {
                Verdict::NotRequested => {}
                Verdict::Failed(refusal) => {
                    failures.push(refusal.why);
                    notes = notes.or(refusal.notes);
                }
                Verdict::User(user) => return Verdict::User(with_standard_group(user)),
            }
        }
        if !failures.is_empty() {
            let why = failures.join(", ");
            return Verdict::Failed(Refusal { why, notes });
        }
        match &self.anonymous {
            Some(anonymous) => anonymous.authenticate(head).await,
            None => Verdict::NotRequested,
        }
    }
}

/// Adds `system:authenticated` to everybody who is not anonymous and has neither of the two groups.
pub fn with_standard_group(mut user: User) -> User {
    if user.name != ANONYMOUS && !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

/// Several token authenticators as one: the first that knows the token.
#[derive(Debug, Default)]
pub struct TokenUnion(pub Vec<Arc<dyn TokenAuthenticator>>);

#[async_trait::async_trait]
impl TokenAuthenticator for TokenUnion {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let (mut failures, mut notes) = (Vec::new(), None);
        for one in &self.0 {
            match one.authenticate_token(token, audiences).await {
                TokenVerdict::NotMine => {}
                TokenVerdict::Failed(refusal) => {
                    failures.push(refusal.why);
                    notes = notes.or(refusal.notes);
                }
                found @ TokenVerdict::User(..) => return found,
            }
        }
        if failures.is_empty() {
            return TokenVerdict::NotMine;
        }
        let why = go::aggregate(&failures).into_owned();
        TokenVerdict::Failed(Refusal { why, notes })
    }
}
