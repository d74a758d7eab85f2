//! MutatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::mutating;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    validate: mutating,
    validate_update: |errors, new, _| mutating(errors, new),
    ..Rules::PLAIN
};
