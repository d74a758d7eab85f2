//! ValidatingAdmissionPolicyBinding.

use super::defaults::binding;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: binding,
    ..Rules::PLAIN
};
