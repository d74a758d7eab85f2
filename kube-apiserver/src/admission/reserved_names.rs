//! Names of what configures admission that are kept for manifests. With manifests no object of the API may have one; without, its creation is
//! answered with a warning. Upstream checks this where it validates objects; it is no plugin there, and cannot be turned off here either.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{FieldError, FieldPath, GroupVersionResource, meta};
use serde_json::Value;

use super::manifests::SUFFIX;

#[derive(Debug)]
pub(super) struct ReservedNames {
    /// Manifests are allowed by their feature gate.
    pub(super) manifests: bool,
}

#[async_trait::async_trait]
impl AdmissionPlugin for ReservedNames {
    fn name(&self) -> &'static str {
        "ReservedNames"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create
            && &*gvr.group == "admissionregistration.k8s.io"
            && subresource.is_empty()
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let name = object.map(meta::name).unwrap_or_default();
        if !name.ends_with(SUFFIX) {
            return Ok(());
        }
        let text = format!(
            "names ending with \"{SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        let metadata = FieldPath::new("metadata");
        let path = metadata.child("name");
        if !self.manifests {
            attributes.authorized.context().warn(format!("{path}: {text}"));
            return Ok(());
        }
        let error = FieldError::invalid_str(&path, name, text);
        Err(ApiError::invalid(&attributes.gvk.group_kind(), name, &[error]))
    }
}
