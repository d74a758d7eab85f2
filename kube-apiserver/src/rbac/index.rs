//! Roles and bindings, arranged for deciding. Persistent maps: a change costs its own size, not the index's.

mod explain;
mod matched;

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
pub(super) use explain::shown;
pub(super) use matched::Matched;

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

/// A binding with its subjects as user names and groups.
#[derive(Debug)]
struct Binding {
    /// `name` or, in a namespace, `name/namespace`: as upstream prints it.
    printed: String,
    /// Empty for one of the cluster.
    namespace: String,
    role_kind: String,
    role: Arc<str>,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    group: bool,
    /// The user name or the group.
    matches: Arc<str>,
    /// As upstream prints it: `ServiceAccount "name/namespace"`.
    printed: String,
}

/// Sees a binding, the subject that matched, and the role; `Some` ends the search.
type BindingVisitor<'l, 'i, T> =
    dyn FnMut(&'i Binding, &'i Subject, Result<&'i Role, Missing<'i>>) -> Option<T> + 'l;

/// subject -> binding name -> (binding, subject index)
type BySubject = imbl::HashMap<Arc<str>, imbl::OrdMap<Arc<str>, (Arc<Binding>, usize)>>;

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Clone, Default)]
struct Bindings {
    by_name: imbl::OrdMap<Arc<str>, Arc<Binding>>,
    by_user: BySubject,
    by_group: BySubject,
}

/// All roles and bindings at one moment. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Index {
    cluster_roles: imbl::HashMap<Arc<str>, Arc<Role>>,
    /// By namespace and name.
    roles: imbl::HashMap<Arc<str>, imbl::HashMap<Arc<str>, Arc<Role>>>,
    cluster_bindings: Bindings,
    bindings: imbl::HashMap<Arc<str>, Bindings>,
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
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::RoleBinding => self.bindings.clear(),
            Kind::ClusterRoleBinding => self.cluster_bindings = Bindings::default(),
        }
    }

    pub(super) fn apply(&mut self, change: &Change<'_>) {
        let name: Arc<str> = change.name.into();
        let namespace: Arc<str> = change.namespace.into();
        let role = || change.object.map(|object| Arc::new(Role::read(object)));
        match change.kind {
            Kind::ClusterRole => match role() {
                Some(role) => drop(self.cluster_roles.insert(name, role)),
                None => drop(self.cluster_roles.remove(&name)),
            },
            Kind::Role => {
                let mut roles = self.roles.get(&namespace).cloned().unwrap_or_default();
                match role() {
                    Some(role) => drop(roles.insert(name, role)),
                    None => drop(roles.remove(&name)),
                }
                if roles.is_empty() {
                    self.roles.remove(&namespace);
                } else {
                    self.roles.insert(namespace, roles);
                }
            }
            Kind::ClusterRoleBinding => self
                .cluster_bindings
                .put(name, change.object.map(|o| Binding::read(o, ""))),
            Kind::RoleBinding => {
                let binding = change.object.map(|o| Binding::read(o, change.namespace));
                let mut all = self.bindings.get(&namespace).cloned().unwrap_or_default();
                all.put(name, binding);
                if all.by_name.is_empty() {
                    self.bindings.remove(&namespace);
                } else {
                    self.bindings.insert(namespace, all);
                }
            }
        }
    }

    /// Decides by the first rule that allows. Denials name the roles that are missing.
    pub(super) fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let mut errors = Vec::new();
        let found = self.visit(
            attributes.user,
            attributes.namespace,
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
        self.visit::<()>(user, namespace, &mut |_, _, outcome| {
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
            "ClusterRole" => self
                .cluster_roles
                .get(role)
                .map(Arc::as_ref)
                .ok_or(Missing::ClusterRole(role)),
            "Role" => self
                .roles
                .get(namespace)
                .and_then(|roles| roles.get(role))
                .map(Arc::as_ref)
                .ok_or(Missing::Role(role)),
            other => Err(Missing::Kind(other)),
        }
    }

    /// Shows every binding of a user with its role, those of the cluster first, until `look` has found something.
    fn visit<'i, T>(
        &'i self,
        user: &User,
        namespace: &str,
        look: &mut BindingVisitor<'_, 'i, T>,
    ) -> Option<T> {
        let local = if namespace.is_empty() {
            None
        } else {
            self.bindings.get(namespace)
        };
        for (bindings, namespace) in [(Some(&self.cluster_bindings), ""), (local, namespace)] {
            let Some(bindings) = bindings else { continue };
            let by_user = bindings.by_user.get(user.name.as_str());
            let by_group = user
                .groups
                .iter()
                .filter_map(|group| bindings.by_group.get(group.as_str()));
            for (binding, subject) in by_user.into_iter().chain(by_group).flat_map(imbl::OrdMap::values) {
                let Some(subject) = binding.subjects.get(*subject) else {
                    continue;
                };
                let outcome = self.resolve(&binding.role_kind, &binding.role, namespace);
                if let Some(result) = look(binding, subject, outcome) {
                    return Some(result);
                }
            }
        }
        None
    }
}

impl Binding {
    fn read(object: &Value, namespace: &str) -> Self {
        let name = meta::name(object);
        let subjects = object.get("subjects").and_then(Value::as_array);
        let subjects = subjects
            .into_iter()
            .flatten()
            .filter_map(|subject| Subject::read(subject, namespace));
        Binding {
            printed: if namespace.is_empty() {
                name.to_string()
            } else {
                format!("{name}/{namespace}")
            },
            namespace: namespace.into(),
            role_kind: meta::dig_str(object, &["roleRef", "kind"]).into(),
            role: meta::dig_str(object, &["roleRef", "name"]).into(),
            subjects: subjects.collect(),
        }
    }

    fn kind(&self) -> &'static str {
        match self.namespace.is_empty() {
            true => "ClusterRoleBinding",
            false => "RoleBinding",
        }
    }

    fn describe(&self, subject: &Subject) -> String {
        let kind = self.kind();
        let quote = machinery::go::quote;
        let (binding, role) = (quote(&self.printed), quote(&self.role));
        format!(
            "{kind} {binding} of {} {role} to {}",
            self.role_kind, subject.printed
        )
    }
}

impl Subject {
    /// `None` for unknown kinds of subjects, and for a service account without a namespace in a cluster-wide binding.
    fn read(subject: &Value, namespace: &str) -> Option<Self> {
        let kind = meta::dig_str(subject, &["kind"]);
        let name = meta::dig_str(subject, &["name"]);
        let quote = machinery::go::quote;
        let (group, matches, printed) = match kind {
            "User" => (false, name.to_string(), quote(name)),
            "Group" => (true, name.to_string(), quote(name)),
            "ServiceAccount" => {
                let own = meta::dig_str(subject, &["namespace"]);
                let namespace = if own.is_empty() { namespace } else { own };
                if namespace.is_empty() {
                    return None;
                }
                let user = format!("system:serviceaccount:{namespace}:{name}");
                (false, user, quote(&format!("{name}/{namespace}")))
            }
            _ => return None,
        };
        Some(Subject {
            group,
            matches: matches.into(),
            printed: format!("{kind} {printed}"),
        })
    }
}

impl Bindings {
    fn put(&mut self, name: Arc<str>, binding: Option<Binding>) {
        if let Some(old) = self.by_name.remove(&name) {
            for subject in &old.subjects {
                let map = if subject.group {
                    &mut self.by_group
                } else {
                    &mut self.by_user
                };
                if let Some(list) = map.get_mut(&subject.matches) {
                    list.remove(&name);
                    if list.is_empty() {
                        map.remove(&subject.matches);
                    }
                }
            }
        }
        let Some(binding) = binding.map(Arc::new) else {
            return;
        };
        for (index, subject) in binding.subjects.iter().enumerate() {
            let map = if subject.group {
                &mut self.by_group
            } else {
                &mut self.by_user
            };
            let list = map.entry(subject.matches.clone()).or_default();
            // A subject that is named twice is found in its first place.
            list.entry(name.clone())
                .or_insert_with(|| (binding.clone(), index));
        }
        self.by_name.insert(name, binding);
    }
}
