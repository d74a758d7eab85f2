//! Between versions: by name alone, or by asking a webhook.
//!
//! The webhook is asked with many objects at once where a list is served or a watch begins, and about the same write of an
//! object once: answers are kept by uid, resourceVersion and version ([`cache`]), and a request for a conversion in flight
//! waits for that answer ([`flight`]). An answer is checked before it is used: the count, the version, the kind and
//! the identity of every object; of metadata only labels and annotations are taken from it. Mirrors
//! `pkg/apiserver/conversion`.

mod cache;
pub(crate) mod client;
mod flight;
mod review;
mod webhook;

use std::sync::Arc;

use generic_server::resource::Converter;
use machinery::ApiError;
use machinery::schema::KindSchema;
use serde_json::Value;

use crate::read_back::coerce;
use crate::siblings::Siblings;

pub(crate) use client::WebhookClient;
pub(crate) use flight::Answers;
pub(crate) use webhook::ByWebhook;

/// Versions that differ in `apiVersion` alone, and in what their schemas keep.
#[derive(Debug)]
pub(crate) struct ByName {
    pub(crate) served: String,
    pub(crate) stored: String,
    /// Fields that the stored version does not know are not stored; absent when all versions have one schema.
    pub(crate) prune: Option<KindSchema>,
    /// The schemas by which objects are read that were stored in any version; absent when all versions have one schema.
    pub(crate) siblings: Option<Arc<Siblings>>,
}

impl Converter for ByName {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        if let Some(siblings) = &self.siblings {
            siblings.read_back(self.prune.is_some(), &mut object);
        }
        object["apiVersion"] = self.served.as_str().into();
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object["apiVersion"] = self.stored.as_str().into();
        if let Some(schema) = &self.prune {
            coerce(schema, true, &mut object);
        }
        Ok(object)
    }

    fn splice(&self) -> Option<&str> {
        Some(&self.served)
    }
}
