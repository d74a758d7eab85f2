//! Admission that objects configure: webhooks and policies, with the expressions that both of them match by.
//!
//! Each is an [`crate::admission::AdmissionPlugin`] that follows its configuration; until that has been read once, it lets no write
//! pass.

mod checks;
mod compiling;
mod expression;
pub mod lost_changes;
mod matching;
pub mod policy;
mod view;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use machinery::{ApiError, meta};
use serde_json::Value;

use crate::admission::Attributes;
use crate::registry::Synced;

/// How long a write waits for a plugin that has not read its configuration yet. Upstream's figure (`timeToWaitForReady`).
const TIME_TO_WAIT_FOR_READY: Duration = Duration::from_secs(10);

/// Upstream's words for a write that comes before the configuration.
const NOT_READY: &str = "not yet ready to handle request";

/// The configuration of a plugin. Waits for the first one: a plugin that has not read its configuration does not let writes pass.
///
/// # Errors
/// 403 when it does not come in time, in upstream's words.
async fn configuration<T>(
    synced: &Synced<T>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<Arc<T>, ApiError> {
    let found = synced.wait(TIME_TO_WAIT_FOR_READY).await;
    found.ok_or_else(|| {
        let name = shown_name(attributes, object);
        ApiError::forbidden(&attributes.gvr.group_resource(), name, NOT_READY)
    })
}

/// The name that refusals show: of the object, or what it will be called after.
fn shown_name<'a>(attributes: &Attributes<'a>, object: Option<&'a Value>) -> &'a str {
    let own = object.map(|object| match meta::name(object) {
        "" => meta::generate_name(object),
        name => name,
    });
    match (attributes.name, own) {
        ("", Some(own)) if !own.is_empty() => own,
        ("", _) => "Unknown",
        (name, _) => name,
    }
}

#[cfg(test)]
mod tests;
