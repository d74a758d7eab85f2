//! `bindings`: the older way to assign a pod to a node.

use generic_server::ApiError;
use generic_server::resource::{Answer, CreateCall, VirtualResource};
use serde_json::Value;

use super::pod::binding::bind;
use crate::client::Client;

#[derive(Debug)]
pub(crate) struct Bindings(pub(crate) Client);

#[async_trait::async_trait]
impl VirtualResource for Bindings {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(&self, call: &CreateCall<'_>, object: Value) -> Result<Answer, ApiError> {
        bind(&self.0, call, &object).await
    }
}
