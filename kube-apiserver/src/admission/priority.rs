//! Priority: turns a pod's priority class into its number, and lets one class at most be everybody's.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::{At, Client};
use crate::json::Json;

const CLASSES: At<'static> = ("scheduling.k8s.io", "priorityclasses");

#[derive(Debug)]
pub(super) struct Priority(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && subresource.is_empty()
            && (is(gvr, "", "pods") || is(gvr, CLASSES.0, CLASSES.1))
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object.filter(|_| is(attributes.gvr, "", "pods")) else {
            return Ok(());
        };
        if attributes.operation == Operation::Update {
            if let Some(old) = attributes.old {
                let spec = pod.ensure("spec");
                for key in ["priority", "preemptionPolicy"] {
                    if !spec.has(key) && old.dig("spec").has(key) {
                        spec.copy_key(key, old.dig("spec"));
                    }
                }
            }
            return Ok(());
        }
        let name = pod.text("spec.priorityClassName").to_string();
        let class = match name.as_str() {
            "" => self.default_class().await?,
            name => {
                let found = self.0.find(CLASSES, "", name).await?;
                Some(found.ok_or_else(|| {
                    let why = format!("no PriorityClass with name {name} was found");
                    forbidden(attributes, Some(pod), why)
                })?)
            }
        };
        let value = class.as_ref().and_then(|c| c.int("value")).unwrap_or_default();
        let policy = match &class {
            None => "PreemptLowerPriority".to_string(),
            Some(class) => class.text("preemptionPolicy").to_string(),
        };
        if let Some(given) = pod.int("spec.priority").filter(|given| *given != value) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            );
            return Err(forbidden(attributes, Some(pod), why));
        }
        let given = pod.dig("spec.preemptionPolicy").as_str().unwrap_or(&policy);
        if !policy.is_empty() && given != policy {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(forbidden(attributes, Some(pod), why));
        }
        let spec = pod.ensure("spec");
        if let Some(class) = &class {
            spec.put("priorityClassName", meta::name(class));
        }
        spec.put("priority", value);
        if !policy.is_empty() {
            spec.put("preemptionPolicy", policy);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(class) =
            object.filter(|o| is(attributes.gvr, CLASSES.0, CLASSES.1) && o.flag("globalDefault"))
        else {
            return Ok(());
        };
        match self.default_class().await? {
            Some(other) if meta::name(&other) != meta::name(class) => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    meta::name(&other)
                );
                Err(forbidden(attributes, Some(class), why))
            }
            _ => Ok(()),
        }
    }
}

impl Priority {
    /// The class of pods that name none: of several the one with the lowest value.
    async fn default_class(&self) -> Result<Option<Value>, ApiError> {
        let classes = self.0.list_readable(CLASSES, "").await?;
        let defaults = classes
            .iter()
            .filter(|class| class.mentions("globalDefault"))
            .map(|class| class.value())
            .filter(|c| c.flag("globalDefault"));
        Ok(defaults.min_by_key(|c| c.int("value").unwrap_or_default()))
    }
}
