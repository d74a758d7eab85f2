//! ValidatingAdmissionPolicyBinding.

use super::defaults::binding;
use super::policies;
use crate::rules::Rules;
use generic_server::registry::strategy::MetadataRules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::ANY_FINALIZER,
    generation: &["spec"],
    unconditional_update: false,
    default: binding,
    validate: |errors, object| policies::binding(errors, object, false),
    validate_update: |errors, new, _| policies::binding(errors, new, false),
    ..Rules::PLAIN
};
