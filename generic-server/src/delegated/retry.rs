//! Asking a webhook again while it fails.

use std::time::Duration;

use http::StatusCode;

use serde_json::Value;

use super::client::{ClientError, KubeClient};
use crate::client::SendError;

/// How often one question is asked while the webhook fails. Upstream's figure.
const ATTEMPTS: u32 = 5;
/// How much longer each further pause is: by half, as upstream's.
const GROWTH: f32 = 1.5;

/// The first pause before a question is asked again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses(pub(crate) Duration);

impl Default for Pauses {
    /// Upstream's.
    fn default() -> Self {
        Pauses(Duration::from_millis(500))
    }
}

/// Sends a review to a path below the URL of a webhook's kubeconfig and gives the answer, after further attempts while connections break or
/// the webhook is overloaded. `pause` comes before the second attempt, and grows.
///
/// # Errors
/// That of the last attempt.
pub async fn review(
    client: &KubeClient,
    path: &str,
    review: &Value,
    pause: Duration,
) -> Result<Value, ClientError> {
    with_pauses(Pauses(pause), || client.create(path, review)).await
}

/// The answer, after further attempts while connections break or the webhook is overloaded.
pub(super) async fn with_pauses<T, F: Future<Output = Result<T, ClientError>>>(
    pauses: Pauses,
    ask: impl FnMut() -> F,
) -> Result<T, ClientError> {
    while_failing(pauses, passes, ask).await
}

/// The same, after further attempts whatever the error is.
pub(crate) async fn in_any_case<T, F: Future<Output = Result<T, ClientError>>>(
    pauses: Pauses,
    ask: impl FnMut() -> F,
) -> Result<T, ClientError> {
    while_failing(pauses, |_| true, ask).await
}

async fn while_failing<T, F: Future<Output = Result<T, ClientError>>>(
    pauses: Pauses,
    passes: impl Fn(&ClientError) -> bool,
    mut ask: impl FnMut() -> F,
) -> Result<T, ClientError> {
    let mut pause = pauses.0;
    for _ in 1..ATTEMPTS {
        match ask().await {
            Err(error) if passes(&error) => {
                tokio::time::sleep(pause).await;
                pause = pause.mul_f32(GROWTH);
            }
            answer => return answer,
        }
    }
    ask().await
}

/// Whether the same question may be answered a moment later.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Credentials(_) | ClientError::TimedOut(_) => false,
        // As upstream: a connection that breaks is tried again, one that is refused is not.
        ClientError::Unreachable(error) => !error
            .downcast_ref::<SendError>()
            .is_some_and(|error| error.is_connect),
        ClientError::Status(status, _) => matches!(
            *status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Fault;

    #[test]
    fn some_failures_pass() {
        #[track_caller]
        fn check(error: &ClientError, expected: bool) {
            assert_eq!(passes(error), expected, "{error}");
        }
        let status = |status| ClientError::Status(status, String::new());
        check(&ClientError::Unreachable("gone".into()), true);
        check(&ClientError::TimedOut(Fault("late".into())), false);
        check(&status(StatusCode::TOO_MANY_REQUESTS), true);
        check(&status(StatusCode::INTERNAL_SERVER_ERROR), true);
        check(&status(StatusCode::GATEWAY_TIMEOUT), true);
        check(&status(StatusCode::UNAUTHORIZED), false);
        check(&status(StatusCode::SERVICE_UNAVAILABLE), false);
        check(&ClientError::Credentials("no key".into()), false);
    }
}
