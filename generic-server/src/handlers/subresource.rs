//! POST of an object that is answered rather than stored, and streams: the shared part of reviews, bindings, evictions and tokens.
//! Mirrors `createHandler` and `ConnectResource` of k8s.io/apiserver.

use http::{Method, StatusCode};
use machinery::apply::{self, SameShape};
use machinery::schema::{KindSchema, builtin};
use machinery::{ApiError, GroupVersionKind, meta};
use serde_json::{Value, json};

use super::{Call, ServeEnv, body, options::WriteOptions, output};
use crate::admission::{AdmissionChain, Attributes, Operation};
use crate::cpu;
use crate::negotiate::{self, Negotiated};
use crate::request::{Authorized, Request, Response};
use crate::request_info::query_value;
use crate::resource::{
    Answer, Connect, ConnectCall, CreateCall, NamedCreate, Outcome, ServedResource, Validation,
    VirtualResource,
};
use crate::write::{self, managed};

/// A posted object, on its way to its subresource's handler.
struct Posted<'a> {
    kind: &'a GroupVersionKind,
    schema: Option<&'a KindSchema>,
    subresource: &'a str,
    /// The resource that the object is of; `None` for a kind of the subresource's own.
    resource: Option<&'a ServedResource>,
    keeps_uid: bool,
    options: &'a WriteOptions,
    object: Value,
}

/// Validating admission with the attributes of one request.
struct Validating<'a> {
    chain: &'a AdmissionChain,
    attributes: Attributes<'a>,
}

#[async_trait::async_trait]
impl Validation for Validating<'_> {
    async fn validate(&self, object: &Value) -> Result<(), ApiError> {
        self.chain.validate(&self.attributes, Some(object)).await
    }
}

/// The handlers of a posted object.
enum Creator<'a> {
    Virtual(&'a dyn VirtualResource),
    Named(&'a dyn NamedCreate),
}

impl Creator<'_> {
    async fn create(&self, call: &CreateCall<'_>, object: Value) -> Result<Answer, ApiError> {
        match self {
            Self::Virtual(resource) => resource.create(call, object).await,
            Self::Named(subresource) => subresource.create(call, object).await,
        }
    }
}

/// Creates an object of a resource that stores none.
pub(super) async fn create_virtual(
    call: &Call<'_>,
    resource: &dyn VirtualResource,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let options = WriteOptions::parse(call.head.uri.query(), "CreateOptions", false)?;
    let mut object = body::object(call, &options).await?;
    cpu::slice().await;
    call.resource.strategy.default(&mut object);
    call.record(&object);
    let posted = Posted {
        kind: &call.resource.gvk,
        schema: call.resource.schema(),
        subresource: "",
        resource: Some(call.resource),
        keeps_uid: false,
        options: &options,
        object,
    };
    create(call, &negotiated, posted, Creator::Virtual(resource)).await
}

/// Creates through a named subresource.
pub(super) async fn create_named(
    call: &Call<'_>,
    subresource: &dyn NamedCreate,
) -> Result<Response, ApiError> {
    let negotiated = negotiate::negotiate_created(&call.head, call.resource.custom)?;
    let options = WriteOptions::parse(call.head.uri.query(), "CreateOptions", false)?;
    let kind = subresource.kind();
    let schema = builtin().kind(&kind.group, &kind.version, &kind.kind);
    let version = kind.api_version();
    let others = subresource.other_versions().iter().copied();
    let versions: Vec<&str> = std::iter::once(&*version).chain(others).collect();
    let mut object = body::typed_as(call, schema.as_ref(), &versions, &kind.kind, &options).await?;
    cpu::slice().await;
    subresource.default(&mut object);
    call.record(&object);
    let posted = Posted {
        kind: &kind,
        schema: schema.as_ref(),
        subresource: &call.authorized.info().subresource,
        resource: None,
        keeps_uid: subresource.keeps_uid(),
        options: &options,
        object,
    };
    create(call, &negotiated, posted, Creator::Named(subresource)).await
}

async fn create(
    call: &Call<'_>,
    negotiated: &Negotiated,
    posted: Posted<'_>,
    creator: Creator<'_>,
) -> Result<Response, ApiError> {
    let Posted {
        kind,
        options,
        mut object,
        ..
    } = posted;
    let uid = meta::uid(&object).to_string();
    write::wipe_system_fields(&mut object);
    if posted.keeps_uid && !uid.is_empty() {
        meta::set(&mut object, "uid", uid);
    }
    let strategy = &*call.resource.strategy;
    write::match_namespace(&call.write(strategy, posted.subresource, options), &mut object)?;
    let name = match call.name() {
        "" => meta::name(&object).to_string(),
        name => name.to_string(),
    };
    managed::dedup_owners(call.authorized, &mut object, false);
    if let Some(schema) = posted.schema {
        own_fields(call, kind, schema, posted.subresource, options, &mut object);
    }
    cpu::slice().await;
    let attributes = Attributes {
        authorized: call.authorized,
        operation: Operation::Create,
        gvk: kind,
        gvr: &call.resource.gvr,
        subresource: posted.subresource,
        namespace: call.namespace(),
        name: &name,
        old: None,
        dry_run: options.dry_run,
        options: Some(&options.object),
        resource: posted.resource.map(|resource| crate::admission::ObjectKind {
            decoding: &resource.decoding,
            strategy: &*resource.strategy,
        }),
        rounds: None,
    };
    let chain = &call.env.admission;
    chain.admit(&attributes, Some(&mut object)).await?;
    managed::dedup_owners(call.authorized, &mut object, true);
    cpu::slice().await;
    let validation = Validating { chain, attributes };
    let request = CreateCall {
        authorized: call.authorized,
        namespace: call.namespace(),
        name: &name,
        dry_run: options.dry_run,
        validation: &validation,
    };
    let Answer(outcome) = creator.create(&request, object).await?;
    cpu::slice().await;
    let (object, code) = match outcome {
        Outcome::Done => return done(negotiated),
        Outcome::Created(object) => (object, StatusCode::CREATED),
        Outcome::Report(report) => (report, StatusCode::OK),
    };
    output::object(call.resource, negotiated, output::Source::Value(object), code).await
}

/// Records the posted fields as the client's, as for any create: answers of kinds that have metadata show it.
fn own_fields(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    schema: &KindSchema,
    subresource: &str,
    options: &WriteOptions,
    object: &mut Value,
) {
    let api_version = kind.api_version();
    let versions = SameShape {
        api_versions: &[&api_version],
        schema: schema.root(),
    };
    let now = write::now();
    let manager = managed::manager(&options.field_manager, call.authorized);
    let options = apply::Options {
        manager: &manager,
        subresource,
        kind,
        now: &now,
        filters: &[],
    };
    apply::update(None, object, &versions, &options);
}

/// The Status of something done.
fn done(negotiated: &Negotiated) -> Result<Response, ApiError> {
    let code = StatusCode::CREATED;
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success",
        "code": code.as_u16()});
    crate::respond::status(negotiated, status, code)
}

/// Whether a stream takes a method. The verb, which the request was authorized for, has to be that of the method.
fn is_served(stream: &dyn Connect, method: &Method, verb: &str) -> bool {
    let (of_method, passes) = match *method {
        Method::GET => ("get", false),
        Method::HEAD => ("get", true),
        Method::POST => ("create", false),
        Method::PUT => ("update", false),
        Method::PATCH => ("patch", false),
        Method::DELETE => ("delete", false),
        Method::OPTIONS => return verb.is_empty() && stream.passes_all_methods(),
        _ => return false,
    };
    verb == of_method && stream.verbs().contains(&verb) && (!passes || stream.passes_all_methods())
}

/// Passes a request to a stream, once admission has let it pass.
pub(super) async fn connect(
    resource: &ServedResource,
    env: &ServeEnv,
    authorized: &Authorized,
    stream: &dyn Connect,
    request: Request,
) -> Result<Response, ApiError> {
    let info = authorized.info();
    let verb = &*info.verb;
    if verb == "watch" {
        // Under `/watch/` the verb is that, whatever the method.
        return Err(ApiError::no_such_path());
    }
    if !is_served(stream, request.method(), verb) {
        return Err(ApiError::method_not_allowed());
    }
    let query = request.uri().query().unwrap_or_default();
    if !stream.is_read() && query_value(query, "dryRun").is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let mut connected = stream.options(info, query)?;
    if !stream.is_read() {
        let attributes = Attributes {
            authorized,
            operation: Operation::Connect,
            gvk: &stream.kind(),
            gvr: &resource.gvr,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            old: None,
            dry_run: false,
            options: None,
            resource: None,
            rounds: None,
        };
        env.admission.admit(&attributes, Some(&mut connected)).await?;
        env.admission.validate(&attributes, Some(&connected)).await?;
    }
    let call = ConnectCall {
        authorized,
        gvr: &resource.gvr,
        namespace: &info.namespace,
        name: &info.name,
        options: &connected,
    };
    stream.connect(call, request).await
}
