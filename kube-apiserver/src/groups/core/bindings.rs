//! `bindings`: the older way to assign a pod to a node.

use generic_server::resource::VirtualResource;
use generic_server::{ApiError, Authorized};
use machinery::meta;
use serde_json::Value;

use crate::client::Client;
use crate::connect::{bind, created};

#[derive(Debug)]
pub(crate) struct Bindings(pub(crate) Client);

#[async_trait::async_trait]
impl VirtualResource for Bindings {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(
        &self,
        _authorized: &Authorized,
        namespace: &str,
        object: Value,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let name = meta::name(&object).to_string();
        bind(&self.0, namespace, &name, &object, dry_run).await?;
        Ok(created())
    }
}
