//! Authentication: authenticators look at a request's head and say user, no opinion, or a failed credential.

use std::fmt;
use std::sync::Arc;

use crate::request::{CredentialNotes, User};

pub mod anonymous;
pub mod bearer;
pub mod issued;
pub mod request_header;
pub mod token_cache;
pub mod token_file;
pub mod token_metrics;
pub mod union;
pub mod x509;

/// The verdict of an authenticator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The request carries nothing for this authenticator.
    NotRequested,
    /// It carries an invalid credential: 401, unless another authenticator accepts the request. The text is for the log.
    Failed(Refusal),
    /// It is this user.
    User(User),
}

/// Why a credential is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// What auditing records of the credential all the same, if anything.
    pub notes: Option<Arc<CredentialNotes>>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal { why, notes: None }
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        why.to_string().into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// One way of finding the user of a request.
#[async_trait::async_trait]
pub trait Authenticator: Send + Sync + std::fmt::Debug {
    /// Looks at the head: headers, and the connection's facts (such as the client certificate) in its extensions.
    async fn authenticate(&self, head: &http::request::Parts) -> Verdict;
}

/// Finds the user of a token, for the bearer authenticator and TokenReview.
#[async_trait::async_trait]
pub trait TokenAuthenticator: Send + Sync + std::fmt::Debug {
    /// `audiences` empty: the server's own. Gives the user and the audiences that hold.
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict;
}

/// The verdict on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenVerdict {
    /// Not of this authenticator's kind.
    NotMine,
    /// Of its kind, but invalid; for the log and TokenReview's `status.error`.
    Failed(Refusal),
    /// It is this user, for these audiences.
    User(User, Vec<String>),
}

/// Namespace and name of `system:serviceaccount:NAMESPACE:NAME`.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fine = |text: &str| !text.is_empty() && !text.contains(':');
    (fine(namespace) && fine(name)).then_some((namespace, name))
}

/// For credentials that know no audiences: those of the server that were asked for, all when none were. `None` when the
/// server is not meant at all.
pub fn server_audiences(own: &[String], asked: &[String]) -> Option<Vec<String>> {
    if asked.is_empty() {
        return Some(own.to_vec());
    }
    let both: Vec<String> = own.iter().filter(|a| asked.contains(a)).cloned().collect();
    (!both.is_empty()).then_some(both)
}
