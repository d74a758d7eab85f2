//! DeviceClass.

use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    returns_deleted: true,
    ..Rules::PLAIN
};
