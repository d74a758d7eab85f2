//! Which of the names that a CRD asks for it gets. Mirrors `pkg/controller/status/naming_controller.go`.
//!
//! Names are unique per group: one set for plurals, singulars and short names, one for kinds and list kinds. Names that another
//! CRD has been given are taken; the rest of the group is read from an index, so the cost does not grow with the number of CRDs.

use std::collections::HashSet;

use machinery::go;
use serde_json::{Value, json};

use crate::crd::status::{self, Condition};

/// Which names the other CRDs of a group have been given.
pub(crate) trait Claims {
    /// Whether a plural, singular or short name is taken.
    fn resource(&self, name: &str) -> bool;
    /// Whether a kind or list kind is taken.
    fn kind(&self, name: &str) -> bool;
}

/// The outcome for the names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Naming {
    /// `status.acceptedNames`.
    pub(crate) accepted: Value,
    /// `NamesAccepted`.
    pub(crate) condition: Condition,
}

impl Naming {
    /// Whether all names were given.
    pub(crate) fn is_accepted(&self) -> bool {
        self.condition.status == "True"
    }
}

fn fresh(requested: &str, accepted: &str, taken: impl Fn(&str) -> bool) -> Result<(), String> {
    if requested == accepted || !taken(requested) {
        return Ok(());
    }
    Err(format!("{} is already in use", go::quote(requested)))
}

/// Decides about the names of a CRD, given those of the others in its group.
pub(crate) fn decide(crd: &Value, claims: &dyn Claims) -> Naming {
    let null = Value::Null;
    let requested = crd.pointer("/spec/names").unwrap_or(&null);
    let current = crd.pointer("/status/acceptedNames").unwrap_or(&null);
    let mut accepted = match current {
        Value::Object(_) => current.clone(),
        _ => json!({"plural": "", "kind": ""}),
    };
    let mut conflict: Option<(&str, String)> = None;
    let mut give = |key: &str, value: Option<&Value>| match value {
        Some(value) => accepted[key] = value.clone(),
        None => {
            if let Some(map) = accepted.as_object_mut() {
                map.remove(key);
            }
        }
    };
    fn text<'a>(of: &'a Value, key: &str) -> &'a str {
        of.get(key).and_then(Value::as_str).unwrap_or_default()
    }
    // Later conflicts are the ones that are reported, as upstream does.
    for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        match fresh(text(requested, key), text(current, key), |n| claims.resource(n)) {
            Ok(()) => give(key, requested.get(key)),
            Err(why) => conflict = Some((reason, why)),
        }
    }
    let names = |of: &Value| -> Vec<String> {
        let list = of.get("shortNames").and_then(Value::as_array);
        let list = list.into_iter().flatten().filter_map(Value::as_str);
        list.map(str::to_string).collect()
    };
    let (wanted, ours) = (names(requested), names(current));
    if wanted != ours {
        let known: HashSet<&String> = ours.iter().collect();
        let mut faults: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for name in wanted.iter().filter(|n| !known.contains(n)) {
            if let Err(why) = fresh(name, "", |n| claims.resource(n))
                && seen.insert(why.clone())
            {
                faults.push(why);
            }
        }
        if faults.is_empty() {
            give(
                "shortNames",
                requested.get("shortNames").filter(|_| !wanted.is_empty()),
            );
        } else {
            conflict = Some(("ShortNamesConflict", go::aggregate(&faults).into_owned()));
        }
    }
    for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        match fresh(text(requested, key), text(current, key), |n| claims.kind(n)) {
            Ok(()) => give(key, requested.get(key)),
            Err(why) => conflict = Some((reason, why)),
        }
    }
    give("categories", requested.get("categories"));
    let condition = match conflict {
        Some((reason, why)) => Condition::new("NamesAccepted", "False", reason, why),
        None => Condition::new("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    };
    Naming { accepted, condition }
}

/// The new state of `Established`, given the names: once it is true it stays so. `None` when it stays as it is.
pub(crate) fn establishing(crd: &Value, naming: &Naming) -> Option<Condition> {
    if status::is_true(crd, "Established") {
        return None;
    }
    if naming.is_accepted() {
        return Some(Condition::new(
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ));
    }
    if status::find(crd, "Established").is_some() {
        return None;
    }
    Some(Condition::new(
        "Established",
        "False",
        "NotAccepted",
        "not all names are accepted",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"spec": {"names": {
            "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": short,
        }}})
    }

    /// Names of one other CRD.
    struct Other(Value);

    impl Claims for Other {
        fn resource(&self, name: &str) -> bool {
            let short = self.0["shortNames"]
                .as_array()
                .is_some_and(|s| s.iter().any(|n| n == name));
            short || self.0["plural"] == name || self.0["singular"] == name
        }
        fn kind(&self, name: &str) -> bool {
            self.0["kind"] == name || self.0["listKind"] == name
        }
    }

    #[test]
    fn the_last_conflict_is_reported_and_free_names_are_accepted() {
        let first = crd("foos", "Foo", &["fo"]);
        let given = decide(&first, &Other(Value::Null));
        assert!(given.is_accepted());
        assert_eq!(given.accepted, first["spec"]["names"]);
        let taken = Other(given.accepted);

        let mut second = crd("foes", "Foo", &[]);
        second["spec"]["names"]["singular"] = json!("foe");
        let refused = decide(&second, &taken);
        assert_eq!(refused.condition.reason, "ListKindConflict");
        assert_eq!(refused.condition.message, "\"FooList\" is already in use");
        assert_eq!(
            refused.accepted,
            json!({"plural": "foes", "singular": "foe", "kind": ""})
        );
        let established = establishing(&second, &refused);
        assert_eq!(established.map(|c| c.reason), Some("NotAccepted".into()));

        let third = decide(&crd("bars", "Bar", &["fo", "ba", "foos"]), &taken);
        assert_eq!(third.condition.reason, "ShortNamesConflict");
        assert_eq!(
            third.condition.message,
            "[\"fo\" is already in use, \"foos\" is already in use]"
        );
    }
}
