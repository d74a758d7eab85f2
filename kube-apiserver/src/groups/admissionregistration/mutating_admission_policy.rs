//! MutatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::{mutating, mutating_faults};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    expression_faults: Some(mutating_faults),
    validate: mutating,
    validate_update: |errors, new, _| mutating(errors, new),
    ..Rules::PLAIN
};
