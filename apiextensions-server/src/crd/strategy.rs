//! CustomResourceDefinitions as a served resource: defaults, what writes may touch, validation, columns.
//! Mirrors `pkg/registry/customresourcedefinition/strategy.go` and `pkg/apis/apiextensions/v1/defaults.go`.

use std::collections::HashSet;

use machinery::names::name_is_dns_subdomain;
use machinery::{FieldError, codec, meta};
use serde_json::{Value, json};

use futures_util::FutureExt;
use generic_server::registry::strategy::{ExpressionFaults, MetadataRules, NameRule, Strategy, WriteContext};
use generic_server::resource::{Column, TableConvertor};
use generic_server::write::now;

use crate::crd::internal::Spec;
use crate::crd::status::{self, Condition, status_mut};
use crate::crd::validation;
use crate::formats;

/// The finalizer that holds a CRD until its instances are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Writes of the whole CRD; its status is not theirs.
#[derive(Debug)]
pub(crate) struct CrdStrategy;

/// Writes of the status.
#[derive(Debug)]
pub(crate) struct CrdStatusStrategy;

/// Fills in what a CRD leaves open.
pub(crate) fn set_defaults(crd: &mut Value) {
    let storage = storage_version(crd);
    if let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) {
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".into(), json!({"strategy": "None"}));
        }
        let service = spec
            .get_mut("conversion")
            .and_then(|c| c.pointer_mut("/webhook/clientConfig/service"))
            .and_then(Value::as_object_mut);
        if let Some(service) = service
            && service.get("port").is_none_or(Value::is_null)
        {
            service.insert("port".into(), 443.into());
        }
        if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
            let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
            let kind = text("kind").to_string();
            let (singular, list_kind) = (text("singular").is_empty(), text("listKind").is_empty());
            if singular && !kind.is_empty() {
                names.insert("singular".into(), kind.to_lowercase().into());
            }
            if list_kind && !kind.is_empty() {
                names.insert("listKind".into(), format!("{kind}List").into());
            }
        }
    }
    if status::stored_versions(crd).next().is_none()
        && let Some(version) = storage
        && let Some(status) = status_mut(crd)
    {
        status.insert("storedVersions".into(), json!([version]));
        status.entry("conditions").or_insert(Value::Null);
        status
            .entry("acceptedNames")
            .or_insert_with(|| json!({"plural": "", "kind": ""}));
    }
}

/// The version that objects are stored at.
fn storage_version(crd: &Value) -> Option<String> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let storage = versions
        .iter()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))?;
    Some(storage.get("name")?.as_str()?.to_string())
}

/// Notes the storage version among those that objects may be stored at.
fn track_storage_version(crd: &mut Value) {
    let Some(version) = storage_version(crd) else {
        return;
    };
    if status::stored_versions(crd).any(|v| v == version) {
        return;
    }
    let Some(status) = status_mut(crd) else { return };
    let stored = status.entry("storedVersions").or_insert(Value::Null);
    match stored.as_array_mut() {
        Some(list) => list.push(version.into()),
        None => *stored = json!([version]),
    }
}

impl Strategy for CrdStrategy {
    fn canonicalize(&self, object: &mut Value) {
        // Defaults and enumerations may hold any JSON.
        codec::typed::settle_numbers(object);
    }

    fn name_rule(&self) -> NameRule {
        name_is_dns_subdomain
    }

    fn metadata_rules(&self) -> MetadataRules {
        MetadataRules {
            on_update: false,
            ..MetadataRules::ANY_FINALIZER
        }
    }

    fn default(&self, object: &mut Value) {
        set_defaults(object);
    }

    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        let storage = storage_version(object);
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), status::initial(storage.as_deref()));
        }
        meta::set(object, "generation", 1);
    }

    fn expression_faults(&self) -> Option<ExpressionFaults> {
        Some(|crd| {
            let prepared = validation::prepare(crd);
            prepared.map(|()| Vec::new()).boxed()
        })
    }

    fn validate_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        validation::validate_create(object)
    }

    fn warnings_on_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<String> {
        unknown_formats(object).into_iter().map(format_warning).collect()
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let Some(map) = object.as_object_mut() else { return };
        match old.get("status") {
            Some(status) => map.insert("status".into(), status.clone()),
            None => map.remove("status"),
        };
        if object.get("spec") != old.get("spec") {
            meta::set(object, "generation", meta::generation(old) + 1);
        }
        track_storage_version(object);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_update(object, old)
    }

    fn warnings_on_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<String> {
        let known: HashSet<String> = unknown_formats(old).into_iter().collect();
        let new = unknown_formats(object).into_iter().filter(|f| !known.contains(f));
        new.map(format_warning).collect()
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn mark_for_deletion(&self, object: &mut Value) -> bool {
        let now = now();
        let mut finalizers: Vec<Value> = meta::finalizers(object).map(Value::from).collect();
        if !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
        meta::set(object, "finalizers", finalizers);
        meta::set(object, "deletionTimestamp", now.as_str());
        let pending = Condition::new(
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
        status::set(object, &pending, &now);
        true
    }
}

impl Strategy for CrdStatusStrategy {
    fn default(&self, object: &mut Value) {
        set_defaults(object);
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let Some(map) = object.as_object_mut() else { return };
        match old.get("spec") {
            Some(spec) => map.insert("spec".into(), spec.clone()),
            None => map.remove("spec"),
        };
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<FieldError> {
        validation::validate_status(object)
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }
}

/// Formats that no validator knows, in the order of the schemas.
fn unknown_formats(crd: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Spec::of(crd).any_node(|node| {
        let format = node.text("format");
        if !format.is_empty() && !formats::is_known(node.ty(), format) {
            found.push(format.to_string());
        }
        false
    });
    found
}

fn format_warning(format: String) -> String {
    format!("unrecognized format {}", machinery::go::quote(&format))
}

/// `Name` and `Created At`.
#[derive(Debug)]
pub(crate) struct CrdColumns(Vec<Column>);

impl CrdColumns {
    pub(crate) fn new() -> Self {
        let column = |name: &str, kind: &str, format: &str, description: &str| Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            description: description.into(),
            priority: 0,
        };
        CrdColumns(vec![
            column("Name", "string", "name", crate::table::NAME),
            column("Created At", "date", "", crate::table::CREATED),
        ])
    }
}

impl TableConvertor for CrdColumns {
    fn columns(&self) -> &[Column] {
        &self.0
    }

    fn cells(&self, object: &Value, _ages: &machinery::table::Ages) -> Vec<Value> {
        let created = meta::dig_str(object, &["metadata", "creationTimestamp"]);
        vec![meta::name(object).into(), created.into()]
    }
}
