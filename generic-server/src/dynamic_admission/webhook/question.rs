//! Which writes a webhook is asked about, in which version, and what its patch makes of one.

use std::time::Instant;

use machinery::meta;
use machinery::patch::PatchError;
use machinery::{ApiError, FieldError, FieldPath};
use serde_json::Value;

use super::Webhooks;
use super::hooks::{Configuration, Hook, scope};
use crate::admission::{Attributes, ConditionLabels};
use crate::cpu;
use crate::dynamic_admission::checks::RequestAuthorizer;
use crate::dynamic_admission::configuration as of_plugin;
use crate::dynamic_admission::expression::{Conditions, Hosts, Input, Matched, request_value};
use crate::dynamic_admission::matching::Namespaces;
use crate::dynamic_admission::view::View;

/// A write as a webhook is asked about it.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) view: View<'a>,
    /// The object, where it is in another version than the request's.
    pub(super) own: Option<Value>,
}

impl Webhooks {
    /// The question about a write for a webhook that is to be asked about it.
    pub(super) async fn applies<'a>(
        &self,
        configuration: &Configuration,
        hook: &Hook,
        requested: &'a Attributes<'a>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<Option<Question<'a>>, ApiError> {
        let Some(target) = hook.matcher.matches(requested, object, namespaces).await? else {
            return Ok(None);
        };
        let internal = |error: ApiError| ApiError::internal(error.message());
        let view = View::new(target, requested).await.map_err(internal)?;
        let own = view.converted(object).await.map_err(internal)?;
        let question = Question { view, own };
        let wanted = self.wants(configuration, hook, &question, object).await?;
        Ok(wanted.then_some(question))
    }

    /// Whether the conditions of a webhook hold.
    async fn wants(
        &self,
        configuration: &Configuration,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let Some(index) = hook.conditions else {
            return Ok(true);
        };
        let (attributes, requested) = (&question.view.attributes(), question.view.requested());
        let object = question.own.as_ref().or(object);
        let all = of_plugin(&configuration.conditions, attributes, object).await?;
        let Some(conditions) = all.get(index) else {
            return Ok(true);
        };
        let request = request_value(attributes, requested);
        let authorizer = RequestAuthorizer::of(requested, &self.authorizer);
        let input = Input {
            object,
            old: attributes.old,
            request: &request,
            namespace: None,
            params: None,
            authorizer: &authorizer,
        };
        let begun = Instant::now();
        let hosts = Hosts {
            lazy: None,
            authorizer: &authorizer,
        };
        let bindings = input.bindings();
        let matched = conditions.matches(&bindings, hosts).await;
        let labels = ConditionLabels {
            kind: "webhook",
            phase: self.phase.label(),
        };
        let (held, took) = (matched.held(), begun.elapsed());
        self.metrics
            .conditions(&hook.name, labels, attributes.operation, held, took);
        match matched {
            Matched::Yes => Ok(true),
            Matched::No => Ok(false),
            Matched::Failed(_) if hook.ignore_failures => Ok(false),
            Matched::Failed(why) => Err(ApiError::forbidden(
                &attributes.gvr.group_resource(),
                attributes.name,
                why,
            )),
        }
    }
}

/// Applies a webhook's patch. False when it changes nothing.
pub(super) async fn patch(
    hook: &Hook,
    question: Question<'_>,
    object: Option<&mut Value>,
    patch: &Value,
) -> Result<bool, ApiError> {
    if patch.as_array().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let Some(object) = object else {
        return Err(ApiError::internal(format!(
            "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    };
    let Question { view, own } = question;
    let before = own.as_ref().unwrap_or(object);
    let patched = machinery::patch::json::apply(before, patch).map_err(|error| match error {
        PatchError::BadRequest(text) | PatchError::TooLarge(text) | PatchError::Internal(text) => {
            ApiError::internal(text)
        }
        PatchError::Unprocessable(text) => ApiError::internal(text),
    })?;
    // What a patch takes away is taken as it was.
    let is_other = |new: &str, old: &str| !new.is_empty() && new != old;
    let (version, kind) = (meta::api_version(&patched), meta::kind(&patched));
    if is_other(version, meta::api_version(before)) || is_other(kind, meta::kind(before)) {
        return Err(ApiError::internal(format!(
            "admission webhook \"{}\" attempted to make the object a {kind} of {version}",
            hook.name
        )));
    }
    let patched = view.attributes().reread(patched)?;
    let changed = patched != *before;
    if changed {
        *object = view.back(patched).await?;
    }
    Ok(changed)
}

/// The errors of the expressions of a configuration's `matchConditions`, for its own admission. Compiles in slices.
pub async fn condition_faults(configuration: &Value) -> Vec<FieldError> {
    let env = scope().env().build();
    let list = |value: &'_ Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut found = Vec::new();
    let path = FieldPath::new("webhooks");
    for (index, hook) in list(configuration, "webhooks").iter().enumerate() {
        let mut conditions = Conditions::default();
        for condition in list(hook, "matchConditions") {
            conditions.push(&condition, &env);
            cpu::slice().await;
        }
        found.extend(conditions.faults(&path.index(index).child("matchConditions")));
    }
    found
}
