//! IPAddress: the name is the address.

use machinery::FieldPath;
use machinery::names::ip::validate_ip;
use machinery::names::{dns1123_subdomain, path_segment_name};
use serde_json::Value;

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    name,
    validate,
    validate_update: |faults, object, old| {
        faults.immutable(
            &FieldPath::new("spec"),
            "parentRef",
            object.dig("spec"),
            old.dig("spec"),
        );
    },
    ..Rules::PLAIN
};

fn name(name: &str, _prefix: bool) -> Vec<String> {
    validate_ip(&FieldPath::ROOT, name)
        .into_iter()
        .map(|error| error.detail.to_string())
        .collect()
}

fn validate(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("spec");
    let path = path.child("parentRef");
    if !object.has("spec.parentRef") {
        return faults.required(&path, "");
    }
    let parent = object.dig("spec.parentRef");
    let group = parent.text("group");
    if !group.is_empty() {
        faults.text(&path.child("group"), group, dns1123_subdomain(group));
    }
    for (key, needed) in [("resource", true), ("name", true), ("namespace", false)] {
        let text = parent.text(key);
        if needed {
            faults.need(&path.child(key), text);
        }
        if !text.is_empty() {
            faults.text(&path.child(key), text, path_segment_name(text));
        }
    }
}
