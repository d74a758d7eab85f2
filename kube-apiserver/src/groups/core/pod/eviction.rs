//! `pods/eviction`: deletes a pod if its disruption budget allows that.

use generic_server::ApiError;
use generic_server::resource::{Answer, CreateCall, NamedCreate};
use generic_server::write::{DeleteOptions, Preconditions};
use machinery::names::options::validate_delete_options;
use machinery::selector::LabelSelector;
use machinery::time::Timestamp;
use machinery::{Cause, FieldPath, GroupKind, GroupResource, GroupVersionKind, Map, meta};
use serde_json::{Value, json};

use crate::client::Client;
use crate::errors::Errors;
use crate::json::Json;

/// The subresource.
#[derive(Debug)]
pub(crate) struct Eviction(pub(crate) Client);

#[async_trait::async_trait]
impl NamedCreate for Eviction {
    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("policy", "v1", "Eviction")
    }

    fn other_versions(&self) -> &'static [&'static str] {
        &["policy/v1beta1"]
    }

    async fn create(&self, call: &CreateCall<'_>, eviction: Value) -> Result<Answer, ApiError> {
        check(&eviction, call.name)?;
        let dry = is_dry_run(&eviction, call.dry_run)?;
        let admitted = call.validate(&eviction).await?;
        let pods = GroupResource::new("", "pods");
        let pod = self.0.find(("", "pods"), call.namespace, call.name).await?;
        let pod = pod.ok_or_else(|| ApiError::not_found(&pods, call.name))?;
        let ignores_budget = matches!(pod.text("status.phase"), "Succeeded" | "Failed" | "Pending")
            || meta::deletion_timestamp(&pod).is_some();
        if !ignores_budget {
            self.spend(call.namespace, &pod, dry).await?;
        }
        let options = eviction.dig("deleteOptions");
        if let Some(options) = options.as_object() {
            let errors = validate_delete_options(options);
            if !errors.is_empty() {
                let kind = GroupKind::new("meta.k8s.io", "DeleteOptions");
                return Err(ApiError::invalid(&kind, "", &errors));
            }
        }
        let options = delete_options(options);
        self.0.disrupt(call.namespace, call.name, &options, dry).await?;
        Ok(admitted.done())
    }
}

fn check(eviction: &Value, name: &str) -> Result<(), ApiError> {
    if meta::name(eviction) != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let errors = Errors::collect(|errors| {
        let key = "ignoreStoreReadErrorWithClusterBreakingPotential";
        if eviction.dig("deleteOptions").flag(key) {
            let path = FieldPath::new("deleteOptions");
            let text = "can not be set for pod eviction, try after removing the option";
            errors.invalid(&path.child(key), true, text);
        }
    });
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let kind = GroupKind::new("policy", "Eviction");
            Err(ApiError::invalid(&kind, name, &errors))
        }
    }
}

/// Whether the query or the posted options ask for a dry run; 500 when they disagree, as upstream has it.
fn is_dry_run(eviction: &Value, asked: bool) -> Result<bool, ApiError> {
    let own: Vec<&str> = eviction.strings("deleteOptions.dryRun").collect();
    // The query has been validated: all that it can say is `All`.
    if asked && !own.is_empty() && own != ["All"] {
        return Err(ApiError::raw_internal(format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            own.join(" ")
        )));
    }
    Ok(asked || !own.is_empty())
}

fn delete_options(options: &Value) -> DeleteOptions {
    let text = |path: &str| Some(options.text(path).to_string()).filter(|t| !t.is_empty());
    DeleteOptions {
        grace: options.int("gracePeriodSeconds"),
        preconditions: Preconditions {
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
        },
        orphan_dependents: options.dig("orphanDependents").as_bool(),
        propagation: text("propagationPolicy"),
        ..DeleteOptions::default()
    }
}

impl Eviction {
    /// Takes one disruption from the pod's budget, where it has one.
    async fn spend(&self, namespace: &str, pod: &Value, dry: bool) -> Result<(), ApiError> {
        let empty = Map::new();
        let labels = meta::labels(pod).unwrap_or(&empty);
        let budgets = self.0.list(("policy", "poddisruptionbudgets"), namespace).await?;
        let mut matching = budgets.iter().map(|entry| entry.value()).filter(|budget| {
            let selector = budget.dig("spec.selector");
            !selector.is_null() && LabelSelector::from_value(selector).is_ok_and(|s| s.matches(labels))
        });
        let Some(budget) = matching.next() else {
            return Ok(());
        };
        if matching.next().is_some() {
            return Err(ApiError::raw_internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        let ready = pod
            .list("status.conditions")
            .iter()
            .any(|c| c.text("type") == "Ready" && c.text("status") == "True");
        let status = |key: &str| budget.dig("status").int(key).unwrap_or_default();
        if !ready {
            let always = budget.text("spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
            let healthy =
                status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
            if always || healthy {
                return Ok(());
            }
        }
        let pod_name = meta::name(pod).to_string();
        if dry {
            return allowed(&budget);
        }
        let name = meta::name(&budget).to_string();
        let now = Timestamp::now().to_rfc3339();
        self.0
            .update(
                ("policy", "poddisruptionbudgets"),
                namespace,
                &name,
                "status",
                |live| {
                    allowed(live)?;
                    let generation = meta::generation(live);
                    let status = live.ensure("status");
                    let left = status.int("disruptionsAllowed").unwrap_or_default() - 1;
                    status.put("disruptionsAllowed", left);
                    status.ensure("disruptedPods").put(&pod_name, now.as_str());
                    if left == 0 {
                        let mut conditions = status.list("conditions").to_vec();
                        let changed = !conditions
                            .iter()
                            .any(|c| c.text("type") == "DisruptionAllowed" && c.text("status") == "False");
                        if changed {
                            conditions.retain(|c| c.text("type") != "DisruptionAllowed");
                            conditions.push(json!({"type": "DisruptionAllowed", "status": "False", "message": "",
                                "reason": "InsufficientPods", "observedGeneration": generation, "lastTransitionTime": now}));
                            status.put("conditions", conditions);
                        }
                    }
                    Ok(())
                },
            )
            .await
    }
}

/// Whether a budget has a disruption left; 429 with the reason when not.
fn allowed(budget: &Value) -> Result<(), ApiError> {
    let name = meta::name(budget);
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = |message: String| Cause {
        reason: "DisruptionBudget".into(),
        message,
        field: String::new(),
    };
    let status = |key: &str| budget.dig("status").int(key).unwrap_or_default();
    if status("observedGeneration") < meta::generation(budget) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::too_many_requests(text, 10).with_cause(cause(why)));
    }
    if status("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let budgets = GroupResource::new("policy", "poddisruptionbudget");
    if status("disruptionsAllowed") < 0 {
        return Err(ApiError::forbidden(
            &budgets,
            name,
            "pdb disruptions allowed is negative",
        ));
    }
    let condition = budget
        .list("status.conditions")
        .iter()
        .find(|c| c.text("type") == "DisruptionAllowed" && c.text("status") == "False")
        .filter(|c| !c.text("message").is_empty());
    let why = match condition {
        Some(c) if c.text("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            c.text("message")
        ),
        _ if status("currentHealthy") <= status("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            status("desiredHealthy"),
            status("currentHealthy")
        ),
        Some(c) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            c.text("reason"),
            c.text("message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Err(ApiError::too_many_requests(text, 0).with_cause(cause(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_are_of_the_pod_in_the_path() {
        #[track_caller]
        fn refused(eviction: Value, expected: Option<(u16, &str)>) {
            let error = check(&eviction, "p").err();
            let found = error.as_ref().map(|error| (error.code(), error.message()));
            assert_eq!(found, expected);
        }
        refused(json!({"metadata": {"name": "p"}}), None);
        refused(
            json!({"metadata": {"name": "q"}}),
            Some((400, "name in URL does not match name in Eviction object")),
        );
        refused(
            json!({"metadata": {"name": "p"}, "deleteOptions": {"ignoreStoreReadErrorWithClusterBreakingPotential": true}}),
            Some((
                422,
                "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: \
                 can not be set for pod eviction, try after removing the option",
            )),
        );
    }

    #[test]
    fn a_dry_run_is_asked_for_in_either_place() {
        let own = |own: Value| json!({"deleteOptions": {"dryRun": own}});
        for (eviction, asked, expected) in [
            (own(json!([])), false, Some(false)),
            (own(json!([])), true, Some(true)),
            (own(json!(["All"])), false, Some(true)),
            (own(json!(["All"])), true, Some(true)),
            (own(json!(["Some"])), true, None),
        ] {
            assert_eq!(is_dry_run(&eviction, asked).ok(), expected, "{eviction} {asked}");
        }
    }

    #[test]
    fn a_budget_allows_by_its_status() {
        #[track_caller]
        fn check(status: Value, expected: Option<(u16, &str)>) {
            let budget = json!({"metadata": {"name": "b", "generation": 2}, "status": status});
            let error = allowed(&budget).err();
            let found = error.as_ref().map(|error| {
                let cause = error.details().and_then(|details| details.causes.first());
                (error.code(), cause.map_or("", |cause| cause.message.as_str()))
            });
            assert_eq!(found, expected);
        }
        check(json!({"observedGeneration": 2, "disruptionsAllowed": 1}), None);
        check(
            json!({"observedGeneration": 1, "disruptionsAllowed": 1}),
            Some((
                429,
                "The disruption budget b is still being processed by the server.",
            )),
        );
        check(
            json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
            Some((403, "")),
        );
        check(
            json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 3}),
            Some((
                429,
                "The disruption budget b needs 3 healthy pods and has 3 currently",
            )),
        );
        check(
            json!({"observedGeneration": 2, "currentHealthy": 4, "desiredHealthy": 3}),
            Some((
                429,
                "The disruption budget b does not allow evicting pods currently",
            )),
        );
        let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}]);
        check(
            json!({"observedGeneration": 2, "conditions": failed}),
            Some((
                429,
                "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
            )),
        );
    }
}
