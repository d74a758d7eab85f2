//! Policies: the level of each request, by the first rule that matches it. Mirrors upstream's `audit/policy`.

mod file;
#[cfg(test)]
mod tests;

use super::Level;
use crate::authz::Attributes;
use crate::request::audit::{Stages, Verdict};

/// A policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omitted: Stages,
    without_managed_fields: bool,
}

/// A rule. Empty lists match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    verdict: Verdict,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    resources: Vec<GroupResources>,
    paths: Vec<String>,
}

/// Resources of one API group, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|one| one == text)
}

impl Policy {
    /// What is recorded of a request. `None` is the user of a request that was not authenticated.
    pub(crate) fn evaluate(&self, request: &Attributes<'_>, authenticated: bool) -> Verdict {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.matches(request, authenticated));
        rule.map_or(
            Verdict {
                level: Level::None,
                omitted: self.omitted,
                without_managed_fields: self.without_managed_fields,
            },
            |rule| rule.verdict,
        )
    }
}

impl Rule {
    fn matches(&self, request: &Attributes<'_>, authenticated: bool) -> bool {
        let user = request.user;
        let is_user = authenticated && has(&self.users, &user.name);
        if !self.users.is_empty() && !is_user {
            return false;
        }
        if !self.groups.is_empty() && !user.groups.iter().any(|group| has(&self.groups, group)) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, request.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return request.is_resource
                && (self.namespaces.is_empty() || has(&self.namespaces, request.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|one| one.matches(request)));
        }
        self.paths.is_empty()
            || !request.is_resource && self.paths.iter().any(|path| path_matches(path, request.path))
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == "*"
        || pattern == path
        || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

impl GroupResources {
    fn matches(&self, request: &Attributes<'_>) -> bool {
        if self.group != "*" && self.group != request.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        (self.names.is_empty() || has(&self.names, request.name))
            && self.resources.iter().any(|one| resource_matches(one, request))
    }
}

fn resource_matches(pattern: &str, request: &Attributes<'_>) -> bool {
    if pattern == "*" {
        return true;
    }
    let (resource, subresource) = match pattern.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (pattern, None),
    };
    match (resource, subresource) {
        (resource, None) => request.subresource.is_empty() && resource == request.resource,
        // As upstream: the resource itself is among its subresources here.
        (resource, Some("*")) if resource == request.resource => true,
        ("*", Some(subresource)) => !request.subresource.is_empty() && subresource == request.subresource,
        (resource, Some(subresource)) => {
            !request.subresource.is_empty()
                && resource == request.resource
                && subresource == request.subresource
        }
    }
}
