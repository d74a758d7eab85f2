//! The query of a list or watch, read and checked as upstream does it.

use machinery::selector::{FieldSelector, LabelSelector};
use machinery::{ApiError, GroupKind};

use super::boolean;
use crate::registry::list::ListOptions;
use crate::request_info::{RequestInfo, query_pairs};
use crate::resource::{Scope, ServedResource};

/// Reads a query. `watch` makes the request a watch, regardless of the query.
pub(crate) fn parse_list(
    query: Option<&str>,
    resource: &ServedResource,
    info: &RequestInfo,
    watch: bool,
) -> Result<ListOptions, ApiError> {
    let mut options = ListOptions::default();
    let (mut labels, mut fields) = (None, None);
    let mut seen = Vec::new();
    for (key, value) in query_pairs(query.unwrap_or_default()) {
        // Of a parameter given twice the first counts.
        if seen.contains(&key) {
            continue;
        }
        match &*key {
            "labelSelector" => labels = Some(value),
            "fieldSelector" => fields = Some(value),
            "allowWatchBookmarks" => options.bookmarks = boolean(&value),
            "resourceVersion" => options.version = value.into_owned(),
            "resourceVersionMatch" => options.version_match = value.into_owned(),
            "timeoutSeconds" => options.timeout = Some(integer(&value)?),
            "limit" => options.limit = integer(&value)?,
            "continue" => options.token = value.into_owned(),
            "sendInitialEvents" => options.send_initial_events = Some(boolean(&value)),
            _ => continue,
        }
        seen.push(key);
    }
    if let Some(text) = labels.filter(|t| !t.is_empty()) {
        options.labels = LabelSelector::parse(&text).map_err(ApiError::bad_request)?;
    }
    if let Some(text) = fields.filter(|t| !t.is_empty()) {
        options.fields = FieldSelector::parse(&text).map_err(ApiError::bad_request)?;
    }
    let legacy = matches!(options.version.as_str(), "" | "0");
    if watch && legacy && options.send_initial_events.is_none() && options.version_match.is_empty() {
        options.send_initial_events = Some(true);
        options.version_match = "NotOlderThan".into();
    }
    let errors = if watch {
        options.watch_errors()
    } else {
        options.list_errors()
    };
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "ListOptions"),
            "",
            &errors,
        ));
    }
    let known = std::mem::take(&mut options.fields);
    options.fields = known
        .transform(|field, value| {
            known_field(resource, field).map(|field| (field.to_string(), value.to_string()))
        })
        .map_err(ApiError::bad_request)?;
    options.narrow_to_name(&info.name)?;
    Ok(options)
}

/// The field that a kind can be selected by, as its store names it. The error is upstream's text, which depends on whether the kind has
/// fields of its own.
fn known_field<'f>(resource: &ServedResource, field: &'f str) -> Result<&'f str, String> {
    let own = resource
        .store()
        .map(|s| &s.config().fields[..])
        .unwrap_or_default();
    let has_rule = resource.custom || !own.is_empty();
    let known = match field {
        "metadata.name" => true,
        "metadata.namespace" => resource.scope == Scope::Namespaced || !has_rule,
        other => {
            let stored = resource.strategy.stored_field(other);
            if let Some(stored) = stored.filter(|stored| own.iter().any(|f| f.name == *stored)) {
                return Ok(stored);
            }
            false
        }
    };
    if known {
        return Ok(field);
    }
    if has_rule {
        return Err(resource.strategy.unsupported_field(&resource.gvk, field));
    }
    let shown = machinery::go::quote(field);
    Err(format!(
        "{shown} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    ))
}

fn integer(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let shown = machinery::go::quote(text);
        ApiError::bad_request(format!("strconv.ParseInt: parsing {shown}: {why}"))
    })
}
