//! Validation of CustomResourceDefinitions. Mirrors `pkg/apis/apiextensions/validation/validation.go`.
//!
//! Called by the strategy with whole objects of `apiextensions.k8s.io/v1`; object metadata has been judged before. Updates do
//! not be stricter for stored objects: [`Options`] has the exemptions that the old object earns.

mod conversion;
mod defaults;
mod pattern;
mod rules;
mod schema;
mod structural;

use std::collections::{HashMap, HashSet};

use machinery::names::{dns1035_label, dns1123_subdomain};
use machinery::{FieldError, FieldPath, limits, meta};
use serde_json::Value;

pub(crate) use structural::validate as structural_errors;

use crate::crd::approval::{self, Approval};
use crate::crd::internal::{Spec, Version, has_status, open_api_schema};
use crate::crd::status::is_true;
use crate::fieldpath;
use crate::props::{Props, unsupported};

/// The most selectable fields that a version may have.
const MAX_SELECTABLE_FIELDS: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// The requirements, less those that the stored object does not meet either.
#[derive(Debug, Clone)]
pub(crate) struct Options<'a> {
    require_recognized_review_version: bool,
    require_immutable_names: bool,
    require_schema: bool,
    require_valid_types: bool,
    require_structural: bool,
    require_pruned_defaults: bool,
    require_atomic_sets: bool,
    require_map_list_keys: bool,
    allow_invalid_ca_bundle: bool,
    /// This version's schema is as it was, so its rules are exempt from the cost limit.
    suppress_cost: bool,
    old: Option<&'a Spec<'a>>,
}

impl<'a> Options<'a> {
    fn for_create() -> Self {
        Options {
            require_recognized_review_version: true,
            require_immutable_names: false,
            require_schema: true,
            require_valid_types: true,
            require_structural: true,
            require_pruned_defaults: true,
            require_atomic_sets: true,
            require_map_list_keys: true,
            allow_invalid_ca_bundle: true,
            suppress_cost: false,
            old: None,
        }
    }

    fn for_update(old: &Value, spec: &'a Spec<'a>) -> Self {
        let established = is_true(old, "Established");
        let has_schema = |v: &Version<'_>| v.schema.and_then(open_api_schema).is_some();
        let non_structural = spec
            .schemas()
            .any(|s| unsupported(s).is_some() || !structural::validate(&FieldPath::ROOT, s).is_empty());
        Options {
            require_recognized_review_version: conversion::has_recognized_review_version(spec.conversion),
            require_immutable_names: established,
            require_schema: spec.top_schema().is_some() || spec.versions.iter().all(has_schema),
            require_valid_types: !spec.any_node(schema::has_invalid_type),
            require_structural: !non_structural,
            require_pruned_defaults: non_structural || !spec.raw_schemas().any(defaults::has_unpruned),
            require_atomic_sets: !spec.any_node(schema::has_non_atomic_set),
            require_map_list_keys: !spec.any_node(|s| !schema::map_list_keys(s, &FieldPath::ROOT).is_empty()),
            allow_invalid_ca_bundle: !established || conversion::has_invalid_ca_bundle(spec.conversion),
            suppress_cost: false,
            old: Some(spec),
        }
    }

    /// For the schema of the version at an index (the hoisted one goes by the first version's name). A second version of a name,
    /// which is refused anyhow, is not compared with what was there.
    fn at_version(&self, index: usize, spec: &Spec<'_>) -> Self {
        let name = spec.versions.get(index).map_or("", |version| version.name);
        let unchanged = self.old.is_some_and(|old| {
            spec.index_of(name) == Some(index)
                && old.version_of(name).is_some()
                && old.schema_of(name) == spec.schema_of(name)
        });
        Options {
            suppress_cost: unchanged,
            ..self.clone()
        }
    }
}

/// Compiles the patterns and rules of a definition in slices, unless there are too many. Nothing is reported: the validation that follows
/// comes by each of them and knows its path, and their outcomes are remembered for it.
pub(crate) async fn prepare(crd: &Value) {
    compile_patterns(crd).await;
    if rules::too_many(crd, None).is_none() {
        for schema in Spec::of(crd).schemas() {
            crate::rules::prepare_verdicts(schema).await;
        }
    }
}

/// Compiles the patterns alone, for a definition that is put to use.
pub(crate) async fn compile_patterns(crd: &Value) {
    pattern::compile(crd).await;
}

/// Validation errors of a new CRD.
pub(crate) fn validate_create(crd: &Value) -> Vec<FieldError> {
    if let Some(error) = pattern::too_large(crd, None).or_else(|| rules::too_many(crd, None)) {
        return vec![error];
    }
    let spec = Spec::of(crd);
    let mut errors = Vec::new();
    let wanted = format!("{}.{}", spec.name("plural"), spec.group);
    let prefix = Some(meta::generate_name(crd)).filter(|prefix| !prefix.is_empty());
    let named = [
        ("metadata.generateName", prefix),
        ("metadata.name", Some(meta::name(crd))),
    ];
    for (at, name) in named {
        let Some(name) = name.filter(|name| !name.is_empty() && **name != wanted) else {
            continue;
        };
        let at = FieldPath::new(at);
        errors.push(FieldError::invalid_str(
            &at,
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    errors.extend(validate_spec(&spec, Options::for_create()));
    errors.extend(validate_rest(crd, None, &spec));
    errors
}

/// Faults of a changed CRD.
pub(crate) fn validate_update(crd: &Value, old: &Value) -> Vec<FieldError> {
    if let Some(error) = pattern::too_large(crd, Some(old)).or_else(|| rules::too_many(crd, Some(old))) {
        return vec![error];
    }
    let (spec, old_spec) = (Spec::of(crd), Spec::of(old));
    let options = Options::for_update(old, &old_spec);
    let immutable_names = options.require_immutable_names;
    let mut errors = validate_spec(&spec, options);
    let at_spec = FieldPath::new("spec");
    let names = at_spec.child("names");
    let mut fixed = |path: FieldPath<'_>, new: &str, old: &str| {
        if new != old {
            errors.push(FieldError::invalid_str(&path, new, "field is immutable"));
        }
    };
    if immutable_names {
        fixed(at_spec.child("scope"), spec.scope, old_spec.scope);
        fixed(names.child("kind"), spec.name("kind"), old_spec.name("kind"));
    }
    fixed(at_spec.child("group"), spec.group, old_spec.group);
    fixed(
        names.child("plural"),
        spec.name("plural"),
        old_spec.name("plural"),
    );
    errors.extend(validate_rest(crd, Some(old), &spec));
    errors
}

/// Faults of a changed status.
pub(crate) fn validate_status(crd: &Value) -> Vec<FieldError> {
    let status = FieldPath::new("status");
    let accepted = crd.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    validate_names(accepted, &status.child("acceptedNames"))
}

fn validate_rest(crd: &Value, old: Option<&Value>, spec: &Spec<'_>) -> Vec<FieldError> {
    let mut errors = validate_status(crd);
    errors.extend(stored_versions(crd, spec));
    errors.extend(api_approval(crd, old, spec));
    let kept = |o: &Value| meta::dig(o, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true));
    if spec.preserve_unknown_fields && !old.is_some_and(kept) {
        let at = FieldPath::new("spec.preserveUnknownFields");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&at, &Value::Bool(true), detail));
    }
    errors
}

fn stored_versions(crd: &Value, spec: &Spec<'_>) -> Vec<FieldError> {
    let at = FieldPath::new("status.storedVersions");
    let raw = meta::dig(crd, &["status", "storedVersions"]).unwrap_or(&Value::Null);
    let stored: Vec<&str> = raw
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if stored.is_empty() {
        return vec![FieldError::invalid(
            &at,
            raw,
            "must have at least one stored version",
        )];
    }
    let mut errors = Vec::new();
    let last: HashMap<&str, usize> = stored.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let absent = spec
        .versions
        .iter()
        .filter(|v| v.storage && !last.contains_key(v.name));
    for version in absent.take(limits::FIELD_ERRORS) {
        let detail = format!("must have the storage version {}", version.name);
        errors.push(FieldError::invalid(&at, raw, detail));
    }
    for (i, name) in stored.iter().enumerate() {
        // Upstream keeps the last position of a name that is there twice.
        if last.get(name) != Some(&i) || spec.version_of(name).is_some() {
            continue;
        }
        if errors.len() >= limits::FIELD_ERRORS {
            break;
        }
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid_str(&at.index(i), name, detail));
    }
    errors
}

fn api_approval(crd: &Value, old: Option<&Value>, spec: &Spec<'_>) -> Option<FieldError> {
    if !approval::is_protected(spec.group) {
        return None;
    }
    let (state, reason) = approval::state(crd);
    if old.is_some_and(|old| approval::state(old).0 == state) {
        return None;
    }
    let annotations = FieldPath::new("metadata.annotations");
    let at = annotations.key(approval::ANNOTATION);
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(&at, reason)),
        Approval::Invalid => Some(FieldError::invalid_str(&at, approval::annotation(crd), reason)),
    }
}

fn validate_spec(spec: &Spec<'_>, mut options: Options<'_>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    group_and_scope(spec, &path, &mut errors);
    if !spec.preserve_unknown_fields {
        options.require_structural = true;
    }
    schemas_there(spec, &options, &path, &mut errors);
    if spec.any_node(|s| s.get("default").is_some()) {
        options.require_structural = true;
        if spec.preserve_unknown_fields {
            let at = path.child("preserveUnknownFields");
            let detail = "must be false in order to use defaults in the schema";
            errors.push(FieldError::invalid(&at, &Value::Bool(true), detail));
        }
    }
    if spec.any_node(has_extensions) {
        options.require_structural = true;
    }
    versions(spec, &options, &path, &mut errors);
    let names = path.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if spec.name(key).is_empty() {
            errors.push(FieldError::required(&names.child(key), ""));
        }
    }
    errors.extend(validate_names(spec.names, &names));
    let any_status =
        has_status(spec.subresources) || spec.versions.iter().any(|v| has_status(v.subresources));
    errors.extend(schema::validate(
        spec.validation,
        any_status,
        &options.at_version(0, spec),
        &path.child("validation"),
    ));
    errors.extend(validate_subresources(
        spec.subresources,
        &path.child("subresources"),
    ));
    validate_columns(spec.columns, &path.child("additionalPrinterColumns"), &mut errors);
    if !spec.selectable.is_empty() {
        let at = path.child("selectableFields");
        match spec.validation {
            None => errors.push(FieldError::invalid_str(
                &at,
                "",
                "may only be set when validations.schema is included",
            )),
            Some(schema) => {
                let grown = selectable_grew(spec.selectable, options.old.map(|old| old.selectable));
                validate_selectable(spec.selectable, schema, &at, grown, &path, &mut errors);
            }
        }
    }
    errors.extend(conversion::validate(spec, &options, &path.child("conversion")));
    errors
}

fn group_and_scope(spec: &Spec<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let at_group = path.child("group");
    let faults = dns1123_subdomain(spec.group);
    if spec.group.is_empty() {
        errors.push(FieldError::required(&at_group, ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid_str(&at_group, spec.group, faults.join(",")));
    } else if !spec.group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid_str(&at_group, spec.group, detail));
    }
    errors.extend(one_of(
        &path.child("scope"),
        spec.scope,
        &["Cluster", "Namespaced"],
    ));
}

/// A required string out of a few.
fn one_of(path: &FieldPath<'_>, value: &str, accepted: &[&str]) -> Option<FieldError> {
    match value {
        "" => Some(FieldError::required(path, "")),
        known if accepted.contains(&known) => None,
        other => Some(FieldError::not_supported(path, &Value::from(other), accepted)),
    }
}

/// Whether every version that needs a schema has one.
fn schemas_there(spec: &Spec<'_>, options: &Options<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if spec.top_schema().is_some() {
        return;
    }
    let versions = path.child("versions");
    for (i, version) in spec.versions.iter().enumerate() {
        if version.schema.and_then(open_api_schema).is_some() {
            continue;
        }
        let at = versions.index(i);
        let at = at.child("schema.openAPIV3Schema");
        if options.require_schema {
            errors.push(FieldError::required(&at, ""));
        } else if !spec.preserve_unknown_fields && version.served {
            errors.push(FieldError::required(
                &at,
                "because otherwise all fields are pruned",
            ));
        }
    }
}

fn has_extensions(s: Props<'_>) -> bool {
    s.embedded()
        || s.int_or_string()
        || s.get("x-kubernetes-preserve-unknown-fields").is_some()
        || s.list_type().is_some()
        || !s.list("x-kubernetes-list-map-keys").is_empty()
        || !s.list("x-kubernetes-validations").is_empty()
}

fn versions(spec: &Spec<'_>, options: &Options<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let at_versions = path.child("versions");
    for (i, version) in spec.versions.iter().enumerate() {
        let at = at_versions.index(i);
        let faults = dns1035_label(version.name);
        if !faults.is_empty() {
            errors.push(FieldError::invalid_str(
                &at.child("name"),
                version.name,
                faults.join(","),
            ));
        }
        one_version(spec, (i, version), options, &at, errors);
    }
    let none = Value::Array(Vec::new());
    let raw = spec.raw.get("versions").filter(|v| !v.is_null()).unwrap_or(&none);
    let mut versions = spec.versions.iter().enumerate();
    let unique = versions.all(|(i, version)| spec.index_of(version.name) == Some(i));
    if !unique {
        errors.push(FieldError::invalid(
            &at_versions,
            raw,
            "must contain unique version names",
        ));
    }
    if spec.versions.iter().filter(|v| v.storage).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(&at_versions, raw, detail));
    }
    let faults = dns1035_label(spec.version);
    if !spec.version.is_empty() && !faults.is_empty() {
        errors.push(FieldError::invalid_str(
            &path.child("version"),
            spec.version,
            faults.join(","),
        ));
    }
}

fn one_version(
    spec: &Spec<'_>,
    (index, version): (usize, &Version<'_>),
    options: &Options<'_>,
    at: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let warning = version.deprecation_warning;
    for fault in deprecation_faults(version.deprecated, warning) {
        let shown = warning.map_or(Value::Null, Value::from);
        errors.push(FieldError::invalid(
            &at.child("deprecationWarning"),
            &shown,
            fault,
        ));
    }
    errors.extend(schema::validate(
        version.schema,
        has_status(spec.subresources_of(version)),
        &options.at_version(index, spec),
        &at.child("schema"),
    ));
    errors.extend(validate_subresources(
        version.subresources,
        &at.child("subresources"),
    ));
    validate_columns(version.columns, &at.child("additionalPrinterColumns"), errors);
    if version.selectable.is_empty() {
        return;
    }
    let at_selectable = at.child("selectableFields");
    match version.schema.filter(|s| open_api_schema(s).is_some()) {
        None => {
            let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push(FieldError::invalid_str(&at_selectable, "", detail));
        }
        Some(schema) => {
            let old = options
                .old
                .and_then(|old| old.version_of(version.name))
                .map(|old| old.selectable);
            let grown = selectable_grew(version.selectable, old);
            validate_selectable(version.selectable, schema, &at_selectable, grown, at, errors);
        }
    }
}

fn deprecation_faults(deprecated: bool, warning: Option<&str>) -> Vec<String> {
    let Some(warning) = warning else {
        return Vec::new();
    };
    if !deprecated {
        return vec!["can only be set for deprecated versions".into()];
    }
    let mut faults = Vec::new();
    if warning.len() > 256 {
        faults.push("must be <= 256 characters long".to_string());
    }
    if warning.is_empty() {
        faults.push("must not be an empty string".into());
    }
    // Go's IsPrint also refuses spaces other than U+0020.
    let odd = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| odd(*c)) {
        faults.push(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
    faults
}

fn validate_names(names: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["plural", "singular"] {
        let (value, faults) = (text(key), dns1035_label(text(key)));
        if !value.is_empty() && !faults.is_empty() {
            errors.push(FieldError::invalid_str(&path.child(key), value, faults.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let (value, faults) = (text(key), dns1035_label(&text(key).to_lowercase()));
        if !value.is_empty() && !faults.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                faults.join(",")
            );
            errors.push(FieldError::invalid_str(&path.child(key), value, detail));
        }
    }
    let list = |key: &str, errors: &mut Vec<FieldError>| {
        let at = path.child(key);
        let items = names.get(key).and_then(Value::as_array);
        for (i, item) in items.into_iter().flatten().filter_map(Value::as_str).enumerate() {
            let faults = dns1035_label(item);
            if !faults.is_empty() {
                errors.push(FieldError::invalid_str(&at.index(i), item, faults.join(",")));
            }
        }
    };
    list("shortNames", &mut errors);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid_str(
            &path.child("listKind"),
            text("listKind"),
            detail,
        ));
    }
    list("categories", &mut errors);
    errors
}

fn validate_columns(columns: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (i, column) in columns.iter().map(Props::new).enumerate() {
        let at = path.index(i);
        if column.text("name").is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        let ty = column.text("type");
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if ty.is_empty() {
            errors.push(FieldError::required(&at.child("type"), types));
        } else if !COLUMN_TYPES.contains(&ty) {
            errors.push(FieldError::invalid_str(&at.child("type"), ty, types));
        }
        let format_ = column.text("format");
        if !format_.is_empty() && !COLUMN_FORMATS.contains(&format_) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid_str(&at.child("format"), format_, detail));
        }
        let json_path = column.text("jsonPath");
        let at_path = at.child("JSONPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at_path, ""));
        } else {
            errors.extend(simple_json_path(json_path, &at_path));
        }
    }
}

fn simple_json_path(text: &str, path: &FieldPath<'_>) -> Option<FieldError> {
    (!text.starts_with('.'))
        .then(|| FieldError::invalid_str(path, text, "must be a simple json path starting with ."))
}

fn validate_subresources(subresources: Option<&Value>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(scale) = subresources.and_then(|s| Props::new(s).schema("scale")) else {
        return errors;
    };
    for (key, field, roots, detail) in [
        (
            "specReplicasPath",
            "scale.specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            "scale.statusReplicasPath",
            &[".status."][..],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            "scale.labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let (text, at) = (scale.text(key), path.child(field));
        if text.is_empty() {
            if key != "labelSelectorPath" {
                errors.push(FieldError::required(&at, ""));
            }
        } else if let Some(fault) = simple_json_path(text, &at) {
            errors.push(fault);
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            errors.push(FieldError::invalid_str(&at, text, detail));
        }
    }
    errors
}

/// Whether there being too many of them is new.
fn selectable_grew(new: &[Value], old: Option<&[Value]>) -> bool {
    !old.is_some_and(|old| old.len() > MAX_SELECTABLE_FIELDS && old == new)
}

fn validate_selectable(
    fields: &[Value],
    schema: &Value,
    path: &FieldPath<'_>,
    bounded: bool,
    parent: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let schema = open_api_schema(schema).unwrap_or(Props::new(&Value::Null));
    if let Some(why) = unsupported(schema) {
        errors.push(FieldError::invalid_str(
            &parent.child("schema.openAPIV3Schema"),
            "",
            why,
        ));
    }
    let mut seen: HashSet<String> = HashSet::new();
    for (i, field) in fields.iter().map(Props::new).enumerate() {
        let at = path.index(i);
        let at = at.child("jsonPath");
        let json_path = field.text("jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let found = match fieldpath::resolve(json_path, schema, false) {
            Ok(found) => found,
            Err(why) => {
                let detail = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid_str(&at, json_path, detail));
                continue;
            }
        };
        if found.segments.first().is_some_and(|(name, _)| name == "metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid_str(&at, json_path, detail));
        }
        if !matches!(found.schema.ty(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid_str(&at, json_path, detail));
        }
        if !seen.insert(found.render()) {
            errors.push(FieldError::duplicate(&at, &Value::from(json_path)));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS && bounded {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}
