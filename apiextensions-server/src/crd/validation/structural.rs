//! Whether a schema is structural. Mirrors `pkg/apiserver/schema/{validation,complete}.go`.

use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::props::{Additional, Props};

/// Where in the schema a node sits, as far as messages distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The faults, sorted by their text as upstream sorts them. The schema must not have [`unsupported`] keywords.
///
/// [`unsupported`]: crate::props::unsupported
pub(crate) fn validate(path: &FieldPath<'_>, schema: Props<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    value_completeness(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn invariants(s: Props<'_>, level: Level, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let ty = s.ty();
    match s.item() {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if ty == "array" => errors.push(FieldError::required(&path.child("items"), "must be specified")),
        None => {}
    }
    let properties = path.child("properties");
    for (name, property) in s.schemas("properties") {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    let additional = path.child("additionalProperties");
    if s.additional().is_some() && level == Level::Root {
        errors.push(FieldError::forbidden(&additional, "must not be used at the root"));
    }
    if let Some(schema) = s.additional_schema() {
        invariants(schema, Level::Field, &additional, errors);
    }
    extensions(s, path, errors);

    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let is_pattern = |any_of: Option<&Value>| any_of == Some(&int_or_string);
    let skip_any_of = is_pattern(s.get("anyOf"));
    let skip_first = is_pattern(s.list("allOf").first().and_then(|first| first.get("anyOf")));
    value_validation(s, skip_any_of, skip_first, path, errors);

    type_rules(s, level, path, errors);
    metadata_rules(s, level, path, errors);
}

fn extensions(s: Props<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !s.int_or_string() {
        return;
    }
    for (set, key) in [
        (s.preserve_unknown(), "x-kubernetes-preserve-unknown-fields"),
        (s.embedded(), "x-kubernetes-embedded-resource"),
    ] {
        if set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(key), &Value::Bool(true), detail));
        }
    }
}

fn type_rules(s: Props<'_>, level: Level, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let ty = s.ty();
    let at_type = path.child("type");
    if s.embedded() && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(&at_type, detail)
        } else {
            FieldError::invalid_str(&at_type, ty, detail)
        });
    } else if ty.is_empty() && !s.int_or_string() && !s.preserve_unknown() {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&at_type, detail));
    }
    if s.embedded() && s.additional().is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid_str(
            &at_type,
            ty,
            "must be object at the root",
        ));
    }
}

/// The keywords allowed for `kind`, `apiVersion` and `metadata` of whole objects.
fn metadata_rules(s: Props<'_>, level: Level, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let whole_object = level == Level::Root || s.embedded();
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = s.property(name)
            && whole_object
            && property.ty() != "string"
        {
            let at = properties.key(name);
            errors.push(FieldError::invalid_str(
                &at.child("type"),
                property.ty(),
                "must be string",
            ));
        }
    }
    if let Some(metadata) = s.property("metadata") {
        let at = properties.key("metadata");
        if whole_object && metadata.ty() != "object" {
            errors.push(FieldError::invalid_str(
                &at.child("type"),
                metadata.ty(),
                "must be object",
            ));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
    let no_properties = s.schemas("properties").next().is_none();
    if s.embedded() && !s.preserve_unknown() && no_properties {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&properties, detail));
    }
}

fn restricts_names_only(metadata: Props<'_>) -> bool {
    metadata
        .map()
        .iter()
        .all(|(key, value)| match (key.as_str(), value) {
            ("type" | "default", _) => true,
            ("properties", Value::Object(map)) => map.keys().all(|k| k == "name" || k == "generateName"),
            (_, Value::Null | Value::Bool(false)) => true,
            (_, Value::String(text)) => text.is_empty(),
            (_, Value::Array(list)) => list.is_empty(),
            _ => false,
        })
}

fn value_validation(
    v: Props<'_>,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for junctor in ["anyOf", "allOf", "oneOf"] {
        if junctor == "anyOf" && skip_any_of {
            continue;
        }
        let at = path.child(junctor);
        for (i, branch) in v.list(junctor).iter().enumerate() {
            let skip = junctor == "allOf" && skip_first_all_of && i == 0;
            nested(Props::new(branch), skip, &at.index(i), errors);
        }
    }
    if let Some(not) = v.schema("not") {
        nested(not, false, &path.child("not"), errors);
    }
    let pattern = v.text("pattern");
    if let Some(fault) = super::pattern::fault(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {fault}");
        errors.push(FieldError::invalid_str(&path.child("pattern"), pattern, detail));
    }
}

/// Schemas inside a junctor may validate values but not change their shape.
fn nested(v: Props<'_>, skip_any_of: bool, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    value_validation(v, skip_any_of, false, path, errors);
    if let Some(items) = v.item() {
        nested(items, false, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in v.schemas("properties") {
        nested(property, false, &properties.key(name), errors);
    }
    let mut forbid = |is_set: bool, key: &str, detail: &str| {
        if is_set {
            errors.push(FieldError::forbidden(&path.child(key), detail));
        }
    };
    forbid(!v.ty().is_empty(), "type", "must be empty to be structural");
    let additional = match v.additional() {
        None | Some(Additional::Bool(false)) => false,
        Some(Additional::Bool(true) | Additional::Schema(_)) => true,
    };
    forbid(
        additional,
        "additionalProperties",
        "must be undefined to be structural",
    );
    forbid(
        v.get("default").is_some(),
        "default",
        "must be undefined to be structural",
    );
    for key in ["title", "description"] {
        forbid(!v.text(key).is_empty(), key, "must be empty to be structural");
    }
    for key in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        forbid(v.flag(key), key, "must be false to be structural");
    }
    let keys = "x-kubernetes-list-map-keys";
    forbid(!v.list(keys).is_empty(), keys, "must be empty to be structural");
    for key in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        forbid(v.get(key).is_some(), key, "must be undefined to be structural");
    }
    let rules = "x-kubernetes-validations";
    forbid(!v.list(rules).is_empty(), rules, "must be empty to be structural");
    if v.property("metadata").is_some() {
        errors.push(FieldError::forbidden(
            &properties.key("metadata"),
            "must not be specified in a nested context",
        ));
    }
}

/// Every junctor speaks only of what the schema proper declares.
fn value_completeness(
    v: Props<'_>,
    s: Option<Props<'_>>,
    s_path: &FieldPath<'_>,
    v_path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(s) = s else {
        errors.push(FieldError::required(
            s_path,
            format!("because it is defined in {v_path}"),
        ));
        return;
    };
    if let Some(not) = v.schema("not") {
        nested_completeness(not, Some(s), s_path, &v_path.child("not"), errors);
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        let at = v_path.child(junctor);
        for (i, branch) in v.list(junctor).iter().enumerate() {
            nested_completeness(Props::new(branch), Some(s), s_path, &at.index(i), errors);
        }
    }
}

fn nested_completeness(
    v: Props<'_>,
    s: Option<Props<'_>>,
    s_path: &FieldPath<'_>,
    v_path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(s) = s else {
        errors.push(FieldError::required(
            s_path,
            format!("because it is defined in {v_path}"),
        ));
        return;
    };
    value_completeness(v, Some(s), s_path, v_path, errors);
    if let Some(items) = v.item() {
        nested_completeness(
            items,
            s.item(),
            &s_path.child("items"),
            &v_path.child("items"),
            errors,
        );
    }
    let (s_properties, v_properties) = (s_path.child("properties"), v_path.child("properties"));
    for (name, property) in v.schemas("properties") {
        nested_completeness(
            property,
            s.property(name),
            &s_properties.key(name),
            &v_properties.key(name),
            errors,
        );
    }
}
