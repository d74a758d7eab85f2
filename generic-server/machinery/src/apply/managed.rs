//! `metadata.managedFields`: reading, writing, and keeping it from growing.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::set::Set;
use crate::field::go_quote;
use crate::time::Timestamp;

/// How many managers may record updates before the oldest are put together.
const MAX_UPDATE_MANAGERS: usize = 10;
/// Who the oldest updates are recorded under.
const OLD_UPDATES: &str = "ancient-changes";

/// Who wrote fields, how, and through what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagerId<'a> {
    pub(super) manager: Cow<'a, str>,
    pub(super) applied: bool,
    pub(super) subresource: Cow<'a, str>,
}

/// One manager's fields.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub(super) id: ManagerId<'a>,
    pub(super) api_version: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) set: Set<'a>,
    /// Where in the list it was read from the entry stands, as long as it is unchanged.
    pub(super) source: Option<usize>,
}

/// An entry on its way into the new list.
#[derive(Debug)]
pub(super) enum Part {
    /// The unchanged one at this place of the old list.
    Kept(usize),
    /// A new or changed one.
    New(Value),
}

impl<'a> Entry<'a> {
    /// Whether the entry is of that manager. Updates are kept apart by version, applied configurations are not.
    pub(super) fn is(&self, id: &ManagerId<'_>, api_version: &str) -> bool {
        self.id.applied == id.applied
            && self.id.manager == id.manager
            && self.id.subresource == id.subresource
            && (id.applied || self.api_version == api_version)
    }

    /// Upstream's key for the manager, which decides some orders.
    pub(super) fn identifier(&self) -> String {
        let mut out = String::from("{");
        let mut put = |key: &str, value: &str| {
            if !value.is_empty() {
                if out.len() > 1 {
                    out.push(',');
                }
                out.push_str(&format!("\"{key}\":{}", Value::from(value)));
            }
        };
        put("manager", &self.id.manager);
        put("operation", if self.id.applied { "Apply" } else { "Update" });
        if !self.id.applied {
            put("apiVersion", &self.api_version);
        }
        put("subresource", &self.id.subresource);
        out.push('}');
        out
    }

    /// The manager as conflicts name it.
    pub(super) fn show(&self) -> String {
        let mut out = go_quote(&self.id.manager);
        if !self.id.subresource.is_empty() {
            out.push_str(&format!(" with subresource {}", go_quote(&self.id.subresource)));
        }
        if !self.id.applied {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }

    fn seconds(&self) -> i64 {
        self.time
            .as_deref()
            .and_then(Timestamp::parse_rfc3339)
            .map_or(0, Timestamp::unix)
    }

    fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("apiVersion".into(), self.api_version.as_ref().into());
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.set.to_value());
        if !self.id.manager.is_empty() {
            out.insert("manager".into(), self.id.manager.as_ref().into());
        }
        out.insert(
            "operation".into(),
            if self.id.applied { "Apply" } else { "Update" }.into(),
        );
        if !self.id.subresource.is_empty() {
            out.insert("subresource".into(), self.id.subresource.as_ref().into());
        }
        if let Some(time) = &self.time {
            out.insert("time".into(), time.as_ref().into());
        }
        Value::Object(out)
    }
}

/// Reads `managedFields`.
///
/// # Errors
/// Upstream's text for the first malformed entry.
pub(super) fn decode(entries: Option<&Value>) -> Result<Vec<Entry<'_>>, String> {
    let mut out: Vec<Entry<'_>> = Vec::new();
    let list = entries
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, entry) in list.iter().enumerate() {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let applied = match text("operation") {
            "Apply" => true,
            "Update" => false,
            _ => return Err("operation must be `Apply` or `Update`".into()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".into());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {index}",
                    go_quote(other)
                ));
            }
        }
        let set = match entry.get("fieldsV1") {
            Some(fields) => Set::from_value(fields).map_err(|e| format!("error decoding set: {e}"))?,
            None => Set::default(),
        };
        let entry = Entry {
            id: ManagerId {
                manager: Cow::Borrowed(text("manager")),
                applied,
                subresource: Cow::Borrowed(text("subresource")),
            },
            api_version: Cow::Borrowed(api_version),
            time: entry.get("time").and_then(Value::as_str).map(Cow::Borrowed),
            set,
            source: Some(index),
        };
        match out.iter_mut().find(|known| known.is(&entry.id, api_version)) {
            Some(known) => *known = entry,
            None => out.push(entry),
        }
    }
    Ok(out)
}

/// Writes `managedFields`; `None` when nobody manages anything.
pub(super) fn encode(mut entries: Vec<Entry<'_>>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    sort(&mut entries);
    Some(Value::Array(entries.iter().map(Entry::to_value).collect()))
}

/// The new list in order, without writing anew what is unchanged.
pub(super) fn parts(mut entries: Vec<Entry<'_>>) -> Vec<Part> {
    sort(&mut entries);
    let part = |entry: &Entry<'_>| match entry.source {
        Some(index) => Part::Kept(index),
        None => Part::New(entry.to_value()),
    };
    entries.iter().map(part).collect()
}

fn sort(entries: &mut [Entry<'_>]) {
    let order = |a: &Entry<'_>, b: &Entry<'_>| -> Ordering {
        b.id.applied
            .cmp(&a.id.applied)
            .then_with(|| a.seconds().cmp(&b.seconds()))
            .then_with(|| a.id.manager.cmp(&b.id.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.id.subresource.cmp(&b.id.subresource))
    };
    entries.sort_by(order);
}

/// Puts the oldest updates together, per version, until few enough are left.
pub(super) fn cap_updates(entries: &mut Vec<Entry<'_>>) {
    let mut updates = entries.iter().filter(|e| !e.id.applied).count();
    if updates <= MAX_UPDATE_MANAGERS {
        return;
    }
    let mut oldest: Vec<(i64, String)> = entries
        .iter()
        .filter(|e| !e.id.applied)
        .map(|e| (e.seconds(), e.identifier()))
        .collect();
    oldest.sort();
    // Per version the identifier of the first entry seen, which becomes the bucket when a second comes.
    let mut first: Vec<(String, String)> = Vec::new();
    for (_, identifier) in oldest {
        if updates <= MAX_UPDATE_MANAGERS {
            return;
        }
        let Some(at) = entries.iter().position(|e| e.identifier() == identifier) else {
            continue;
        };
        let version = entries[at].api_version.clone().into_owned();
        let Some((_, first)) = first.iter().find(|(v, _)| *v == version) else {
            first.push((version, identifier));
            continue;
        };
        let entry = entries.remove(at);
        let bucket = ManagerId {
            manager: OLD_UPDATES.into(),
            applied: false,
            subresource: "".into(),
        };
        let place = entries
            .iter()
            .position(|e| e.is(&bucket, &version))
            .or_else(|| entries.iter().position(|e| e.identifier() == *first));
        if let Some(place) = place {
            let target = &mut entries[place];
            target.id = bucket;
            target.set = entry.set.union(&target.set);
            target.time = entry.time;
            target.source = None;
        }
        updates -= 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn round_trip_and_order() {
        let entry = |manager: &str, operation: &str, time: &str| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}});
        let list = json!([
            entry("z", "Update", "2020-01-01T00:00:00Z"),
            entry("b", "Update", "2020-01-02T00:00:00Z"),
            entry("c", "Apply", "2020-01-03T00:00:00Z"),
            entry("a", "Update", "2020-01-02T00:00:00Z"),
        ]);
        let out = encode(decode(Some(&list)).unwrap()).unwrap();
        let names: Vec<&str> = out
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["manager"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["c", "z", "a", "b"]);
        for bad in [
            json!([{}]),
            json!([{"operation": "Apply"}]),
            json!([{"operation": "Apply", "apiVersion": "v1"}]),
            json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "x"}]),
            json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"bad": {}}}]),
        ] {
            assert!(decode(Some(&bad)).is_err(), "{bad}");
        }
        assert!(decode(None).unwrap().is_empty());
    }

    #[test]
    fn oldest_updates_are_put_together() {
        let entry = |n: usize| {
            json!({"manager": format!("m{n:02}"), "operation": "Update", "apiVersion": "v1", "time": format!("2020-01-01T00:00:{n:02}Z"),
                "fieldsType": "FieldsV1", "fieldsV1": {format!("f:f{n}"): {}}})
        };
        let list: Value = (0..12).map(entry).collect();
        let mut entries = decode(Some(&list)).unwrap();
        cap_updates(&mut entries);
        assert_eq!(entries.len(), 10);
        let out = encode(entries).unwrap();
        assert_eq!(out[0]["manager"], "ancient-changes");
        assert_eq!(out[0]["fieldsV1"], json!({"f:f0": {}, "f:f1": {}, "f:f2": {}}));
        assert_eq!(out[0]["time"], "2020-01-01T00:00:02Z");
    }
}
