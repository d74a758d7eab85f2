//! ValidatingAdmissionPolicy.

use super::defaults::policy;
use super::policies::validating;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    validate: validating,
    validate_update: |errors, new, _| validating(errors, new),
    ..Rules::PLAIN
};
