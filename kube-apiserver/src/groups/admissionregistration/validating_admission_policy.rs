//! ValidatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::{validating, validating_faults};
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    expression_faults: Some(validating_faults),
    validate: validating,
    validate_update: |errors, new, _| validating(errors, new),
    ..Rules::PLAIN
};
