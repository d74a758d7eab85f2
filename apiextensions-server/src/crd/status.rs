//! Conditions of a CRD, and the status of a new one.

use serde_json::{Map, Value, json};

/// One condition, without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(
        kind: &'static str,
        status: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Condition {
            kind,
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// The conditions.
pub(crate) fn conditions(crd: &Value) -> &[Value] {
    crd.pointer("/status/conditions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// One condition by type.
pub(crate) fn find<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(crd)
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// Whether a condition is there and `True`.
pub(crate) fn is_true(crd: &Value, kind: &str) -> bool {
    find(crd, kind).is_some_and(|c| c.get("status").and_then(Value::as_str) == Some("True"))
}

/// Whether the condition there says what this one says.
pub(crate) fn says(crd: &Value, condition: &Condition) -> bool {
    find(crd, condition.kind).is_some_and(|there| {
        let text = |key: &str| there.get(key).and_then(Value::as_str).unwrap_or_default();
        text("status") == condition.status
            && text("reason") == condition.reason
            && text("message") == condition.message
    })
}

/// `status`, made when missing.
pub(crate) fn status_mut(crd: &mut Value) -> Option<&mut Map<String, Value>> {
    let status = crd.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    status.as_object_mut()
}

/// Sets a condition; its time moves only when its status does.
pub(crate) fn set(crd: &mut Value, condition: &Condition, now: &str) {
    let Some(status) = status_mut(crd) else { return };
    let list = status.entry("conditions").or_insert(Value::Null);
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let there = list
        .iter_mut()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(condition.kind));
    let body = |time: Value| {
        json!({
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": time,
        })
    };
    match there {
        None => list.push(body(now.into())),
        Some(there) => {
            let time = there.get("lastTransitionTime").filter(|t| !t.is_null()).cloned();
            let same = there.get("status").and_then(Value::as_str) == Some(condition.status);
            *there = body(time.filter(|_| same).unwrap_or_else(|| now.into()));
        }
    }
}

/// Removes a condition.
pub(crate) fn remove(crd: &mut Value, kind: &str) {
    let list = crd
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    if let Some(list) = list {
        list.retain(|c| c.get("type").and_then(Value::as_str) != Some(kind));
    }
}

/// The versions that objects may be stored at.
pub(crate) fn stored_versions(crd: &Value) -> impl Iterator<Item = &str> {
    let list = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// The status of a CRD that has none yet.
pub(crate) fn initial(storage_version: Option<&str>) -> Value {
    let stored = storage_version.map_or(Value::Null, |v| json!([v]));
    json!({
        "acceptedNames": {"plural": "", "kind": ""},
        "conditions": null,
        "storedVersions": stored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_moves() {
        let mut crd = json!({"status": {"conditions": null}});
        let yes = |reason: &str| Condition::new("Established", "True", reason, "m");
        set(&mut crd, &yes("A"), "t1");
        set(&mut crd, &yes("B"), "t2");
        assert!(is_true(&crd, "Established") && says(&crd, &yes("B")));
        assert_eq!(crd["status"]["conditions"][0]["lastTransitionTime"], "t1");
        set(&mut crd, &Condition::new("Established", "False", "C", "m"), "t3");
        assert_eq!(crd["status"]["conditions"][0]["lastTransitionTime"], "t3");
        remove(&mut crd, "Established");
        assert!(find(&crd, "Established").is_none());
    }
}
