//! Event, as core/v1 and as events.k8s.io/v1. The two differ in names and in how strictly they are judged.

use generic_server::registry::strategy::{DefaultPropagation, FieldValue, MetadataRules, SelectableField};
use machinery::FieldPath;
use machinery::names::{dns1123_subdomain, qualified_name};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::{Json, is_zero, same};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::NONE,
    default: |object| {
        // Fields that upstream's type always writes.
        object.ensure("involvedObject");
        object.ensure("source");
        for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
            object.fill(key, Value::Null);
        }
        for key in ["reportingComponent", "reportingInstance"] {
            object.fill(key, "");
        }
    },
    validate: |errors, event| validate(errors, event, &CORE),
    validate_update: |errors, event, _| validate(errors, event, &CORE),
    create_on_update: true,
    propagation: DefaultPropagation::Unsupported,
    fields,
    ..Rules::PLAIN
};

pub(crate) static RULES_V1: Rules = Rules {
    metadata: MetadataRules::CREATE,
    error_group: Some(""),
    default: |object| object.fill("eventTime", Value::Null),
    validate: validate_v1,
    validate_update: validate_v1_update,
    create_on_update: true,
    propagation: DefaultPropagation::Unsupported,
    fields,
    field_names: &[
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reportingController", "reportingComponent"),
        ("reason", "reason"),
        ("type", "type"),
    ],
    ..Rules::PLAIN
};

/// The names of the common fields in a version.
struct Names {
    about: &'static str,
    message: &'static str,
    controller: &'static str,
}

const CORE: Names = Names {
    about: "involvedObject",
    message: "message",
    controller: "reportingComponent",
};
const V1: Names = Names {
    about: "regarding",
    message: "note",
    controller: "reportingController",
};

fn fields() -> Vec<SelectableField> {
    let mut fields: Vec<SelectableField> = [
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ]
    .into_iter()
    .map(SelectableField::path)
    .collect();
    fields.push(SelectableField {
        name: "source".into(),
        value: FieldValue::Compute(|event| match event.text("source.component") {
            "" => event.text("reportingComponent").to_string(),
            component => component.to_string(),
        }),
    });
    fields
}

fn validate(errors: &mut Errors, event: &Value, names: &Names) {
    let namespace = event.text("metadata.namespace");
    let about = event.dig(names.about).text("namespace");
    let involved = FieldPath::new("involvedObject");
    let about_path = involved.child("namespace");
    let mismatch = "does not match event.namespace";
    if !event.has("eventTime") {
        let matches = match about {
            "" => matches!(namespace, "" | "default"),
            about => about == namespace,
        };
        if !matches {
            errors.invalid(&about_path, about, mismatch);
        }
    } else {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            errors.invalid(&about_path, about, mismatch);
        }
        let controller = event.text(names.controller);
        let path = FieldPath::new(names.controller);
        errors.need(&path, controller);
        errors.text(&path, controller, qualified_name(controller));
        bounded(errors, event, "reportingInstance", true, 128);
        bounded(errors, event, "action", true, 128);
        bounded(errors, event, "reason", true, 128);
        if event.text(names.message).len() > 1024 {
            errors.invalid(&FieldPath::new("message"), "", "can have at most 1024 characters");
        }
    }
    errors.text(
        &FieldPath::new("namespace"),
        namespace,
        dns1123_subdomain(namespace),
    );
}

fn bounded(errors: &mut Errors, event: &Value, key: &str, needed: bool, max: usize) {
    let text = event.text(key);
    let path = FieldPath::new(key);
    if needed {
        errors.need(&path, text);
    }
    if text.len() > max {
        errors.invalid(&path, "", format!("can have at most {max} characters"));
    }
}

fn validate_v1(errors: &mut Errors, event: &Value) {
    validate(errors, event, &V1);
    series(errors, event);
    if !event.has("eventTime") {
        errors.required(&FieldPath::new("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&FieldPath::new("type"), "", format!("has invalid value: {kind}"));
    }
    let unset = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
    ];
    for (key, name) in unset {
        if event.has(key) {
            errors.invalid(&FieldPath::new(name), "", "needs to be unset");
        }
    }
    if event.int("deprecatedCount").unwrap_or_default() != 0 {
        errors.invalid(&FieldPath::new("count"), "", "needs to be unset");
    }
    if !is_zero(event.dig("deprecatedSource")) {
        errors.invalid(&FieldPath::new("source"), "", "needs to be unset");
    }
}

fn series(errors: &mut Errors, event: &Value) {
    let series = event.dig("series");
    if series.is_null() {
        return;
    }
    if series.int("count").unwrap_or_default() < 2 {
        errors.invalid(&FieldPath::new("series.count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        errors.required(&FieldPath::new("series.lastObservedTime"), "");
    }
}

fn validate_v1_update(errors: &mut Errors, event: &Value, old: &Value) {
    validate(errors, event, &V1);
    if !same(event.dig("series"), old.dig("series")) {
        series(errors, event);
    }
    // Errors name the fields as core does.
    for (key, name) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        if !same(event.dig(key), old.dig(key)) {
            // A text that is gone is an empty one.
            let gone = event.dig(key).is_null() && old.dig(key).is_string();
            let empty = Value::from("");
            let shown = if gone { &empty } else { event.dig(key) };
            errors.invalid_value(&FieldPath::new(name), shown, crate::errors::IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(event: Value, expected: &[&str]) {
        kind("events").create(&event, expected);
    }

    #[test]
    fn events_of_old_are_in_the_namespace_they_are_about() {
        check(json!({"involvedObject": {"namespace": "ns"}}), &[]);
        check(
            json!({"involvedObject": {"namespace": "other"}}),
            &[r#"involvedObject.namespace: Invalid value: "other": does not match event.namespace"#],
        );
    }

    #[test]
    fn events_with_a_time_need_a_reporter() {
        let about = json!({"namespace": "ns"});
        check(
            json!({"involvedObject": about, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "example.com/c",
                "reportingInstance": "i", "action": "a", "reason": "r"}),
            &[],
        );
        check(
            json!({"involvedObject": about, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c", "reason": "r".repeat(129)}),
            &[
                "reportingInstance: Required value",
                "action: Required value",
                r#"reason: Invalid value: "": can have at most 128 characters"#,
            ],
        );
    }
}
