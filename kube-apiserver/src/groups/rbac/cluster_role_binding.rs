//! ClusterRoleBinding.

use super::rules::{binding, binding_update, default_binding};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    name: machinery::names::name_is_path_segment,
    default: default_binding,
    validate: |errors, object| binding(errors, object, false),
    validate_update: |errors, object, old| binding_update(errors, object, old, false),
    ..Rules::PLAIN
};
