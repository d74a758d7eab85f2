//! Why a request is allowed or not: the rule that allows it, or those that come nearest, and the roles that would allow it.

use generic_server::authz::Attributes;
use serde_json::{Value, json};

use super::super::rule::PolicyRule;
use super::{Index, Roles};

/// Rules and roles that are named; of more the nearest, or the first.
const NAMED: usize = 10;
/// Roles that are searched for one that would allow the request.
const SEARCHED: usize = 20_000;
/// Strings that are shown of each list of a rule.
const SHOWN: usize = 20;

impl Index {
    /// Goes the way of a decision, and says what it found. Costs what a decision costs for each rule of the user, and one look at every
    /// role of the cluster and of the namespace.
    pub fn explain(&self, attributes: &Attributes<'_>) -> Value {
        let (mut bindings, mut missing) = (0usize, Vec::new());
        let mut nearest: Vec<(usize, Value)> = Vec::new();
        let allowed = self.visit(
            attributes.user,
            attributes.namespace,
            None,
            &mut |binding, subject, outcome| {
                bindings += 1;
                let role = match outcome {
                    Ok(role) => role,
                    Err(role) => {
                        if missing.len() < NAMED {
                            missing.push(role.to_string());
                        }
                        return None;
                    }
                };
                for (index, rule) in role.rules().iter().enumerate() {
                    let lacks = rule.lacks(attributes);
                    let found = |lacks: &[&str]| {
                        let by = binding.describe(subject);
                        json!({"binding": by, "index": index, "rule": shown(rule), "missing": lacks})
                    };
                    match lacks {
                        Some(lacks) if lacks.is_empty() => return Some(found(&lacks)),
                        Some(lacks) => {
                            let at = nearest.partition_point(|(more, _)| *more <= lacks.len());
                            if at < NAMED {
                                nearest.insert(at, (lacks.len(), found(&lacks)));
                                nearest.truncate(NAMED);
                            }
                        }
                        None => {}
                    }
                }
                None
            },
        );
        if let Some(allowed) = allowed {
            return json!({"allowedBy": allowed});
        }
        let nearest: Vec<Value> = nearest.into_iter().map(|(_, found)| found).collect();
        json!({
            "bindings": bindings,
            "nearest": nearest,
            "missingRoles": missing,
            "rolesThatAllow": self.roles_that_allow(attributes),
        })
    }

    /// The roles that would allow a request to whom they are bound, by their names.
    fn roles_that_allow(&self, attributes: &Attributes<'_>) -> Vec<String> {
        let local = self
            .roles
            .get(attributes.namespace)
            .into_iter()
            .flat_map(Roles::iter);
        let cluster = self.cluster_roles.iter().map(|role| ("ClusterRole", role));
        let mut names: Vec<String> = local
            .map(|role| ("Role", role))
            .chain(cluster)
            .take(SEARCHED)
            .filter(|(_, (_, role))| role.allows(attributes))
            .map(|(kind, (name, _))| format!("{kind} {name}"))
            .collect();
        names.sort_unstable();
        names.truncate(NAMED);
        names
    }
}

/// A rule with the beginning of its lists.
pub(in crate::rbac) fn shown(rule: &PolicyRule) -> Value {
    let mut value = json!({});
    for (key, list) in [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ] {
        if !list.is_empty() {
            value[key] = json!(list.get(..SHOWN).unwrap_or(list));
        }
    }
    value
}
