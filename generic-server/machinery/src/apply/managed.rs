//! `metadata.managedFields`: reading, writing, and keeping it from growing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;

use serde_json::{Map, Value};

use super::set::Set;
use crate::field::show_text;
use crate::go;
use crate::steps;
use crate::time::Timestamp;

/// How many managers may record updates before the oldest are put together.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager under which the oldest updates are recorded.
const OLD_UPDATES: &str = "ancient-changes";

/// The identity of a manager: its name, operation and subresource.
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

/// The manager, operation and subresource, and for updates the version.
pub(super) type Key<'x> = (bool, &'x str, &'x str, &'x str);

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

    /// The key that distinguishes the entry from the others, as [`Entry::is`] does.
    pub(super) fn key(&self) -> Key<'_> {
        let version = if self.id.applied { "" } else { &*self.api_version };
        (self.id.applied, &self.id.manager, &self.id.subresource, version)
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
        let mut out = go::quote(&self.id.manager);
        if !self.id.subresource.is_empty() {
            out.push_str(&format!(" with subresource {}", go::quote(&self.id.subresource)));
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
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let list = entries
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, entry) in list.iter().enumerate() {
        steps::count(1);
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
                    show_text(other)
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
        let version = if applied { "" } else { api_version };
        match places.entry((applied, text("manager"), text("subresource"), version)) {
            Place::Occupied(known) => out[*known.get()] = entry,
            Place::Vacant(place) => {
                place.insert(out.len());
                out.push(entry);
            }
        }
    }
    Ok(out)
}

/// Writes `managedFields`; `None` when there are no managers.
pub(super) fn encode(mut entries: Vec<Entry<'_>>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    sort(&mut entries);
    Some(Value::Array(entries.iter().map(Entry::to_value).collect()))
}

/// The new list in order, without rewriting what is unchanged.
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

/// The updates of one version that are put together.
#[derive(Default)]
struct Bucket {
    /// The oldest update, which becomes the bucket when there is none yet.
    first: Option<usize>,
    /// Where the bucket is.
    place: Option<usize>,
    /// The updates that are in it besides earlier ones.
    taken: Vec<usize>,
    /// The update whose time the bucket has.
    time: Option<usize>,
}

/// Puts the oldest updates together, per version, until few enough are left.
pub(super) fn cap_updates(entries: &mut Vec<Entry<'_>>) {
    let mut updates = entries.iter().filter(|e| !e.id.applied).count();
    if updates <= MAX_UPDATE_MANAGERS {
        return;
    }
    let mut buckets: HashMap<String, Bucket> = HashMap::new();
    let mut oldest: Vec<(i64, String, usize)> = Vec::with_capacity(updates);
    for (index, entry) in entries.iter().enumerate().filter(|(_, e)| !e.id.applied) {
        oldest.push((entry.seconds(), entry.identifier(), index));
        let bucket = buckets.entry(entry.api_version.to_string()).or_default();
        if entry.id.manager == OLD_UPDATES && entry.id.subresource.is_empty() {
            bucket.place = Some(index);
        }
    }
    oldest.sort();
    let mut gone = vec![false; entries.len()];
    for (_, _, index) in oldest {
        steps::count(1);
        if updates <= MAX_UPDATE_MANAGERS {
            break;
        }
        let Some(bucket) = buckets.get_mut(&*entries[index].api_version) else {
            continue;
        };
        let Some(first) = bucket.first else {
            bucket.first = Some(index);
            continue;
        };
        // A bucket that has its turn itself goes into the oldest update, with all that it took.
        let place = match bucket.place {
            Some(place) if place != index => {
                bucket.time = Some(index);
                place
            }
            Some(_) => {
                bucket.time.get_or_insert(index);
                first
            }
            None => {
                bucket.time = Some(index);
                first
            }
        };
        bucket.place = Some(place);
        bucket.taken.push(index);
        gone[index] = true;
        updates -= 1;
    }
    for bucket in buckets.into_values() {
        let (Some(place), Some(time)) = (bucket.place, bucket.time) else {
            continue;
        };
        let time = entries[time].time.clone();
        let sets: Vec<Set<'_>> = bucket
            .taken
            .iter()
            .chain([&place])
            .map(|index| std::mem::take(&mut entries[*index].set))
            .collect();
        let target = &mut entries[place];
        target.id = ManagerId {
            manager: OLD_UPDATES.into(),
            applied: false,
            subresource: "".into(),
        };
        target.set = Set::union_of(sets);
        target.time = time;
        target.source = None;
    }
    let mut gone = gone.into_iter();
    entries.retain(|_| !gone.next().unwrap_or_default());
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

    fn update(n: usize, manager: &str, second: usize, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "apiVersion": format!("v{n}"), "time": format!("2020-01-01T00:00:{second:02}Z"),
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn updates_are_put_together_per_version_and_into_the_bucket_there_is() {
        // A bucket that is younger than what it takes has its own turn later, and goes into the oldest update.
        let mut list: Vec<Value> = (0..3)
            .map(|n| update(1, &format!("a{n}"), n, json!({format!("f:a{n}"): {}})))
            .collect();
        list.push(update(1, OLD_UPDATES, 5, json!({"f:old": {}})));
        list.extend((10..19).map(|n| update(2, &format!("b{n}"), n, json!({format!("f:b{n}"): {}}))));
        let list = Value::Array(list);
        let mut entries = decode(Some(&list)).unwrap();
        cap_updates(&mut entries);
        assert_eq!(entries.len(), 10);
        let out = encode(entries).unwrap();
        assert_eq!(out[0]["manager"], OLD_UPDATES);
        assert_eq!(
            out[0]["fieldsV1"],
            json!({"f:a0": {}, "f:a1": {}, "f:a2": {}, "f:old": {}})
        );
        assert_eq!(out[0]["time"], "2020-01-01T00:00:02Z");
        assert_eq!(out[1]["manager"], "b10");
    }

    #[test]
    fn work_grows_with_the_entries() {
        let list = |size: usize| -> Value {
            (0..size)
                .map(|n| update(1, &format!("m{n}"), n % 60, json!({format!("f:f{n}"): {}})))
                .collect()
        };
        crate::steps::check_growth(100, |size| {
            let list = list(size);
            move || {
                let mut entries = decode(Some(&list)).unwrap();
                cap_updates(&mut entries);
                assert_eq!(entries.len(), MAX_UPDATE_MANAGERS);
            }
        });
    }
}
