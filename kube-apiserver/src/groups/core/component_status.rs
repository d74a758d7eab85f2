//! ComponentStatus: deprecated for years, and asked for still. This server answers for its store; the controller manager and
//! the scheduler have health endpoints of their own.

use std::sync::Arc;

use generic_server::resource::VirtualResource;
use generic_server::{ApiError, Authorized};
use machinery::GroupResource;
use serde_json::{Value, json};

/// The name upstream gives the store.
const STORE: &str = "etcd-0";

#[derive(Debug)]
pub(crate) struct ComponentStatuses(pub(crate) Arc<dyn storage::Store>);

impl ComponentStatuses {
    async fn store(&self) -> Value {
        let condition = match self.0.status().await {
            Ok(_) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
            Err(error) => json!({"type": "Healthy", "status": "False", "message": error.to_string()}),
        };
        json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": STORE}, "conditions": [condition]})
    }
}

#[async_trait::async_trait]
impl VirtualResource for ComponentStatuses {
    fn verbs(&self) -> &'static [&'static str] {
        &["get", "list"]
    }

    async fn get(&self, _authorized: &Authorized, _namespace: &str, name: &str) -> Result<Value, ApiError> {
        match name {
            STORE => Ok(self.store().await),
            _ => Err(ApiError::not_found(
                &GroupResource::new("", "componentstatuses"),
                name,
            )),
        }
    }

    async fn list(&self, _authorized: &Authorized, _namespace: &str) -> Result<Vec<Value>, ApiError> {
        Ok(vec![self.store().await])
    }
}
