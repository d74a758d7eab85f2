//! FlowSchema.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::{dns1123_label, dns1123_subdomain};
use machinery::{FieldError, FieldPath, meta};
use serde_json::{Value, json};

use super::conditions::conditions;
use super::standard;
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::AS_NEW,
    status: true,
    status_meta: StatusMeta::Stored,
    generation: &["spec"],
    default: |object| object.ensure("spec").fill_int("matchingPrecedence", 1000),
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    validate_status: |errors, object, _| conditions(errors, object),
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let precedence = spec.int("matchingPrecedence").unwrap_or_default();
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > 10000 {
        errors.invalid(&at, precedence, "must not be greater than 10000");
    }
    if precedence == 1 && meta::name(object) != "exempt" {
        errors.invalid(
            &at,
            precedence,
            "only the schema named 'exempt' may have matchingPrecedence 1",
        );
    }
    if let Some(method) = spec.dig("distinguisherMethod.type").as_str()
        && !["ByNamespace", "ByUser"].contains(&method)
    {
        let at = path.child("distinguisherMethod");
        errors.push(FieldError::not_supported(
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
        errors.required(&level.child("name"), "must reference a priority level");
    } else {
        errors.text(&level.child("name"), name, dns1123_subdomain(name));
    }
    let at = path.child("rules");
    for (index, rule) in spec.list("rules").iter().enumerate() {
        one_rule(errors, &at.index(index), rule);
    }
    standard::validate(errors, "FlowSchema", object);
    conditions(errors, object);
}

/// The kinds of subjects, and where each is described.
const SUBJECTS: [(&str, &str); 3] = [
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
    ("Group", "group"),
];

fn one_subject(errors: &mut Errors, path: &FieldPath<'_>, subject: &Value) {
    let kind = subject.text("kind");
    let Some((_, key)) = SUBJECTS.iter().find(|(name, _)| *name == kind) else {
        return errors.unsupported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let (at, described) = (path.child(key), subject.dig(key));
    if !subject.has(key) {
        errors.required(&at, &format!("{key} is required when subject kind is '{kind}'"));
    } else if kind == "ServiceAccount" {
        service_account(errors, &at, described);
    } else {
        errors.need(&at.child("name"), described.text("name"));
    }
    for (other, key) in SUBJECTS.iter().filter(|(name, _)| *name != kind) {
        if subject.has(key) {
            let text = format!("{key} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.child(key), text);
        }
    }
}

fn service_account(errors: &mut Errors, path: &FieldPath<'_>, account: &Value) {
    let (name, namespace) = (account.text("name"), account.text("namespace"));
    let at = path.child("name");
    if errors.need(&at, name) && name != "*" {
        errors.text(&at, name, dns1123_subdomain(name));
    }
    let at = path.child("namespace");
    if namespace.is_empty() {
        errors.required(&at, "must specify namespace for service account");
    } else {
        errors.text(&at, namespace, dns1123_label(namespace));
    }
}

fn one_rule(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let at = path.child("subjects");
    let subjects = rule.list("subjects");
    if subjects.is_empty() {
        errors.required(&at, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        one_subject(errors, &at.index(index), subject);
    }
    let (resources, urls) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    let at = path.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        let path = at.index(index);
        verbs(errors, &path, rule);
        for (key, one) in [("apiGroups", "api group"), ("resources", "resource")] {
            let items: Vec<&str> = rule.strings(key).collect();
            if items.is_empty() {
                errors.required(
                    &path.child(key),
                    &format!("resource rules must supply at least one {one}"),
                );
            } else if items.len() > 1 && items.contains(&"*") {
                errors.invalid_value(
                    &path.child(key),
                    rule.dig(key),
                    format!("if '*' is present, must not specify other {one}s"),
                );
            }
        }
        namespaces(errors, &path.child("namespaces"), rule);
    }
    let at = path.child("nonResourceRules");
    for (index, rule) in urls.iter().enumerate() {
        let path = at.index(index);
        verbs(errors, &path, rule);
        urls_of(errors, &path.child("nonResourceURLs"), rule);
    }
}

fn namespaces(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let names: Vec<&str> = rule.strings("namespaces").collect();
    if names.is_empty() && !rule.flag("clusterScope") {
        let text = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(path, text);
    } else if names.contains(&"*") {
        if names.len() > 1 {
            let text = "if '*' is present, must not specify other namespaces";
            errors.invalid_value(path, rule.dig("namespaces"), text);
        }
    } else {
        for (index, name) in names.into_iter().enumerate() {
            for text in dns1123_label(name) {
                let text = format!("each member of this list must be '*' or a DNS-1123 label; {text}");
                errors.invalid(&path.index(index), name, text);
            }
        }
    }
}

fn urls_of(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let urls: Vec<&str> = rule.strings("nonResourceURLs").collect();
    if urls.is_empty() {
        errors.required(path, "nonResourceURLs must contain at least one value");
    } else if urls.contains(&"*") {
        if urls.len() > 1 {
            let text = "if '*' is present, must not specify other non-resource URLs";
            errors.invalid_value(path, rule.dig("nonResourceURLs"), text);
        }
    } else {
        for (index, url) in urls.into_iter().enumerate() {
            if let Some(text) = bad_url(url) {
                errors.invalid(&path.index(index), url, text);
            }
        }
    }
}

/// The fault of a rule's path, if any.
fn bad_url(url: &str) -> Option<&'static str> {
    if url == "/" {
        return None;
    }
    if url.is_empty() {
        return Some("must not be empty");
    }
    if !url.starts_with('/') {
        return Some("must start with slash");
    }
    if url.contains(' ') {
        return Some("must not contain white-space");
    }
    if url.contains("//") {
        return Some("must not contain double slash");
    }
    match url.strip_suffix('*').unwrap_or(url) {
        before if before.contains('*') => Some("wildcard can only do suffix matching"),
        before if url.ends_with('*') && !before.ends_with('/') => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

/// The verbs of requests (`*` stands alone).
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

fn verbs(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let verbs: Vec<&str> = rule.strings("verbs").collect();
    let at = path.child("verbs");
    if verbs.is_empty() {
        errors.required(&at, "verbs must contain at least one value");
    } else if verbs.len() > 1 && verbs.contains(&"*") {
        errors.invalid_value(
            &at,
            rule.dig("verbs"),
            "if '*' is present, must not specify other verbs",
        );
    } else if !verbs.contains(&"*") && !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(FieldError::not_supported(&at, rule.dig("verbs"), &VERBS));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"priorityLevelConfiguration": {"name": "global-default"}}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("flowschemas.flowcontrol.apiserver.k8s.io").create(&with(spec), expected);
    }

    #[track_caller]
    fn rule(rule: Value, expected: &[&str]) {
        let mut whole = json!({"subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]});
        for (key, value) in rule.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        check(json!({"rules": [whole]}), expected);
    }

    #[test]
    fn schemas_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"matchingPrecedence": 10_001, "priorityLevelConfiguration": {"name": ""}}),
            &[
                "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ],
        );
        check(
            json!({"matchingPrecedence": 1}),
            &[
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            ],
        );
        kind("flowschemas.flowcontrol.apiserver.k8s.io")
            .defaults(&with(json!({})), &json!({"spec": {"matchingPrecedence": 1000}}));
    }

    #[test]
    fn subjects_are_validated() {
        let at = "spec.rules[0].subjects[0]";
        rule(
            json!({"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "X Y"}, "user": {"name": "u"}}]}),
            &[
                &format!(
                    "{at}.serviceAccount.name: Invalid value: \"X Y\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
                &format!(
                    "{at}.serviceAccount.namespace: Required value: must specify namespace for service account"
                ),
                &format!("{at}.user: Forbidden: user is forbidden when subject kind is not 'User'"),
            ],
        );
        rule(
            json!({"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "a"}}]}),
            &[],
        );
    }

    #[test]
    fn rules_are_validated() {
        rule(json!({}), &[]);
        rule(
            json!({"subjects": []}),
            &["spec.rules[0].subjects: Required value: subjects must contain at least one value"],
        );
        rule(
            json!({"resourceRules": []}),
            &[
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ],
        );
        rule(
            json!({"nonResourceRules": [{"verbs": ["*", "get"], "nonResourceURLs": ["*", "/a"]}]}),
            &[
                r#"spec.rules[0].nonResourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs"#,
                r#"spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value: ["*","/a"]: if '*' is present, must not specify other non-resource URLs"#,
            ],
        );
        rule(
            json!({"resourceRules": [{"verbs": ["look"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*", "a"]}]}),
            &[
                r#"spec.rules[0].resourceRules[0].verbs: Unsupported value: ["look"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#,
                r#"spec.rules[0].resourceRules[0].namespaces: Invalid value: ["*","a"]: if '*' is present, must not specify other namespaces"#,
            ],
        );
    }
}
