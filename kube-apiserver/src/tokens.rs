//! Bearer tokens: those that objects of the built-in kinds stand behind (service account tokens and bootstrap tokens), and those of other
//! issuers.

pub mod bootstrap_token;
mod es512;
mod jws;
pub mod jwt;
mod secret;
pub mod service_account;

use machinery::time::Timestamp;

/// The kind of object that a token depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenObjectKind {
    /// `serviceaccounts`.
    ServiceAccount,
    /// `secrets`.
    Secret,
    /// `pods`.
    Pod,
    /// `nodes`.
    Node,
}

/// Finds the objects that tokens depend on, in memory.
#[async_trait::async_trait]
pub trait TokenObjects: Send + Sync + std::fmt::Debug {
    /// The object as JSON; `None` when there is none.
    ///
    /// # Errors
    /// When it is unknown; the token fails then.
    async fn get(
        &self,
        kind: TokenObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<serde_json::Value>, String>;

    /// Writes down that the token in a secret is used on a day. A failure is logged; the token holds all the same.
    async fn used(&self, namespace: &str, secret: &str, day: &str);
}

/// The label of a secret with the day on which its token was used last.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

/// The day of a moment in UTC, `2006-01-02`.
pub(crate) fn day_of(moment: Timestamp) -> String {
    let mut text = moment.to_rfc3339();
    text.truncate("2006-01-02".len());
    text
}
