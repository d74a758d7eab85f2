//! POST.

use http::StatusCode;
use machinery::ApiError;

use super::{Call, body, options::WriteOptions, output};
use crate::cpu;
use crate::registry::strategy::Strategy;
use crate::request::Response;
use crate::write::{self, managed};

/// Creates an object.
pub(super) async fn handle(
    call: &Call<'_>,
    strategy: &dyn Strategy,
    subresource: &str,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let options = WriteOptions::parse(call.head.uri.query(), "CreateOptions", false)?;
    let mut object = body::object(call, &options).await?;
    cpu::slice().await;
    strategy.default(&mut object);
    call.record(&object);
    write::wipe_system_fields(&mut object);
    write::match_namespace(&call.write(strategy, subresource, &options), &mut object)?;
    managed::dedup_owners(call.authorized, &mut object, false);
    call.writer(strategy, subresource, &options)
        .record_ownership(None, &mut object);
    cpu::slice().await;
    let stored = write::create(&call.write(strategy, subresource, &options), object).await?;
    output::object(
        call.resource,
        &negotiated,
        output::Source::Stored(stored),
        StatusCode::CREATED,
    )
    .await
}
