//! One printer per kind, and what several of them show.

use machinery::meta;
use serde_json::Value;

use super::*;

macro_rules! printer {
    ($name:ident, $columns:literal, $cells:expr) => {
        printer!($name, $columns, $cells, |_| None);
    };
    ($name:ident, $columns:literal, $cells:expr, $conditions:expr) => {
        pub(crate) const $name: Printer = Printer {
            columns: $columns,
            cells: $cells,
            conditions: $conditions,
        };
    };
}

mod core;
mod networking;
mod pods;
mod rules;
mod storage;
mod workloads;

pub(crate) use core::*;
pub(crate) use networking::*;
pub(crate) use pods::*;
pub(crate) use rules::*;
pub(crate) use storage::*;
pub(crate) use workloads::*;

printer!(DEFAULT, "Name|string|name|0;Created At|date||0", |o, _| vec![
    name(o),
    o.dig("metadata.creationTimestamp").clone()
]);

printer!(NAME_AGE, "Name|string|name|0;Age|string||0", |o, ages| vec![
    name(o),
    age(o, ages)
]);

fn number(object: &Value, path: &str) -> Value {
    object.int(path).unwrap_or_default().into()
}

fn ratio(object: &Value, have: &str, want: &str) -> Value {
    format!(
        "{}/{}",
        object.int(have).unwrap_or_default(),
        object.int(want).unwrap_or_default()
    )
    .into()
}

/// Labels and the like, as `KEY=VALUE` joined by commas.
fn pairs(map: &Value) -> Value {
    let all = map.as_object().into_iter().flatten();
    let all: Vec<String> = all
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    match all.is_empty() {
        true => "<none>".into(),
        false => all.join(",").into(),
    }
}

/// Names and images of a template's containers.
fn containers(template: &Value) -> (Value, Value) {
    let list = template.list("spec.containers");
    let join = |key: &str| list.iter().map(|c| c.text(key)).collect::<Vec<_>>().join(",");
    (join("name").into(), join("image").into())
}

fn default_name(object: &Value, annotations: &[&str]) -> Value {
    let is_default = meta::annotations(object).is_some_and(|map| {
        annotations
            .iter()
            .any(|key| map.get(*key).and_then(Value::as_str) == Some("true"))
    });
    match is_default {
        true => format!("{} (default)", meta::name(object)).into(),
        false => name(object),
    }
}

fn phase(object: &Value) -> &str {
    if object.has("metadata.deletionTimestamp") {
        "Terminating"
    } else {
        object.text("status.phase")
    }
}
