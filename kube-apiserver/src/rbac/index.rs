//! Roles and bindings, arranged for deciding. Persistent maps: a change costs its own size, not the index's.

mod bindings;
mod explain;
mod matched;
mod roles;

use std::collections::HashSet;
use std::sync::Arc;

use generic_server::User;
use generic_server::authz::{Attributes, Decision};
use machinery::go;
use machinery::{limits, meta};
use serde_json::Value;

use super::ALLOWED;
use super::role::Role;
use super::rule::PolicyRule;
use bindings::{Binding, Bindings, Held, RoleRef, Subject};
pub(super) use explain::shown;
pub(super) use matched::Matched;
use roles::Roles;

/// The kinds that RBAC is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Role`.
    Role,
    /// `ClusterRole`.
    ClusterRole,
    /// `RoleBinding`.
    RoleBinding,
    /// `ClusterRoleBinding`.
    ClusterRoleBinding,
}

/// An object that came, changed or went.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, or empty.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its new state; `None` when it is gone.
    pub object: Option<&'a Value>,
}

impl<'a> Change<'a> {
    /// An object that came or changed.
    pub fn put(kind: Kind, object: &'a Value) -> Self {
        Change {
            kind,
            namespace: meta::namespace(object),
            name: meta::name(object),
            object: Some(object),
        }
    }

    /// An object that went.
    pub fn delete(kind: Kind, namespace: &'a str, name: &'a str) -> Self {
        Change {
            kind,
            namespace,
            name,
            object: None,
        }
    }
}

/// Sees a binding, the subject that matched, and the role; `Some` ends the search.
type BindingVisitor<'l, 'i, T> =
    dyn FnMut(&'i Binding, &'i Subject, Result<&'i Role, Missing<'i>>) -> Option<T> + 'l;

/// All roles and bindings at one moment. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Index {
    cluster_roles: Roles,
    /// By namespace.
    roles: imbl::HashMap<Arc<str>, Roles>,
    cluster_bindings: Bindings,
    bindings: imbl::HashMap<Arc<str>, Bindings>,
    /// How many bindings name a role.
    named: imbl::HashMap<RoleRef, usize>,
    /// Those of them that are not there: a refusal says so.
    missing: imbl::OrdSet<RoleRef>,
}

/// A role that a binding names and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing<'a> {
    Role(&'a str),
    ClusterRole(&'a str),
    Kind(&'a str),
}

impl std::fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::Role(name) => write!(
                f,
                "role.rbac.authorization.k8s.io {} not found",
                machinery::go::quote(name)
            ),
            Missing::ClusterRole(name) => {
                write!(
                    f,
                    "clusterrole.rbac.authorization.k8s.io {} not found",
                    machinery::go::quote(name)
                )
            }
            Missing::Kind(kind) => write!(
                f,
                "unsupported role reference kind: {}",
                machinery::go::quote(kind)
            ),
        }
    }
}

/// Several errors as one, as upstream prints them: each once, in brackets when there are more. Of many the first.
pub(super) fn aggregate(errors: &[String]) -> String {
    let mut seen = HashSet::new();
    let mut once: Vec<&str> = errors
        .iter()
        .map(String::as_str)
        .filter(|error| seen.insert(*error))
        .collect();
    let more = once.len().saturating_sub(limits::CAUSES);
    once.truncate(limits::CAUSES);
    go::aggregate_first(&once, more).into_owned()
}

impl Index {
    pub(super) fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::Role => self.roles.clear(),
            Kind::ClusterRole => self.cluster_roles = Roles::default(),
            Kind::RoleBinding => self.bindings.clear(),
            Kind::ClusterRoleBinding => self.cluster_bindings = Bindings::default(),
        }
        let all = std::iter::once(&self.cluster_bindings).chain(self.bindings.values());
        let mut named: imbl::HashMap<RoleRef, usize> = imbl::HashMap::new();
        for binding in all.flat_map(Bindings::iter) {
            *named.entry(binding.refers_to()).or_default() += 1;
        }
        let missing = named.keys().filter(|role| !self.has(role)).cloned().collect();
        (self.named, self.missing) = (named, missing);
    }

    pub(super) fn apply(&mut self, change: &Change<'_>) {
        let name: Arc<str> = change.name.into();
        let namespace: Arc<str> = change.namespace.into();
        let role = || change.object.map(|object| Arc::new(Role::read(object)));
        match change.kind {
            Kind::ClusterRole => {
                self.cluster_roles.put(&name, role());
                self.note(RoleRef::of("ClusterRole", &namespace, &name), |count| count);
            }
            Kind::Role => {
                let mut roles = self.roles.get(&namespace).cloned().unwrap_or_default();
                roles.put(&name, role());
                if roles.is_empty() {
                    self.roles.remove(&namespace);
                } else {
                    self.roles.insert(namespace.clone(), roles);
                }
                self.note(RoleRef::of("Role", &namespace, &name), |count| count);
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => {
                let of_cluster = change.kind == Kind::ClusterRoleBinding;
                let scope = if of_cluster { "" } else { change.namespace };
                let new = change.object.map(|o| Arc::new(Binding::read(o, scope)));
                let refers_to = new.as_deref().map(Binding::refers_to);
                let old = if of_cluster {
                    self.cluster_bindings.put(name, new)
                } else {
                    let mut all = self.bindings.get(&namespace).cloned().unwrap_or_default();
                    let old = all.put(name, new);
                    if all.is_empty() {
                        self.bindings.remove(&namespace);
                    } else {
                        self.bindings.insert(namespace, all);
                    }
                    old
                };
                if let Some(role) = refers_to {
                    self.note(role, |count| count.saturating_add(1));
                }
                if let Some(role) = old.as_deref().map(Binding::refers_to) {
                    self.note(role, |count| count.saturating_sub(1));
                }
            }
        }
    }

    /// Notes how many bindings name a role, and whether it is missed.
    fn note(&mut self, role: RoleRef, count: impl FnOnce(usize) -> usize) {
        let named = count(self.named.get(&role).copied().unwrap_or_default());
        let missing = named > 0 && !self.has(&role);
        match named {
            0 => drop(self.named.remove(&role)),
            named => drop(self.named.insert(role.clone(), named)),
        }
        match missing {
            true => drop(self.missing.insert(role)),
            false => drop(self.missing.remove(&role)),
        }
    }

    fn has(&self, role: &RoleRef) -> bool {
        self.resolve(&role.kind, &role.name, &role.namespace).is_ok()
    }

    /// Decides by the first rule that allows. Denials name the roles that are missing.
    pub(super) fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let mut errors = Vec::new();
        let found = self.visit(
            attributes.user,
            attributes.namespace,
            Some(attributes),
            &mut |binding, subject, outcome| {
                match outcome {
                    Ok(role) if role.allows(attributes) => {
                        return Some(binding.describe(subject));
                    }
                    Ok(_) => {}
                    Err(missing) => errors.push(missing.to_string()),
                }
                None
            },
        );
        match found {
            Some(by) => Decision::Allow(format!("{ALLOWED} {by}")),
            None if errors.is_empty() => Decision::NoOpinion(String::new()),
            None => Decision::NoOpinion(format!("RBAC: {}", aggregate(&errors))),
        }
    }

    /// Every rule that holds for a user in a namespace, and what could not be resolved. A role that several bindings give counts
    /// once.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&PolicyRule>, Vec<String>) {
        let mut rules = Vec::new();
        let mut errors = Vec::new();
        let mut roles: HashSet<*const Role> = HashSet::new();
        self.visit::<()>(user, namespace, None, &mut |_, _, outcome| {
            match outcome {
                Ok(role) if !roles.insert(std::ptr::from_ref(role)) => {}
                Ok(role) => rules.extend(role.rules()),
                Err(missing) => errors.push(missing.to_string()),
            }
            None
        });
        (rules, errors)
    }

    /// The rules of a role that a binding in `namespace` (empty: of the cluster) refers to; `None` when there is no such role.
    pub fn rules_of(&self, role_kind: &str, role: &str, namespace: &str) -> Option<&[PolicyRule]> {
        self.resolve(role_kind, role, namespace).ok().map(Role::rules)
    }

    fn resolve<'a, 'n>(
        &'a self,
        kind: &'n str,
        role: &'n str,
        namespace: &str,
    ) -> Result<&'a Role, Missing<'n>> {
        match kind {
            "ClusterRole" => self.cluster_roles.get(role).ok_or(Missing::ClusterRole(role)),
            "Role" => self
                .roles
                .get(namespace)
                .and_then(|roles| roles.get(role))
                .ok_or(Missing::Role(role)),
            other => Err(Missing::Kind(other)),
        }
    }

    /// Shows the bindings of a user with their roles, those of the cluster first, until `look` has found something. With `about`, those may
    /// be left out whose role is there and allows nothing of that request.
    fn visit<'i, T>(
        &'i self,
        user: &User,
        namespace: &str,
        about: Option<&Attributes<'_>>,
        look: &mut BindingVisitor<'_, 'i, T>,
    ) -> Option<T> {
        let local = if namespace.is_empty() {
            None
        } else {
            self.bindings.get(namespace)
        };
        for (bindings, namespace) in [(Some(&self.cluster_bindings), ""), (local, namespace)] {
            let Some(bindings) = bindings else { continue };
            for held in bindings.of(user) {
                let some = about.and_then(|about| self.relevant(held, namespace, about));
                let mut show = |binding: &'i Binding, subject: usize| {
                    let subject = binding.subjects.get(subject)?;
                    let outcome = self.resolve(&binding.role_kind, &binding.role, namespace);
                    look(binding, subject, outcome)
                };
                let found = match some {
                    Some(some) => some.into_iter().find_map(|(binding, at)| show(binding, at)),
                    None => held.iter().find_map(|(binding, at)| show(binding, at)),
                };
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The bindings of a subject with many whose roles are missing or name what a request is about, in the order of their names; `None` where looking
    /// at all of them is as quick.
    fn relevant<'i>(
        &'i self,
        held: &'i Held,
        namespace: &str,
        about: &Attributes<'_>,
    ) -> Option<Vec<(&'i Binding, usize)>> {
        let by_role = held.by_role()?;
        let local = self.roles.get(namespace).filter(|_| !namespace.is_empty());
        let mut room = held.len();
        let mut names: Vec<&'i Arc<str>> = Vec::new();
        for (kind, roles) in [("ClusterRole", Some(&self.cluster_roles)), ("Role", local)] {
            let Some(roles) = roles else { continue };
            for role in roles.about(about, &mut room)? {
                names.extend(by_role.bindings(kind, role));
            }
        }
        room = room.checked_sub(self.missing.len())?;
        for role in &self.missing {
            names.extend(by_role.bindings(&role.kind, &role.name));
        }
        if names.len() > room {
            return None;
        }
        names.sort_unstable();
        names.dedup();
        Some(names.into_iter().filter_map(|name| held.get(name)).collect())
    }
}

#[cfg(test)]
mod tests;
