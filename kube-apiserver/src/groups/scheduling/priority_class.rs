//! PriorityClass.

use machinery::{FieldPath, meta};
use serde_json::Value;

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    default: |object| object.fill_text("preemptionPolicy", "PreemptLowerPriority"),
    prepare_create: |_, object| meta::set(object, "generation", 1),
    prepare_update: |_, object, old| meta::set(object, "generation", meta::generation(old)),
    validate,
    validate_update: |faults, object, old| {
        if object.int("value").unwrap_or_default() != old.int("value").unwrap_or_default() {
            faults.forbidden(&FieldPath::new("value"), "may not be changed in an update.");
        }
        faults.immutable_at("preemptionPolicy", object, old);
    },
    ..Rules::PLAIN
};

/// The highest value that is not the system's.
const HIGHEST: i64 = 1_000_000_000;

fn validate(faults: &mut Faults, object: &Value) {
    let (name, value) = (meta::name(object), object.int("value").unwrap_or_default());
    if name.starts_with("system-") {
        let known = match name {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let fault = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some(wanted) if wanted != value => {
                Some(format!("value of {name} PriorityClass must be {wanted}"))
            }
            Some(_) if object.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(fault) = fault {
            let metadata = FieldPath::new("metadata");
            faults.forbidden(
                &metadata.child("name"),
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {fault}"),
            );
        }
    } else if value > HIGHEST {
        faults.forbidden(
            &FieldPath::new("value"),
            format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    faults.one_of(
        &FieldPath::new("preemptionPolicy"),
        object.text("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
}
