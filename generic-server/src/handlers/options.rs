//! The options of writes, from the query: `dryRun`, `fieldManager`, `fieldValidation`, `force` and those of deletions.

mod list;

use machinery::{ApiError, GroupKind, names};
use serde_json::{Map, Value, json};

use crate::request_info::query_pairs;
use crate::write::{DeleteOptions, IGNORE_READ_ERROR, Preconditions};

pub(crate) use list::parse_list;

/// The policy for fields that the kind does not have, and fields given twice.
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

impl WriteOptions {
    /// `kind` is CreateOptions, UpdateOptions or PatchOptions; `apply` says that it is an apply patch.
    pub(crate) fn parse(query: Option<&str>, kind: &str, apply: bool) -> Result<Self, ApiError> {
        let mut dry_run: Vec<String> = Vec::new();
        let (mut field_manager, mut validation, mut force) = (String::new(), String::new(), None);
        for (key, value) in query_pairs(query.unwrap_or_default()) {
            match &*key {
                "dryRun" => dry_run.push(value.into_owned()),
                "fieldManager" => field_manager = value.into_owned(),
                "fieldValidation" => validation = value.into_owned(),
                "force" if kind == "PatchOptions" => force = Some(boolean(&value)),
                _ => {}
            }
        }
        let mut object = Map::new();
        object.insert("apiVersion".into(), "meta.k8s.io/v1".into());
        object.insert("kind".into(), kind.into());
        if !dry_run.is_empty() {
            object.insert("dryRun".into(), json!(dry_run));
        }
        if !field_manager.is_empty() {
            object.insert("fieldManager".into(), json!(field_manager));
        }
        if !validation.is_empty() {
            object.insert("fieldValidation".into(), json!(validation));
        }
        if let Some(force) = force {
            object.insert("force".into(), json!(force));
        }
        let errors = match kind {
            "PatchOptions" => names::options::validate_patch_options(&object, apply),
            _ => names::options::validate_write_options(&object),
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                &GroupKind::new("meta.k8s.io", kind),
                "",
                &errors,
            ));
        }
        let validation = match validation.as_str() {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        };
        Ok(WriteOptions {
            dry_run: !dry_run.is_empty(),
            field_manager,
            validation,
            force,
            object: Value::Object(object),
        })
    }
}

/// A boolean of a query as upstream reads it: anything but `false` and `0` is true.
pub(crate) fn boolean(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

/// The options of a deletion with whether nothing is to be stored, from the query.
/// `unsafe_deletion`: objects that cannot be read may be asked for; else that option is as if it were not there.
pub(crate) fn delete_from_query(
    query: Option<&str>,
    unsafe_deletion: bool,
) -> Result<(DeleteOptions, bool, Value), ApiError> {
    let mut object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"});
    let mut dry_run = Vec::new();
    for (key, value) in query_pairs(query.unwrap_or_default()) {
        match &*key {
            "dryRun" => dry_run.push(Value::from(&*value)),
            "gracePeriodSeconds" => {
                let seconds: i64 = value.parse().map_err(|_| {
                    let shown = machinery::go::quote(&value);
                    ApiError::bad_request(format!("strconv.ParseInt: parsing {shown}: invalid syntax"))
                })?;
                object["gracePeriodSeconds"] = seconds.into();
            }
            "orphanDependents" => object["orphanDependents"] = boolean(&value).into(),
            "propagationPolicy" => object["propagationPolicy"] = (&*value).into(),
            IGNORE_READ_ERROR => object[IGNORE_READ_ERROR] = boolean(&value).into(),
            _ => {}
        }
    }
    if !dry_run.is_empty() {
        object["dryRun"] = dry_run.into();
    }
    delete_from_object(object, unsafe_deletion)
}

/// The same from a DeleteOptions object.
pub(crate) fn delete_from_object(
    mut object: Value,
    unsafe_deletion: bool,
) -> Result<(DeleteOptions, bool, Value), ApiError> {
    if let Some(map) = object.as_object_mut().filter(|_| !unsafe_deletion) {
        map.remove(IGNORE_READ_ERROR);
    }
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
        ignore_read_error: object.get(IGNORE_READ_ERROR) == Some(&Value::Bool(true)),
    };
    let dry_run = object
        .get("dryRun")
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty());
    let errors = object
        .as_object()
        .map(names::options::validate_delete_options)
        .unwrap_or_default();
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "DeleteOptions"),
            "",
            &errors,
        ));
    }
    Ok((options, dry_run, object))
}
