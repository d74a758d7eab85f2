//! The query of a list or watch, read and checked as upstream does it.

use machinery::selector::{FieldSelector, LabelSelector};
use machinery::{ApiError, FieldError, FieldPath, GroupKind};
use serde_json::json;

use super::Selection;
use crate::negotiate::query_pairs;
use crate::registry::ObjectStore;
use crate::request::RequestInfo;
use crate::resource::{Scope, ServedResource};

/// `ListOptions` of `meta.k8s.io`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) bookmarks: bool,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) timeout: Option<i64>,
    pub(crate) limit: i64,
    /// `continue`.
    pub(crate) token: String,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads a query. `watch` says that the request is a watch, whatever the query says of that.
    pub(crate) fn parse(
        query: Option<&str>,
        resource: &ServedResource,
        info: &RequestInfo,
        watch: bool,
    ) -> Result<Self, ApiError> {
        let mut options = ListOptions::default();
        let (mut labels, mut fields) = (None, None);
        let mut seen = Vec::new();
        for (key, value) in query_pairs(query) {
            // Of a parameter given twice the first counts.
            if seen.contains(&key) {
                continue;
            }
            match key.as_str() {
                "labelSelector" => labels = Some(value),
                "fieldSelector" => fields = Some(value),
                "allowWatchBookmarks" => options.bookmarks = boolean(&value),
                "resourceVersion" => options.version = value,
                "resourceVersionMatch" => options.version_match = value,
                "timeoutSeconds" => options.timeout = Some(integer(&value)?),
                "limit" => options.limit = integer(&value)?,
                "continue" => options.token = value,
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
            options.watch_faults()
        } else {
            options.list_faults()
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
                known_field(resource, field).map(|()| (field.to_string(), value.to_string()))
            })
            .map_err(ApiError::bad_request)?;
        options.narrow_to_name(&info.name)?;
        Ok(options)
    }

    /// The name of the path is a selector too.
    fn narrow_to_name(&mut self, name: &str) -> Result<(), ApiError> {
        if name.is_empty() {
            return Ok(());
        }
        if self.fields.is_empty() {
            self.fields = FieldSelector::equals("metadata.name", name);
        } else if self.fields.requires_exact_match("metadata.name") != Some(name) {
            return Err(ApiError::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        Ok(())
    }

    /// What is asked for.
    pub(crate) fn selection(&self, store: &ObjectStore, namespace: &str) -> Selection {
        Selection::new(store, namespace, self.labels.clone(), &self.fields)
    }

    fn list_faults(&self) -> Vec<FieldError> {
        let path = FieldPath::new("resourceVersionMatch");
        let mut errors = Vec::new();
        let wanted = self.version_match.as_str();
        if !wanted.is_empty() {
            if self.version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if !self.token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(
                    &path,
                    &json!(wanted),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if wanted == "Exact" && self.version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, why));
            }
        }
        if self.send_initial_events.is_some() {
            let path = FieldPath::new("sendInitialEvents");
            errors.push(FieldError::forbidden(
                &path,
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    fn watch_faults(&self) -> Vec<FieldError> {
        let path = FieldPath::new("resourceVersionMatch");
        let mut errors = Vec::new();
        let wanted = self.version_match.as_str();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, why));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if wanted != "NotOlderThan" {
                errors.push(FieldError::not_supported(
                    &path,
                    &json!(wanted),
                    &["NotOlderThan"],
                ));
            }
            if !self.token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
        }
        errors
    }
}

/// Whether a kind can be selected by a field. The error is upstream's text, which depends on whether the kind has fields of
/// its own.
fn known_field(resource: &ServedResource, field: &str) -> Result<(), String> {
    let own = resource
        .store()
        .map(|s| &s.config().fields[..])
        .unwrap_or_default();
    let has_rule = resource.custom || !own.is_empty();
    let known = match field {
        "metadata.name" => true,
        "metadata.namespace" => resource.scope == Scope::Namespaced || !has_rule,
        other => own.iter().any(|f| f.name == other),
    };
    if known {
        return Ok(());
    }
    if has_rule {
        return Err(resource.strategy.unsupported_field(field));
    }
    let shown = machinery::field::go_quote(field);
    Err(format!(
        "{shown} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    ))
}

/// Anything but `false` and `0` is true.
fn boolean(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

fn integer(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let shown = machinery::field::go_quote(text);
        ApiError::bad_request(format!("strconv.ParseInt: parsing {shown}: {why}"))
    })
}
