//! ResourceClaimTemplate.

use machinery::FieldPath;

use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    default: |object| {
        if let Some(spec) = object.dig_mut("spec.spec") {
            super::resource_claim::default_spec(spec);
        }
    },
    validate: |errors, object| {
        let path = FieldPath::new("spec");
        super::resource_claim::validate_spec(errors, &path.child("spec"), object.dig("spec.spec"));
    },
    validate_update: |errors, object, old| errors.immutable_at("spec", object, old),
    ..Rules::PLAIN
};
