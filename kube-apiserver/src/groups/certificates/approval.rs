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
        prepare_status(StatusMeta::Free, object, old);
        take_conditions(object, old);
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

/// Of the status only the conditions are written, or that there are none.
fn take_conditions(object: &mut Value, old: &Value) {
    let conditions = object.dig("status.conditions").clone();
    object.copy_key("status", old);
    let status = object.ensure("status");
    match conditions {
        Value::Null => drop(status.take_key("conditions")),
        conditions => status.put("conditions", conditions),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_come_and_go() {
        let old = json!({"status": {"certificate": "c", "conditions": [{"type": "Approved"}]}});
        let mut object = json!({"status": {"certificate": "other"}});
        take_conditions(&mut object, &old);
        assert_eq!(object, json!({"status": {"certificate": "c"}}));
        let mut object = json!({"status": {"conditions": []}});
        take_conditions(&mut object, &old);
        assert_eq!(object["status"]["conditions"], json!([]));
    }
}
