//! Policy rules: what one allows, and whether some cover others.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::authz::Attributes;
use crate::filters::quote;

/// A rule, as `rbac.authorization.k8s.io/v1` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
    /// Paths, with `*` at the end for what is below.
    pub non_resource_urls: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == wanted)
}

fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == "*"
        || pattern == path
        || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

impl PolicyRule {
    /// From JSON. Anything that is not a list of strings reads as empty, which allows nothing.
    pub fn read(value: &Value) -> Self {
        let list = |key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_string)
                .collect()
        };
        PolicyRule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub fn read_all(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array);
        rules.into_iter().flatten().map(PolicyRule::read).collect()
    }

    /// Whether it allows what is asked. Allocates nothing.
    pub fn allows(&self, a: &Attributes<'_>) -> bool {
        let verb = self.verbs.iter().any(|verb| verb == "*" || verb == a.verb);
        if !verb {
            return false;
        }
        if !a.is_resource {
            return self
                .non_resource_urls
                .iter()
                .any(|pattern| path_matches(pattern, a.path));
        }
        self.api_groups
            .iter()
            .any(|group| group == "*" || group == a.group)
            && self
                .resources
                .iter()
                .any(|rule| resource_matches(rule, a.resource, a.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, a.name))
    }

    /// The same as rules that each say one thing.
    fn break_down(&self) -> Vec<PolicyRule> {
        let mut out = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let one = PolicyRule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..PolicyRule::default()
                    };
                    if self.resource_names.is_empty() {
                        out.push(one);
                        continue;
                    }
                    for name in &self.resource_names {
                        out.push(PolicyRule {
                            resource_names: vec![name.clone()],
                            ..one.clone()
                        });
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                out.push(PolicyRule {
                    verbs: vec![verb.clone()],
                    non_resource_urls: vec![url.clone()],
                    ..PolicyRule::default()
                });
            }
        }
        out
    }

    /// Whether it covers a rule that says one thing.
    fn covers(&self, one: &PolicyRule) -> bool {
        let all = |mine: &[String], theirs: &[String]| theirs.iter().all(|wanted| has(mine, wanted));
        let resources = has(&self.resources, "*")
            || one.resources.iter().all(|wanted| {
                has(&self.resources, wanted)
                    || wanted
                        .split_once('/')
                        .is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
            });
        let names = self.resource_names.is_empty()
            || !one.resource_names.is_empty() && all(&self.resource_names, &one.resource_names);
        let urls = one.non_resource_urls.iter().all(|wanted| {
            self.non_resource_urls.iter().any(|mine| {
                mine == wanted || mine.ends_with('*') && wanted.starts_with(mine.trim_end_matches('*'))
            })
        });
        (has(&self.verbs, "*") || all(&self.verbs, &one.verbs))
            && (has(&self.api_groups, "*") || all(&self.api_groups, &one.api_groups))
            && resources
            && names
            && urls
    }

    fn describe(&self) -> String {
        let mut parts = Vec::new();
        for (name, list) in [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                parts.push(format!("{name}:{}", quote_list(list)));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}

/// A list as Go's `%q` prints it.
pub(super) fn quote_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        Some((first, rest)) => rest == subresource && (first == "*" || first == resource),
        None => false,
    }
}

/// What of `servant` no rule of `owner` covers, each part as a rule of its own.
pub fn covers(owner: &[PolicyRule], servant: &[PolicyRule]) -> Vec<PolicyRule> {
    let parts = servant.iter().flat_map(PolicyRule::break_down);
    parts
        .filter(|part| !owner.iter().any(|rule| rule.covers(part)))
        .collect()
}

/// What is missing, in words: rules that differ in their verbs alone are joined, each is on its own line, sorted.
pub(super) fn describe_missing(missing: Vec<PolicyRule>) -> String {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for rule in missing {
        let same = |other: &&mut PolicyRule| {
            rule.non_resource_urls.is_empty()
                && other.non_resource_urls.is_empty()
                && other.api_groups == rule.api_groups
                && other.resources == rule.resources
                && other.resource_names == rule.resource_names
        };
        match joined.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs),
            None => joined.push(rule),
        }
    }
    let lines: BTreeSet<String> = joined.iter().map(PolicyRule::describe).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}
