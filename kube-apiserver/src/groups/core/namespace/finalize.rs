//! `namespaces/finalize`: the namespace controller takes finalizers of `spec` away here.

use generic_server::registry::strategy::{NameRule, Strategy, WriteContext};
use machinery::{FieldError, names};
use serde_json::{Value, json};

use super::{Namespaces, default, finalizer_errors};

/// The strategy of the subresource.
#[derive(Debug)]
pub(crate) struct Finalize;

impl Strategy for Finalize {
    fn default(&self, object: &mut Value) {
        default(object);
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_dns_label
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<FieldError> {
        finalizer_errors(object, true)
    }

    fn held_back(&self, object: &Value) -> bool {
        Namespaces.held_back(object)
    }

    fn view_verbs(&self) -> &'static [&'static str] {
        &["update"]
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}
