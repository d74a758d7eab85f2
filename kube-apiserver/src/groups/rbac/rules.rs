//! Common rules of roles and bindings of both scopes.

use machinery::FieldPath;
use machinery::names::{dns1123_subdomain, name_is_path_segment};
use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::errors::{Errors, Ratchet};
use crate::json::{Json, same};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Errors of the rules of a role; a namespaced one has no URLs.
pub(super) fn role(errors: &mut Errors, object: &Value, namespaced: bool) {
    let path = FieldPath::new("rules");
    for (index, rule) in object.list("rules").iter().enumerate() {
        let path = path.index(index);
        if rule.list("verbs").is_empty() {
            errors.required(&path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.list("nonResourceURLs");
        if !urls.is_empty() {
            let at = path.child("nonResourceURLs");
            if namespaced {
                errors.invalid_value(
                    &at,
                    rule.dig("nonResourceURLs"),
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            let others = ["apiGroups", "resources", "resourceNames"];
            if others.iter().any(|key| !rule.list(key).is_empty()) {
                errors.invalid_value(
                    &at,
                    rule.dig("nonResourceURLs"),
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if rule.list("apiGroups").is_empty() {
            errors.required(
                &path.child("apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if rule.list("resources").is_empty() {
            errors.required(
                &path.child("resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
}

/// Errors of a cluster role's aggregation.
pub(super) fn aggregation(errors: &mut Errors, object: &Value) {
    let rule = object.dig("aggregationRule");
    if rule.is_null() {
        return;
    }
    let path = FieldPath::new("aggregationRule");
    let at = path.child("clusterRoleSelectors");
    let selectors = rule.list("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(
            &at,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
    for (index, selector) in selectors.iter().enumerate() {
        let at = at.index(index);
        errors.selector(&at, selector, Some(Ratchet::SelectorValues));
        if LabelSelector::from_value(selector).is_err() {
            errors.invalid(&at, Value::Null, "invalid label selector.");
        }
    }
}

/// Group names that need not be said.
pub(super) fn default_binding(object: &mut Value) {
    object.ensure("roleRef").fill_text("apiGroup", GROUP);
    for subject in object.list_mut("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.fill_text("apiGroup", GROUP);
        }
    }
}

/// Errors of a binding; a namespaced one may name roles of either scope.
pub(super) fn binding(errors: &mut Errors, object: &Value, namespaced: bool) {
    let path = FieldPath::new("roleRef");
    let role = object.dig("roleRef");
    errors.one_of(&path.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    errors.one_of(&path.child("kind"), role.text("kind"), kinds);
    let name = role.text("name");
    if errors.need(&path.child("name"), name) {
        errors.text(&path.child("name"), name, name_is_path_segment(name, false));
    }
    let path = FieldPath::new("subjects");
    for (index, subject) in object.list("subjects").iter().enumerate() {
        let path = path.index(index);
        let name = subject.text("name");
        errors.need(&path.child("name"), name);
        let group = match subject.text("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.text(&path.child("name"), name, dns1123_subdomain(name));
                }
                ""
            }
            "User" | "Group" => GROUP,
            kind => {
                errors.unsupported(&path.child("kind"), kind, &["ServiceAccount", "User", "Group"]);
                continue;
            }
        };
        errors.one_of(&path.child("apiGroup"), subject.text("apiGroup"), &[group]);
        if group.is_empty() && !namespaced && subject.text("namespace").is_empty() {
            errors.required(&path.child("namespace"), "");
        }
    }
}

/// Errors of a changed binding.
pub(super) fn binding_update(errors: &mut Errors, object: &Value, old: &Value, namespaced: bool) {
    binding(errors, object, namespaced);
    let role = object.dig("roleRef");
    if !same(role, old.dig("roleRef")) {
        let shown =
            json!({"APIGroup": role.text("apiGroup"), "Kind": role.text("kind"), "Name": role.text("name")});
        errors.invalid(&FieldPath::new("roleRef"), shown, "cannot change roleRef");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(resource: &str, object: Value, expected: &[&str]) {
        kind(&format!("{resource}.rbac.authorization.k8s.io")).create(&object, expected);
    }

    #[test]
    fn roles_are_validated() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        check(
            "roles",
            json!({"metadata": {"name": "a:b"}, "rules": [rule]}),
            &[],
        );
        check(
            "roles",
            json!({"rules": [{"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/a"]}]}),
            &[
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                r#"rules[1].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs"#,
            ],
        );
        check(
            "clusterroles",
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"]}], "aggregationRule": {}}),
            &[
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
            ],
        );
    }

    #[test]
    fn bindings_are_validated() {
        let role = json!({"kind": "ClusterRole", "name": "r"});
        let with = |subjects: Value| json!({"roleRef": role, "subjects": subjects});
        check("rolebindings", with(json!([{"kind": "User", "name": "u"}])), &[]);
        check(
            "rolebindings",
            json!({"roleRef": {"apiGroup": "x", "kind": "Group", "name": ""}}),
            &[
                r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
                r#"roleRef.kind: Unsupported value: "Group": supported values: "Role", "ClusterRole""#,
                "roleRef.name: Required value",
            ],
        );
        check(
            "clusterrolebindings",
            with(json!([{"kind": "ServiceAccount", "name": "s"}, {"kind": "Robot", "name": "r"}])),
            &[
                "subjects[0].namespace: Required value",
                r#"subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
            ],
        );
        let bindings = kind("rolebindings.rbac.authorization.k8s.io");
        bindings.defaults(
            &with(json!([{"kind": "Group", "name": "g"}])),
            &json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "g"}]}),
        );
        bindings.update(
            &with(json!([])),
            &json!({"roleRef": {"name": "other"}}),
            &[r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"other"}: cannot change roleRef"#],
        );
    }
}
