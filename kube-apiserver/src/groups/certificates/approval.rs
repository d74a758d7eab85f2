//! `certificatesigningrequests/approval`: conditions change, nothing else.

use generic_server::registry::strategy::{NameRule, Strategy, WriteContext};
use machinery::FieldError;
use serde_json::Value;

use super::certificate_signing_request::{RULES, keeps_conditions, stamp_conditions, validate_conditions};
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{StatusMeta, prepare_status};

/// The strategy of the subresource.
#[derive(Debug)]
pub(crate) struct Approval;

impl Strategy for Approval {
    fn name_rule(&self) -> NameRule {
        RULES.name
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        stamp_conditions(object, old);
        let conditions = object.dig("status.conditions").clone();
        prepare_status(StatusMeta::Free, object, old);
        object.copy_key("status", old);
        if !conditions.is_null() {
            object.ensure("status").put("conditions", conditions);
        }
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| {
            validate_conditions(errors, object, old);
            keeps_conditions(errors, object, old);
        })
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec", "status.certificate"]
    }
}
