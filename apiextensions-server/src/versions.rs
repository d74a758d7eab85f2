//! The versions of a CRD that has several, for admission that matches under any of them.

use std::sync::{Arc, Weak};

use generic_server::directory::{ServedVersion, Versions};
use generic_server::resource::ServedResource;
use machinery::{ApiError, GroupVersion, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::definition::Definition;
use crate::deps::Deps;
use crate::resource;

/// Where versions are compiled.
#[async_trait::async_trait]
pub(crate) trait Compiler: Send + Sync {
    /// A CRD as it is now.
    fn find(&self, group: &str, plural: &str) -> Option<Arc<Definition>>;

    /// The resource of a version, compiled when it is not there.
    async fn compiled(
        &self,
        definition: &Arc<Definition>,
        version: &str,
    ) -> Option<Result<Arc<ServedResource>, ApiError>>;

    fn deps(&self) -> &Deps;
}

/// The served versions of one CRD. It holds nothing of the CRD, so that a CRD that is not used costs nothing.
pub(crate) struct CustomVersions {
    served: Vec<ServedVersion>,
    compiler: Weak<dyn Compiler>,
}

impl std::fmt::Debug for CustomVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomVersions")
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

impl CustomVersions {
    /// Of a CRD; `None` when it serves one version only.
    pub(crate) fn of(definition: &Definition, compiler: Weak<dyn Compiler>) -> Option<Self> {
        let facts = &definition.facts;
        let served = facts.versions.iter().filter(|version| version.served);
        let served = served.map(|version| ServedVersion {
            gvr: GroupVersionResource::new(&definition.group, &version.name, &definition.plural),
            gvk: GroupVersionKind::new(&definition.group, &version.name, &facts.names.kind),
            subresources: [("status", version.has_status), ("scale", version.scale.is_some())]
                .into_iter()
                .filter(|(_, there)| *there)
                .map(|(name, _)| name.to_string())
                .collect(),
        });
        let served: Vec<ServedVersion> = served.collect();
        (served.len() > 1).then_some(CustomVersions { served, compiler })
    }

    fn definition(&self) -> Result<(Arc<dyn Compiler>, Arc<Definition>), ApiError> {
        let found = self.compiler.upgrade().zip(self.served.first());
        let found = found.and_then(|(compiler, version)| {
            let definition = compiler.find(&version.gvr.group, &version.gvr.resource)?;
            Some((compiler, definition))
        });
        found.ok_or_else(|| ApiError::internal("unable to convert: the resource is not served any more"))
    }
}

#[async_trait::async_trait]
impl Versions for CustomVersions {
    fn served(&self) -> &[ServedVersion] {
        &self.served
    }

    async fn resource(&self, version: &ServedVersion) -> Result<Arc<ServedResource>, ApiError> {
        let (compiler, definition) = self.definition()?;
        let compiled = compiler.compiled(&definition, &version.gvr.version).await;
        compiled.unwrap_or_else(|| {
            Err(ApiError::internal(format!(
                "unable to convert to {}: unknown kind",
                version.gvr
            )))
        })
    }

    async fn convert(
        &self,
        object: Value,
        from: &GroupVersion,
        to: &GroupVersion,
    ) -> Result<Value, ApiError> {
        let (compiler, definition) = self.definition()?;
        resource::convert(&definition, object, from, to, compiler.deps()).await
    }
}
