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

use generic_server::resource::Converter;
use machinery::ApiError;
use machinery::custom;
use machinery::schema::KindSchema;
use serde_json::Value;

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
}

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
