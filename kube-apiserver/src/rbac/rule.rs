//! Policy rules: their parts and the requests that they allow.

use generic_server::authz::Attributes;
use serde_json::Value;

/// A rule, as `rbac.authorization.k8s.io/v1` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
    /// Paths, with `*` at the end for all paths below.
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

    /// Whether it allows the request. Allocates nothing.
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

    /// What it is about: resources, or paths.
    pub(super) fn entries(&self) -> &[String] {
        match self.resources.is_empty() {
            true => &self.non_resource_urls,
            false => &self.resources,
        }
    }

    /// The positions of the resources or paths that a request matches.
    pub(super) fn matching_entries(&self, a: &Attributes<'_>) -> impl Iterator<Item = usize> {
        let matches = |entry: &str| match a.is_resource {
            true => resource_matches(entry, a.resource, a.subresource),
            false => path_matches(entry, a.path),
        };
        let entries = match a.is_resource {
            true => &self.resources,
            false => &self.non_resource_urls,
        };
        let numbered = entries.iter().enumerate();
        numbered
            .filter(move |(_, entry)| matches(entry))
            .map(|(at, _)| at)
    }

    /// Which of its lists do not have what the request asks for; none when it allows the request. `None` when it has nothing of it, or is about
    /// the other kind of requests.
    pub(super) fn lacks(&self, a: &Attributes<'_>) -> Option<Vec<&'static str>> {
        let any = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let verb = ("verbs", any(&self.verbs, a.verb));
        let parts: Vec<(&'static str, bool)> = match a.is_resource {
            true if self.resources.is_empty() => return None,
            false if self.non_resource_urls.is_empty() => return None,
            true => vec![
                verb,
                ("apiGroups", any(&self.api_groups, a.group)),
                (
                    "resources",
                    self.resources
                        .iter()
                        .any(|rule| resource_matches(rule, a.resource, a.subresource)),
                ),
                (
                    "resourceNames",
                    self.resource_names.is_empty() || has(&self.resource_names, a.name),
                ),
            ],
            false => vec![
                verb,
                (
                    "nonResourceURLs",
                    self.non_resource_urls
                        .iter()
                        .any(|pattern| path_matches(pattern, a.path)),
                ),
            ],
        };
        // What a rule that names no objects has in common with every request is no nearness.
        let common = parts
            .iter()
            .any(|(list, found)| *found && matches!(*list, "resources" | "nonResourceURLs"));
        common.then(|| {
            let lacking = parts.into_iter().filter(|(_, found)| !found);
            lacking.map(|(list, _)| list).collect()
        })
    }

    fn lists(&self) -> [&[String]; 5] {
        [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ]
    }

    /// How many strings it is made of, and one for itself.
    pub(super) fn strings(&self) -> usize {
        self.lists().into_iter().map(<[String]>::len).sum::<usize>() + 1
    }

    /// About how many bytes it is in JSON.
    pub(super) fn bytes(&self) -> usize {
        let strings = self.lists().into_iter().flatten();
        strings.map(|text| text.len() + 3).sum::<usize>() + 64
    }
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let of = |resource| {
        let rest = rule.strip_prefix(resource)?;
        rest.strip_prefix('/')
    };
    of(resource) == Some(subresource) || of("*") == Some(subresource)
}
