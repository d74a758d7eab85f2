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
    validate: |faults, object| {
        let path = FieldPath::new("spec");
        super::resource_claim::validate_spec(faults, &path.child("spec"), object.dig("spec.spec"));
    },
    validate_update: |faults, object, old| faults.immutable_at("spec", object, old),
    ..Rules::PLAIN
};
