//! GET of one object: the cached bytes.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use machinery::ApiError;

use super::output;
use crate::negotiate::negotiate;
use crate::registry::list::{parse_version, read_version};
use crate::request::{Authorized, Response};
use crate::request_info::query_pairs;
use crate::resource::ServedResource;

/// Answers the object that the request names. Without a `resourceVersion` it is as new as any acknowledged write, with `0` as
/// new as the cache is, with another one no older than that.
pub(crate) async fn handle(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
) -> Result<Response, ApiError> {
    let negotiated = negotiate(head, resource.custom)?;
    let store = resource
        .store()
        .ok_or_else(ApiError::method_not_allowed)?
        .view(authorized);
    let mut version = Cow::Borrowed("");
    for (key, value) in query_pairs(head.uri.query().unwrap_or_default()) {
        match &*key {
            "resourceVersion" if version.is_empty() => version = value,
            "export" if super::options::boolean(&value) => {
                let message = "the export parameter, deprecated since v1.14, is no longer supported";
                return Err(ApiError::bad_request(message));
            }
            _ => {}
        }
    }
    let info = authorized.info();
    let entry = if version.is_empty() {
        store.find(&info.namespace, &info.name).await?
    } else {
        // A bad one is upstream's bare 500.
        let revision = parse_version(&version).map_err(ApiError::raw_internal)?;
        let snapshot = read_version(store, revision).await?;
        let key = store.key(&info.namespace, &info.name);
        store.look_up(&snapshot, &key, "get").await?
    };
    let entry = entry.ok_or_else(|| ApiError::not_found(&resource.gvr.group_resource(), &info.name))?;
    output::object(resource, &negotiated, entry.into(), StatusCode::OK).await
}
