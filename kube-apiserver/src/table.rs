//! The Table view of the built-in kinds: the columns and cells that `kubectl get` prints.
//! Mirrors upstream's `pkg/printers/internalversion`; cells are printed wide, priorities let clients hide columns.

use std::fmt;
use std::sync::Arc;

use generic_server::resource::{Column, TableConvertor};
use machinery::meta;
use machinery::selector::LabelSelector;
use machinery::table::Ages;
use machinery::time::GoDuration;
use serde_json::Value;

use crate::json::Json;

mod cells;

pub(crate) use cells::*;

/// How a kind is printed: columns as `Name|type|format|priority`, separated by semicolons.
pub(crate) struct Printer {
    pub(crate) columns: &'static str,
    pub(crate) cells: fn(&Value, &Ages) -> Vec<Value>,
    pub(crate) conditions: fn(&Value) -> Option<Value>,
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.columns)
    }
}

/// A [`Printer`] made ready to serve.
pub(crate) struct Table {
    columns: Vec<Column>,
    cells: fn(&Value, &Ages) -> Vec<Value>,
    conditions: fn(&Value) -> Option<Value>,
}

impl Table {
    pub(crate) fn of(printer: &Printer) -> Arc<Self> {
        let columns = printer.columns.split(';').map(|column| {
            let mut parts = column.split('|');
            let mut next = || parts.next().unwrap_or_default().to_string();
            let (name, kind, format, priority) = (next(), next(), next(), next());
            Column {
                description: description(&name),
                name,
                kind,
                format,
                priority: priority.parse().unwrap_or_default(),
            }
        });
        Arc::new(Table {
            columns: columns.collect(),
            cells: printer.cells,
            conditions: printer.conditions,
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("columns", &self.columns.len())
            .finish_non_exhaustive()
    }
}

impl TableConvertor for Table {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn cells(&self, object: &Value, ages: &Ages) -> Vec<Value> {
        (self.cells)(object, ages)
    }

    fn conditions(&self, object: &Value) -> Option<Value> {
        (self.conditions)(object)
    }
}

/// The description of a column, for `kubectl` and web consoles.
fn description(name: &str) -> String {
    match name {
        "Name" => "The name of the object, unique among those of its kind in its scope.".into(),
        "Age" => "How long ago the object was created.".into(),
        "Created At" => "When the object was created.".into(),
        "Containers" => "Names of each container in the template.".into(),
        "Images" => "Images referenced by each container in the template.".into(),
        // Upstream's column has no text.
        "Handler" => String::new(),
        "Selector" => "The labels that select what belongs to the object.".into(),
        other => format!("{other} of the object."),
    }
}

/// `5d3h`, `<unknown>` for no time.
pub(crate) fn since(ages: &Ages, timestamp: &str) -> String {
    ages.of(Some(timestamp))
}

/// The age of an object.
pub(crate) fn age(object: &Value, ages: &Ages) -> Value {
    since(ages, object.text("metadata.creationTimestamp")).into()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// A length of time as people read it.
pub(crate) fn human_duration(seconds: i64) -> String {
    GoDuration::from_secs(seconds).human()
}

/// `a=b,c=d`, `<none>` for none.
pub(crate) fn format_labels(labels: &Value) -> String {
    match labels.as_object() {
        Some(map) if !map.is_empty() => map
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(","),
        _ => "<none>".into(),
    }
}

/// A LabelSelector as text; `None` when it is malformed.
pub(crate) fn selector_text(selector: &Value) -> Option<String> {
    LabelSelector::from_value(selector).ok().map(|s| s.to_string())
}

/// A LabelSelector as cells show it.
pub(crate) fn format_selector(selector: &Value) -> String {
    if selector.is_null() {
        return "<none>".into();
    }
    match selector_text(selector) {
        None => "<error>".into(),
        Some(text) if text.is_empty() => "<none>".into(),
        Some(text) => text,
    }
}

/// A text, or a stand-in for none.
pub(crate) fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_sorted_by_key() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        assert_eq!(format_selector(&selector), "a in (x,y),b=1,!c");
        assert_eq!(format_selector(&json!({})), "<none>");
        assert_eq!(
            format_selector(&json!({"matchExpressions": [{"operator": "No"}]})),
            "<error>"
        );
    }
}
