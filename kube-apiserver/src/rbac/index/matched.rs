//! What allows a request: its binding, its role and its rule.

use generic_server::authz::Attributes;

use super::super::rule::PolicyRule;
use super::Index;

/// What allows a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::rbac) struct Matched<'i> {
    pub(in crate::rbac) binding_kind: &'static str,
    /// `name` or `name/namespace`.
    pub(in crate::rbac) binding: &'i str,
    /// Its kind and name.
    pub(in crate::rbac) subject: &'i str,
    /// Kind, namespace (of a Role) and name.
    pub(in crate::rbac) role: (&'static str, &'i str, &'i str),
    pub(in crate::rbac) rule: &'i PolicyRule,
    /// The rule's place in the role.
    pub(in crate::rbac) position: usize,
}

impl Index {
    /// What allows a request, if anything does: the same that [`Index::decide`] finds.
    pub(in crate::rbac) fn matched(&self, attributes: &Attributes<'_>) -> Option<Matched<'_>> {
        self.visit(
            attributes.user,
            attributes.namespace,
            Some(attributes),
            &mut |binding, subject, outcome| {
                let role = outcome.ok()?;
                let position = role.allowing(attributes)?;
                let role_key = match &*binding.role_kind {
                    "Role" => ("Role", &*binding.namespace, &*binding.role),
                    _ => ("ClusterRole", "", &*binding.role),
                };
                Some(Matched {
                    binding_kind: binding.kind(),
                    binding: &binding.printed,
                    subject: &subject.printed,
                    role: role_key,
                    rule: role.rules().get(position)?,
                    position,
                })
            },
        )
    }
}
