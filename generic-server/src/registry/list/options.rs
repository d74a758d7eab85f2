//! The options of a list or watch.

use machinery::selector::{FieldSelector, LabelSelector};
use machinery::{ApiError, FieldError, FieldPath};
use serde_json::json;

use super::Selection;
use crate::registry::ObjectStore;

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
    /// The name of the path is a selector too.
    pub(crate) fn narrow_to_name(&mut self, name: &str) -> Result<(), ApiError> {
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

    /// The selection of the request.
    pub(crate) fn selection(&self, store: &ObjectStore, namespace: &str) -> Selection {
        Selection::new(store, namespace, self.labels.clone(), &self.fields)
    }

    pub(crate) fn list_errors(&self) -> Vec<FieldError> {
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

    pub(crate) fn watch_errors(&self) -> Vec<FieldError> {
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
