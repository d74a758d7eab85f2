//! PUT.

use http::StatusCode;
use machinery::{ApiError, meta};
use serde_json::Value;

use super::{Call, body, options::WriteOptions, output};
use crate::cpu;
use crate::registry::strategy::Strategy;
use crate::request::Response;
use crate::write::managed;
use crate::write::{self, Preconditions, UpdateRules};

/// Replaces an object, or the part of it that the subresource is.
pub(super) async fn handle(
    call: &Call<'_>,
    strategy: &dyn Strategy,
    subresource: &str,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let options = WriteOptions::parse(call.head.uri.query(), "UpdateOptions", false)?;
    let mut object = body::object(call, &options).await?;
    cpu::slice().await;
    strategy.default(&mut object);
    call.record(&object);
    check_name(call, &mut object)?;
    managed::dedup_owners(call.authorized, &mut object, false);
    let uid = meta::uid(&object);
    let rules = UpdateRules {
        preconditions: Preconditions {
            uid: (!uid.is_empty()).then(|| uid.to_string()),
            resource_version: None,
        },
        retry: meta::resource_version(&object).is_empty(),
        create_check: Some(&*call.env.authorizer),
        ..UpdateRules::default()
    };
    cpu::slice().await;
    let write = call.write(strategy, subresource, &options);
    let mut transform = |live: Option<&Value>| {
        let mut object = object.clone();
        call.writer(strategy, subresource, &options)
            .record_ownership(live, &mut object);
        Ok(object)
    };
    let (stored, created) = write::update(&write, call.name(), &rules, &mut transform).await?;
    let code = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    output::object(call.resource, &negotiated, output::Source::Stored(stored), code).await
}

/// The refusal of an object without a name.
pub(super) fn unnamed(call: &Call<'_>) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        call.name()
    ))
}

/// The object's name must be the one in the URL.
pub(super) fn check_name(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let (name, namespace) = (call.name(), call.namespace());
    let own = meta::name(object);
    if own.is_empty() {
        return Err(unnamed(call));
    }
    if own != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        )));
    }
    let own = meta::namespace(object);
    if call.resource.scope == crate::resource::Scope::Namespaced && !own.is_empty() && own != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
