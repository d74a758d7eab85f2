//! Common parts of validating and mutating webhook configurations: validation of webhooks, rules, conditions and clients.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use generic_server::dynamic_admission::webhook::condition_faults;
use machinery::names::{dns1035_label, dns1123_subdomain, fully_qualified_name, port_number, qualified_name};
use machinery::{FieldError, FieldPath, limits};
use serde_json::Value;

use super::urls::webhook_url;
use crate::errors::{Errors, Ratchet};
use crate::json::Json;
use crate::unique::Seen;

/// The faults that an update may keep, because the stored configuration has them.
struct Strict {
    side_effects: bool,
    versions: bool,
    names: bool,
}

const QUIET: [&str; 2] = ["None", "NoneOnDryRun"];
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

impl Strict {
    fn beside(old: &Value) -> Self {
        let hooks = old.list("webhooks");
        let mut names: Vec<&str> = hooks.iter().map(|hook| hook.text("name")).collect();
        names.sort_unstable();
        Strict {
            side_effects: hooks.iter().all(|hook| QUIET.contains(&hook.text("sideEffects"))),
            versions: hooks.iter().all(|hook| {
                hook.strings("admissionReviewVersions")
                    .any(|version| VERSIONS.contains(&version))
            }),
            names: names.windows(2).all(|pair| pair[0] != pair[1]),
        }
    }
}

/// Checks a configuration; the old one is null on create.
pub(super) fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let strict = Strict::beside(old);
    let path = FieldPath::new("webhooks");
    let hooks = object.list("webhooks");
    let mut names = Seen::default();
    for (index, hook) in hooks.iter().enumerate() {
        let path = path.index(index);
        webhook(errors, &path, hook, &strict);
        versions(errors, &path.child("admissionReviewVersions"), hook, &strict);
        let name = hook.text("name");
        if strict.names && !name.is_empty() && names.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

fn webhook(errors: &mut Errors, path: &FieldPath<'_>, hook: &Value, strict: &Strict) {
    if let Some(error) = fully_qualified_name(&path.child("name"), hook.text("name")) {
        errors.push(error);
    }
    let at = path.child("rules");
    for (index, rule) in hook.list("rules").iter().enumerate() {
        operations(errors, &at.index(index), rule);
    }
    let mut one_of = |key: &str, known: &[&str]| {
        if hook.has(key) {
            errors.one_of(&path.child(key), hook.text(key), known);
        }
    };
    one_of("failurePolicy", &["Fail", "Ignore"]);
    one_of("matchPolicy", &["Equivalent", "Exact"]);
    one_of("reinvocationPolicy", &["IfNeeded", "Never"]);
    let effects: &[&str] = match strict.side_effects {
        true => &QUIET,
        false => &["None", "NoneOnDryRun", "Some", "Unknown"],
    };
    one_of("sideEffects", effects);
    if !hook.has("sideEffects") {
        let text = format!("must specify one of {}", effects.join(", "));
        errors.required(&path.child("sideEffects"), &text);
    }
    if let Some(seconds) = hook.int("timeoutSeconds").filter(|n| !(1..=30).contains(n)) {
        let text = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, text);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        selector(errors, &path.child(key), hook.dig(key));
    }
    if hook.has("reinvocationPolicy") {
        let known = ["IfNeeded", "Never"];
        errors.one_of(
            &path.child("reinvocationPolicy"),
            hook.text("reinvocationPolicy"),
            &known,
        );
    }
    client(errors, &path.child("clientConfig"), hook.dig("clientConfig"));
    let at = path.child("matchConditions");
    conditions(errors, &at, hook.list("matchConditions"));
}

pub(super) fn selector(errors: &mut Errors, path: &FieldPath<'_>, selector: &Value) {
    errors.selector(path, selector, Some(Ratchet::SelectorValues));
}

fn versions(errors: &mut Errors, path: &FieldPath<'_>, hook: &Value, strict: &Strict) {
    let list: Vec<&str> = hook.strings("admissionReviewVersions").collect();
    if list.is_empty() {
        return errors.required(path, "must specify one of v1, v1beta1");
    }
    let mut seen = Seen::default();
    for (index, version) in list.iter().enumerate() {
        let at = path.index(index);
        match seen.again(*version) {
            true => errors.invalid(&at, *version, "duplicate version"),
            false => errors.text(&at, version, dns1035_label(version)),
        }
    }
    if strict.versions && !list.iter().any(|version| VERSIONS.contains(version)) {
        let shown = hook.dig("admissionReviewVersions");
        errors.invalid_value(path, shown, "must include at least one of v1, v1beta1");
    }
}

/// The faults of a configuration's expressions.
pub(super) fn expression_faults(configuration: &Value) -> BoxFuture<'_, Vec<FieldError>> {
    condition_faults(configuration).boxed()
}

/// Checks match conditions.
pub(super) fn conditions(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    if list.len() > limits::MATCH_CONDITIONS {
        errors.push(FieldError::too_many(path, list.len(), limits::MATCH_CONDITIONS));
    }
    let mut names = Seen::default();
    for (index, condition) in list.iter().enumerate() {
        let path = path.index(index);
        let at = path.child("expression");
        if errors.need(&at, condition.text("expression").trim()) {
            errors.expression(&at);
        }
        let name = condition.text("name");
        if errors.need(&path.child("name"), name) {
            errors.text(&path.child("name"), name, qualified_name(name));
            if names.again(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
    }
}

/// Checks operations and what they are on.
pub(super) fn operations(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let at = path.child("operations");
    let list: Vec<&str> = rule.strings("operations").collect();
    if list.is_empty() {
        errors.required(&at, "");
    }
    alone(errors, &at, rule, "operations", "operations");
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, operation) in list.iter().enumerate() {
        errors.one_of(&at.index(index), operation, &known);
    }
    for (key, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let at = path.child(key);
        if rule.list(key).is_empty() {
            errors.required(&at, "");
        }
        alone(errors, &at, rule, key, what);
        if key == "apiVersions" {
            for (index, version) in rule.strings(key).enumerate() {
                errors.need(&at.index(index), version);
            }
        }
    }
    resources(errors, &path.child("resources"), rule);
    if rule.has("scope") {
        let scopes = ["*", "Cluster", "Namespaced"];
        errors.one_of(&path.child("scope"), rule.text("scope"), &scopes);
    }
}

/// `*` tolerates nothing beside it.
fn alone(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value, key: &str, what: &str) {
    if rule.list(key).len() > 1 && rule.strings(key).any(|item| item == "*") {
        let text = format!("if '*' is present, must not specify other {what}");
        errors.invalid_value(path, rule.dig(key), text);
    }
}

fn resources(errors: &mut Errors, path: &FieldPath<'_>, rule: &Value) {
    let list: Vec<&str> = rule.strings("resources").collect();
    if list.is_empty() {
        errors.required(path, "");
    }
    let (mut all_of, mut of_all) = (Seen::default(), Seen::default());
    let mut plain = false;
    for (index, item) in list.iter().enumerate() {
        let at = path.index(index);
        if !errors.need(&at, item) {
            continue;
        }
        let Some((resource, sub)) = item.split_once('/') else {
            plain = *item != "*";
            continue;
        };
        if all_of.has(resource) {
            let text = format!("if '{resource}/*' is present, must not specify {item}");
            errors.invalid(&at, *item, text);
        }
        if of_all.has(sub) {
            let text = format!("if '*/{sub}' is present, must not specify {item}");
            errors.invalid(&at, *item, text);
        }
        if sub == "*" {
            all_of.extend([resource]);
        }
        if resource == "*" {
            of_all.extend([sub]);
        }
    }
    let shown = rule.dig("resources");
    if list.len() > 1 && list.contains(&"*/*") {
        let text = "if '*/*' is present, must not specify other resources";
        errors.invalid_value(path, shown, text);
    }
    if plain && list.contains(&"*") {
        let text = "if '*' is present, must not specify other resources without subresources";
        errors.invalid_value(path, shown, text);
    }
}

fn client(errors: &mut Errors, path: &FieldPath<'_>, config: &Value) {
    match (config.has("url"), config.has("service")) {
        (true, false) => webhook_url(errors, &path.child("url"), config.text("url")),
        (false, true) => service(errors, &path.child("service"), config.dig("service")),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn service(errors: &mut Errors, path: &FieldPath<'_>, service: &Value) {
    // Upstream hands the two over the wrong way round, so each stands for the other.
    for (key, shown) in [("namespace", "name"), ("name", "namespace")] {
        errors.need(&path.child(shown), service.text(key));
    }
    let port = service.int("port").unwrap_or_default();
    let texts = port_number(port);
    if !texts.is_empty() {
        let text = format!("port is not valid: {}", texts.join(", "));
        errors.invalid(&path.child("port"), port, text);
    }
    let file = service.text("path");
    let path = path.child("path");
    if file.is_empty() || file == "/" {
        return;
    }
    if file == "//" {
        return errors.invalid(&path, file, "segment[0] may not be empty");
    }
    if !file.starts_with('/') {
        errors.invalid(&path, file, "must start with a '/'");
    }
    let steps: String = file.chars().skip(1).collect();
    let steps = steps.strip_suffix('/').unwrap_or(&steps);
    for (index, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&path, file, format!("segment[{index}] may not be empty"));
            continue;
        }
        for text in dns1123_subdomain(step) {
            errors.invalid(&path, file, format!("segment[{index}]: {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::admissionregistration::defaults::webhooks;
    use serde_json::json;

    fn check(hook: Value, expected: &[&str]) {
        let mut object = json!({"webhooks": [hook]});
        webhooks(&mut object, false);
        let found = Errors::collect(|errors| validate(errors, &object, &Value::Null));
        let found: Vec<String> = found
            .iter()
            .map(|e| format!("{}: {}", e.field, e.body()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_empty_policy_is_none() {
        let hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://x.io/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "", "matchPolicy": ""});
        check(
            hook,
            &[
                r#"webhooks[0].failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore""#,
                r#"webhooks[0].matchPolicy: Unsupported value: "": supported values: "Equivalent", "Exact""#,
            ],
        );
    }

    #[test]
    fn webhooks_need_a_client_config() {
        let good = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://x/y"}});
        let with = |key: &str, value: Value| {
            let mut hook = good.clone();
            hook.put(key, value);
            hook
        };
        check(good.clone(), &[]);
        check(
            with("clientConfig", json!({})),
            &["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
        );
        check(
            with("clientConfig", json!({"url": "http://x"})),
            &[
                r#"webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
            ],
        );
        check(
            with(
                "clientConfig",
                json!({"service": {"name": "s", "namespace": "n", "path": "/a//b"}}),
            ),
            &[
                r#"webhooks[0].clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty"#,
            ],
        );
        check(
            with("admissionReviewVersions", json!(["v9"])),
            &[
                r#"webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1"#,
            ],
        );
        check(
            with(
                "rules",
                json!([{"operations": ["*", "CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*/*", "pods"]}]),
            ),
            &[
                r#"webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations"#,
                r#"webhooks[0].rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources"#,
            ],
        );
    }
}
