//! MutatingAdmissionPolicy.

use super::defaults::policy;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    ..Rules::PLAIN
};
