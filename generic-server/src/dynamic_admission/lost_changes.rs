//! Refuses writes while a store is open that has lost changes whose keys cannot be read.
//!
//! Such a change may be that of a policy, a webhook configuration, a quota, a namespace or a class, and nothing in the store says so: what
//! follows a damaged object of these kinds is not enough here, since the plugin that reads them sees a list that looks whole. So it is as
//! if the configuration of all of them had not been read. Reads go on.
//!
//! A lost role or binding alone would not need it: RBAC has no denials, so that an object that is missing only takes rights away. It is
//! refused for all the same, since the key is unknown, and since the loss of a change may leave an older state behind that gave more.

use std::sync::Arc;

use machinery::{ApiError, GroupVersionResource};
use serde_json::Value;
use storage::Store;

use super::matching::{exempt_from_policies, without_policies};
use super::{NOT_READY, shown_name};
use crate::admission::{AdmissionPlugin, Attributes, Operation};

/// The plugin. A chain has it, before all others, where something is lost.
#[derive(Debug)]
pub struct LostChanges(());

impl LostChanges {
    /// For the stores behind a chain; `None` when they have lost nothing, which stays so until they are opened again.
    pub fn of(engines: &[Arc<dyn Store>]) -> Option<Arc<dyn AdmissionPlugin>> {
        let lost = engines.iter().any(|engine| !engine.lost().is_empty());
        lost.then(|| Arc::new(LostChanges(())) as Arc<dyn AdmissionPlugin>)
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for LostChanges {
    fn name(&self) -> &'static str {
        "LostChanges"
    }

    /// Policies and their bindings can be made again: nothing that is stored ever decides about them. Reviews store nothing, and are how
    /// other servers authorize reads.
    fn handles(&self, _: Operation, gvr: &GroupVersionResource, _: &str) -> bool {
        !exempt_from_policies(gvr) && !without_policies(gvr)
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let object = object.as_deref();
        let name = shown_name(attributes, object);
        let text = format!("{NOT_READY}: the store has lost changes, see /readyz/storage-integrity");
        Err(ApiError::forbidden(&attributes.gvr.group_resource(), name, &text))
    }
}
