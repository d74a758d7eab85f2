//! CSINode.

use generic_server::registry::strategy::MetadataRules;
use std::collections::HashMap;

use machinery::FieldPath;
use machinery::names::qualified_name;
use serde_json::Value;

use crate::errors::{Errors, IMMUTABLE};
use crate::groups::core::pod_spec::csi_driver;
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::AS_NEW,
    unconditional_update: false,
    returns_deleted: true,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        let before: HashMap<&str, &Value> = old
            .list("spec.drivers")
            .iter()
            .map(|driver| (driver.text("name"), driver))
            .collect();
        for driver in object.list("spec.drivers") {
            if let Some(before) = before.get(driver.text("name"))
                && !same_but_room(driver, before)
            {
                let path = FieldPath::new("spec");
                errors.invalid_value(&path.child("drivers"), driver, IMMUTABLE);
            }
        }
    },
    ..Rules::PLAIN
};

/// The longest name that a driver gives a node.
const NODE_ID_LENGTH: usize = 256;

/// Whether a driver has changed in nothing but how many volumes it has room for.
fn same_but_room(driver: &Value, before: &Value) -> bool {
    ["name", "nodeID", "topologyKeys"]
        .iter()
        .all(|key| same(driver.dig(key), before.dig(key)))
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let path = path.child("drivers");
    let mut names = Seen::default();
    for (index, driver) in object.list("spec.drivers").iter().enumerate() {
        let at = path.index(index);
        let name = driver.text("name");
        csi_driver(errors, &at.child("name"), name);
        let id = driver.text("nodeID");
        errors.need(&at.child("nodeID"), id);
        if id.len() > NODE_ID_LENGTH {
            let text = format!("must be {NODE_ID_LENGTH} characters or less");
            errors.invalid(&at.child("nodeID"), id, text);
        }
        let room = at.child("allocatable");
        errors.non_negative(&room.child("count"), driver.int("allocatable.count"));
        if names.again(name) {
            errors.duplicate(&at.child("name"), name);
        }
        let mut keys = Seen::default();
        for key in driver.strings("topologyKeys") {
            errors.need(&at, key);
            if keys.again(key) {
                errors.duplicate(&at, key);
            }
            errors.text(&at, key, qualified_name(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(drivers: Value, expected: &[&str]) {
        kind("csinodes.storage.k8s.io").create(&json!({"spec": {"drivers": drivers}}), expected);
    }

    #[test]
    fn drivers_of_a_node_are_validated() {
        check(json!([]), &[]);
        check(
            json!([{"name": "D.example.com", "nodeID": "n", "topologyKeys": ["a/b"]}]),
            &[],
        );
        check(
            json!([{"name": "", "nodeID": ""}]),
            &[
                "spec.drivers[0].name: Required value",
                "spec.drivers[0].nodeID: Required value",
            ],
        );
        check(
            json!([{"name": "d", "nodeID": "n", "topologyKeys": ["a", "a"]},
                {"name": "d", "nodeID": "n", "allocatable": {"count": -1}}]),
            &[
                r#"spec.drivers[0]: Duplicate value: "a""#,
                "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.drivers[1].name: Duplicate value: "d""#,
            ],
        );
        let id = "n".repeat(257);
        let text = format!("spec.drivers[0].nodeID: Invalid value: \"{id}\": must be 256 characters or less");
        check(json!([{"name": "d", "nodeID": id}]), &[&text]);
    }

    #[test]
    fn drivers_of_a_node_are_immutable() {
        let nodes = kind("csinodes.storage.k8s.io");
        let with = |id: &str, count: i64| json!({"spec": {"drivers": [{"name": "d", "nodeID": id, "allocatable": {"count": count}}]}});
        nodes.update(&with("n", 1), &with("n", 2), &[]);
        nodes.update(&with("n", 1), &json!({"spec": {"drivers": []}}), &[]);
        let errors = nodes.updated("", &with("n", 1), &with("m", 1)).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("spec.drivers: Invalid value: ")
                && errors[0].ends_with(": field is immutable")
        );
    }
}
