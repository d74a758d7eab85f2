//! CSIStorageCapacity.

use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    unconditional_update: false,
    ..Rules::PLAIN
};
