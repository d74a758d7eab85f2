//! Roles and bindings whose check against what their author holds costs far more than their bytes.

use serde_json::{Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const REFUSED: Bound = Bound::codes(&[403, 422]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Role: 100 groups x 100 resources x 12 verbs, four at once",
            "2",
            Place::Large,
            REFUSED,
            |arena| Box::pin(role(arena, 100, 100, 12)),
        ),
        attack(
            "Role: 10 groups x 10 resources x 12 verbs",
            "2",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(role(arena, 10, 10, 12)),
        ),
        attack(
            "Role: 2,000 groups x 2,000 resources x 2,000 verbs, four at once",
            "2",
            Place::Large,
            REFUSED,
            |arena| Box::pin(role(arena, 2_000, 2_000, 2_000)),
        ),
        attack(
            "Role: 30,000 rules of one verb each",
            "2",
            Place::Large,
            REFUSED,
            |arena| Box::pin(many_rules(arena, 30_000)),
        ),
        attack(
            "Role: the same by a merge patch of one that was allowed",
            "2",
            Place::Large,
            REFUSED,
            |arena| Box::pin(patched(arena)),
        ),
        attack(
            "RoleBinding: 30,000 subjects to a role that its author does not hold",
            "2",
            Place::Large,
            REFUSED,
            |arena| Box::pin(bound(arena)),
        ),
    ]
}

fn words(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{stem}{i}")).collect()
}

fn role_of(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn product(groups: usize, resources: usize, verbs: usize) -> Value {
    json!([{"apiGroups": words("g", groups), "resources": words("r", resources), "verbs": words("v", verbs)}])
}

async fn role(arena: &Arena, groups: usize, resources: usize, verbs: usize) -> Result<Outcome, Error> {
    let role = role_of("product", &product(groups, resources, verbs));
    let path = arena.path_of(RBAC, "roles");
    // As many as there may be threads: one thread that is held up is not seen from outside.
    let shot = Shot::post(path, &role).by(&arena.tenant);
    arena.volley(vec![shot; 4]).await
}

async fn many_rules(arena: &Arena, count: usize) -> Result<Outcome, Error> {
    let rules: Vec<Value> = (0..count)
        .map(|i| json!({"apiGroups": [""], "resources": [format!("r{i}")], "verbs": ["get"]}))
        .collect();
    let path = arena.path_of(RBAC, "roles");
    let role = role_of("rules", &rules.into());
    arena.shoot(Shot::post(path, &role).by(&arena.tenant)).await
}

async fn patched(arena: &Arena) -> Result<Outcome, Error> {
    let roles = arena.path_of(RBAC, "roles");
    let small = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    arena.made(&roles, &role_of("grows", &small)).await?;
    let patch = json!({"rules": product(100, 100, 12)}).to_string();
    let shot = Shot::patch(format!("{roles}/grows"), "merge-patch+json", patch);
    arena.shoot(shot.by(&arena.tenant)).await
}

async fn bound(arena: &Arena) -> Result<Outcome, Error> {
    let subjects: Vec<Value> = (0..30_000)
        .map(|i| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("u{i}")}))
        .collect();
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "many"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let path = arena.path_of(RBAC, "rolebindings");
    arena.shoot(Shot::post(path, &binding).by(&arena.tenant)).await
}
