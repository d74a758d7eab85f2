//! CSIStorageCapacity.

use machinery::FieldPath;
use machinery::names::name_is_dns_subdomain;
use serde_json::Value;

use crate::errors::{Errors, IMMUTABLE, NEGATIVE, Ratchet};
use crate::groups::node_labels;
use crate::json::{Json, is_zero};
use crate::quantity::amount;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    unconditional_update: false,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable_at("nodeTopology", object, old);
        // Also an empty one: it is not the same as another.
        let (class, before) = (object.text("storageClassName"), old.text("storageClassName"));
        if class != before {
            errors.invalid(&FieldPath::new("storageClassName"), class, IMMUTABLE);
        }
    },
    warnings: |object, _| {
        let path = FieldPath::new("nodeTopology");
        node_labels::selector(&path, object.dig("nodeTopology"))
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let topology = object.dig("nodeTopology");
    if !is_zero(topology) {
        let path = FieldPath::new("nodeTopology");
        errors.selector(&path, topology, Some(Ratchet::SelectorValues));
    }
    let class = object.text("storageClassName");
    let path = FieldPath::new("storageClassName");
    errors.text(&path, class, name_is_dns_subdomain(class, false));
    if let Some(capacity) = amount(object.dig("capacity")).filter(|capacity| capacity.signum() < 0) {
        errors.invalid(&FieldPath::new("capacity"), capacity.to_string(), NEGATIVE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("csistoragecapacities.storage.k8s.io").create(&object, expected);
    }

    #[test]
    fn capacities_are_validated() {
        check(json!({"storageClassName": "fast", "capacity": "1Gi"}), &[]);
        let text = format!("storageClassName: Invalid value: \"\": {SUBDOMAIN}");
        check(json!({"storageClassName": ""}), &[&text]);
        check(
            json!({"storageClassName": "fast", "capacity": "-1Gi", "nodeTopology": {"matchLabels": {"a": "b c"}}}),
            &[
                "nodeTopology.matchLabels: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                "capacity: Invalid value: \"-1Gi\": must be greater than or equal to 0",
            ],
        );
    }

    #[test]
    fn capacities_keep_their_topology_and_class() {
        let capacities = kind("csistoragecapacities.storage.k8s.io");
        let old = json!({"storageClassName": "fast", "capacity": "1Gi"});
        capacities.update(&old, &json!({"capacity": "2Gi"}), &[]);
        capacities.update(
            &old,
            &json!({"storageClassName": "slow"}),
            &["storageClassName: Invalid value: \"slow\": field is immutable"],
        );
    }
}
