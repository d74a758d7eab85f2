//! Bindings by their subjects, and of a subject with many by their roles.

use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use generic_server::User;
use machinery::meta;
use serde_json::Value;

use crate::tokens::service_account::user_name;

/// How many bindings a subject has before they are also found by their roles. Below, looking at all of them is as quick.
const MANY: usize = 32;

static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// The role that a binding names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RoleRef {
    /// As the binding has it.
    pub(super) kind: Arc<str>,
    /// Empty unless it is a Role.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl RoleRef {
    pub(super) fn of(kind: &str, namespace: &Arc<str>, name: &Arc<str>) -> Self {
        let namespace = match kind {
            "ClusterRole" => &EMPTY,
            _ => namespace,
        };
        RoleRef {
            kind: kind.into(),
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }
}

/// A binding with its subjects as user names and groups.
#[derive(Debug)]
pub(super) struct Binding {
    /// `name` or, in a namespace, `name/namespace`: as upstream prints it.
    pub(super) printed: String,
    /// Empty for one of the cluster.
    pub(super) namespace: Arc<str>,
    pub(super) role_kind: Arc<str>,
    pub(super) role: Arc<str>,
    pub(super) subjects: Vec<Subject>,
}

#[derive(Debug)]
pub(super) struct Subject {
    pub(super) group: bool,
    /// The user name or the group.
    pub(super) matches: Arc<str>,
    /// As upstream prints it: `ServiceAccount "name/namespace"`.
    pub(super) printed: String,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings {
    by_name: imbl::OrdMap<Arc<str>, Arc<Binding>>,
    by_user: imbl::HashMap<Arc<str>, Held>,
    by_group: imbl::HashMap<Arc<str>, Held>,
}

/// The bindings of one subject.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// With the place of the subject in the binding.
    by_name: imbl::OrdMap<Arc<str>, (Arc<Binding>, usize)>,
    /// There while they are many.
    by_role: Option<ByRole>,
}

/// The names of bindings by kind and name of their roles.
#[derive(Debug, Clone, Default)]
pub(super) struct ByRole(imbl::OrdSet<(Arc<str>, Arc<str>, Arc<str>)>);

impl ByRole {
    /// The bindings of a role.
    pub(super) fn bindings<'b>(&'b self, kind: &str, role: &Arc<str>) -> impl Iterator<Item = &'b Arc<str>> {
        let from = (role.clone(), Arc::<str>::from(kind), EMPTY.clone());
        let (role, kind) = (from.0.clone(), from.1.clone());
        let all = self.0.range((Bound::Included(from), Bound::Unbounded));
        all.take_while(move |one| one.0 == role && one.1 == kind)
            .map(|one| &one.2)
    }
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// All, by their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Binding, usize)> {
        self.by_name.values().map(|(binding, at)| (&**binding, *at))
    }

    pub(super) fn get(&self, name: &Arc<str>) -> Option<(&Binding, usize)> {
        let (binding, at) = self.by_name.get(name)?;
        Some((binding, *at))
    }

    /// By their roles, where they are many.
    pub(super) fn by_role(&self) -> Option<&ByRole> {
        self.by_role.as_ref()
    }

    fn put(&mut self, name: &Arc<str>, binding: &Arc<Binding>, subject: usize) {
        // A subject that is named twice is found in its first place.
        if self.by_name.contains_key(name) {
            return;
        }
        self.by_name.insert(name.clone(), (binding.clone(), subject));
        let key = |name: &Arc<str>, binding: &Binding| {
            (binding.role.clone(), binding.role_kind.clone(), name.clone())
        };
        match &mut self.by_role {
            Some(by_role) => drop(by_role.0.insert(key(name, binding))),
            None if self.by_name.len() > MANY => {
                let all = self.by_name.iter().map(|(name, (binding, _))| key(name, binding));
                self.by_role = Some(ByRole(all.collect()));
            }
            None => {}
        }
    }

    fn remove(&mut self, name: &Arc<str>) {
        let Some((binding, _)) = self.by_name.remove(name) else {
            return;
        };
        if self.by_name.len() <= MANY {
            self.by_role = None;
        } else if let Some(by_role) = &mut self.by_role {
            by_role
                .0
                .remove(&(binding.role.clone(), binding.role_kind.clone(), name.clone()));
        }
    }
}

impl Bindings {
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.by_name.values().map(Arc::as_ref)
    }

    /// What a user holds, by name and by each group.
    pub(super) fn of(&self, user: &User) -> impl Iterator<Item = &Held> {
        let by_user = self.by_user.get(user.name.as_str());
        let groups = user.groups.iter();
        by_user
            .into_iter()
            .chain(groups.filter_map(|group| self.by_group.get(group.as_str())))
    }

    /// Puts a binding in place of the one of its name, which is returned.
    pub(super) fn put(&mut self, name: Arc<str>, binding: Option<Arc<Binding>>) -> Option<Arc<Binding>> {
        let old = self.by_name.remove(&name);
        for subject in old.iter().flat_map(|old| &old.subjects) {
            let map = self.subjects(subject.group);
            if let Some(held) = map.get_mut(&subject.matches) {
                held.remove(&name);
                if held.len() == 0 {
                    map.remove(&subject.matches);
                }
            }
        }
        let Some(binding) = binding else { return old };
        for (index, subject) in binding.subjects.iter().enumerate() {
            let held = self.subjects(subject.group).entry(subject.matches.clone());
            held.or_default().put(&name, &binding, index);
        }
        self.by_name.insert(name, binding);
        old
    }

    fn subjects(&mut self, groups: bool) -> &mut imbl::HashMap<Arc<str>, Held> {
        match groups {
            true => &mut self.by_group,
            false => &mut self.by_user,
        }
    }
}

impl Binding {
    pub(super) fn read(object: &Value, namespace: &str) -> Self {
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

    /// The role that it names.
    pub(super) fn refers_to(&self) -> RoleRef {
        RoleRef::of(&self.role_kind, &self.namespace, &self.role)
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.namespace.is_empty() {
            true => "ClusterRoleBinding",
            false => "RoleBinding",
        }
    }

    pub(super) fn describe(&self, subject: &Subject) -> String {
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
                (
                    false,
                    user_name(namespace, name),
                    quote(&format!("{name}/{namespace}")),
                )
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
