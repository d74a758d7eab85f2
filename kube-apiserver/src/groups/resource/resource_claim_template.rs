//! ResourceClaimTemplate.

use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    default: |object| {
        if let Some(spec) = object.dig_mut("spec.spec") {
            super::resource_claim::default_spec(spec);
        }
    },
    ..Rules::PLAIN
};
