//! CSINode.

use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    unconditional_update: false,
    returns_deleted: true,
    ..Rules::PLAIN
};
