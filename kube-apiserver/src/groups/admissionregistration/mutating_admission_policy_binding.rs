//! MutatingAdmissionPolicyBinding.

use super::defaults::binding;
use super::policies;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    unconditional_update: false,
    default: binding,
    validate: |faults, object| policies::binding(faults, object, true),
    validate_update: |faults, new, _| policies::binding(faults, new, true),
    ..Rules::PLAIN
};
