//! The audit annotations about a webhook that was asked, under upstream's keys.

use serde_json::{Value, json};

use crate::request::RequestContext;
use crate::request::audit::Level;

/// A call of a webhook: which one, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) configuration: &'a str,
    pub(super) webhook: &'a str,
    /// Zero, or one when webhooks are asked again.
    pub(super) round: usize,
    /// Among the webhooks of the phase.
    pub(super) index: usize,
}

impl Call<'_> {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}/round_{}_index_{}", self.round, self.index)
    }

    /// A mutating webhook has answered, or failed.
    pub(super) fn asked(&self, context: &RequestContext, mutated: bool) {
        context.annotate(|| {
            let value =
                json!({"configuration": self.configuration, "webhook": self.webhook, "mutated": mutated});
            (self.key("mutation.webhook.admission.k8s.io"), value.to_string())
        });
    }

    /// A mutating webhook's patch was applied. It holds parts of the object, which the lower levels do not.
    pub(super) fn patched(&self, context: &RequestContext, patch: &Value) {
        if context.audit().is_none_or(|audit| audit.level() < Level::Request) {
            return;
        }
        context.annotate(|| {
            let value = json!({"configuration": self.configuration, "webhook": self.webhook, "patch": patch, "patchType": "JSONPatch"});
            (self.key("patch.webhook.admission.k8s.io"), value.to_string())
        });
    }

    /// A webhook cannot be reached, and the write goes on because it may bring it back.
    pub(super) fn broke_glass(&self, context: &RequestContext, phase: &str) {
        let prefix = format!("break-glass.{phase}.webhook.admission.k8s.io");
        context.annotate(|| (self.key(&prefix), self.webhook));
        context.warn(format!(
            "admission webhook \"{}\" was not asked: nothing of its service is up, and this write may bring it back",
            self.webhook
        ));
    }

    /// A webhook failed, and the write goes on.
    pub(super) fn failed_open(&self, context: &RequestContext, phase: &str) {
        let prefix = format!("failed-open.{phase}.webhook.admission.k8s.io");
        context.annotate(|| (self.key(&prefix), self.webhook));
    }
}
