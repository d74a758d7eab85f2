//! Between versions: by name alone, or by asking a webhook.
//!
//! The webhook is asked with many objects at once where a list is served, and never twice about the same write of an object:
//! answers are kept by uid, resourceVersion and version. What it answers is checked before it is believed: the count, the
//! version, the kind and the identity of every object; of metadata only labels and annotations are taken from it.
//! Mirrors `pkg/apiserver/conversion`.

mod cache;
pub(crate) mod client;
mod review;
mod services;

use std::fmt;
use std::sync::Arc;

use generic_server::registry::Entry;
use generic_server::resource::Converter;
use machinery::schema::{KindSchema, custom};
use machinery::{ApiError, GroupVersion, meta};
use serde_json::Value;

pub(crate) use cache::Answers;
pub(crate) use client::WebhookClient;
pub(crate) use services::Services;

/// Versions that differ in `apiVersion` alone, and in what their schemas keep.
#[derive(Debug)]
pub(crate) struct ByName {
    pub(crate) served: String,
    pub(crate) stored: String,
    /// What the stored version does not know is not stored; absent when all versions have one schema.
    pub(crate) prune: Option<KindSchema>,
}

#[async_trait::async_trait]
impl Converter for ByName {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object["apiVersion"] = self.served.as_str().into();
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object["apiVersion"] = self.stored.as_str().into();
        if let Some(schema) = &self.prune {
            custom::prune(schema.root(), &mut object, true);
        }
        Ok(object)
    }

    fn splice(&self) -> Option<&str> {
        Some(&self.served)
    }
}

/// Asks a webhook.
pub(crate) struct ByWebhook {
    pub(crate) served: GroupVersion,
    pub(crate) stored: GroupVersion,
    pub(crate) client: Arc<WebhookClient>,
    pub(crate) answers: Arc<Answers>,
    /// As [`ByName::prune`].
    pub(crate) prune: Option<KindSchema>,
}

impl fmt::Debug for ByWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByWebhook")
            .field("served", &self.served)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

impl ByWebhook {
    /// Converts objects, in order. Those that are of the version already are not sent.
    async fn convert(&self, mut objects: Vec<Value>, to: &GroupVersion) -> Result<Vec<Value>, ApiError> {
        let version = to.to_string();
        let sent: Vec<usize> = (0..objects.len())
            .filter(|i| meta::api_version(&objects[*i]) != version)
            .collect();
        let Some(first) = sent.first() else {
            return Ok(objects);
        };
        let kind = review::kind_of(&objects[*first]);
        let asked: Vec<Value> = sent.iter().map(|i| objects[*i].clone()).collect();
        let single = asked.len() == 1;
        let fail = |why: String| ApiError::internal(format!("conversion webhook for {kind} {why}"));
        let answer = self.client.ask(&asked, &version).await;
        let converted = answer.map_err(|why| fail(format!("failed: {why}")))?;
        if converted.len() != asked.len() {
            let (got, want) = (converted.len(), asked.len());
            return Err(fail(format!("returned {got} objects, expected {want}")));
        }
        for (n, (i, converted)) in sent.into_iter().zip(converted).enumerate() {
            let checked = review::accept(&objects[i], converted, to, n, single).map_err(fail)?;
            objects[i] = checked;
        }
        Ok(objects)
    }

    async fn one(&self, object: Value, to: &GroupVersion) -> Result<Value, ApiError> {
        let mut converted = self.convert(vec![object], to).await?;
        converted
            .pop()
            .ok_or_else(|| ApiError::internal("conversion webhook failed, no objects returned"))
    }

    /// Waits where waiting is not foreseen: for an object that was not made ready before.
    fn wait<T>(&self, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let handle = tokio::runtime::Handle::try_current()
            .map_err(|_| ApiError::internal("conversion webhooks need the runtime"))?;
        if handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread {
            return Err(ApiError::internal(
                "conversion webhooks need a runtime with threads",
            ));
        }
        tokio::task::block_in_place(|| handle.block_on(work))
    }
}

#[async_trait::async_trait]
impl Converter for ByWebhook {
    async fn prepare(&self, entries: &[Arc<Entry>]) -> Result<(), ApiError> {
        let version = self.served.to_string();
        let mut objects = Vec::new();
        for entry in entries {
            let object = entry.value();
            if meta::api_version(&object) != version && !self.answers.has(&object, &version) {
                objects.push(object);
            }
        }
        if objects.is_empty() {
            return Ok(());
        }
        for object in self.convert(objects, &self.served).await? {
            self.answers.keep(&version, object);
        }
        Ok(())
    }

    fn from_stored(&self, object: Value) -> Result<Value, ApiError> {
        let version = self.served.to_string();
        if meta::api_version(&object) == version {
            return Ok(object);
        }
        if let Some(known) = self.answers.get(&object, &version) {
            return Ok(known);
        }
        let converted = self.wait(self.one(object, &self.served))?;
        self.answers.keep(&version, converted.clone());
        Ok(converted)
    }

    fn to_stored(&self, object: Value) -> Result<Value, ApiError> {
        let mut converted = self.wait(self.one(object, &self.stored))?;
        if let Some(schema) = &self.prune {
            custom::prune(schema.root(), &mut converted, true);
        }
        Ok(converted)
    }
}
