//! RuntimeClass.

use machinery::FieldPath;
use machinery::names::name_is_dns_label;
use machinery::names::object_meta::validate_labels;
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::groups::core::pod_spec::{Claims, resources, tolerations};
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    unconditional_update: false,
    default: |object| object.fill("handler", ""),
    validate,
    validate_update: |faults, object, old| faults.immutable(&FieldPath::ROOT, "handler", object, old),
    ..Rules::PLAIN
};

fn validate(faults: &mut Faults, object: &Value) {
    let handler = object.text("handler");
    let path = FieldPath::new("handler");
    if faults.need(&path, handler) {
        faults.text(&path, handler, name_is_dns_label(handler, false));
    }
    if object.has("overhead") {
        let overhead = json!({"limits": object.dig("overhead.podFixed")});
        resources(faults, &FieldPath::new("overhead"), &overhead, &Claims::default());
    }
    let path = FieldPath::new("scheduling");
    if let Some(labels) = object.object_at("scheduling.nodeSelector") {
        for error in validate_labels(labels, &path.child("nodeSelector")) {
            faults.push(error);
        }
    }
    let path = path.child("tolerations");
    let list = object.list("scheduling.tolerations");
    tolerations(faults, &path, list);
    let mut seen = Seen::default();
    for (index, toleration) in list.iter().enumerate() {
        if seen.again(["key", "operator", "value", "effect"].map(|key| toleration.text(key))) {
            faults.duplicate(&path.index(index), toleration.clone());
        }
    }
}
