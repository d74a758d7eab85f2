//! The configuration of PodSecurity: `PodSecurityConfiguration` of `pod-security.admission.config.k8s.io`.

use std::collections::HashSet;

use machinery::names::{dns1123_label, name_is_dns_subdomain};
use machinery::{FieldError, FieldPath, go, meta};
use serde::Deserialize;
use serde_json::Value;

use super::policy::{Level, PREFIX, Policy, level, version};
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

/// The policy of namespaces without labels, and the exemptions.
#[derive(Debug, Clone)]
pub(in crate::admission) struct PodSecurityConfig {
    pub(super) defaults: Policy,
    pub(super) users: HashSet<String>,
    pub(super) namespaces: HashSet<String>,
    classes: HashSet<String>,
}

impl Default for PodSecurityConfig {
    fn default() -> Self {
        PodSecurityConfig {
            defaults: Policy::NONE,
            users: HashSet::new(),
            namespaces: HashSet::new(),
            classes: HashSet::new(),
        }
    }
}

/// The fields of the configuration as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admission) struct PodSecurityFile {
    defaults: Defaults,
    exemptions: Exemptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Defaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

/// The meaning of a text, or the default of an empty one.
fn read<T>(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    text: &str,
    meaning: fn(&str) -> Result<T, String>,
    or: T,
) -> T {
    if text.is_empty() {
        return or;
    }
    meaning(text).unwrap_or_else(|why| {
        errors.push(FieldError::invalid_str(path, text, why));
        or
    })
}

/// Names, each without a fault and once.
fn names(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    names: Vec<String>,
    faults: fn(&str) -> Vec<String>,
) -> HashSet<String> {
    let mut seen = Seen::default();
    for (index, name) in names.iter().enumerate() {
        let found = faults(name);
        if !found.is_empty() {
            errors.push(FieldError::invalid_str(
                &path.index(index),
                name,
                found.join(", "),
            ));
        } else if seen.again(name) {
            errors.duplicate(&path.index(index), name.as_str());
        }
    }
    names.into_iter().collect()
}

impl PodSecurityConfig {
    /// The configuration of a file.
    ///
    /// # Errors
    /// Its faults, in upstream's words.
    pub(in crate::admission) fn new(file: PodSecurityFile) -> Result<Self, Vec<String>> {
        let mut config = PodSecurityConfig::default();
        let found = Errors::collect(|errors| {
            let (root, given) = (FieldPath::new("defaults"), &file.defaults);
            for (name, mode, level_text, version_text) in [
                (
                    "enforce",
                    &mut config.defaults.enforce,
                    &given.enforce,
                    &given.enforce_version,
                ),
                (
                    "warn",
                    &mut config.defaults.warn,
                    &given.warn,
                    &given.warn_version,
                ),
                (
                    "audit",
                    &mut config.defaults.audit,
                    &given.audit,
                    &given.audit_version,
                ),
            ] {
                mode.level = read(errors, &root.child(name), level_text, level, Level::Privileged);
                let of_version = format!("{name}-version");
                mode.version = read(errors, &root.child(&of_version), version_text, version, None);
            }
            let (root, given) = (FieldPath::new("exemptions"), file.exemptions);
            config.namespaces = names(errors, &root.child("namespaces"), given.namespaces, dns1123_label);
            let subdomain = |name: &str| name_is_dns_subdomain(name, false);
            config.classes = names(
                errors,
                &root.child("runtimeClasses"),
                given.runtime_classes,
                subdomain,
            );
            let user = |name: &str| match name {
                "" => vec!["username must not be empty".to_string()],
                _ => Vec::new(),
            };
            config.users = names(errors, &root.child("usernames"), given.usernames, user);
        });
        match found.is_empty() {
            true => Ok(config),
            false => Err(found.iter().map(ToString::to_string).collect()),
        }
    }

    /// Whether the runtime class of a pod, or of a pod's template, is exempt.
    pub(super) fn exempts_class(&self, pod: &Value) -> bool {
        !self.classes.is_empty() && self.classes.contains(pod.text("spec.runtimeClassName"))
    }

    /// The warning that the labels of an exempt namespace have no effect, if they would.
    pub(super) fn exempt_warning(&self, namespace: &Value, policy: &Policy) -> Option<String> {
        if policy.is_privileged() || policy.is_equivalent(&self.defaults) {
            return None;
        }
        let labels = meta::labels(namespace);
        let has = |name: &str| labels.is_some_and(|labels| labels.contains_key(&format!("{PREFIX}{name}")));
        let modes = [
            ("enforce", policy.enforce),
            ("audit", policy.audit),
            ("warn", policy.warn),
        ];
        let said: Vec<String> = modes
            .into_iter()
            .filter(|(name, mode)| {
                mode.level != Level::Privileged && (has(name) || has(&format!("{name}-version")))
            })
            .map(|(name, mode)| format!("{name}={mode}"))
            .collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            go::quote(meta::name(namespace)),
            said.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> PodSecurityConfig {
        let file = serde_json::from_value(value).expect("a file");
        PodSecurityConfig::new(file).expect("no faults")
    }

    #[test]
    fn defaults_hold_where_labels_do_not_say_otherwise() {
        let config = config(
            json!({"defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"}}),
        );
        let policy = |labels: Value| {
            let (policy, errors) = Policy::of(&json!({"metadata": {"labels": labels}}), config.defaults);
            assert!(errors.is_empty());
            [policy.enforce, policy.audit, policy.warn].map(|mode| mode.to_string())
        };
        let none = ["baseline:v1.30", "privileged:latest", "restricted:latest"];
        assert_eq!(policy(json!({})), none);
        assert_eq!(
            policy(
                json!({"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn-version": "v1.20"})
            ),
            ["privileged:v1.30", "privileged:latest", "restricted:v1.20"]
        );
    }

    #[test]
    fn exemptions() {
        let config = config(
            json!({"exemptions": {"runtimeClasses": ["a"], "namespaces": ["one"], "usernames": ["u"]}}),
        );
        assert!(config.exempts_class(&json!({"spec": {"runtimeClassName": "a"}})));
        assert!(!config.exempts_class(&json!({"spec": {"runtimeClassName": "b"}})));
        assert!(!config.exempts_class(&json!({"spec": {}})));
        let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "privileged"});
        let namespace = json!({"metadata": {"name": "one", "labels": labels}});
        let (policy, _) = Policy::of(&namespace, config.defaults);
        assert_eq!(
            config.exempt_warning(&namespace, &policy).as_deref(),
            Some(
                "namespace \"one\" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored"
            )
        );
        assert_eq!(config.exempt_warning(&namespace, &Policy::NONE), None);
    }
}
