//! NamespaceAutoProvision and NamespaceExists: the handling of writes into a namespace that does not exist. Both were
//! superseded by NamespaceLifecycle.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupResource, GroupVersionResource};
use serde_json::{Value, json};

use super::is;
use crate::client::Client;

const NAMESPACES: (&str, &str) = ("", "namespaces");

#[derive(Debug)]
pub(super) struct NamespaceAutoProvision(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        operation == Operation::Create && !is(gvr, "", "namespaces")
    }

    async fn admit(&self, attributes: &Attributes<'_>, _object: Option<&mut Value>) -> Result<(), ApiError> {
        let namespace = attributes.namespace;
        if attributes.dry_run || namespace.is_empty() {
            return Ok(());
        }
        if self.0.entry(NAMESPACES, "", namespace).await?.is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.0.create(NAMESPACES, "", object).await?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct NamespaceExists(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        operation != Operation::Connect && !is(gvr, "", "namespaces")
    }

    async fn validate(&self, attributes: &Attributes<'_>, _object: Option<&Value>) -> Result<(), ApiError> {
        let namespace = attributes.namespace;
        if namespace.is_empty() || self.0.entry(NAMESPACES, "", namespace).await?.is_some() {
            return Ok(());
        }
        let (group, resource) = NAMESPACES;
        Err(ApiError::not_found(
            &GroupResource::new(group, resource),
            namespace,
        ))
    }
}
