//! Escalation checks on writes of roles and bindings: users may grant only permissions that they hold, in upstream's words.
//!
//! Called by the admission of the RBAC kinds. Mirrors upstream's `policybased` storages.

use generic_server::authz::{Attributes, Authorizer, Decision};
use generic_server::{Authorized, User};
use machinery::go::quote;
use machinery::{ApiError, GroupResource, meta};
use serde_json::Value;

use super::coverage::{missing, quote_list};
use super::rule::PolicyRule;
use super::{Rbac, index};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Whether a user may grant these rules in a namespace; else why not.
///
/// # Errors
/// Upstream's text, which names the missing permissions.
pub fn confirm(rbac: &Rbac, user: &User, namespace: &str, rules: &[PolicyRule]) -> Result<(), String> {
    let index = rbac.index();
    let (held, errors) = index.rules_for(user, namespace);
    let attempt = || {
        let groups = quote_list(&user.groups);
        format!(
            "user {} (groups={groups}) is attempting to grant RBAC permissions",
            quote(&user.name)
        )
    };
    let Ok(missing) = missing(&held, rules) else {
        return Err(format!(
            "{} that are too many to compare with those currently held",
            attempt()
        ));
    };
    if missing.is_empty() {
        return Ok(());
    }
    let mut text = format!("{} not currently held:\n{}", attempt(), missing.describe());
    if !errors.is_empty() {
        text.push_str(&format!("; resolution errors: [{}]", index::aggregate(&errors)));
    }
    Err(text)
}

/// A write of a `Role` (with a namespace) or `ClusterRole`. `old` is the object that it replaces.
///
/// # Errors
/// 403 when it would grant more than the user holds.
pub async fn check_role(
    rbac: &Rbac,
    authorizer: &dyn Authorizer,
    authorized: &Authorized,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let user = authorized.user();
    if user.in_group("system:masters") || old.is_some_and(|old| only_collects(object, old)) {
        return Ok(());
    }
    let resource = if namespace.is_empty() {
        "clusterroles"
    } else {
        "roles"
    };
    let name = meta::name(object);
    let escalate = Attributes {
        user,
        verb: "escalate",
        is_resource: true,
        group: GROUP,
        version: "*",
        resource,
        subresource: "",
        namespace,
        // As upstream: the name of the request, which a create does not have.
        name: &authorized.info().name,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    if matches!(authorizer.authorize(&escalate).await, Decision::Allow(_)) {
        return Ok(());
    }
    let forbidden = |why: &str| ApiError::forbidden(&GroupResource::new(GROUP, resource), name, why);
    confirm(rbac, user, namespace, &PolicyRule::read_all(object)).map_err(|why| forbidden(&why))?;
    if namespace.is_empty() && (aggregates(object) || old.is_some_and(aggregates)) {
        let everything = [
            PolicyRule {
                verbs: vec!["*".into()],
                api_groups: vec!["*".into()],
                resources: vec!["*".into()],
                ..PolicyRule::default()
            },
            PolicyRule {
                verbs: vec!["*".into()],
                non_resource_urls: vec!["*".into()],
                ..PolicyRule::default()
            },
        ];
        confirm(rbac, user, "", &everything)
            .map_err(|_| forbidden("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

/// A write of a `RoleBinding` (with a namespace) or `ClusterRoleBinding`.
///
/// # Errors
/// 403 when the role grants more than the user holds, 404 when there is no such role.
pub async fn check_binding(
    rbac: &Rbac,
    authorizer: &dyn Authorizer,
    authorized: &Authorized,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let user = authorized.user();
    if user.in_group("system:masters") || old.is_some_and(|old| only_collects(object, old)) {
        return Ok(());
    }
    let role_kind = meta::dig_str(object, &["roleRef", "kind"]);
    let role = meta::dig_str(object, &["roleRef", "name"]);
    let roles = if role_kind == "Role" {
        "roles"
    } else {
        "clusterroles"
    };
    let bind = Attributes {
        user,
        verb: "bind",
        is_resource: true,
        group: meta::dig_str(object, &["roleRef", "apiGroup"]),
        version: "*",
        resource: roles,
        subresource: "",
        namespace,
        name: role,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let known = matches!(role_kind, "Role" | "ClusterRole");
    if known && matches!(authorizer.authorize(&bind).await, Decision::Allow(_)) {
        return Ok(());
    }
    let index = rbac.index();
    let Some(rules) = index.rules_of(role_kind, role, namespace) else {
        return Err(if known {
            // Upstream's store names the resource of the request, not the role's.
            let info = authorized.info();
            ApiError::not_found(&GroupResource::new(&info.group, &info.resource), role)
        } else {
            ApiError::raw_internal(format!("unsupported role reference kind: {}", quote(role_kind)))
        });
    };
    confirm(rbac, user, namespace, rules).map_err(|why| {
        let resource = if namespace.is_empty() {
            "clusterrolebindings"
        } else {
            "rolebindings"
        };
        ApiError::forbidden(&GroupResource::new(GROUP, resource), meta::name(object), why)
    })
}

fn aggregates(role: &Value) -> bool {
    let selectors = meta::dig(role, &["aggregationRule", "clusterRoleSelectors"]);
    selectors
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

/// Whether a write changes no more than what garbage collection needs: finalizers and owner references.
fn only_collects(object: &Value, old: &Value) -> bool {
    let mut like = object.clone();
    for key in [
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
    ] {
        let value = meta::metadata(old).and_then(|m| m.get(key)).cloned();
        meta::set(&mut like, key, value.unwrap_or(Value::Null));
    }
    like == *old
}
