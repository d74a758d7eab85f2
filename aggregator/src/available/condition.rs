//! Conditions of APIServices: their texts, and how they are written.

use generic_server::admission::AdmissionChain;
use generic_server::request::Authorized;
use generic_server::resource::{ServedResource, Subresource};
use generic_server::write::{self, UpdateRules, WriteCall, record_own_write};
use machinery::{ApiError, meta};
use serde_json::{Value, json};

use crate::apiservice;
use crate::remote::RemoteSpec;

/// Upstream's condition.
pub(super) const AVAILABLE: &str = "Available";
/// This server's own: there, and `False`, as long as a server's discovery or OpenAPI cannot be used. Its requests are served.
pub(super) const READABLE: &str = "DocumentsReadable";

/// A condition, without its type and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Condition {
    pub(super) fn no(reason: &'static str, message: String) -> Self {
        Condition {
            status: "False",
            reason,
            message,
        }
    }

    pub(super) fn passed() -> Self {
        Condition {
            status: "True",
            reason: "Passed",
            message: "all checks passed".into(),
        }
    }
}

/// Writes a condition of the APIService with this spec; `None` takes it away.
///
/// # Errors
/// When the store cannot be read or written.
pub(super) async fn write(
    resource: &ServedResource,
    spec: &RemoteSpec,
    kind: &str,
    condition: Option<&Condition>,
) -> Result<(), ApiError> {
    let Some(store) = resource.store() else {
        return Ok(());
    };
    let Some(entry) = store.as_system().find("", &spec.name).await? else {
        return Ok(());
    };
    let mut live = entry.value();
    if RemoteSpec::of(&live).as_ref() != Some(spec) || !set(&mut live, kind, condition) {
        return Ok(());
    }
    tracing::info!(
        apiservice = spec.name,
        condition = kind,
        status = condition.map_or("", |c| c.status),
        reason = condition.map_or("", |c| c.reason),
        message = condition.map_or("", |c| &c.message),
        "an APIService's condition changes"
    );
    write_status(resource, &spec.name, &mut |object| {
        RemoteSpec::of(object).as_ref() == Some(spec) && set(object, kind, condition)
    })
    .await
}

/// Writes an APIService's status when `change` changes something. One that is gone is no fault.
pub(crate) async fn write_status(
    resource: &ServedResource,
    name: &str,
    change: &mut (dyn FnMut(&mut Value) -> bool + Send),
) -> Result<(), ApiError> {
    let Some(Subresource::View(strategy)) = resource.subresource("status") else {
        return Ok(());
    };
    let (authorized, none) = (Authorized::system(), AdmissionChain::default());
    let call = WriteCall {
        strategy: &**strategy,
        subresource: "status",
        ..WriteCall::internal(resource, &authorized, &none, "")
    };
    let rules = UpdateRules {
        retry: true,
        ..UpdateRules::default()
    };
    let mut transform = |live: Option<&Value>| {
        let live = live.cloned().unwrap_or_default();
        let mut object = live.clone();
        if change(&mut object) {
            record_own_write(&call, &live, &mut object);
        }
        Ok(object)
    };
    match write::update(&call, name, &rules, &mut transform).await {
        Err(error) if error.code() == 404 => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Sets a condition, or takes it away; says whether anything changed. The time moves with the status alone.
fn set(object: &mut Value, kind: &str, condition: Option<&Condition>) -> bool {
    let old = apiservice::condition(object, kind).cloned();
    let Some(condition) = condition else {
        let conditions = object
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut);
        if let Some(conditions) = conditions.filter(|_| old.is_some()) {
            conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some(kind));
            return true;
        }
        return false;
    };
    let text = |key: &str| old.as_ref().map_or("", |c| meta::dig_str(c, &[key]));
    if (text("status"), text("reason"), text("message"))
        == (condition.status, condition.reason, &*condition.message)
    {
        return false;
    }
    let time = if text("status") == condition.status {
        text("lastTransitionTime").to_string()
    } else {
        write::now()
    };
    let new = json!({
        "type": kind,
        "status": condition.status,
        "lastTransitionTime": time,
        "reason": condition.reason,
        "message": condition.message,
    });
    replace_condition(object, new);
    true
}

/// Puts a condition where the one of its type was, or last.
pub(crate) fn replace_condition(object: &mut Value, new: Value) {
    if !object.get("status").is_some_and(Value::is_object) {
        object["status"] = json!({});
    }
    let status = &mut object["status"];
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        None => status["conditions"] = json!([new]),
        Some(conditions) => {
            let at = conditions.iter().position(|c| c.get("type") == new.get("type"));
            match at.and_then(|at| conditions.get_mut(at)) {
                Some(old) => *old = new,
                None => conditions.push(new),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status() {
        let mut object = json!({"status": {"conditions": [
            {"type": "Other"},
            {"type": "Available", "status": "False", "reason": "a", "message": "b", "lastTransitionTime": "then"}]}});
        let condition = Condition::no("c", "d".into());
        let set = |object: &mut Value, condition: &Condition| super::set(object, AVAILABLE, Some(condition));
        assert!(set(&mut object, &condition));
        assert_eq!(object["status"]["conditions"][1]["lastTransitionTime"], "then");
        assert!(!set(&mut object, &condition));
        assert!(set(&mut object, &Condition::passed()));
        assert_ne!(object["status"]["conditions"][1]["lastTransitionTime"], "then");
        assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(2));
        assert!(!super::set(&mut object, READABLE, None));
        assert!(super::set(&mut object, READABLE, Some(&condition)));
        assert_eq!(object["status"]["conditions"][2]["type"], READABLE);
        assert!(super::set(&mut object, READABLE, None));
        assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(2));
    }
}
