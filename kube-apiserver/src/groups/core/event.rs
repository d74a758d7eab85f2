//! Event, as core/v1 and as events.k8s.io/v1. The two differ in names and in how strictly they are judged.

use generic_server::registry::strategy::{DefaultPropagation, FieldValue, SelectableField};
use machinery::FieldPath;
use machinery::names::{dns1123_subdomain, qualified_name};
use serde_json::Value;

use crate::faults::Faults;
use crate::json::{Json, same};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
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
    validate: |faults, event| validate(faults, event, &CORE),
    validate_update: |faults, event, _| validate(faults, event, &CORE),
    create_on_update: true,
    propagation: DefaultPropagation::Unsupported,
    fields,
    ..Rules::PLAIN
};

pub(crate) static RULES_V1: Rules = Rules {
    default: |object| object.fill("eventTime", Value::Null),
    validate: validate_v1,
    validate_update: validate_v1_update,
    create_on_update: true,
    propagation: DefaultPropagation::Unsupported,
    fields,
    ..Rules::PLAIN
};

/// What a version calls the fields that both have.
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

fn validate(faults: &mut Faults, event: &Value, names: &Names) {
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
            faults.invalid(&about_path, about, mismatch);
        }
    } else {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            faults.invalid(&about_path, about, mismatch);
        }
        let controller = event.text(names.controller);
        let path = FieldPath::new(names.controller);
        faults.need(&path, controller);
        faults.text(&path, controller, qualified_name(controller));
        bounded(faults, event, "reportingInstance", true, 128);
        bounded(faults, event, "action", true, 128);
        bounded(faults, event, "reason", true, 128);
        if event.text(names.message).len() > 1024 {
            faults.invalid(&FieldPath::new("message"), "", "can have at most 1024 characters");
        }
    }
    faults.text(
        &FieldPath::new("namespace"),
        namespace,
        dns1123_subdomain(namespace),
    );
}

fn bounded(faults: &mut Faults, event: &Value, key: &str, needed: bool, max: usize) {
    let text = event.text(key);
    let path = FieldPath::new(key);
    if needed {
        faults.need(&path, text);
    }
    if text.len() > max {
        faults.invalid(&path, "", format!("can have at most {max} characters"));
    }
}

fn validate_v1(faults: &mut Faults, event: &Value) {
    validate(faults, event, &V1);
    series(faults, event);
    if !event.has("eventTime") {
        faults.required(&FieldPath::new("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        faults.invalid(&FieldPath::new("type"), "", format!("has invalid value: {kind}"));
    }
    let unset = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
    ];
    for (key, name) in unset {
        if event.has(key) {
            faults.invalid(&FieldPath::new(name), "", "needs to be unset");
        }
    }
    if event.int("deprecatedCount").unwrap_or_default() != 0 {
        faults.invalid(&FieldPath::new("count"), "", "needs to be unset");
    }
    if !same(event.dig("deprecatedSource"), &Value::Null) {
        faults.invalid(&FieldPath::new("source"), "", "needs to be unset");
    }
}

fn series(faults: &mut Faults, event: &Value) {
    let series = event.dig("series");
    if series.is_null() {
        return;
    }
    if series.int("count").unwrap_or_default() < 2 {
        faults.invalid(&FieldPath::new("series.count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        faults.required(&FieldPath::new("series.lastObservedTime"), "");
    }
}

fn validate_v1_update(faults: &mut Faults, event: &Value, old: &Value) {
    validate(faults, event, &V1);
    if !same(event.dig("series"), old.dig("series")) {
        series(faults, event);
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
            faults.invalid_value(&FieldPath::new(name), event.dig(key), crate::faults::IMMUTABLE);
        }
    }
}
