//! `--authentication-token-webhook-config-file`: a server outside the cluster that authenticates bearer tokens, through
//! TokenReviews.
//!
//! Mirrors upstream's `authenticator/token/webhook`.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::authn::{strings, user_of};
use super::client::{ClientError, KubeClient};
use crate::authn::{TokenAuthenticator, TokenVerdict, server_audiences};

/// How often one token is asked about while the webhook fails, and the pause after the first time. Both are upstream's.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How much longer each further pause is: by half.
const GROWTH: f32 = 1.5;

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
/// it cannot be asked. Put a [`crate::authn::token_cache::TokenCache`] before it.
#[derive(Debug)]
pub struct TokenWebhook {
    client: KubeClient,
    version: ReviewVersion,
    /// The audiences of tokens when the webhook names none.
    audiences: Vec<String>,
    first_pause: Duration,
}

impl TokenWebhook {
    /// A webhook at the very URL that the client's kubeconfig names. `audiences`: those of this server.
    pub fn new(client: KubeClient, version: ReviewVersion, audiences: Vec<String>) -> Self {
        TokenWebhook {
            client,
            version,
            audiences,
            first_pause: FIRST_PAUSE,
        }
    }

    /// The answer, after further attempts while the webhook is unreachable or overloaded.
    async fn ask(&self, review: &Value) -> Result<Value, ClientError> {
        let mut pause = self.first_pause;
        for _ in 1..ATTEMPTS {
            match self.client.create("", review).await {
                Err(error) if passes(&error) => {
                    tokio::time::sleep(pause).await;
                    pause = pause.mul_f32(GROWTH);
                }
                answer => return answer,
            }
        }
        self.client.create("", review).await
    }
}

/// Whether the same question may be answered a moment later.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Credentials(_) => false,
        ClientError::Unreachable(_) => true,
        ClientError::Status(status, _) => {
            *status == StatusCode::TOO_MANY_REQUESTS || *status == StatusCode::INTERNAL_SERVER_ERROR
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
            "metadata": {"creationTimestamp": null},
            "spec": {"token": token, "audiences": wanted},
            "status": {"user": {}},
        });
        let answer = match self.ask(&review).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "failed to make webhook authenticator request");
                return TokenVerdict::Failed(error.to_string());
            }
        };
        let named = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
        if (named("apiVersion"), named("kind")) != (self.version.api_version(), "TokenReview") {
            return TokenVerdict::Failed(format!(
                "the webhook answered {:?} {:?} rather than a TokenReview of {}",
                named("apiVersion"),
                named("kind"),
                self.version.api_version()
            ));
        }
        let status = answer.get("status").unwrap_or(&Value::Null);
        let given = strings(status.get("audiences"));
        let good_for = match given.is_empty() {
            true => server_audiences(&self.audiences, wanted),
            false => server_audiences(&given, wanted),
        };
        let (true, Some(good_for)) = (
            status.get("authenticated").and_then(Value::as_bool) == Some(true),
            good_for,
        ) else {
            return match status.get("error").and_then(Value::as_str) {
                Some(why) if !why.is_empty() => TokenVerdict::Failed(why.to_owned()),
                _ => TokenVerdict::NotMine,
            };
        };
        TokenVerdict::User(user_of(status.get("user").unwrap_or(&Value::Null)), good_for)
    }
}
