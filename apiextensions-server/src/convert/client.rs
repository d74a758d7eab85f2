//! The client configuration of a CRD's conversion webhook: its endpoint, the review versions that it takes, and how
//! long it may take.

use std::time::Duration;

use bytes::Bytes;
use generic_server::webhook::{self, Services};
use serde_json::Value;

use super::review;

/// The largest answer, in bytes. A question has up to 8 MiB of objects.
const MAX_ANSWER: usize = 64 << 20;

/// A conversion webhook. One per CRD and configuration, made when the first object has to be converted.
#[derive(Debug)]
pub(crate) struct WebhookClient {
    endpoint: webhook::WebhookClient,
    /// The review versions that it takes, in its order.
    versions: Vec<String>,
    /// How long one question may take, connecting included.
    timeout: Duration,
}

impl WebhookClient {
    /// From `spec.conversion`. A question may take as long as `timeout`.
    pub(crate) fn new(conversion: &Value, services: Services, timeout: Duration) -> Self {
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().filter_map(Value::as_str);
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        WebhookClient {
            endpoint: webhook::WebhookClient::new(config, services),
            versions: versions.map(str::to_string).collect(),
            timeout,
        }
    }

    /// Requests objects in another version; returns the answer, or why there is no usable one.
    pub(crate) async fn ask(&self, objects: &[&Value], version: &str) -> Result<Vec<Value>, String> {
        let uid = uuid::Uuid::new_v4().to_string();
        let (review_version, question) = review::request(&self.versions, &uid, objects, version)?;
        let body = Bytes::from(question.to_string());
        let answer = self.endpoint.post(body, self.timeout, MAX_ANSWER).await;
        let answer = answer.map_err(|error| error.to_string())?;
        review::response(&review_version, &uid, answer)
    }
}
