//! ResourceQuota: the usage that a write adds must fit into every quota of the namespace that counts it, and is charged there.
//! A quota whose status the quota controller has not filled in yet limits nothing, as upstream has it.
//!
//! All quotas are checked before any is charged. The check is repeated on the newest state of a quota when the charge is written, so that
//! writers of other replicas stay within it, too; within this server the writes to one namespace take turns.

mod evaluator;
mod limited;
mod request;
mod scopes;
mod usage;

use std::hash::{BuildHasher, RandomState};

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupVersionResource, meta};
use serde_json::Value;
use tokio::sync::Mutex;

use self::evaluator::Evaluator;
use super::is;
use crate::client::Client;
use crate::json::Json;

pub(crate) use limited::{LimitedResources, VERSIONS};

/// Namespaces share this many turns.
const TURNS: usize = 64;

#[derive(Debug)]
pub(super) struct ResourceQuota {
    client: Client,
    limited: LimitedResources,
    turns: [Mutex<()>; TURNS],
    hashes: RandomState,
}

impl ResourceQuota {
    pub(super) fn new(client: Client, limited: LimitedResources) -> Self {
        ResourceQuota {
            client,
            limited,
            turns: std::array::from_fn(|_| Mutex::default()),
            hashes: RandomState::new(),
        }
    }

    fn turn(&self, namespace: &str) -> &Mutex<()> {
        let hash = self.hashes.hash_one(namespace);
        let at = usize::try_from(hash % TURNS as u64).unwrap_or_default();
        &self.turns[at]
    }

    async fn quotas(&self, namespace: &str) -> Result<Vec<Value>, ApiError> {
        let quotas = self.client.list(("", "resourcequotas"), namespace).await?;
        Ok(quotas.iter().map(|entry| entry.value()).collect())
    }

    async fn charge(
        &self,
        evaluator: &Evaluator,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        let quotas = self.quotas(attributes.namespace).await?;
        let charges = request::charges(evaluator, attributes, object, &quotas, &self.limited)?;
        for charge in &charges {
            request::fit(attributes, object, charge.quota, &charge.delta)?;
        }
        if attributes.dry_run {
            return Ok(());
        }
        for charge in &charges {
            let at = ("", "resourcequotas");
            let name = meta::name(charge.quota);
            self.client
                .update(at, attributes.namespace, name, "status", |live| {
                    let used = request::fit(attributes, object, live, &charge.delta)?;
                    let status = live.ensure("status").ensure("used");
                    for (name, quantity) in used {
                        status.put(&name, quantity.to_string());
                    }
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        !is(gvr, "", "namespaces")
            && Evaluator::of(gvr).is_some_and(|evaluator| evaluator.handles(operation, subresource))
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(object), false) = (object, attributes.namespace.is_empty()) else {
            return Ok(());
        };
        let Some(evaluator) = Evaluator::of(attributes.gvr) else {
            return Ok(());
        };
        if !evaluator.handles_write(attributes, object) {
            return Ok(());
        }
        // Most namespaces have no quota, and most writes to those that have one add nothing: neither waits for a turn.
        let quotas = self.quotas(attributes.namespace).await?;
        let charges = request::charges(&evaluator, attributes, object, &quotas, &self.limited)?;
        if charges.is_empty() {
            return Ok(());
        }
        let _turn = self.turn(attributes.namespace).lock().await;
        self.charge(&evaluator, attributes, object).await
    }
}

#[cfg(test)]
mod tests;
