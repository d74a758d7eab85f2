//! The roles of one namespace, or of the cluster, by name and by what their rules name.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use generic_server::authz::Attributes;

use super::super::role::Role;
use super::super::rule::PolicyRule;

/// The topic of rules about paths.
const PATHS: &str = "/";
/// A rule whose resources and names make up more pairs for each of its strings is found by its resources alone, so that topics take no more
/// than rules do.
const MOST_PAIRS: usize = 2;

/// Roles, each also under its topics: the resources of its rules as they are written, where a rule has names each with a name.
#[derive(Debug, Clone, Default)]
pub(super) struct Roles {
    by_name: imbl::HashMap<Arc<str>, Arc<Role>>,
    /// Topic and name of the role.
    topics: imbl::OrdSet<(Arc<str>, Arc<str>)>,
}

impl Roles {
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Role> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Role)> {
        self.by_name.iter().map(|(name, role)| (name, &**role))
    }

    /// Puts a role in place of the one of its name.
    pub(super) fn put(&mut self, name: &Arc<str>, role: Option<Arc<Role>>) {
        let new = role.as_deref().map(topics).unwrap_or_default();
        let old = match role {
            Some(role) => self.by_name.insert(name.clone(), role),
            None => self.by_name.remove(name),
        };
        for topic in old.as_deref().map(topics).unwrap_or_default().difference(&new) {
            self.topics.remove(&(topic.as_str().into(), name.clone()));
        }
        for topic in &new {
            // What was there before is the same.
            self.topics.insert((topic.as_str().into(), name.clone()));
        }
    }

    /// The roles with a rule that names what a request is about: all that could allow it, and others. Each takes one of `room`; `None` when that
    /// is not enough.
    pub(super) fn about(&self, request: &Attributes<'_>, room: &mut usize) -> Option<Vec<&Arc<str>>> {
        let mut found = Vec::new();
        let mut look = |topic: &str| {
            let topic = Arc::<str>::from(topic);
            let from = (topic.clone(), Arc::<str>::from(""));
            let all = self.topics.range((Bound::Included(from), Bound::Unbounded));
            for (_, role) in all.take_while(|one| one.0 == topic) {
                *room = room.checked_sub(1)?;
                found.push(role);
            }
            Some(())
        };
        if !request.is_resource {
            look(PATHS)?;
            return Some(found);
        }
        let resources = match request.subresource {
            "" => vec![request.resource.to_string(), "*".into()],
            sub => vec![
                format!("{}/{sub}", request.resource),
                format!("*/{sub}"),
                "*".into(),
            ],
        };
        for resource in resources {
            look(&resource)?;
            look(&pair(&resource, request.name))?;
        }
        Some(found)
    }
}

fn pair(resource: &str, name: &str) -> String {
    format!("{resource}\0{name}")
}

/// What the rules of a role name.
fn topics(role: &Role) -> BTreeSet<String> {
    let mut topics = BTreeSet::new();
    for rule in role.rules() {
        let PolicyRule {
            resources,
            resource_names: names,
            ..
        } = rule;
        if !rule.non_resource_urls.is_empty() {
            topics.insert(PATHS.to_string());
        }
        let pairs = resources.len().saturating_mul(names.len());
        let strings = resources.len().saturating_add(names.len());
        if names.is_empty() || pairs > strings.saturating_mul(MOST_PAIRS) {
            topics.extend(resources.iter().cloned());
            continue;
        }
        for resource in resources {
            topics.extend(names.iter().map(|name| pair(resource, name)));
        }
    }
    topics
}
