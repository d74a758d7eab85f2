//! MutatingAdmissionPolicyBinding.

use super::defaults::binding;
use super::policies;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: binding,
    validate: |errors, object| policies::binding(errors, object, true),
    validate_update: |errors, new, _| policies::binding(errors, new, true),
    ..Rules::PLAIN
};
