//! Writing as a request does it: admission, strategy, metadata rules, preconditions, dry run, and the retry loop around a
//! guarded commit. Mirrors upstream's `registry/generic/registry/store.go` with `rest.BeforeCreate/BeforeUpdate/BeforeDelete`.
//!
//! Objects in and out are of the served version; the [`crate::resource::Converter`] stands between them and the store.
//! Handlers call this; so do the server's own controllers, as [`Authorized::system`].

mod collection;
mod create;
mod delete;
pub(crate) mod managed;
pub(crate) mod metadata;
mod update;

use std::sync::Arc;

use machinery::time::Timestamp;
use machinery::{ApiError, FieldError, Reason, codec, meta};
use serde_json::Value;

use crate::admission::{self, AdmissionChain, Operation};
use crate::cpu;
use crate::registry::View;
use crate::registry::cache::Entry;
use crate::registry::strategy::{Strategy, WriteContext};
use crate::request::Authorized;
use crate::resource::{Conversion, Decoding, Scope, ServedResource};
use managed::Writer;

pub use collection::delete_collection;
pub use create::create;
pub(crate) use delete::IGNORE_READ_ERROR;
pub use delete::{DeleteOptions, Deleted, delete, delete_unread};
pub(crate) use metadata::wipe_system_fields;
pub use update::{Preconditions, Transform, UpdateRules, update};

/// A write of one resource: user, resource, name and options. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct WriteCall<'a> {
    /// The resource at the version that is written.
    pub resource: &'a ServedResource,
    /// Its strategy, or that of the subresource.
    pub strategy: &'a dyn Strategy,
    /// The server's admission chain.
    pub admission: &'a AdmissionChain,
    /// The proof of authorization, with the user.
    pub authorized: &'a Authorized,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// Everything runs, nothing is stored.
    pub dry_run: bool,
    /// The request's options as an object, for admission.
    pub options: Option<&'a Value>,
    /// The object is one of a custom kind that apply has merged: it is pruned after its validation, as upstream does when it stores it.
    pub unpruned: bool,
}

/// The result of a write: the object as it is stored, or as it would be.
#[derive(Debug, Clone)]
pub enum Stored {
    /// In the store, in the stored version: its bytes can be sent as they are (or through the converter).
    Entry(Arc<Entry>),
    /// Not stored (dry run, or removed by the write), in the served version.
    Value(Value),
}

impl Stored {
    /// The object in the served version, parsed.
    pub async fn value(&self, resource: &ServedResource) -> Result<Value, ApiError> {
        match self {
            Stored::Entry(entry) => served(resource, entry).await,
            Stored::Value(value) => Ok(value.clone()),
        }
    }
}

/// An entry's object in the served version, parsed, with the strategy's defaults.
pub async fn served(resource: &ServedResource, entry: &Arc<Entry>) -> Result<Value, ApiError> {
    let mut object = match resource.remote() {
        Some(remote) => {
            let json = remote.from_stored(std::slice::from_ref(entry)).await?;
            let json = json.first().map(|b| &b[..]).unwrap_or_default();
            machinery::codec::json::value(json).map_err(ApiError::internal)?
        }
        None => entry.value(),
    };
    if let Some(converter) = resource.rule() {
        object = converter.from_stored(object)?;
    }
    match resource.strategy.decorate() {
        Some(decorate) => decorate(&mut object),
        None => resource.strategy.default(&mut object),
    }
    Ok(object)
}

impl<'a> WriteCall<'a> {
    /// A write by the server itself, without admission.
    pub fn internal(
        resource: &'a ServedResource,
        authorized: &'a Authorized,
        none: &'a AdmissionChain,
        namespace: &'a str,
    ) -> Self {
        WriteCall {
            resource,
            strategy: &*resource.strategy,
            admission: none,
            authorized,
            namespace,
            subresource: "",
            dry_run: false,
            options: None,
            unpruned: false,
        }
    }

    fn store(&self) -> Result<View<'a>, ApiError> {
        let store = self.resource.store().ok_or_else(ApiError::method_not_allowed)?;
        Ok(store.view(self.authorized))
    }

    fn context(&self) -> WriteContext<'a> {
        WriteContext {
            authorized: self.authorized,
            namespace: self.namespace,
            gvk: &self.resource.gvk,
            dry_run: self.dry_run,
            expression_faults: &[],
        }
    }

    /// What [`crate::registry::strategy::WriteContext::expression_faults`] is to be for the validation of this object.
    async fn expression_faults(&self, object: &Value) -> Vec<FieldError> {
        match self.strategy.expression_faults() {
            Some(find) => find(object).await,
            None => Vec::new(),
        }
    }

    /// What the kind's hooks find.
    async fn faults(&self, object: &Value, old: Option<&Value>) -> Result<Vec<FieldError>, ApiError> {
        match self.strategy.hooks() {
            Some(hooks) => hooks.faults(&self.context(), object, old).await,
            None => Ok(Vec::new()),
        }
    }

    /// What the kind's hooks refuse, of an object without these faults.
    async fn refusal(
        &self,
        errors: &[FieldError],
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Option<FieldError>, ApiError> {
        match self.strategy.hooks() {
            Some(hooks) if errors.is_empty() => hooks.authorize(&self.context(), object, old).await,
            _ => Ok(None),
        }
    }

    pub(crate) fn attributes<'b>(
        &'b self,
        operation: Operation,
        name: &'b str,
        old: Option<&'b Value>,
    ) -> admission::Attributes<'b>
    where
        'a: 'b,
    {
        admission::Attributes {
            authorized: self.authorized,
            operation,
            gvk: &self.resource.gvk,
            gvr: &self.resource.gvr,
            subresource: self.subresource,
            namespace: self.namespace,
            name,
            old,
            dry_run: self.dry_run,
            options: self.options,
            resource: Some(admission::ObjectKind {
                decoding: &self.resource.decoding,
                strategy: &*self.resource.strategy,
            }),
            rounds: None,
        }
    }

    /// Lets a write that may take long however small it is leave the threads that serve connections.
    async fn leave_when_costly(&self) {
        /// Groups whose objects are compiled or joined with others to be validated.
        const GROUPS: [&str; 3] = [
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "rbac.authorization.k8s.io",
        ];
        if self.strategy.is_costly() || GROUPS.contains(&&*self.resource.gvk.group) {
            cpu::pause(cpu::Lane::Bodies).await;
        }
    }

    fn namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }

    /// Brings a valid object to the form in which it is stored.
    fn canonicalize(&self, object: &mut Value) {
        if self.unpruned {
            self.resource.decoding.prune(object);
        }
        self.strategy.canonicalize(object);
    }

    /// Makes of an object of a built-in kind what upstream's storage gives back: no empty lists.
    fn drop_empty_lists(self, object: &mut Value) {
        if let Decoding::Builtin(schema) = &self.resource.decoding {
            codec::typed::drop_empty_lists(schema.root(), object);
        }
    }

    /// An object as it would be read after it was stored: in another version, it may lose what that does not have.
    fn as_if_stored(self, object: Value) -> Result<Value, ApiError> {
        match &self.resource.converter {
            Some(Conversion::Rule(converter)) if self.resource.custom => {
                converter.from_stored(converter.to_stored(object)?)
            }
            _ => Ok(object),
        }
    }

    async fn into_stored(self, object: Value) -> Result<Value, ApiError> {
        match &self.resource.converter {
            Some(Conversion::Rule(converter)) => converter.to_stored(object),
            Some(Conversion::Remote(converter)) => converter.to_stored(object).await,
            None => Ok(object),
        }
    }

    /// 422. Custom objects are named by the kind they claim to be.
    fn invalid(&self, object: &Value, errors: &[FieldError]) -> ApiError {
        let mut kind = self.resource.gvk.group_kind();
        if let Some(group) = self.strategy.error_group() {
            kind.group = group.into();
        }
        if self.resource.custom {
            kind.kind = meta::kind(object).into();
        }
        ApiError::invalid(&kind, meta::name(object), errors)
    }
}

/// Records the ownership of fields that a controller of the server itself has changed, under the manager that upstream's controllers use.
pub fn record_own_write(call: &WriteCall<'_>, live: &Value, object: &mut Value) {
    let writer = Writer {
        resource: call.resource,
        strategy: call.strategy,
        subresource: call.subresource,
        authorized: call.authorized,
        named: "kube-apiserver",
    };
    writer.record_ownership(Some(live), object);
}

/// Applies a configuration of the server itself under a manager of its own, taking over what others own.
pub(crate) fn apply_own_write(
    call: &WriteCall<'_>,
    live: &Value,
    configuration: &Value,
    manager: &str,
) -> Result<Value, ApiError> {
    let writer = Writer {
        resource: call.resource,
        strategy: call.strategy,
        subresource: call.subresource,
        authorized: call.authorized,
        named: manager,
    };
    let applied = writer.apply(Some(live), configuration, true)?;
    call.resource.decoding.reread_merged(applied)
}

/// The stored form of an object: without the fields that the store itself adds.
fn without_version(mut object: Value) -> Value {
    meta::set(&mut object, "resourceVersion", Value::Null);
    object
}

/// The namespace of the object must be that of the request; an absent one is filled in.
pub(crate) fn match_namespace(call: &WriteCall<'_>, object: &mut Value) -> Result<(), ApiError> {
    let own = meta::namespace(object);
    let wanted = if call.namespaced() { call.namespace } else { "" };
    if own == wanted {
        return Ok(());
    }
    if own.is_empty() {
        meta::set(object, "namespace", wanted);
        return Ok(());
    }
    if wanted.is_empty() {
        meta::set(object, "namespace", Value::Null);
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// The resourceVersion of what a client sends, zero when absent. Malformed is a 500, as upstream has it.
fn sent_version(object: &Value) -> Result<u64, ApiError> {
    let text = meta::resource_version(object);
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let shown = machinery::go::quote(text);
        let message = format!("strconv.ParseUint: parsing {shown}: invalid syntax");
        ApiError::new(500, Reason::Unknown, message)
    })
}

/// Now, as metadata has it: RFC 3339 in whole seconds, UTC.
pub fn now() -> String {
    Timestamp::now().to_rfc3339()
}
