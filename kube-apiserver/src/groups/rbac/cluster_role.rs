//! ClusterRole.

use super::rules::{aggregation, role};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    name: machinery::names::name_is_path_segment,
    validate: |errors, object| {
        role(errors, object, false);
        aggregation(errors, object);
    },
    validate_update: |errors, object, _| {
        role(errors, object, false);
        aggregation(errors, object);
    },
    ..Rules::PLAIN
};
