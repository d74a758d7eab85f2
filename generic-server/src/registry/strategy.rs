//! The strategy of a kind. Everything has a default, so a plain kind is a few lines.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use machinery::schema::KindSchema;
use machinery::{ApiError, FieldError, GroupVersionKind};
use serde_json::Value;
use storage::Guard;

use crate::request::Authorized;

/// The write that a strategy looks at.
#[derive(Debug, Clone, Copy)]
pub struct WriteContext<'a> {
    /// The user and the request (warnings go to `authorized.context().warn`).
    pub authorized: &'a Authorized,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The kind being written.
    pub gvk: &'a GroupVersionKind,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// What [`Strategy::expression_faults`] found in the object, in no order that validation may rely on.
    pub expression_faults: &'a [FieldError],
}

/// Finds the faults of the expressions and patterns of an object.
pub type ExpressionFaults = for<'a> fn(&'a Value) -> BoxFuture<'a, Vec<FieldError>>;

/// The treatment of dependents when a delete names no propagation policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPropagation {
    /// They are collected in the background.
    Background,
    /// They are orphaned (jobs and replication controllers, with a warning for the former).
    Orphan,
    /// The kind has no part in garbage collection (`DELETE` with options about it is ignored).
    Unsupported,
}

/// A field that a field selector may name, besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone)]
pub struct SelectableField {
    /// As written in selectors: `spec.nodeName`.
    pub name: std::borrow::Cow<'static, str>,
    /// Its value in an object, as a string (empty when absent).
    pub value: FieldValue,
}

impl SelectableField {
    /// Whether the other is the same field. False for two that are computed by copies of one function, too.
    pub(super) fn reads_as(&self, other: &SelectableField) -> bool {
        let value = match (&self.value, &other.value) {
            (FieldValue::Path(one), FieldValue::Path(other)) => one == other,
            (FieldValue::Compute(one), FieldValue::Compute(other)) => std::ptr::fn_addr_eq(*one, *other),
            (FieldValue::Path(_), FieldValue::Compute(_)) | (FieldValue::Compute(_), FieldValue::Path(_)) => {
                false
            }
        };
        value && self.name == other.name
    }
}

/// Where a selectable field's value comes from.
#[derive(Debug, Clone)]
pub enum FieldValue {
    /// The scalar at this path of keys; absent reads as the empty string.
    Path(Box<[std::borrow::Cow<'static, str>]>),
    /// Computed.
    Compute(fn(&Value) -> String),
}

impl SelectableField {
    /// A field whose selector name is its path: `spec.nodeName`.
    pub fn path(name: &'static str) -> Self {
        SelectableField {
            name: name.into(),
            value: FieldValue::Path(name.split('.').map(std::borrow::Cow::Borrowed).collect()),
        }
    }

    /// The value in an object.
    pub fn of(&self, object: &Value) -> String {
        match &self.value {
            FieldValue::Compute(f) => f(object),
            FieldValue::Path(path) => match path.iter().try_fold(object, |v, k| v.get(&**k)) {
                Some(Value::String(s)) => s.clone(),
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(),
            },
        }
    }
}

/// A version of a built-in kind that is of another shape than the one at hand.
#[derive(Debug, Clone, Copy)]
pub struct OtherVersion {
    /// It.
    pub api_version: &'static str,
    /// Makes an object of the version at hand one of this version.
    pub to: fn(Value) -> Result<Value, ApiError>,
    /// The way back.
    pub from: fn(Value) -> Result<Value, ApiError>,
}

/// The schemas of a custom resource's versions, where each version has its own.
pub trait VersionSchemas: Send + Sync {
    /// That of a version; `None` when the resource has no such version.
    fn schema(&self, api_version: &str) -> Option<&KindSchema>;
}

/// The versions for which a write resets fields. Fields may be owned in any version of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetVersions<'a> {
    /// Any: those of built-in kinds reset the same fields.
    All,
    /// The one that is written in.
    Own,
    /// These, as `apiVersion`s.
    These(&'a [String]),
}

/// How a name is judged: gives the faults in upstream's words. The flag says that `generateName` is meant (a prefix).
pub type NameRule = fn(&str, bool) -> Vec<String>;

/// How long an object may take to go (upstream's graceful deletion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// At once.
    Immediate,
    /// The object is marked with this many seconds and deleted by another component (the kubelet), or shortened later.
    Seconds(i64),
}

/// What a kind's own validation looks at in metadata, beyond what is common to all writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRules {
    /// All of it on create, the name by the kind's rule. Else only what is common, and only of an object without other faults.
    pub on_create: bool,
    /// All of it on update, too: `generateName` by the kind's rule.
    pub on_update: bool,
    /// What may not change, on update.
    pub changes: bool,
    /// Finalizers without a domain have to be the standard ones.
    pub standard_finalizers: bool,
}

impl MetadataRules {
    /// What most kinds do.
    pub const ALL: MetadataRules = MetadataRules {
        on_create: true,
        on_update: true,
        changes: true,
        standard_finalizers: true,
    };
    /// Nothing.
    pub const NONE: MetadataRules = MetadataRules {
        on_create: false,
        on_update: false,
        changes: false,
        standard_finalizers: false,
    };
    /// All of it, on create alone.
    pub const CREATE: MetadataRules = MetadataRules {
        on_update: false,
        ..MetadataRules::ALL
    };
    /// All of it, on update as on create.
    pub const AS_NEW: MetadataRules = MetadataRules {
        changes: false,
        ..MetadataRules::ALL
    };
    /// All of it, with any qualified name as a finalizer.
    pub const ANY_FINALIZER: MetadataRules = MetadataRules {
        standard_finalizers: false,
        ..MetadataRules::ALL
    };
}

/// The strategy of a kind, or of one of its subresources that write the whole object (`status`).
///
/// Methods are called in this order for a create: `default`, (mutating admission), `prepare_for_create`, `validate_create`,
/// `warnings_on_create`, (validating admission); for an update `default`, (mutating admission), `prepare_for_update`,
/// `validate_update`, `warnings_on_update`, (validating admission). Objects are of the served version. They are pure: hooks
/// that need the store or allocate are a [`WriteHooks`].
pub trait Strategy: Send + Sync + Debug {
    /// Fills in defaults that the schema does not state. Runs on what clients send and on what was stored by older versions.
    fn default(&self, _object: &mut Value) {}

    /// Judges names; upstream's usual rule is a DNS subdomain.
    fn name_rule(&self) -> NameRule {
        crate::registry::strategy::subdomain_name
    }

    /// What the kind's own validation looks at in metadata.
    fn metadata_rules(&self) -> MetadataRules {
        MetadataRules::ALL
    }

    /// The group that refusals name, where it is another than the resource's.
    fn error_group(&self) -> Option<&'static str> {
        None
    }

    /// Clears what clients may not set on create (status, generation 1, ...).
    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, _object: &mut Value) {}

    /// Whether validation may take long however small the object is: rules are evaluated. It leaves the threads that serve
    /// connections then.
    fn is_costly(&self) -> bool {
        false
    }

    /// Compiles the expressions and patterns of an object before its validation, in slices ([`crate::cpu::slice`]): an object of a few
    /// kilobytes may hold seconds of it. Validation finds the faults in its context.
    fn expression_faults(&self) -> Option<ExpressionFaults> {
        None
    }

    /// Faults of a new object. Metadata has been checked already.
    fn validate_create(&self, _ctx: &WriteContext<'_>, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Warnings for a new object.
    fn warnings_on_create(&self, _ctx: &WriteContext<'_>, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Copies from `old` what this write may not touch (status for a spec write, spec for a status write) and moves generation.
    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, _object: &mut Value, _old: &Value) {}

    /// Faults of a changed object. Metadata has been checked already.
    fn validate_update(&self, _ctx: &WriteContext<'_>, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Warnings for a changed object.
    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, _object: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Brings the object to its stored form after validation.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Shapes an object on its way out (defaults on read, write-only fields). `None` leaves the stored bytes as they are,
    /// which is what keeps reads cheap: answer `Some` only for kinds that need it.
    fn decorate(&self) -> Option<&(dyn Fn(&mut Value) + Send + Sync)> {
        None
    }

    /// Objects written at this revision or later are stored as [`Strategy::decorate`] would have them, so their bytes are
    /// served as they are. `None`: none are.
    fn decorated_since(&self) -> Option<storage::Revision> {
        None
    }

    /// PUT creates what is not there.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// PUT without resourceVersion overwrites.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// The propagation of deletes without a policy.
    fn default_propagation(&self) -> DefaultPropagation {
        DefaultPropagation::Background
    }

    /// The other versions that the kind is served in with another shape, for field ownership.
    fn other_versions(&self) -> &'static [OtherVersion] {
        &[]
    }

    /// The schemas of all versions, where each has its own, for field ownership.
    fn version_schemas(&self) -> Option<&dyn VersionSchemas> {
        None
    }

    /// A warning for deletions that say nothing about dependents.
    fn warning_on_delete(&self) -> Option<&'static str> {
        None
    }

    /// DELETE answers the deleted object rather than a Status.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// OpenAPI documents say so, too. Upstream's say that a deleted namespace is answered by a Status.
    fn documents_deleted_object(&self) -> bool {
        self.returns_deleted_object()
    }

    /// The verbs of the subresource that is a view of the object with this strategy.
    fn view_verbs(&self) -> &'static [&'static str] {
        &["get", "patch", "update"]
    }

    /// How a delete that names `asked` seconds of grace (`None` when it names none) goes. Only pods take time.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Grace {
        Grace::Immediate
    }

    /// Something of the kind's own, besides `metadata.finalizers`, holds a deletion back (a namespace's `spec.finalizers`).
    fn held_back(&self, _object: &Value) -> bool {
        false
    }

    /// Adjusts an object that was just marked for deletion and waits (a namespace's phase).
    fn mark_deleting(&self, _object: &mut Value) {}

    /// Refuses or adjusts a deletion before anything else (protection of system objects).
    fn validate_delete(&self, _ctx: &WriteContext<'_>, _object: &Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// A kind that is taken apart before it goes marks the object here when its deletion is first asked for (deletion
    /// timestamp, a finalizer, a condition) and answers true: it is stored like that, and another component removes it later.
    fn mark_for_deletion(&self, _object: &mut Value) -> bool {
        false
    }

    /// Fields that this write resets, as dotted paths for field ownership (upstream's `GetResetFields`): `["status"]` for the main
    /// resource, `["spec"]`, `["metadata", ...]` for status.
    fn reset_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The versions for which these fields are reset.
    fn reset_versions(&self) -> ResetVersions<'_> {
        ResetVersions::All
    }

    /// Fields that selectors may name.
    fn selectable_fields(&self) -> Vec<SelectableField> {
        Vec::new()
    }

    /// The field of [`Strategy::selectable_fields`] that a selector means by a name. Versions that share a store may name fields in their own
    /// way.
    fn stored_field<'f>(&self, field: &'f str) -> Option<&'f str> {
        Some(field)
    }

    /// The refusal of a selector for another field, of kinds that have fields of their own.
    fn unsupported_field(&self, _kind: &GroupVersionKind, field: &str) -> String {
        machinery::selector::field::unsupported_field(field)
    }

    /// Hooks that need the store, allocate, or act after the commit.
    fn hooks(&self) -> Option<&dyn WriteHooks> {
        None
    }
}

/// Undoes or completes what a hook began. Dropped without `commit`, it must undo.
pub trait Finisher: Send + Debug {
    /// Other keys of the object's engine that have to be as the hook left them in the transaction that stores the object: a write
    /// that arrives late, when what the hook made has been undone, is then refused.
    fn guards(&self) -> Vec<Guard> {
        Vec::new()
    }

    /// The write is stored.
    fn commit(self: Box<Self>);
}

/// What a kind does around its writes with other objects: allocating cluster IPs, releasing them, cascades, asking for a permission.
#[async_trait::async_trait]
pub trait WriteHooks: Send + Sync {
    /// Before validation of a create; may change the object. With `ctx.dry_run` nothing may be kept.
    async fn begin_create(
        &self,
        _ctx: &WriteContext<'_>,
        _object: &mut Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        Ok(None)
    }

    /// Before validation of an update; may change the object.
    async fn begin_update(
        &self,
        _ctx: &WriteContext<'_>,
        _object: &mut Value,
        _old: &Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        Ok(None)
    }

    /// Faults that other objects or the authorizer show, before those of validation. `old` is the object before an update.
    async fn faults(
        &self,
        _ctx: &WriteContext<'_>,
        _object: &Value,
        _old: Option<&Value>,
    ) -> Result<Vec<FieldError>, ApiError> {
        Ok(Vec::new())
    }

    /// Refuses an object without other faults that its writer may not write. `old` is the object before an update.
    async fn authorize(
        &self,
        _ctx: &WriteContext<'_>,
        _object: &Value,
        _old: Option<&Value>,
    ) -> Result<Option<FieldError>, ApiError> {
        Ok(None)
    }

    /// After an object was really removed from the store.
    async fn after_delete(&self, _ctx: &WriteContext<'_>, _object: &Value) {}
}

/// The usual rule of names: an RFC 1123 subdomain.
pub fn subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    machinery::names::name_is_dns_subdomain(name, prefix)
}
