//! Asking a webhook, and what comes of a call that fails.

use std::time::Instant;

use bytes::Bytes;
use machinery::ApiError;
use serde_json::Value;

use super::hooks::{Hook, ServiceName};
use super::question::Question;
use super::review::{Answer, ReviewRequest, ReviewResponse};
use super::{Phase, Webhooks, notes, review};
use crate::admission::{Attributes, WebhookOutcome};
use crate::request::RequestContext;

/// The largest answer, in bytes: a patch of the largest object has room.
const MAX_ANSWER: usize = 8 << 20;

/// A call that did not come to an answer, or a refusal.
pub(super) enum Failure {
    /// By failure policy: an error, or nothing.
    Call(Missed),
    /// It could not be reached, and the write may bring it back.
    BrokeGlass(String),
    Refused(ApiError),
}

/// Why there is no answer to go by.
pub(super) struct Missed {
    /// The code of the answer.
    code: u16,
    why: String,
    /// No connection came about.
    unreachable: bool,
}

/// Decides which writes go on although a webhook cannot be reached that would refuse them for it: those that bring the webhook back.
#[async_trait::async_trait]
pub trait BreakGlass: Send + Sync + std::fmt::Debug {
    /// Whether a write may go on while no connection to this Service comes about.
    async fn lets_past(
        &self,
        service: &ServiceName,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> bool;
}

impl Webhooks {
    pub(super) async fn ask(
        &self,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<ReviewResponse, Failure> {
        let begun = Instant::now();
        let answer = self.call(hook, question, object).await;
        let took = begun.elapsed();
        let attributes = question.view.requested();
        let at_once = matches!(self.phase, Phase::Validating);
        attributes.authorized.context().webhook_took(at_once, took);
        let answer = match answer {
            Err(Failure::Call(missed)) if self.lets_past(hook, &missed, attributes, object).await => {
                self.metrics.broke_glass(&hook.name, self.phase.label());
                Err(Failure::BrokeGlass(missed.why))
            }
            answer => answer,
        };
        let outcome = match &answer {
            Ok(_) => WebhookOutcome::Allowed,
            Err(Failure::Refused(error)) => WebhookOutcome::Refused(error.code()),
            Err(Failure::Call(missed)) => WebhookOutcome::Failed {
                code: missed.code,
                rejected: !hook.ignore_failures,
                why: &missed.why,
            },
            Err(Failure::BrokeGlass(why)) => WebhookOutcome::Failed {
                code: 503,
                rejected: false,
                why,
            },
        };
        self.metrics.webhook(
            &hook.name,
            self.phase.label(),
            attributes.operation,
            outcome,
            took,
        );
        answer
    }

    /// Whether a write goes on although a webhook that is required cannot be reached.
    async fn lets_past(
        &self,
        hook: &Hook,
        missed: &Missed,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> bool {
        match (self.break_glass.get(), &hook.service) {
            (Some(rule), Some(service)) if missed.unreachable && !hook.ignore_failures => {
                let goes_on = rule.lets_past(service, attributes, object).await;
                if goes_on {
                    tracing::warn!(
                        webhook = hook.name,
                        why = missed.why,
                        user = attributes.authorized.user().name,
                        resource = %attributes.gvr,
                        subresource = attributes.subresource,
                        namespace = attributes.namespace,
                        name = attributes.name,
                        "a webhook cannot be reached; a write that may bring it back goes on"
                    );
                }
                goes_on
            }
            _ => false,
        }
    }

    async fn call(
        &self,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<ReviewResponse, Failure> {
        let attributes = question.view.requested();
        let object = question.own.as_ref().or(object);
        if attributes.dry_run && !hook.quiet {
            let text = format!("admission webhook \"{}\" does not support dry run", hook.name);
            return Err(Failure::Refused(ApiError::bad_request(text)));
        }
        let request =
            ReviewRequest::new(&hook.versions, &question.view, object).map_err(|why| missed(400, why))?;
        let body = Bytes::from(request.body.to_string());
        let review = hook
            .client
            .post(body, hook.timeout, MAX_ANSWER)
            .await
            .map_err(|error| {
                Failure::Call(Missed {
                    code: error.code,
                    why: format!("failed to call webhook: {error}"),
                    unreachable: error.unreachable,
                })
            })?;
        let answer =
            Answer::of(&review).map_err(|why| missed(503, format!("failed to call webhook: {why}")))?;
        let answer = request
            .read(&answer, self.phase == Phase::Mutating)
            .map_err(|why| missed(503, format!("received invalid webhook response: {why}")))?;
        let context = attributes.authorized.context();
        for (key, value) in &answer.annotations {
            context.annotate(|| (format!("{}/{key}", hook.name), value));
        }
        for warning in &answer.warnings {
            context.warn(warning.clone());
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(Failure::Refused(review::refusal(&hook.name, answer.status))),
        }
    }

    /// The consequence of a failed call for the write.
    pub(super) fn apply_failure_policy(
        &self,
        hook: &Hook,
        failure: Failure,
        call: &notes::Call<'_>,
        context: &RequestContext,
    ) -> Result<(), ApiError> {
        let phase = match self.phase {
            Phase::Mutating => "mutation",
            Phase::Validating => "validating",
        };
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::BrokeGlass(_) => {
                call.broke_glass(context, phase);
                Ok(())
            }
            Failure::Call(Missed { why, .. }) if hook.ignore_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write goes on"
                );
                call.failed_open(context, phase);
                self.metrics.failed_open(&hook.name, self.phase.label());
                Ok(())
            }
            Failure::Call(Missed { why, .. }) => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write is refused"
                );
                Err(ApiError::internal(format!(
                    "failed calling webhook \"{}\": {why}",
                    hook.name
                )))
            }
        }
    }
}

fn missed(code: u16, why: String) -> Failure {
    Failure::Call(Missed {
        code,
        why,
        unreachable: false,
    })
}
