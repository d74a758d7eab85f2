//! ValidatingAdmissionPolicy.

use super::defaults::policy;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    unconditional_update: false,
    default: policy,
    ..Rules::PLAIN
};
