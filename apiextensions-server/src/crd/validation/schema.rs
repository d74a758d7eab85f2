//! Validation of a version's `openAPIV3Schema`. Mirrors `ValidateCustomResourceDefinitionOpenAPISchema` of
//! `pkg/apis/apiextensions/validation/validation.go`; structure is `structural`'s business, defaults are `defaults`'.

use std::collections::HashSet;

use machinery::field::FieldErrorKind;
use machinery::go;
use machinery::{FieldError, FieldPath, limits};
use serde_json::Value;

use super::Options;
use super::rules::{self, CostContext, RuleSite};
use crate::fieldpath;
use crate::props::{Additional, Items, Props, unsupported};

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const REASONS: &[&str] = &[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];
/// The keywords allowed at the root when the status subresource takes `properties.status` out of it; Go's field names.
const ALLOWED_AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Faults of a `schema` (a version's, or the hoisted one) at `path`.
pub(super) fn validate(
    schema: Option<&Value>,
    status: bool,
    options: &Options<'_>,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(raw) = schema
        .and_then(|s| s.get("openAPIV3Schema"))
        .filter(|s| !s.is_null())
    else {
        return errors;
    };
    let schema = Props::new(raw);
    let at = path.child("openAPIV3Schema");
    if status {
        root_with_status(schema, path, &mut errors);
    }
    if schema.flag("nullable") {
        let at = path.child("openAPIV3Schema.nullable");
        errors.push(FieldError::forbidden(&at, "nullable cannot be true at the root"));
    }
    let mut cost = None;
    let mut unreadable = None;
    if options.require_structural {
        unreadable = unsupported(schema);
        if unreadable.is_none() {
            let found = super::structural::validate(&at, schema);
            let found = if found.is_empty() {
                super::defaults::validate(&at, raw, options.require_pruned_defaults)
            } else {
                found
            };
            if found.is_empty() {
                cost = Some(CostContext::root(schema));
            }
            errors.extend(found);
        }
    }
    let mut walk = Walk {
        options,
        total: rules::TotalCost::default(),
    };
    let found = walk.node(schema, &at, &Inherited::root(options), true, cost.as_ref());
    errors.extend(found.schema);
    errors.extend(found.rules);
    if errors.is_empty()
        && let Some(why) = unreadable
    {
        errors.push(FieldError::invalid_str(&at, "", why));
    }
    walk.total.report(&at, &mut errors);
    if errors.is_empty()
        && let Err(faults) = crate::schema::compile(raw)
    {
        let why = faults.first().map(ToString::to_string).unwrap_or_default();
        let detail = format!("error building validator: {why}");
        errors.push(FieldError::invalid_str(path, "", detail));
    }
    errors
}

fn root_with_status(schema: Props<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let ty = schema.ty();
    if !ty.is_empty() && ty != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid_str(
            &path.child("openAPIV3Schema.type"),
            ty,
            detail,
        ));
        return;
    }
    let stray = schema
        .map()
        .iter()
        .filter(|(_, value)| !is_zero(value))
        .any(|(key, _)| !ALLOWED_AT_ROOT.iter().any(|(json, _)| json == key));
    if stray {
        let names: Vec<&str> = ALLOWED_AT_ROOT.iter().map(|(_, go)| *go).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(
            &path.child("openAPIV3Schema"),
            &Value::Object(schema.map().clone()),
            detail,
        ));
    }
}

/// The context that a node inherits from the nodes above it.
#[derive(Debug, Clone)]
struct Inherited {
    allow_defaults: bool,
    defaults_reason: String,
    inside_meta: bool,
    /// The path above which `oldSelf` has no counterpart.
    uncorrelatable: Option<String>,
}

impl Inherited {
    fn root(_options: &Options<'_>) -> Self {
        Inherited {
            allow_defaults: true,
            defaults_reason: String::new(),
            inside_meta: false,
            uncorrelatable: None,
        }
    }

    fn without_defaults(mut self, reason: String) -> Self {
        self.allow_defaults = false;
        self.defaults_reason = reason;
        self
    }

    fn uncorrelatable_from(mut self, path: &FieldPath<'_>) -> Self {
        self.uncorrelatable.get_or_insert_with(|| path.to_string());
        self
    }
}

/// Schema faults, and faults of rules, which are only looked for where the schema below is sound.
#[derive(Debug, Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

impl Found {
    fn append(&mut self, other: Found) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

struct Walk<'a> {
    options: &'a Options<'a>,
    total: rules::TotalCost,
}

impl Walk<'_> {
    fn node(
        &mut self,
        s: Props<'_>,
        path: &FieldPath<'_>,
        inherited: &Inherited,
        root: bool,
        cost: Option<&CostContext<'_>>,
    ) -> Found {
        let mut found = Found::default();
        self.keywords(s, path, inherited, &mut found.schema);
        if s.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            found
                .schema
                .push(FieldError::forbidden(&path.child("uniqueItems"), detail));
        }
        self.children(s, path, inherited, root, cost, &mut found);
        if s.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            found.schema.push(FieldError::invalid(
                &path.child("x-kubernetes-preserve-unknown-fields"),
                &Value::Bool(false),
                "must be true or undefined",
            ));
        }
        map_and_list_types(s, path, self.options, &mut found.schema);
        if self.options.require_map_list_keys {
            found.schema.extend(map_list_keys(s, path));
        }
        self.rules(s, path, inherited, cost, &mut found);
        found
    }

    fn keywords(
        &self,
        s: Props<'_>,
        path: &FieldPath<'_>,
        inherited: &Inherited,
        errors: &mut Vec<FieldError>,
    ) {
        let ty = s.ty();
        if self.options.require_valid_types && !ty.is_empty() && !TYPES.contains(&ty) {
            errors.push(FieldError::not_supported(
                &path.child("type"),
                &Value::from(ty),
                TYPES,
            ));
        }
        if s.get("default").is_some() && !inherited.allow_defaults {
            let detail = match inherited.defaults_reason.as_str() {
                "" => "must not be set".to_string(),
                reason => format!("must not be set {reason}"),
            };
            errors.push(FieldError::forbidden(&path.child("default"), detail));
        }
        let filled = |key: &str| match s.get(key) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) | None => false,
        };
        for (present, key) in [
            (filled("id"), "id"),
            (s.get("additionalItems").is_some(), "additionalItems"),
            (filled("patternProperties"), "patternProperties"),
            (filled("definitions"), "definitions"),
            (s.get("dependencies").is_some(), "dependencies"),
            (s.get("$ref").is_some(), "$ref"),
        ] {
            if present {
                errors.push(FieldError::forbidden(
                    &path.child(key),
                    format!("{key} is not supported"),
                ));
            }
        }
        if ty == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.push(FieldError::forbidden(&path.child("type"), detail));
        }
        if let Some(Items::List(list)) = s.items()
            && !list.is_empty()
        {
            let detail = "items must be a schema object and not an array";
            errors.push(FieldError::forbidden(&path.child("items"), detail));
        }
        if inherited.inside_meta && s.embedded() {
            errors.push(FieldError::forbidden(
                &path.child("x-kubernetes-embedded-resource"),
                "must not be used inside of resource meta",
            ));
        }
    }

    fn children(
        &mut self,
        s: Props<'_>,
        path: &FieldPath<'_>,
        inherited: &Inherited,
        root: bool,
        cost: Option<&CostContext<'_>>,
        found: &mut Found,
    ) {
        let has_properties = s.schemas("properties").next().is_some();
        if let Some(additional) = s.additional() {
            let at = path.child("additionalProperties");
            if has_properties && additional != Additional::Bool(true) {
                let detail = "additionalProperties and properties are mutual exclusive";
                found.schema.push(FieldError::forbidden(&at, detail));
            }
            if let Additional::Schema(schema) = additional {
                let mut below = inherited.clone();
                if below.inside_meta {
                    below = below
                        .without_defaults("inside additionalProperties applying to object metadata".into());
                }
                let cost = cost.map(|c| c.child(schema));
                found.append(self.node(schema, &at, &below, false, cost.as_ref()));
            }
        }
        let properties = path.child("properties");
        for (name, property) in s.schemas("properties") {
            let mut below = inherited.clone();
            // Of a map of a type that is not known nothing is said about its keys.
            if s.map_type().is_some_and(|t| !matches!(t, "granular" | "atomic")) {
                below = below.uncorrelatable_from(path);
            }
            if (root || s.embedded()) && matches!(name, "metadata" | "kind" | "apiVersion") {
                below.inside_meta = true;
                if root {
                    below = below.without_defaults(format!("in top-level {name}"));
                }
            }
            let cost = cost.map(|c| c.child(property));
            found.append(self.node(property, &properties.key(name), &below, false, cost.as_ref()));
        }
        if let Some(not) = s.schema("not") {
            found.append(self.node(not, &path.child("not"), inherited, false, None));
        }
        for junctor in ["allOf", "oneOf", "anyOf"] {
            let at = path.child(junctor);
            for (i, branch) in s.list(junctor).iter().enumerate() {
                found.append(self.node(Props::new(branch), &at.index(i), inherited, false, None));
            }
        }
        let definitions = path.child("definitions");
        for (name, definition) in s.schemas("definitions") {
            found.append(self.node(definition, &definitions.key(name), inherited, false, None));
        }
        if let Some(items) = s.items() {
            let at = path.child("items");
            let mut below = inherited.clone();
            // Items of sets and atomic lists have no counterpart in the old list.
            if s.list_type() != Some("map") {
                below = below.uncorrelatable_from(path);
            }
            match items {
                Items::Schema(schema) => {
                    let cost = cost.map(|c| c.child(schema));
                    found.append(self.node(schema, &at, &below, false, cost.as_ref()));
                }
                Items::List(list) => {
                    for (i, schema) in list.iter().map(Props::new).enumerate() {
                        found.append(self.node(schema, &at.index(i), &below, false, None));
                    }
                }
            }
        }
        let dependencies = path.child("dependencies");
        for (name, schema) in s.schemas("dependencies") {
            found.append(self.node(schema, &dependencies.key(name), inherited, false, None));
        }
    }

    fn rules(
        &mut self,
        s: Props<'_>,
        path: &FieldPath<'_>,
        inherited: &Inherited,
        cost: Option<&CostContext<'_>>,
        found: &mut Found,
    ) {
        let list = s.list("x-kubernetes-validations");
        if list.is_empty() {
            return;
        }
        let at = path.child("x-kubernetes-validations");
        for (i, rule) in list.iter().enumerate() {
            rule_texts(s, Props::new(rule), &at.index(i), &mut found.schema);
        }
        let Some(cost) = cost.filter(|_| found.schema.is_empty()) else {
            return;
        };
        let site = RuleSite {
            path: &at,
            uncorrelatable: inherited.uncorrelatable.as_deref(),
            suppress_cost: self.options.suppress_cost,
        };
        rules::check(cost, &site, &mut self.total, &mut found.rules);
    }
}

/// The form of the texts of one rule, apart from their meaning.
fn rule_texts(schema: Props<'_>, rule: Props<'_>, at: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let has_newlines = |text: &str| text.contains(['\n', '\r']);
    let (source, message) = (rule.text("rule"), rule.text("message"));
    let (trimmed_rule, trimmed_message) = (source.trim(), message.trim());
    let at_message = at.child("message");
    if trimmed_rule.is_empty() {
        errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
    } else if !message.is_empty() && trimmed_message.is_empty() {
        errors.push(FieldError::invalid_str(
            &at_message,
            message,
            "must be non-empty if specified",
        ));
    } else if has_newlines(trimmed_message) {
        errors.push(FieldError::invalid_str(
            &at_message,
            message,
            "must not contain line breaks",
        ));
    } else if has_newlines(trimmed_rule) && trimmed_message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(&at_message, detail));
    }
    let expression = rule.text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(&at.child("messageExpression"), detail));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(
            &at.child("reason"),
            &Value::from(reason),
            REASONS,
        ));
    }
    let field = rule.text("fieldPath");
    if field.is_empty() {
        return;
    }
    let at_field = at.child("fieldPath");
    if field.trim().is_empty() {
        errors.push(FieldError::invalid_str(
            &at_field,
            field,
            "must be non-empty if specified",
        ));
    }
    if has_newlines(field) {
        errors.push(FieldError::invalid_str(
            &at_field,
            field,
            "must not contain line breaks",
        ));
    }
    if unsupported(schema).is_none() && fieldpath::resolve(field, schema, true).is_err() {
        errors.push(FieldError::invalid_str(&at_field, field, "must be a valid path"));
    }
}

fn required_or_invalid(path: &FieldPath<'_>, ty: &str, detail: &str) -> FieldError {
    if ty.is_empty() {
        FieldError::required(path, detail)
    } else {
        FieldError::invalid_str(path, ty, detail)
    }
}

fn map_and_list_types(
    s: Props<'_>,
    path: &FieldPath<'_>,
    options: &Options<'_>,
    errors: &mut Vec<FieldError>,
) {
    let (ty, at_type) = (s.ty(), path.child("type"));
    if let Some(map_type) = s.map_type() {
        if ty != "object" {
            let detail = "must be object if x-kubernetes-map-type is specified";
            errors.push(required_or_invalid(&at_type, ty, detail));
        }
        let known = &["atomic", "granular"];
        if !known.contains(&map_type) {
            errors.push(FieldError::not_supported(
                &path.child("x-kubernetes-map-type"),
                &Value::from(map_type),
                known,
            ));
        }
    }
    let at_list_type = path.child("x-kubernetes-list-type");
    if let Some(list_type) = s.list_type() {
        if ty != "array" {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(required_or_invalid(&at_type, ty, detail));
        } else if options.require_atomic_sets && list_type == "set" {
            errors.extend(set_items(s, path));
        }
        let known = &["atomic", "set", "map"];
        if !known.contains(&list_type) {
            errors.push(FieldError::not_supported(
                &at_list_type,
                &Value::from(list_type),
                known,
            ));
        }
    }
    let keys = s.list("x-kubernetes-list-map-keys");
    if !keys.is_empty() && s.list_type() != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match s.list_type() {
            None => FieldError::required(&at_list_type, detail),
            Some(other) => FieldError::invalid_str(&at_list_type, other, detail),
        });
    }
    if s.list_type() == Some("map") {
        map_list(s, path, errors);
    }
}

/// How upstream prints a pointer to a string.
fn show_pointer(value: Option<&str>) -> String {
    value.map_or_else(|| "null".into(), go::quote)
}

/// Items of a set must be compared as wholes.
fn set_items(s: Props<'_>, path: &FieldPath<'_>) -> Option<FieldError> {
    let items = s.item()?;
    let key = match items.ty() {
        "array" if items.list_type().is_some_and(|t| t != "atomic") => "x-kubernetes-list-type",
        "object" if items.map_type() != Some("atomic") => "x-kubernetes-map-type",
        _ => return None,
    };
    Some(FieldError {
        kind: FieldErrorKind::Invalid,
        field: path.child("items").child(key).to_string(),
        // Upstream shows the list type in both cases.
        value: Some(show_pointer(items.list_type())),
        detail: "must be atomic as item of a list with x-kubernetes-list-type=set".into(),
    })
}

fn map_list(s: Props<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let at_keys = path.child("x-kubernetes-list-map-keys");
    let at_items = path.child("items");
    let keys = s.list("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&at_keys, detail));
    }
    let items = match s.items() {
        None => {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(&at_items, detail));
            return;
        }
        Some(Items::List(list)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(
                &at_items,
                &Value::Array(list.to_vec()),
                detail,
            ));
            return;
        }
        Some(Items::Schema(items)) => items,
    };
    if items.ty() != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid_str(
            &at_items.child("type"),
            items.ty(),
            detail,
        ));
        return;
    }
    let all_keys = Value::Array(keys.to_vec());
    let properties = at_items.child("properties");
    let mut seen: HashSet<&str> = HashSet::new();
    for key in s.strings("x-kubernetes-list-map-keys") {
        // Most faults show the whole list.
        if errors.len() >= limits::FIELD_ERRORS {
            return;
        }
        match items.property(key) {
            Some(property) if matches!(property.ty(), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let at = properties.key(key);
                // Upstream shows the item's type here, not the key's.
                errors.push(FieldError::invalid_str(&at.child("type"), items.ty(), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&at_keys, &all_keys, detail));
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(
                &at_keys,
                &all_keys,
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Keys of a map-like list are there in every item, and never null.
pub(super) fn map_list_keys(s: Props<'_>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (Some(items), Some(list_type @ ("set" | "map"))) = (s.item(), s.list_type()) else {
        return errors;
    };
    let at_items = path.child("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&at_items.child("nullable"), detail));
    }
    if list_type == "set" {
        return errors;
    }
    let properties = at_items.child("properties");
    let required: HashSet<&str> = items.strings("required").collect();
    for key in s.strings("x-kubernetes-list-map-keys") {
        let Some(property) = items.property(key) else {
            continue;
        };
        let at = properties.key(key);
        if !required.contains(key) && property.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&at.child("default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&at.child("nullable"), detail));
        }
    }
    errors
}

/// Whether a set's items are not compared as wholes: stored CRDs may have it so.
pub(super) fn has_non_atomic_set(s: Props<'_>) -> bool {
    s.list_type() == Some("set") && set_items(s, &FieldPath::ROOT).is_some()
}

/// Whether a type is none of OpenAPI's: stored CRDs may have it so.
pub(super) fn has_invalid_type(s: Props<'_>) -> bool {
    !s.ty().is_empty() && !TYPES.contains(&s.ty())
}
