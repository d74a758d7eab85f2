//! PriorityLevelConfiguration.

use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    ..Rules::PLAIN
};
