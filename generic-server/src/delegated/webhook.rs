//! `--authentication-token-webhook-config-file`: a server outside the cluster that authenticates bearer tokens, through
//! TokenReviews.
//!
//! Mirrors upstream's `authenticator/token/webhook`.

use serde_json::{Value, json};

use super::answer::is_of_kind;
use super::client::KubeClient;
use super::retry::{self, Pauses};
use super::token_review::ReviewStatus;
use crate::authn::{TokenAuthenticator, TokenVerdict, server_audiences};

/// The form of the TokenReviews that the webhook takes and gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authentication.k8s.io/v1`.
    V1,
    /// `authentication.k8s.io/v1beta1`, which says the same in the same fields.
    V1beta1,
}

impl ReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "authentication.k8s.io/v1",
            ReviewVersion::V1beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// Authenticates tokens by a webhook: it gives a user, no opinion (`NotMine`) for a token that it does not know, or a failure when
/// it cannot be asked. Put [`super::Lookups`] before it, and a [`crate::authn::token_cache::TokenCache`] before these.
#[derive(Debug)]
pub struct TokenWebhook {
    client: KubeClient,
    version: ReviewVersion,
    /// The audiences of tokens when the webhook names none.
    audiences: Vec<String>,
    pauses: Pauses,
}

impl TokenWebhook {
    /// A webhook at the very URL that the client's kubeconfig names. `audiences`: those of this server.
    pub fn new(client: KubeClient, version: ReviewVersion, audiences: Vec<String>) -> Self {
        TokenWebhook {
            client,
            version,
            audiences,
            pauses: Pauses::default(),
        }
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for TokenWebhook {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let wanted = match audiences {
            [] => &self.audiences[..],
            asked => asked,
        };
        let review = json!({
            "apiVersion": self.version.api_version(), "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token, "audiences": wanted},
            "status": {"user": {}},
        });
        let answer = retry::with_pauses(self.pauses, || self.client.create("", &review)).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let url = self.client.server();
                tracing::error!(url, %error, "failed to make webhook authenticator request");
                return TokenVerdict::Failed(format!("token webhook: {error}").into());
            }
        };
        verdict(self.version, &self.audiences, wanted, &answer)
    }
}

/// The verdict of a TokenReview's status, on a token asked about for these audiences.
fn verdict(version: ReviewVersion, own: &[String], wanted: &[String], answer: &Value) -> TokenVerdict {
    let status =
        is_of_kind(answer, version.api_version(), "TokenReview").and_then(|()| ReviewStatus::of(answer));
    let status = match status {
        Ok(status) => status,
        Err(why) => return TokenVerdict::Failed(why.into()),
    };
    let good_for = match status.audiences.is_empty() {
        true => server_audiences(own, wanted),
        false => server_audiences(&status.audiences, wanted),
    };
    match good_for {
        Some(good_for) if status.authenticated => TokenVerdict::User(status.user.into(), good_for),
        _ if status.error.is_empty() => TokenVerdict::NotMine,
        _ => TokenVerdict::Failed(status.error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn answers_are_judged() {
        /// Of a server with the audiences `a` and `b`, which is asked for one of `wanted`.
        #[track_caller]
        fn check(wanted: &[&str], answer: &Value, expected: Result<Option<(&str, &[&str])>, &str>) {
            let verdict = verdict(ReviewVersion::V1, &texts(&["a", "b"]), &texts(wanted), answer);
            match (verdict, expected) {
                (TokenVerdict::User(user, given), Ok(Some((name, audiences)))) => {
                    assert_eq!((user.name.as_str(), given), (name, texts(audiences)), "{answer}");
                }
                (TokenVerdict::NotMine, Ok(None)) => {}
                (TokenVerdict::Failed(refusal), Err(expected)) => {
                    assert_eq!(refusal.why, expected, "{answer}")
                }
                (verdict, expected) => panic!("{answer}: {verdict:?} rather than {expected:?}"),
            }
        }
        let review = |status: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status});
        let good = |audiences: Value| {
            review(json!({"authenticated": true, "user": {"username": "u"}, "audiences": audiences}))
        };
        check(&["a"], &good(Value::Null), Ok(Some(("u", &["a"]))));
        check(&[], &good(Value::Null), Ok(Some(("u", &["a", "b"]))));
        check(&["a", "b"], &good(json!(["b", "c"])), Ok(Some(("u", &["b"]))));
        check(&["a"], &good(json!(["c"])), Ok(None));
        check(&["c"], &good(Value::Null), Ok(None));

        check(&["a"], &review(Value::Null), Ok(None));
        check(
            &["a"],
            &review(json!({"authenticated": false, "user": {"username": "u"}})),
            Ok(None),
        );
        check(
            &["a"],
            &review(json!({"authenticated": false, "error": ""})),
            Ok(None),
        );
        check(
            &["a"],
            &review(json!({"authenticated": false, "error": "expired"})),
            Err("expired"),
        );
        check(
            &["a"],
            &review(json!({"authenticated": true})),
            Ok(Some(("", &["a"]))),
        );

        let other =
            r#"the webhook answered "v1" "Status" rather than a TokenReview of authentication.k8s.io/v1"#;
        check(&["a"], &json!({"apiVersion": "v1", "kind": "Status"}), Err(other));
        let nothing = r#"the webhook answered "" "" rather than a TokenReview of authentication.k8s.io/v1"#;
        for answer in [
            Value::Null,
            json!([]),
            json!("x"),
            json!({"apiVersion": 1, "kind": true}),
        ] {
            check(&["a"], &answer, Err(nothing));
        }
        // As upstream takes it.
        let status = json!({"authenticated": true, "user": {"username": "u"}});
        check(&["a"], &json!({"status": status}), Ok(Some(("u", &["a"]))));
    }
}
