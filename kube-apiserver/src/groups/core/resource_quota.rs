//! ResourceQuota.

use generic_server::registry::strategy::MetadataRules;
use std::collections::HashMap;

use machinery::FieldPath;
use serde_json::Value;

use super::limit_range::{is_huge_page, standard_name};
use super::resource_names::{STANDARD, quantity_value};
use crate::errors::{Errors, IMMUTABLE};
use crate::json::Json;
use crate::quantity::{amount, round_lists};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    status: true,
    returns_deleted: true,
    default: |object| {
        object.ensure("spec");
        round_lists(object, &["spec.hard", "status.hard", "status.used"]);
    },
    validate: |errors, object| validate(errors, object),
    validate_update: |errors, object, old| {
        validate(errors, object);
        let scopes = |object: &Value| -> Vec<String> {
            let mut scopes: Vec<String> = object.strings("spec.scopes").map(str::to_string).collect();
            scopes.sort();
            scopes.dedup();
            scopes
        };
        if scopes(object) != scopes(old) {
            errors.invalid_value(
                &FieldPath::new("spec.scopes"),
                object.dig("spec.scopes"),
                IMMUTABLE,
            );
        }
    },
    validate_status: |errors, object, _| {
        let path = FieldPath::new("status");
        for key in ["hard", "used"] {
            amounts(errors, &path.child(key), object.dig("status").dig(key));
        }
    },
    warnings: |object, old| match old.is_null() {
        true => warnings(object),
        false => Vec::new(),
    },
    ..Rules::PLAIN
};

/// Of what is requested no more is allowed than of its limit.
fn warnings(object: &Value) -> Vec<String> {
    let hard = object.dig("spec.hard");
    let mut out = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request = format!("requests.{name}");
        if matches!(name, "cpu" | "memory") && hard.get(&request).is_none() {
            request = name.to_owned();
        }
        let limit = format!("limits.{name}");
        let amounts = (
            hard.get(&request).and_then(amount),
            hard.get(&limit).and_then(amount),
        );
        if let (Some(requested), Some(limited)) = amounts
            && requested > limited
        {
            out.push(format!(
                "ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"
            ));
        }
    }
    out
}

/// Whether a resource is counted by its plain name.
fn counted(name: &str) -> bool {
    (name != "storage" && STANDARD.contains(&name)) || is_huge_page(name)
}

fn amounts(errors: &mut Errors, path: &FieldPath<'_>, amounts: &Value) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let path = path.key(name);
        standard_name(errors, &path, name);
        if !name.contains('/') && !counted(name) {
            errors.invalid(&path, name.as_str(), "must be a standard resource for quota");
        }
        quantity_value(errors, &path, name, amount);
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    amounts(errors, &path.child("hard"), spec.dig("hard"));
    let at = path.child("scopes");
    let shown = spec.dig("scopes");
    let mut mismatches = ScopeMismatches::of(spec);
    for scope in spec.strings("scopes") {
        if !known(scope) {
            errors.invalid_value(&at, shown, "unsupported scope");
        }
        mismatches.report(errors, &at, scope, shown);
    }
    let scopes: Vec<&str> = spec.strings("scopes").collect();
    conflicts(errors, &at, &scopes, shown);
    if spec.has("scopeSelector") {
        selector(errors, &path.child("scopeSelector"), spec);
    }
}

fn known(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

/// Whether a resource can be counted within a scope.
fn applies(scope: &str, resource: &str) -> bool {
    let compute = matches!(
        resource,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if known(scope) => resource == "pods" || compute,
        _ => true,
    }
}

/// How many resources of a quota cannot be counted within a scope, found once for each scope.
struct ScopeMismatches<'v> {
    spec: &'v Value,
    by_scope: HashMap<&'v str, usize>,
}

impl<'v> ScopeMismatches<'v> {
    fn of(spec: &'v Value) -> Self {
        ScopeMismatches {
            spec,
            by_scope: HashMap::new(),
        }
    }

    /// Reports each of them, as upstream does.
    fn report(&mut self, errors: &mut Errors, path: &FieldPath<'_>, scope: &'v str, shown: &Value) {
        let names = || self.spec.entries("hard").map(|(name, _)| name);
        let count = || {
            names()
                .filter(|name| counted(name) && !applies(scope, name))
                .count()
        };
        let count = *self.by_scope.entry(scope).or_insert_with(count);
        for _ in 0..count {
            if errors.is_full() {
                return;
            }
            errors.invalid_value(path, shown, "unsupported scope applied to resource");
        }
    }
}

fn conflicts(errors: &mut Errors, path: &FieldPath<'_>, scopes: &[&str], shown: &Value) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid_value(path, shown, "conflicting scopes");
        }
    }
}

fn selector(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let path = path.child("matchExpressions");
    let mut scopes = Vec::new();
    let mut mismatches = ScopeMismatches::of(spec);
    for requirement in spec.list("scopeSelector.matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        scopes.push(scope);
        if !known(scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        mismatches.report(errors, &path, scope, spec.dig("scopeSelector"));
        let valued = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if known(scope) && !valued && operator != "Exists" {
            errors.invalid(
                &path.child("operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        let none = requirement.list("values").is_empty();
        let values = path.child("values");
        match operator {
            "In" | "NotIn" if none => errors.required(
                &values,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !none => errors.invalid_value(
                &values,
                requirement.dig("values"),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
        }
    }
    conflicts(errors, &path, &scopes, spec.dig("scopes"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, expected: &[&str]) {
        let found = Errors::collect(|errors| validate(errors, &json!({"spec": spec})));
        let found: Vec<String> = found
            .iter()
            .map(|e| format!("{}: {}", e.field, e.body()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn hard_limits_and_scopes() {
        check(json!({"hard": {"pods": "3", "count/deployments.apps": "1"}}), &[]);
        check(
            json!({"hard": {"storage": "1"}}),
            &[r#"spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota"#],
        );
        check(
            json!({"hard": {"pods": "1.5"}}),
            &[r#"spec.hard[pods]: Invalid value: "1500m": must be an integer"#],
        );
        check(
            json!({"hard": {"services": "1"}, "scopes": ["BestEffort"]}),
            &[r#"spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource"#],
        );
        check(
            json!({"scopes": ["BestEffort", "NotBestEffort"]}),
            &[r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes"#],
        );
        check(
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
            &[
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ],
        );
    }
}
