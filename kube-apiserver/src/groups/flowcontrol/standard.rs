//! The FlowSchemas and PriorityLevelConfigurations that every cluster has, as upstream writes them.

use std::sync::LazyLock;

use machinery::{FieldPath, meta};
use serde_json::Value;

use crate::errors::Errors;

/// The names of the mandatory objects of both kinds.
pub(crate) const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// An object that every cluster has.
#[derive(Debug)]
pub(crate) struct Standard {
    /// `FlowSchema` or `PriorityLevelConfiguration`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) spec: Value,
}

static STANDARD: LazyLock<Vec<Standard>> = LazyLock::new(|| {
    let objects = include_str!("standard.jsonl").lines().filter_map(|line| {
        let object: Value = serde_json::from_str(line).ok()?;
        Some(Standard {
            kind: object.get("kind")?.as_str()?.to_owned(),
            name: object.get("name")?.as_str()?.to_owned(),
            spec: object.get("spec")?.clone(),
        })
    });
    objects.collect()
});

/// All of them.
pub(crate) fn standard() -> &'static [Standard] {
    &STANDARD
}

/// Nobody changes a mandatory object: without them requests of the server itself would wait. How many seats the exempt level lends is for
/// administrators to say.
pub(super) fn validate(errors: &mut Errors, kind: &str, object: &Value) {
    let name = meta::name(object);
    let fixed = STANDARD
        .iter()
        .find(|standard| standard.kind == kind && standard.name == name && MANDATORY.contains(&name));
    let (Some(fixed), Some(spec)) = (fixed, object.get("spec")) else {
        return;
    };
    let lends = kind == "PriorityLevelConfiguration" && name == "exempt";
    let mut wanted = fixed.spec.clone();
    if lends && let Some(exempt) = spec.get("exempt") {
        wanted["exempt"] = exempt.clone();
    }
    if *spec != wanted {
        let except = if lends {
            " except the 'spec.exempt' field"
        } else {
            ""
        };
        let text = format!("spec of '{name}'{except} must equal the fixed value");
        errors.invalid_value(&FieldPath::new("spec"), spec, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::kind;

    /// Each standard object is valid, and with one number changed has so many faults.
    #[test]
    fn mandatory_objects_stay_as_they_are() {
        for standard in standard() {
            let (resource, path, faults) = match (&*standard.kind, &*standard.name) {
                ("FlowSchema", "exempt" | "catch-all") => ("flowschemas", "/spec/matchingPrecedence", 1),
                ("FlowSchema", _) => ("flowschemas", "/spec/matchingPrecedence", 0),
                (_, "exempt") => (LEVELS, "/spec/exempt/nominalConcurrencyShares", 0),
                (_, "catch-all") => (LEVELS, "/spec/limited/nominalConcurrencyShares", 1),
                _ => (LEVELS, "/spec/limited/nominalConcurrencyShares", 0),
            };
            let resource = kind(&format!("{resource}.flowcontrol.apiserver.k8s.io"));
            let mut object = json!({"metadata": {"name": standard.name}, "spec": standard.spec});
            assert_eq!(resource.errors(&object), [""; 0], "{}", standard.name);
            *object.pointer_mut(path).expect("a number") = json!(77);
            let found = resource.errors(&object);
            assert_eq!(found.len(), faults, "{}: {found:?}", standard.name);
            let text = format!("spec of '{}' must equal the fixed value", standard.name);
            assert!(found.iter().all(|fault| fault.ends_with(&text)), "{found:?}");
        }
    }

    const LEVELS: &str = "prioritylevelconfigurations";
}
