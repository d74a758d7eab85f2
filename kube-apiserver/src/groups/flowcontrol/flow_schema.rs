//! FlowSchema.

use machinery::FieldPath;
use machinery::meta;
use machinery::names::dns1123_subdomain;
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    default: |object| object.ensure("spec").fill_int("matchingPrecedence", 1000),
    validate,
    validate_update: |faults, object, _| validate(faults, object),
    ..Rules::PLAIN
};

fn validate(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let precedence = spec.int("matchingPrecedence").unwrap_or_default();
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        faults.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > 10000 {
        faults.invalid(&at, precedence, "must not be greater than 10000");
    }
    if precedence == 1 && meta::name(object) != "exempt" {
        faults.invalid(
            &at,
            precedence,
            "only the schema named 'exempt' may have matchingPrecedence 1",
        );
    }
    if let Some(method) = spec.dig("distinguisherMethod.type").as_str()
        && !["ByNamespace", "ByUser"].contains(&method)
    {
        let at = path.child("distinguisherMethod");
        faults.push(machinery::FieldError::not_supported(
            &at.child("type"),
            &json!({"Type": method}),
            &["ByNamespace", "ByUser"],
        ));
    }
    let (level, name) = (
        path.child("priorityLevelConfiguration"),
        spec.text("priorityLevelConfiguration.name"),
    );
    if name.is_empty() {
        faults.required(&level.child("name"), "must reference a priority level");
    } else {
        faults.text(&level.child("name"), name, dns1123_subdomain(name));
    }
    let at = path.child("rules");
    for (index, rule) in spec.list("rules").iter().enumerate() {
        one_rule(faults, &at.index(index), rule);
    }
}

fn one_rule(faults: &mut Faults, path: &FieldPath<'_>, rule: &Value) {
    let at = path.child("subjects");
    let subjects = rule.list("subjects");
    if subjects.is_empty() {
        faults.required(&at, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        let path = at.index(index);
        let kind = subject.text("kind");
        let key = match kind {
            "ServiceAccount" => "serviceAccount",
            "User" => "user",
            "Group" => "group",
            _ => {
                faults.unsupported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
                continue;
            }
        };
        if !subject.has(key) {
            faults.required(
                &path.child(key),
                &format!("{key} is required when subject kind is '{kind}'"),
            );
        } else if subject.dig(key).text("name").is_empty() {
            faults.required(&path.child(key).child("name"), "");
        }
    }
    let (resources, urls) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        faults.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    let at = path.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        let path = at.index(index);
        verbs(faults, &path, rule);
        for (key, one) in [("apiGroups", "api group"), ("resources", "resource")] {
            let items: Vec<&str> = rule.strings(key).collect();
            if items.is_empty() {
                faults.required(
                    &path.child(key),
                    &format!("resource rules must supply at least one {one}"),
                );
            } else if items.len() > 1 && items.contains(&"*") {
                faults.invalid_value(
                    &path.child(key),
                    rule.dig(key),
                    format!("if '*' is present, must not specify other {one}s"),
                );
            }
        }
        if rule.list("namespaces").is_empty() && !rule.flag("clusterScope") {
            faults.required(
                &path.child("namespaces"),
                "resource rules that are not cluster scoped must supply at least one namespace",
            );
        }
    }
    let at = path.child("nonResourceRules");
    for (index, rule) in urls.iter().enumerate() {
        let path = at.index(index);
        verbs(faults, &path, rule);
        if rule.list("nonResourceURLs").is_empty() {
            faults.required(
                &path.child("nonResourceURLs"),
                "nonResourceURLs must contain at least one value",
            );
        }
    }
}

fn verbs(faults: &mut Faults, path: &FieldPath<'_>, rule: &Value) {
    let verbs: Vec<&str> = rule.strings("verbs").collect();
    let at = path.child("verbs");
    if verbs.is_empty() {
        faults.required(&at, "verbs must contain at least one value");
    } else if verbs.len() > 1 && verbs.contains(&"*") {
        faults.invalid_value(
            &at,
            rule.dig("verbs"),
            "if '*' is present, must not specify other verbs",
        );
    }
}
