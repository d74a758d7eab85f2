//! VolumeAttributesClass.

use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    ..Rules::PLAIN
};
