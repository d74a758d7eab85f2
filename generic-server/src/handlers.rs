//! The verbs: from an authorized request about a served resource to an answer. One file per verb, each thin.

pub(crate) mod body;
mod create;
mod delete;
#[cfg(test)]
pub(crate) mod fixture;
mod get;
pub(crate) mod list;
mod message;
mod options;
pub(crate) mod output;
mod patch;
mod scale;
mod served;
mod subresource;
mod table;
mod update;
pub mod watch;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::request::Parts;
use machinery::ApiError;
use parking_lot::Mutex;
use serde_json::Value;

use crate::handlers::options::WriteOptions;
use crate::negotiate::Negotiated;
use crate::registry::strategy::Strategy;
use crate::request::{Authorized, Body, Request, Response, Routed};
use crate::resource::{Backend, Scope, ServedResource, Subresource};
use crate::write::WriteCall;
use crate::write::managed::Writer;

pub use crate::resource::{MIN_REQUEST_TIMEOUT, ServeEnv};

/// A request being handled, taken apart.
struct Call<'a> {
    resource: &'a Arc<ServedResource>,
    env: &'a ServeEnv,
    authorized: &'a Authorized,
    head: Parts,
    /// Behind a lock only so that a call may be shared between threads: it is taken once.
    body: Mutex<Option<Body>>,
}

/// Answers a request for a resource, of any verb; errors are Statuses. The request's information names the verb, the
/// namespace, the name and the subresource.
///
/// Boxed: this is the seam between the chain and the resource handlers, where the type of all that is inside is forgotten.
pub fn serve<'a>(
    resource: &'a Arc<ServedResource>,
    env: &'a ServeEnv,
    authorized: &'a Authorized,
    request: Request,
) -> BoxFuture<'a, Response> {
    Box::pin(async move {
        let cbor = request
            .extensions()
            .get::<crate::negotiate::ServesCbor>()
            .is_some();
        let accept = crate::negotiate::error_form(request.uri(), request.headers(), cbor);
        let subresource = &authorized.info().subresource;
        let known = subresource.is_empty() || resource.subresource(subresource).is_some();
        let routed = if known {
            Routed::Everything
        } else {
            Routed::Resource
        };
        authorized.context().routed(routed);
        match dispatch(resource, env, authorized, request).await {
            Ok(response) => response,
            Err(error) => crate::respond::negotiated(&error, accept),
        }
    })
}

async fn dispatch(
    resource: &Arc<ServedResource>,
    env: &ServeEnv,
    authorized: &Authorized,
    request: Request,
) -> Result<Response, ApiError> {
    let info = authorized.info();
    check_path(resource, authorized, &request)?;
    if !info.subresource.is_empty() {
        return Box::pin(of_subresource(resource, env, authorized, request)).await;
    }
    let verb = &*info.verb;
    let reads = matches!(verb, "get" | "list" | "watch");
    if !resource.verbs.contains(&verb) || (reads && request.method() != http::Method::GET) {
        return Err(ApiError::method_not_allowed());
    }
    if resource.scope == Scope::Namespaced && info.namespace.is_empty() {
        // Across namespaces there are only lists and watches.
        match verb {
            "list" | "watch" => {}
            _ => return Err(ApiError::method_not_allowed()),
        }
    }
    note_deprecation(resource, authorized);
    let (head, body) = request.into_parts();
    let call = Call {
        resource,
        env,
        authorized,
        head,
        body: Mutex::new(Some(body)),
    };
    // What reads do not need is boxed, so that they do not hold its room.
    match (verb, &resource.backend) {
        ("create", Backend::Virtual(backend)) => {
            Box::pin(subresource::create_virtual(&call, &**backend)).await
        }
        ("get", Backend::Virtual(backend)) => {
            let negotiated = call.negotiate()?;
            let object = backend.get(authorized, &info.namespace, &info.name).await?;
            Box::pin(call.answer(&negotiated, object, http::StatusCode::OK)).await
        }
        ("list", Backend::Virtual(backend)) => {
            let items = backend.list(authorized, &info.namespace).await?;
            Box::pin(list::of_values(resource, authorized, &call.head, items)).await
        }
        ("get", _) => get::handle(resource, authorized, &call.head).await,
        ("list", _) => list::handle(resource, authorized, &call.head).await,
        ("watch", _) => {
            Box::pin(watch::handle(
                resource,
                authorized,
                &call.head,
                env.min_request_timeout,
            ))
            .await
        }
        ("create", _) => Box::pin(create::handle(&call, &*resource.strategy, "")).await,
        ("update", _) => Box::pin(update::handle(&call, &*resource.strategy, "")).await,
        ("patch", _) => Box::pin(patch::handle(&call, &*resource.strategy, "")).await,
        ("delete", _) => Box::pin(delete::handle(&call)).await,
        ("deletecollection", _) => Box::pin(delete::collection(&call)).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Warns of a deprecated resource, and records its use.
fn note_deprecation(resource: &ServedResource, authorized: &Authorized) {
    let Some(warning) = &resource.deprecation_warning else {
        return;
    };
    let context = authorized.context();
    context.warn(warning.clone());
    context.annotate(|| ("k8s.io/deprecated", "true"));
    let removed = warning
        .split_once("unavailable in v")
        .and_then(|(_, rest)| rest.split_once('+'));
    let removed = removed.filter(|_| !resource.custom);
    context.is_deprecated(removed.map_or("", |(release, _)| release));
    if let Some((release, _)) = removed {
        context.annotate(|| ("k8s.io/removed-release", release));
    }
}

/// Requests that upstream's routes exclude: methods that a path of this shape does not have.
fn check_path(resource: &ServedResource, authorized: &Authorized, request: &Request) -> Result<(), ApiError> {
    let info = authorized.info();
    let namespaced = resource.scope == Scope::Namespaced;
    if !namespaced && !info.namespace.is_empty() && resource.names.kind.as_ref() != "Namespace" {
        return Err(ApiError::no_such_path());
    }
    let named = !info
        .parts
        .get(1)
        .map(String::as_str)
        .unwrap_or_default()
        .is_empty();
    let everywhere = namespaced && info.namespace.is_empty();
    if everywhere && named {
        return Err(ApiError::no_such_path());
    }
    let fits = match &*info.verb {
        "list" | "watch" => true,
        "create" => !everywhere && (!named || !info.subresource.is_empty()),
        "deletecollection" => !everywhere,
        _ => !everywhere && named,
    };
    let takes_head = match resource.subresource(&info.subresource) {
        Some(Subresource::Connect(stream)) => stream.passes_all_methods(),
        _ => false,
    };
    if fits && (takes_head || request.method() != http::Method::HEAD) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

async fn of_subresource(
    resource: &Arc<ServedResource>,
    env: &ServeEnv,
    authorized: &Authorized,
    request: Request,
) -> Result<Response, ApiError> {
    let info = authorized.info();
    let Some(found) = resource.subresource(&info.subresource) else {
        return Err(ApiError::no_such_path());
    };
    note_deprecation(resource, authorized);
    if let Subresource::Connect(handler) = found {
        return subresource::connect(resource, env, authorized, &**handler, request).await;
    }
    let (head, body) = request.into_parts();
    let call = Call {
        resource,
        env,
        authorized,
        head,
        body: Mutex::new(Some(body)),
    };
    match (&*info.verb, found) {
        (verb, Subresource::View(strategy)) if !strategy.view_verbs().contains(&verb) => {
            Err(ApiError::method_not_allowed())
        }
        ("get", Subresource::View(_)) => get::handle(resource, authorized, &call.head).await,
        ("update", Subresource::View(strategy)) => {
            update::handle(&call, &**strategy, &info.subresource).await
        }
        ("patch", Subresource::View(strategy)) => patch::handle(&call, &**strategy, &info.subresource).await,
        ("create", Subresource::Create(creator)) => subresource::create_named(&call, &**creator).await,
        ("get", Subresource::Scale(paths)) => scale::get(&call, paths).await,
        ("update", Subresource::Scale(paths)) => scale::update(&call, paths).await,
        ("patch", Subresource::Scale(paths)) => scale::patch(&call, paths).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

impl<'a> Call<'a> {
    fn namespace(&self) -> &'a str {
        &self.authorized.info().namespace
    }

    fn name(&self) -> &'a str {
        &self.authorized.info().name
    }

    /// Records the object that was sent, where auditing wants it.
    fn record(&self, object: &Value) {
        if let Some(audit) = self.authorized.context().audit() {
            audit.request_object(object);
        }
    }

    /// The same for a patch.
    fn record_patch(&self, patch: &Value) {
        if let Some(audit) = self.authorized.context().audit() {
            audit.request_patch(patch);
        }
    }

    fn negotiate(&self) -> Result<Negotiated, ApiError> {
        crate::negotiate::negotiate(&self.head, self.resource.custom)
    }

    async fn answer(
        &self,
        negotiated: &Negotiated,
        object: Value,
        code: http::StatusCode,
    ) -> Result<Response, ApiError> {
        output::object(self.resource, negotiated, output::Source::Value(object), code).await
    }

    fn writer<'b>(
        &'b self,
        strategy: &'b dyn Strategy,
        subresource: &'b str,
        options: &'b WriteOptions,
    ) -> Writer<'b> {
        Writer {
            resource: self.resource,
            strategy,
            subresource,
            authorized: self.authorized,
            named: &options.field_manager,
        }
    }

    fn write<'b>(
        &'b self,
        strategy: &'b dyn Strategy,
        subresource: &'b str,
        options: &'b WriteOptions,
    ) -> WriteCall<'b> {
        WriteCall {
            resource: self.resource,
            strategy,
            admission: &self.env.admission,
            authorized: self.authorized,
            namespace: self.namespace(),
            subresource,
            dry_run: options.dry_run,
            options: Some(&options.object),
            unpruned: false,
        }
    }
}
