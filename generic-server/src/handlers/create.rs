//! POST.

use http::StatusCode;
use machinery::{ApiError, meta};

use super::{Call, body, options::WriteOptions, output};
use crate::cpu;
use crate::registry::managed;
use crate::registry::strategy::Strategy;
use crate::registry::write::{self, Stored};
use crate::request::Response;
use crate::resource::VirtualResource;

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
    write::wipe_system_fields(&mut object);
    write::match_namespace(&call.write(strategy, subresource, &options), &mut object)?;
    managed::dedup_owners(call.authorized, &mut object, false);
    call.writer(strategy, subresource, &options)
        .book(None, &mut object);
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

/// Creates an object that is only answered, never stored.
pub(super) async fn virtual_create(
    call: &Call<'_>,
    backend: &dyn VirtualResource,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let options = WriteOptions::parse(call.head.uri.query(), "CreateOptions", false)?;
    let mut object = body::object(call, &options).await?;
    cpu::slice().await;
    call.resource.strategy.default(&mut object);
    let write = call.write(&*call.resource.strategy, "", &options);
    let name = meta::name(&object).to_string();
    let attributes = write.attributes(crate::admission::Operation::Create, &name, None);
    write.admission.admit(&attributes, Some(&mut object)).await?;
    cpu::slice().await;
    write.admission.validate(&attributes, Some(&object)).await?;
    cpu::slice().await;
    let answer = backend
        .create(call.authorized, call.namespace(), object, options.dry_run)
        .await?;
    output::object(
        call.resource,
        &negotiated,
        output::Source::Stored(Stored::Value(answer)),
        StatusCode::CREATED,
    )
    .await
}
