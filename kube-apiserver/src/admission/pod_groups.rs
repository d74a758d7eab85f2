//! What Workloads and PodGroups want of writes, while their feature is on: PodGroupProtection, PodGroupWorkloadExists and JobValidation.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::go::Quoted;
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::{At, Client};
use crate::json::Json;

const GROUP: &str = "scheduling.k8s.io";
const POD_GROUPS: At<'static> = (GROUP, "podgroups");
/// What keeps a PodGroup while pods belong to it.
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

fn creates_a_group(operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
    operation == Operation::Create && subresource.is_empty() && is(gvr, GROUP, "podgroups")
}

/// Gives new PodGroups a finalizer, which the controller manager takes away once no pods are left.
#[derive(Debug)]
pub(super) struct PodGroupProtection;

#[async_trait::async_trait]
impl AdmissionPlugin for PodGroupProtection {
    fn name(&self) -> &'static str {
        "PodGroupProtection"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        creates_a_group(operation, gvr, subresource)
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(group) = object else { return Ok(()) };
        let mut list: Vec<String> = meta::finalizers(group).map(str::to_string).collect();
        if !list.iter().any(|one| one == FINALIZER) {
            list.push(FINALIZER.into());
            meta::set(group, "finalizers", list);
        }
        Ok(())
    }
}

/// Refuses PodGroups of a template that no Workload has.
#[derive(Debug)]
pub(super) struct PodGroupWorkloadExists(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for PodGroupWorkloadExists {
    fn name(&self) -> &'static str {
        "PodGroupWorkloadExists"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        creates_a_group(operation, gvr, subresource)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(group) = object else { return Ok(()) };
        let reference = group.dig("spec.podGroupTemplateRef.workload");
        if reference.is_null() {
            return Ok(());
        }
        let name = reference.text("workloadName");
        let workload = self
            .0
            .find((GROUP, "workloads"), attributes.namespace, name)
            .await?;
        let template = reference.text("podGroupTemplateName");
        match fault(workload.as_ref(), name, template) {
            None => Ok(()),
            Some(why) => Err(forbidden(attributes, object, format!("PodGroup rejected: {why}"))),
        }
    }
}

/// Why a template of a Workload cannot be used.
fn fault(workload: Option<&Value>, name: &str, template: &str) -> Option<String> {
    let Some(workload) = workload else {
        return Some(format!("Workload {} not found", Quoted(name)));
    };
    if workload.has("metadata.deletionTimestamp") {
        return Some(format!("Workload {} is being deleted", Quoted(name)));
    }
    let mut templates = workload.list("spec.podGroupTemplates").iter();
    let has_it = templates.any(|one| one.text("name") == template);
    (!has_it).then(|| {
        format!(
            "PodGroupTemplate {} not found in Workload {}",
            Quoted(template),
            Quoted(name)
        )
    })
}

/// Keeps the parallelism of a Job whose pods are scheduled all at once.
#[derive(Debug)]
pub(super) struct JobValidation(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for JobValidation {
    fn name(&self) -> &'static str {
        "JobValidation"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource.is_empty() && is(gvr, "batch", "jobs")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(job), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        if job.int("spec.parallelism") == old.int("spec.parallelism") {
            return Ok(());
        }
        let named = old.text("spec.template.spec.schedulingGroup.podGroupName");
        let groups = match named {
            "" => self.0.list(POD_GROUPS, attributes.namespace).await?,
            name => {
                let entry = self.0.entry(POD_GROUPS, attributes.namespace, name).await?;
                entry.into_iter().collect()
            }
        };
        let groups = groups.iter().map(|entry| entry.value());
        let mut gangs = groups.filter(|group| group.has("spec.schedulingPolicy.gang"));
        match gangs.find(|group| !named.is_empty() || is_controlled_by(group, old)) {
            None => Ok(()),
            Some(group) => {
                let name = Quoted(meta::name(&group)).to_string();
                let why =
                    format!("cannot change parallelism for a Job referencing gang-scheduled PodGroup {name}");
                Err(forbidden(attributes, object, why))
            }
        }
    }
}

fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    let owners = object.list("metadata.ownerReferences");
    let controller = owners.iter().find(|reference| reference.flag("controller"));
    controller.is_some_and(|reference| reference.text("uid") == owner.text("metadata.uid"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_made_of_templates_that_are_there() {
        let workload = json!({"spec": {"podGroupTemplates": [{"name": "t"}]}});
        let leaving = json!({"metadata": {"deletionTimestamp": "x"}, "spec": workload["spec"]});
        for (workload, template, expected) in [
            (Some(&workload), "t", None),
            (
                Some(&workload),
                "u",
                Some(r#"PodGroupTemplate "u" not found in Workload "w""#),
            ),
            (Some(&leaving), "t", Some(r#"Workload "w" is being deleted"#)),
            (None, "t", Some(r#"Workload "w" not found"#)),
        ] {
            assert_eq!(fault(workload, "w", template).as_deref(), expected);
        }
    }

    #[test]
    fn a_controller_is_an_owner_that_controls() {
        let job = json!({"metadata": {"uid": "1"}});
        let owned = |uid: &str, controls: bool| {
            let reference = json!({"uid": uid, "controller": controls});
            is_controlled_by(&json!({"metadata": {"ownerReferences": [reference]}}), &job)
        };
        assert!(owned("1", true));
        assert!(!owned("1", false) && !owned("2", true));
    }
}
