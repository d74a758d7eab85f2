//! The options of writes, from the query: `dryRun`, `fieldManager`, `fieldValidation`, `force` and those of deletions.

use machinery::{ApiError, FieldError, FieldPath, GroupKind};
use serde_json::{Value, json};

use crate::registry::write::{DeleteOptions, Preconditions};

/// What to do about fields that the kind does not have, and fields given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them with a warning.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// The options of a create, update or patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// Empty when the client names none.
    pub(crate) field_manager: String,
    pub(crate) validation: FieldValidation,
    pub(crate) force: Option<bool>,
    /// As `meta.k8s.io/v1` has them, for admission.
    pub(crate) object: Value,
}

/// The decoded pairs of a query.
pub(crate) fn query_pairs(query: Option<&str>) -> impl Iterator<Item = (String, String)> + '_ {
    query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced)
        .decode_utf8_lossy()
        .into_owned()
}

const MAX_MANAGER: usize = 128;

impl WriteOptions {
    /// `kind` is CreateOptions, UpdateOptions or PatchOptions; `apply` says that it is an apply patch.
    pub(crate) fn parse(query: Option<&str>, kind: &str, apply: bool) -> Result<Self, ApiError> {
        let mut dry_run: Vec<String> = Vec::new();
        let (mut field_manager, mut validation, mut force) = (String::new(), String::new(), None);
        for (key, value) in query_pairs(query) {
            match key.as_str() {
                "dryRun" => dry_run.push(value),
                "fieldManager" => field_manager = value,
                "fieldValidation" => validation = value,
                "force" if kind == "PatchOptions" => force = Some(boolean(&value)),
                _ => {}
            }
        }
        let mut errors = Vec::new();
        if kind == "PatchOptions" {
            if apply {
                if field_manager.is_empty() {
                    errors.push(FieldError::required(
                        &FieldPath::new("fieldManager"),
                        "is required for apply patch",
                    ));
                }
            } else if force.is_some() {
                errors.push(FieldError::forbidden(
                    &FieldPath::new("force"),
                    "may not be specified for non-apply patch",
                ));
            }
        }
        errors.extend(dry_run_errors(&dry_run));
        errors.extend(manager_errors(&field_manager));
        let validation_mode = match validation.as_str() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => {
                errors.push(FieldError::not_supported(
                    &FieldPath::new("fieldValidation"),
                    &validation.as_str().into(),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                &GroupKind::new("meta.k8s.io", kind),
                "",
                &errors,
            ));
        }
        let mut object = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if !dry_run.is_empty() {
            object["dryRun"] = json!(dry_run);
        }
        if !field_manager.is_empty() {
            object["fieldManager"] = json!(field_manager);
        }
        if !validation.is_empty() {
            object["fieldValidation"] = json!(validation);
        }
        if let Some(force) = force {
            object["force"] = json!(force);
        }
        Ok(WriteOptions {
            dry_run: !dry_run.is_empty(),
            field_manager,
            validation: validation_mode,
            force,
            object,
        })
    }
}

/// A boolean of a query as upstream reads it: anything but `false` and `0` is true.
pub(crate) fn boolean(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

fn dry_run_errors(values: &[String]) -> Vec<FieldError> {
    let path = FieldPath::new("dryRun");
    let bad = |v: &String| (v != "All").then(|| FieldError::not_supported(&path, &json!(values), &["All"]));
    values.iter().find_map(bad).into_iter().collect()
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    let path = FieldPath::new("fieldManager");
    let mut errors = Vec::new();
    if manager.len() > MAX_MANAGER {
        errors.push(FieldError::too_long(&path, MAX_MANAGER));
    }
    for (index, c) in manager.char_indices() {
        if c.is_control() {
            errors.push(FieldError::invalid_str(
                &path,
                manager,
                format!("invalid character {c:?} (at position {index})"),
            ));
        }
    }
    errors
}

/// The options of a deletion with whether nothing is to be stored, from the query.
pub(crate) fn delete_from_query(query: Option<&str>) -> Result<(DeleteOptions, bool, Value), ApiError> {
    let mut object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"});
    let mut dry_run = Vec::new();
    for (key, value) in query_pairs(query) {
        match key.as_str() {
            "dryRun" => dry_run.push(Value::from(value)),
            "gracePeriodSeconds" => {
                let seconds: i64 = value.parse().map_err(|_| {
                    let shown = machinery::field::go_quote(&value);
                    ApiError::bad_request(format!("strconv.ParseInt: parsing {shown}: invalid syntax"))
                })?;
                object["gracePeriodSeconds"] = seconds.into();
            }
            "orphanDependents" => object["orphanDependents"] = boolean(&value).into(),
            "propagationPolicy" => object["propagationPolicy"] = value.into(),
            "ignoreStoreReadErrorWithClusterBreakingPotential" => {
                object["ignoreStoreReadErrorWithClusterBreakingPotential"] = boolean(&value).into();
            }
            _ => {}
        }
    }
    if !dry_run.is_empty() {
        object["dryRun"] = dry_run.into();
    }
    delete_from_object(object)
}

/// The same from a DeleteOptions object.
pub(crate) fn delete_from_object(object: Value) -> Result<(DeleteOptions, bool, Value), ApiError> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(String::from);
    let preconditions = object.get("preconditions");
    let options = DeleteOptions {
        grace: object.get("gracePeriodSeconds").and_then(Value::as_i64),
        preconditions: Preconditions {
            uid: text(preconditions.and_then(|p| p.get("uid"))),
            resource_version: text(preconditions.and_then(|p| p.get("resourceVersion"))),
        },
        orphan_dependents: object.get("orphanDependents").and_then(Value::as_bool),
        propagation: text(object.get("propagationPolicy")),
    };
    let dry_run: Vec<String> = object
        .get("dryRun")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(String::from))
        .collect();
    let mut errors = options.faults();
    errors.extend(dry_run_errors(&dry_run));
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "DeleteOptions"),
            "",
            &errors,
        ));
    }
    Ok((options, !dry_run.is_empty(), object))
}
