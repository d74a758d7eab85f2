//! ClusterRole.

use super::rules::{aggregation, role};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    name: machinery::names::name_is_path_segment,
    validate: |faults, object| {
        role(faults, object, false);
        aggregation(faults, object);
    },
    validate_update: |faults, object, _| {
        role(faults, object, false);
        aggregation(faults, object);
    },
    ..Rules::PLAIN
};
