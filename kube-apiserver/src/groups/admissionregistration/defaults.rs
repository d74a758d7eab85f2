//! Defaults of webhooks and policies.

use serde_json::{Value, json};

use crate::json::Json;

fn selectors(object: &mut Value) {
    object.fill("namespaceSelector", json!({}));
    object.fill("objectSelector", json!({}));
}

fn scopes(rules: &mut [Value]) {
    for rule in rules {
        rule.fill("scope", "*");
    }
}

/// The webhooks of a configuration; mutating ones also say when they are called again.
pub(super) fn webhooks(object: &mut Value, mutating: bool) {
    for hook in object.list_mut("webhooks") {
        hook.fill("failurePolicy", "Fail");
        hook.fill("matchPolicy", "Equivalent");
        selectors(hook);
        hook.fill("timeoutSeconds", 10);
        if mutating {
            hook.fill("reinvocationPolicy", "Never");
        }
        scopes(hook.list_mut("rules"));
        if let Some(service) = hook.dig_mut("clientConfig.service") {
            service.fill("port", 443);
        }
    }
}

/// The match constraints of a policy or of a binding.
pub(super) fn matching(resources: &mut Value) {
    if resources.is_null() {
        return;
    }
    resources.fill("matchPolicy", "Equivalent");
    selectors(resources);
    scopes(resources.list_mut("resourceRules"));
    scopes(resources.list_mut("excludeResourceRules"));
}

/// A policy.
pub(super) fn policy(object: &mut Value) {
    let spec = object.ensure("spec");
    spec.fill("failurePolicy", "Fail");
    if let Some(resources) = spec.dig_mut("matchConstraints") {
        matching(resources);
    }
}

/// A binding of a policy.
pub(super) fn binding(object: &mut Value) {
    if let Some(resources) = object.dig_mut("spec.matchResources") {
        matching(resources);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fill: impl Fn(&mut Value), mut object: Value, expected: Value) {
        fill(&mut object);
        assert_eq!(object, expected);
        fill(&mut object);
        assert_eq!(object, expected, "a second time");
    }

    #[test]
    fn webhooks_have_defaults() {
        let filled = |more: Value| {
            let mut hook = json!({"failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "timeoutSeconds": 10});
            for (key, value) in more.as_object().into_iter().flatten() {
                hook[key] = value.clone();
            }
            json!({"webhooks": [hook]})
        };
        check(
            |object| webhooks(object, false),
            json!({"webhooks": [{}]}),
            filled(json!({})),
        );
        check(
            |object| webhooks(object, true),
            json!({"webhooks": [{"rules": [{}, {"scope": "Cluster"}], "clientConfig": {"service": {}}, "timeoutSeconds": 30}]}),
            filled(
                json!({"reinvocationPolicy": "Never", "timeoutSeconds": 30, "rules": [{"scope": "*"}, {"scope": "Cluster"}],
                "clientConfig": {"service": {"port": 443}}}),
            ),
        );
    }

    #[test]
    fn policies_and_bindings_have_defaults() {
        let matched = json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}});
        check(policy, json!({}), json!({"spec": {"failurePolicy": "Fail"}}));
        check(
            policy,
            json!({"spec": {"failurePolicy": "Ignore", "matchConstraints": {}}}),
            json!({"spec": {"failurePolicy": "Ignore", "matchConstraints": matched}}),
        );
        check(binding, json!({"spec": {}}), json!({"spec": {}}));
        check(
            binding,
            json!({"spec": {"matchResources": {}}}),
            json!({"spec": {"matchResources": matched}}),
        );
    }
}
