//! MutatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::{mutating, mutating_faults};
use crate::rules::Rules;
use generic_server::registry::strategy::MetadataRules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::ANY_FINALIZER,
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    expression_faults: Some(mutating_faults),
    validate: mutating,
    validate_update: |errors, new, _| mutating(errors, new),
    ..Rules::PLAIN
};
