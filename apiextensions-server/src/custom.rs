//! The strategy of instances of a CRD: generation, status, validation by schema and rules.
//! Mirrors `pkg/registry/customresource/{strategy,status_strategy,validator}.go`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use generic_server::registry::strategy::{
    Finisher, NameRule, ResetVersions, SelectableField, Strategy, VersionSchemas, WriteContext, WriteHooks,
};
use generic_server::resource::ScalePaths;
use machinery::accessor::{self, dotted};
use machinery::field::FieldErrorKind;
use machinery::go;
use machinery::names::{name_is_dns_subdomain, qualified_name};
use machinery::schema::validate::Correlated;
use machinery::{ApiError, FieldError, FieldPath, GroupResource, GroupVersionKind, meta};
use machinery::{codec, custom};
use serde_json::{Map, Value};
use storage::Revision;

use crate::definition::VersionInfo;
use crate::props::Props;
use crate::read_back::{coerce, read_back};
use crate::rules::RuleTree;
use crate::schema::{self, Compiled};
use crate::siblings::Siblings;
use crate::usage::{RuleTimes, Usage};
use crate::{embedded, list_types};

/// A version of a CRD as its strategies need it; shared by the main one and that of the status.
pub(crate) struct Shape {
    gvk: GroupVersionKind,
    resource: GroupResource,
    /// `None`: anything goes.
    pub(crate) schema: Option<Compiled>,
    has_status: bool,
    /// The versions with a status of its own, as `apiVersion`s.
    status_versions: Vec<String>,
    scale: Option<ScalePaths>,
    selectable: Vec<SelectableField>,
    /// And where their times are counted.
    rules: Option<(RuleTree, Arc<RuleTimes>)>,
    /// The CRD is being deleted.
    terminating: Arc<AtomicBool>,
    /// Where the time of rule evaluations is recorded.
    usage: Arc<Usage>,
    /// The schemas of all versions, where each has its own.
    siblings: Option<Arc<Siblings>>,
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape")
            .field("gvk", &self.gvk)
            .finish_non_exhaustive()
    }
}

impl Shape {
    /// Whether the validation of a small object may take long.
    fn is_costly(&self) -> bool {
        self.rules.is_some()
            || self
                .schema
                .as_ref()
                .is_some_and(|schema| schema.has_heavy_patterns)
    }

    /// Without schema: for what judges and changes no object.
    pub(crate) fn bare(
        gvk: &GroupVersionKind,
        resource: GroupResource,
        selectable: Vec<SelectableField>,
        terminating: Arc<AtomicBool>,
    ) -> Arc<Self> {
        Arc::new(Shape {
            gvk: gvk.clone(),
            resource,
            schema: None,
            has_status: false,
            status_versions: Vec::new(),
            scale: None,
            selectable,
            rules: None,
            terminating,
            usage: Arc::default(),
            siblings: None,
        })
    }

    /// With the schema of a version compiled. A schema that does not compile (stored before it was refused) is a 500, as
    /// upstream has it.
    pub(crate) async fn compile(
        gvk: &GroupVersionKind,
        resource: GroupResource,
        raw: Option<&Value>,
        version: &VersionInfo,
        selectable: Vec<SelectableField>,
        terminating: Arc<AtomicBool>,
        (usage, times): (Arc<Usage>, &Arc<RuleTimes>),
    ) -> Result<Self, ApiError> {
        let compile = |raw| {
            schema::compile(raw).map_err(|faults| {
                let first = faults.first().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(kind = %gvk, fault = %first, "the schema of a stored CRD does not compile");
                ApiError::internal("error resolving resource")
            })
        };
        let schema = raw.map(compile).transpose()?;
        let begun = Instant::now();
        let rules = match raw {
            Some(raw) => RuleTree::compile(Props::new(raw)).await,
            None => None,
        };
        let rules = rules.map(|rules| {
            times.compiled(begun.elapsed());
            (rules, times.clone())
        });
        Ok(Shape {
            gvk: gvk.clone(),
            resource,
            schema,
            has_status: version.has_status,
            status_versions: Vec::new(),
            scale: version.scale.clone(),
            selectable,
            rules,
            terminating,
            usage,
            siblings: None,
        })
    }

    /// The same beside other versions, by whose schemas the entries of managed fields of theirs are compared.
    pub(crate) fn with_siblings(self, siblings: Option<Arc<Siblings>>) -> Self {
        Shape { siblings, ..self }
    }

    /// The same, with the versions that have a status of its own.
    pub(crate) fn with_status_versions(self, status_versions: Vec<String>) -> Self {
        Shape {
            status_versions,
            ..self
        }
    }

    fn version_schemas(&self) -> Option<&dyn VersionSchemas> {
        Some(&**self.siblings.as_ref()?)
    }

    fn type_faults(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (key, got, wanted) in [
            ("kind", meta::kind(object), &*self.gvk.kind),
            ("apiVersion", meta::api_version(object), &*self.gvk.api_version()),
        ] {
            if got != wanted {
                errors.push(FieldError::invalid_str(
                    &FieldPath::new(key),
                    got,
                    format!("must be {wanted}"),
                ));
            }
        }
        errors
    }

    /// Evaluates the rules, unless the schema's faults stand in the way.
    fn evaluate_rules(
        &self,
        ctx: &WriteContext<'_>,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        let Some((rules, times)) = &self.rules else {
            return;
        };
        if let Some(blocked) = blocking(errors) {
            errors.push(blocked);
            return;
        }
        let begun = Instant::now();
        let schema = self.schema.as_ref().map(|schema| schema.whole.root());
        let ratchet = schema
            .zip(old)
            .map(|(schema, old)| Correlated::new(schema, object, old));
        let outcome = rules.evaluate(&FieldPath::ROOT, object, old, ratchet);
        let took = begun.elapsed();
        self.usage.evaluated(took);
        times.evaluated(took);
        errors.extend(outcome.errors);
        for warning in outcome.warnings {
            ctx.authorized.context().warn(warning);
        }
    }

    fn scale_faults(&self, object: &Value, spec: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let Some(scale) = &self.scale else { return errors };
        if spec {
            errors.extend(replicas_fault(object, &scale.spec_replicas));
        }
        errors.extend(replicas_fault(object, &scale.status_replicas));
        if let Some(path) = &scale.selector
            && let Err(why) = accessor::nested_text(object, path)
        {
            errors.push(FieldError::invalid_str(&FieldPath::new(&dotted(path)), "", why));
        }
        errors
    }
}

fn replicas_fault(object: &Value, path: &[String]) -> Option<FieldError> {
    let name = dotted(path);
    let at = FieldPath::new(&name);
    let invalid = |value: i64, why: String| Some(FieldError::invalid(&at, &value.into(), why));
    match accessor::nested_integer(object, path) {
        Err(why) => invalid(0, why),
        Ok(found) => match found.unwrap_or_default() {
            n if n < 0 => invalid(n, "should be a non-negative integer".into()),
            n if n > i64::from(i32::MAX) => {
                invalid(n, format!("should be less than or equal to {}", i32::MAX))
            }
            _ => None,
        },
    }
}

/// Whether faults keep rules from being looked at; then this is said instead.
fn blocking(errors: &[FieldError]) -> Option<FieldError> {
    let blocks = |e: &FieldError| {
        matches!(
            e.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    errors
        .iter()
        .any(blocks)
        .then(|| FieldError::invalid(&FieldPath::ROOT, &Value::Null, why))
}

fn without_metadata(object: &Value) -> Option<Map<String, Value>> {
    let mut map = object.as_object()?.clone();
    map.remove("metadata");
    Some(map)
}

/// Warnings about finalizers that were not there before.
fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    const STANDARD: &[&str] = &["orphan", "foregroundDeletion", "kubernetes"];
    let known: HashSet<&str> = old.map(|o| meta::finalizers(o).collect()).unwrap_or_default();
    let mut added: Vec<&str> = meta::finalizers(object).filter(|f| !known.contains(*f)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let shown = go::quote(name);
        let faults = qualified_name(name);
        warnings.extend(
            faults
                .into_iter()
                .map(|f| format!("metadata.finalizers: {shown}: {f}")),
        );
        if name.contains('/') || STANDARD.contains(&name) {
            continue;
        }
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(format!(
            "metadata.finalizers: {shown}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}

/// Puts in what the schema has learnt to fill in since an object was stored.
type Decorate = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Who fills in the defaults of an object that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadDefaults {
    /// The strategy, by the schema of the served version.
    Served,
    /// The converter, by that of the version in which the object is stored, as upstream does.
    Stored,
}

/// Writes of whole objects.
pub(crate) struct CustomStrategy {
    shape: Arc<Shape>,
    decorate: Option<Decorate>,
    /// Writes of the spec's own revision and later are complete.
    since: Option<Revision>,
    /// Unknown fields are taken out.
    prunes: bool,
}

impl fmt::Debug for CustomStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomStrategy")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl CustomStrategy {
    /// `since` is the revision from which on writes have all defaults of this version, when that is known.
    pub(crate) fn new(
        shape: Arc<Shape>,
        since: Option<Revision>,
        prunes: bool,
        defaults: ReadDefaults,
    ) -> Self {
        let decorate = shape.schema.as_ref().map(|schema| {
            let schema = schema.whole.clone();
            match defaults {
                ReadDefaults::Served => {
                    Box::new(move |object: &mut Value| read_back(&schema, prunes, object)) as Decorate
                }
                ReadDefaults::Stored => Box::new(move |object: &mut Value| coerce(&schema, prunes, object)),
            }
        });
        CustomStrategy {
            shape,
            decorate,
            since,
            prunes,
        }
    }
}

impl Strategy for CustomStrategy {
    fn is_costly(&self) -> bool {
        self.shape.is_costly()
    }

    fn default(&self, object: &mut Value) {
        if let Some(schema) = &self.shape.schema {
            read_back(&schema.whole, self.prunes, object);
        }
    }

    fn name_rule(&self) -> NameRule {
        name_is_dns_subdomain
    }

    fn decorate(&self) -> Option<&(dyn Fn(&mut Value) + Send + Sync)> {
        self.decorate.as_deref()
    }

    fn decorated_since(&self) -> Option<Revision> {
        self.since
    }

    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        if self.shape.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        meta::set(object, "generation", 1);
    }

    fn validate_create(&self, ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        let mut errors = self.shape.type_faults(object);
        if !errors.is_empty() {
            return errors;
        }
        let Some(kind) = &self.shape.schema else {
            return self.shape.scale_faults(object, true);
        };
        errors.extend(kind.validate(object));
        errors.extend(self.shape.scale_faults(object, true));
        errors.extend(embedded::validate(kind.whole.root(), object));
        errors.extend(list_types::validate(kind.whole.root(), object));
        self.shape.evaluate_rules(ctx, object, None, &mut errors);
        errors
    }

    fn warnings_on_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<String> {
        finalizer_warnings(object, None)
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        if self.shape.has_status
            && let Some(map) = object.as_object_mut()
        {
            match old.get("status") {
                Some(status) => map.insert("status".into(), status.clone()),
                None => map.remove("status"),
            };
        }
        if without_metadata(object) != without_metadata(old) {
            meta::set(object, "generation", meta::generation(old) + 1);
        }
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.shape.type_faults(object);
        if !errors.is_empty() {
            return errors;
        }
        let Some(kind) = &self.shape.schema else {
            return self.shape.scale_faults(object, true);
        };
        errors.extend(kind.validate_update(object, old));
        errors.extend(self.shape.scale_faults(object, true));
        errors.extend(embedded::validate(kind.whole.root(), object));
        if list_types::validate(kind.whole.root(), old).is_empty() {
            errors.extend(list_types::validate(kind.whole.root(), object));
        }
        self.shape.evaluate_rules(ctx, object, Some(old), &mut errors);
        errors
    }

    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<String> {
        finalizer_warnings(object, Some(old))
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        if self.shape.has_status { &["status"] } else { &[] }
    }

    fn reset_versions(&self) -> ResetVersions<'_> {
        ResetVersions::Own
    }

    fn canonicalize(&self, object: &mut Value) {
        codec::typed::settle_numbers(object);
    }

    fn stored_field<'f>(&self, field: &'f str) -> Option<&'f str> {
        // The store knows the fields of all versions.
        let own = self.shape.selectable.iter().any(|f| f.name == field);
        own.then_some(field)
    }

    fn version_schemas(&self) -> Option<&dyn VersionSchemas> {
        self.shape.version_schemas()
    }

    fn selectable_fields(&self) -> Vec<SelectableField> {
        self.shape.selectable.clone()
    }

    fn hooks(&self) -> Option<&dyn WriteHooks> {
        Some(&*self.shape)
    }
}

#[async_trait::async_trait]
impl WriteHooks for Shape {
    async fn begin_create(
        &self,
        _ctx: &WriteContext<'_>,
        object: &mut Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        if self.terminating.load(Ordering::Acquire) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(&self.resource, meta::name(object), why));
        }
        Ok(None)
    }
}

/// Writes of the status.
#[derive(Debug)]
pub(crate) struct CustomStatusStrategy {
    shape: Arc<Shape>,
}

impl CustomStatusStrategy {
    pub(crate) fn new(shape: Arc<Shape>) -> Self {
        CustomStatusStrategy { shape }
    }
}

impl Strategy for CustomStatusStrategy {
    fn is_costly(&self) -> bool {
        self.shape.is_costly()
    }

    fn default(&self, object: &mut Value) {
        if let Some(schema) = self.shape.schema.as_ref().filter(|s| s.has_defaults) {
            custom::default(schema.whole.root(), object);
        }
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        // Only the status and the managed fields come from the client.
        let mut new = old.clone();
        let managed = meta::dig(object, &["metadata", "managedFields"]).cloned();
        meta::set(&mut new, "managedFields", managed.unwrap_or_default());
        if let Some(map) = new.as_object_mut() {
            match object.get("status") {
                Some(status) => map.insert("status".into(), status.clone()),
                None => map.remove("status"),
            };
        }
        *object = new;
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.shape.type_faults(object);
        if !errors.is_empty() {
            return errors;
        }
        let Some(kind) = &self.shape.schema else {
            return self.shape.scale_faults(object, false);
        };
        errors.extend(kind.validate_status(object, old));
        errors.extend(self.shape.scale_faults(object, false));
        if list_types::validate(kind.whole.root(), old).is_empty() {
            errors.extend(list_types::validate(kind.whole.root(), object));
        }
        self.shape.evaluate_rules(ctx, object, Some(old), &mut errors);
        errors
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn version_schemas(&self) -> Option<&dyn VersionSchemas> {
        self.shape.version_schemas()
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["metadata", "spec"]
    }

    fn reset_versions(&self) -> ResetVersions<'_> {
        ResetVersions::These(&self.shape.status_versions)
    }

    fn canonicalize(&self, object: &mut Value) {
        codec::typed::settle_numbers(object);
    }
}
