//! A write as a webhook or policy sees it: in the version that its rules name, where `matchPolicy` is `Equivalent` and the request has another.

use std::sync::Arc;

use machinery::{ApiError, GroupVersion, GroupVersionKind};
use serde_json::Value;

use super::matching::Target;
use crate::admission::{Attributes, ObjectKind};
use crate::directory::Versions;
use crate::resource::ServedResource;

/// A write in one version.
#[derive(Debug)]
pub(super) struct View<'a> {
    requested: &'a Attributes<'a>,
    other: Option<Other>,
}

/// Another version than that of the request.
#[derive(Debug)]
struct Other {
    versions: Arc<dyn Versions>,
    resource: Arc<ServedResource>,
    gvk: GroupVersionKind,
    /// The version of the request's objects, where they are of the resource's own kind. Those of subresources, such as Scale, are the same
    /// in all versions.
    from: Option<GroupVersion>,
    old: Option<Value>,
}

impl Other {
    async fn convert(&self, object: &Value, from: &GroupVersion) -> Result<Value, ApiError> {
        let to = self.gvk.group_version();
        self.versions.convert(object.clone(), from, &to).await
    }
}

impl<'a> View<'a> {
    /// The view of a write that matches under this target.
    ///
    /// # Errors
    /// The version is not served any more, or the object that is stored cannot be converted to it.
    pub(super) async fn new(target: Target, requested: &'a Attributes<'a>) -> Result<Self, ApiError> {
        let (versions, index) = match target {
            Target::Requested => {
                return Ok(View {
                    requested,
                    other: None,
                });
            }
            Target::Other(versions, index) => (versions, index),
        };
        let own = versions.served().iter().find(|one| one.gvr == *requested.gvr);
        let converted = own.is_some_and(|own| own.gvk == *requested.gvk);
        let version = &versions.served()[index];
        let mut other = Other {
            resource: versions.resource(version).await?,
            gvk: match converted {
                true => version.gvk.clone(),
                false => requested.gvk.clone(),
            },
            from: converted.then(|| requested.gvk.group_version()),
            old: None,
            versions: versions.clone(),
        };
        if let (Some(old), Some(from)) = (requested.old, &other.from) {
            other.old = Some(other.convert(old, from).await?);
        }
        Ok(View {
            requested,
            other: Some(other),
        })
    }

    /// The attributes of the write as they were requested.
    pub(super) fn requested(&self) -> &'a Attributes<'a> {
        self.requested
    }

    /// The attributes of the write in this version.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        let Some(other) = &self.other else {
            return *self.requested;
        };
        Attributes {
            gvk: &other.gvk,
            gvr: &other.resource.gvr,
            old: other.old.as_ref().or(self.requested.old),
            resource: self.requested.resource.map(|own| match other.from {
                Some(_) => ObjectKind {
                    decoding: &other.resource.decoding,
                    strategy: &*other.resource.strategy,
                },
                None => own,
            }),
            ..*self.requested
        }
    }

    /// An object of the request in this version; `None` when it is as it was requested.
    ///
    /// # Errors
    /// It cannot be converted.
    pub(super) async fn converted(&self, object: Option<&Value>) -> Result<Option<Value>, ApiError> {
        match (object, &self.other) {
            (Some(object), Some(other)) => match &other.from {
                Some(from) => other.convert(object, from).await.map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// An object of this version as the request has it, read as its kind.
    ///
    /// # Errors
    /// It cannot be converted, or is none of its kind any more.
    pub(super) async fn back(&self, object: Value) -> Result<Value, ApiError> {
        let Some((other, to)) = self
            .other
            .as_ref()
            .and_then(|other| Some((other, other.from.as_ref()?)))
        else {
            return Ok(object);
        };
        let from = other.gvk.group_version();
        let object = other.versions.convert(object, &from, to).await?;
        self.requested.reread(object)
    }
}
