//! The versions under which the same objects are served, and the way from one to another.

use std::sync::Arc;

use machinery::{ApiError, GroupVersion, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::resource::ServedResource;

/// One version of objects that are served under several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// Its resource. Versions may be of different groups.
    pub gvr: GroupVersionResource,
    /// Its kind.
    pub gvk: GroupVersionKind,
    /// Its subresources.
    pub subresources: Vec<String>,
}

impl ServedVersion {
    /// Whether it has a subresource; the empty name is the resource itself.
    pub fn has(&self, subresource: &str) -> bool {
        subresource.is_empty() || self.subresources.iter().any(|name| name == subresource)
    }
}

/// Objects that are served under several versions.
#[async_trait::async_trait]
pub trait Versions: Send + Sync + std::fmt::Debug {
    /// All of them.
    fn served(&self) -> &[ServedVersion];

    /// The resource of one of them.
    ///
    /// # Errors
    /// It is not served any more, or cannot be.
    async fn resource(&self, version: &ServedVersion) -> Result<Arc<ServedResource>, ApiError>;

    /// An object of the first version in the second one.
    ///
    /// # Errors
    /// It cannot be converted.
    async fn convert(&self, object: Value, from: &GroupVersion, to: &GroupVersion)
    -> Result<Value, ApiError>;
}

/// Versions that share a store and are converted by rules.
#[derive(Debug)]
pub struct SharedStore {
    served: Vec<ServedVersion>,
    resources: Vec<Arc<ServedResource>>,
}

impl SharedStore {
    /// Of resources with the same store.
    pub fn new(resources: Vec<Arc<ServedResource>>) -> Self {
        let served = resources.iter().map(|resource| ServedVersion {
            gvr: resource.gvr.clone(),
            gvk: resource.gvk.clone(),
            subresources: resource
                .subresources
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
        });
        SharedStore {
            served: served.collect(),
            resources,
        }
    }

    fn find(&self, version: &GroupVersion) -> Result<&Arc<ServedResource>, ApiError> {
        let mut resources = self.resources.iter();
        let found = resources.find(|resource| resource.gvk.group_version() == *version);
        found.ok_or_else(|| ApiError::internal(format!("unable to convert: {version} is not served")))
    }
}

#[async_trait::async_trait]
impl Versions for SharedStore {
    fn served(&self) -> &[ServedVersion] {
        &self.served
    }

    async fn resource(&self, version: &ServedVersion) -> Result<Arc<ServedResource>, ApiError> {
        self.find(&version.gvk.group_version()).cloned()
    }

    async fn convert(
        &self,
        mut object: Value,
        from: &GroupVersion,
        to: &GroupVersion,
    ) -> Result<Value, ApiError> {
        if from == to {
            return Ok(object);
        }
        if let Some(rule) = self.find(from)?.rule() {
            object = rule.to_stored(object)?;
        }
        if let Some(rule) = self.find(to)?.rule() {
            object = rule.from_stored(object)?;
        }
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), to.to_string().into());
        }
        Ok(object)
    }
}
