//! MutatingWebhookConfiguration.

use generic_server::registry::strategy::MetadataRules;
use serde_json::Value;

use super::defaults::webhooks;
use super::webhooks::{expression_faults, validate};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::ANY_FINALIZER,
    generation: &["webhooks"],
    unconditional_update: false,
    default: |object| webhooks(object, true),
    expression_faults: Some(expression_faults),
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: validate,
    ..Rules::PLAIN
};
