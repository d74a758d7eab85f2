//! OwnerReferencesPermissionEnforcement: a user that changes an object's owners must be allowed to delete it, and one that
//! makes it block an owner's deletion must be allowed to set that owner's finalizers.

use std::collections::HashMap;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::{Attributes as Question, Authorizer};
use generic_server::directory::Directory;
use generic_server::resource::Scope;
use machinery::go::Quoted;
use machinery::{GroupKind, GroupVersionResource};
use serde_json::Value;

use super::{forbidden, is};
use crate::json::{Json, same};

#[derive(Debug)]
pub(super) struct OwnerReferences {
    pub(super) authorizer: Arc<dyn Authorizer>,
    pub(super) directory: Arc<Directory>,
}

#[async_trait::async_trait]
impl AdmissionPlugin for OwnerReferences {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        // The status of pods leaves their owners alone.
        matches!(operation, Operation::Create | Operation::Update)
            && !(subresource == "status" && is(gvr, "", "pods"))
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        let old = attributes.old.map(owners).unwrap_or_default();
        let new = owners(object);
        let unchanged = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
        if unchanged {
            return Ok(());
        }
        if attributes.operation != Operation::Create
            && let Err(reason) = self.may(&delete(attributes)).await
        {
            let why = format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>");
            return Err(forbidden(attributes, Some(object), why));
        }
        let blocking = newly_blocking(old, new);
        if blocking.is_empty() || self.may(&finalizers(attributes, Target::ANY)).await.is_ok() {
            return Ok(());
        }
        for owner in blocking {
            self.check_owner(attributes, object, owner).await?;
        }
        Ok(())
    }
}

impl OwnerReferences {
    async fn may(&self, question: &Question<'_>) -> Result<(), String> {
        self.authorizer.authorize(question).await.permits()
    }

    async fn check_owner(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        owner: &Value,
    ) -> Result<(), ApiError> {
        let (api_version, kind) = (owner.text("apiVersion"), owner.text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(registered) = self.directory.of_kind(&GroupKind::new(group, kind)) else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
                 {kind}: no matches for kind {} in version {}",
                Quoted(kind),
                Quoted(api_version)
            );
            return Err(forbidden(attributes, Some(object), why));
        };
        let namespace = match registered.resource.scope {
            Scope::Namespaced => attributes.namespace,
            Scope::Cluster => "",
        };
        let target = Target {
            group,
            version,
            resource: &registered.resource.gvr.resource,
            namespace,
            name: owner.text("name"),
        };
        match self.may(&finalizers(attributes, target)).await {
            Ok(()) => Ok(()),
            Err(reason) => {
                let why = format!(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
                     {reason}, <nil>"
                );
                Err(forbidden(attributes, Some(object), why))
            }
        }
    }
}

fn owners(object: &Value) -> &[Value] {
    object.list("metadata.ownerReferences")
}

/// References that block their owner's deletion and did not before.
fn newly_blocking<'a>(old: &[Value], new: &'a [Value]) -> Vec<&'a Value> {
    let blocks = |owner: &Value| owner.flag("blockOwnerDeletion");
    let before: HashMap<&str, bool> = old
        .iter()
        .map(|owner| (owner.text("uid"), blocks(owner)))
        .collect();
    new.iter()
        .filter(|owner| blocks(owner) && !before.get(owner.text("uid")).is_some_and(|blocked| *blocked))
        .collect()
}

/// The kinds that finalizers are set on.
#[derive(Clone, Copy)]
struct Target<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Target<'_> {
    const ANY: Target<'static> = Target {
        group: "*",
        version: "*",
        resource: "*",
        namespace: "",
        name: "*",
    };
}

fn finalizers<'a>(attributes: &'a Attributes<'_>, target: Target<'a>) -> Question<'a> {
    Question {
        user: attributes.authorized.user(),
        verb: "update",
        is_resource: true,
        group: target.group,
        version: target.version,
        resource: target.resource,
        subresource: "finalizers",
        namespace: target.namespace,
        name: target.name,
        path: "",
        field_selector: "",
        label_selector: "",
    }
}

fn delete<'a>(attributes: &'a Attributes<'_>) -> Question<'a> {
    Question {
        user: attributes.authorized.user(),
        verb: "delete",
        is_resource: true,
        group: &attributes.gvr.group,
        version: &attributes.gvr.version,
        resource: &attributes.gvr.resource,
        subresource: attributes.subresource,
        namespace: attributes.namespace,
        name: attributes.name,
        path: "",
        field_selector: "",
        label_selector: "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newly_blocking_references() {
        let old = json!([{"uid": "a"}, {"uid": "b", "blockOwnerDeletion": true}, {"uid": "c", "blockOwnerDeletion": false}]);
        let new = json!([
            {"uid": "a", "blockOwnerDeletion": true}, {"uid": "b", "blockOwnerDeletion": true}, {"uid": "c"},
            {"uid": "d", "blockOwnerDeletion": true}, {"uid": "e"},
        ]);
        let lists = |value: &Value| value.as_array().cloned().unwrap();
        let new = lists(&new);
        let uids: Vec<&str> = newly_blocking(&lists(&old), &new)
            .iter()
            .map(|owner| owner.text("uid"))
            .collect();
        assert_eq!(uids, ["a", "d"]);
    }
}
