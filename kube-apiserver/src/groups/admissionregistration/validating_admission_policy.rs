//! ValidatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::{validating, validating_faults, validating_status};
use crate::rules::{Rules, StatusMeta};
use generic_server::registry::strategy::MetadataRules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::ANY_FINALIZER,
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    expression_faults: Some(validating_faults),
    validate: validating,
    validate_update: |errors, new, _| validating(errors, new),
    validate_status: |errors, new, _| validating_status(errors, new),
    ..Rules::PLAIN
};
