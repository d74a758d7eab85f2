use serde_json::json;

use super::*;

fn role(name: &str, namespace: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(name: &str, namespace: &str, role_kind: &str, role: &str, subjects: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    })
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).to_string()).collect(),
        ..User::default()
    }
}

/// `verb group resource[/subresource] [name]` in a namespace, or `verb /path`.
fn ask(rbac: &Rbac, user: &User, namespace: &str, what: &str) -> Decision {
    about(user, namespace, what, |attributes| {
        rbac.index().decide(attributes)
    })
}

fn about<T>(user: &User, namespace: &str, what: &str, look: impl FnOnce(&Attributes<'_>) -> T) -> T {
    let words: Vec<&str> = what.split(' ').collect();
    let base = Attributes {
        user,
        verb: words[0],
        is_resource: false,
        group: "",
        version: "v1",
        resource: "",
        subresource: "",
        namespace,
        name: words.get(3).copied().unwrap_or_default(),
        path: words[1],
        field_selector: "",
        label_selector: "",
    };
    if words[1].starts_with('/') {
        return look(&base);
    }
    let group = if words[1] == "core" { "" } else { words[1] };
    let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
    look(&Attributes {
        is_resource: true,
        group,
        resource,
        subresource,
        path: "",
        field_selector: "",
        label_selector: "",
        ..base
    })
}

fn sample() -> Arc<Rbac> {
    let rbac = Rbac::new();
    rbac.replace(
        Kind::ClusterRole,
        [
            &role("reader", "", json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}])),
            &role("scaler", "", json!([{"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]}])),
            &role("named", "", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"]}])),
            &role("paths", "", json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}])),
            &role("admin", "", json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]}
            ])),
        ],
    );
    rbac.replace(
        Kind::Role,
        [&role(
            "local",
            "a",
            json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]),
        )],
    );
    rbac.replace(
        Kind::ClusterRoleBinding,
        [
            &binding(
                "everyone",
                "",
                "ClusterRole",
                "paths",
                json!([{"kind": "Group", "name": "system:authenticated"}]),
            ),
            &binding(
                "scale",
                "",
                "ClusterRole",
                "scaler",
                json!([{"kind": "User", "name": "jane"}]),
            ),
            &binding(
                "dangling",
                "",
                "ClusterRole",
                "gone",
                json!([{"kind": "User", "name": "bob"}]),
            ),
            &binding(
                "root",
                "",
                "ClusterRole",
                "admin",
                json!([{"kind": "Group", "name": "ops"}]),
            ),
        ],
    );
    rbac.replace(
        Kind::RoleBinding,
        [
            &binding(
                "read",
                "a",
                "ClusterRole",
                "reader",
                json!([
                    {"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "bot"}
                ]),
            ),
            &binding(
                "names",
                "a",
                "ClusterRole",
                "named",
                json!([{"kind": "User", "name": "jane"}]),
            ),
            &binding(
                "own",
                "a",
                "Role",
                "local",
                json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "b"}]),
            ),
        ],
    );
    rbac
}

#[test]
fn rules_as_upstream_reads_them() {
    let rbac = sample();
    let jane = user("jane", &["system:authenticated"]);
    let check = |user: &User, namespace: &str, what: &str, allowed: bool| {
        let got = ask(&rbac, user, namespace, what);
        assert_eq!(
            matches!(got, Decision::Allow(_)),
            allowed,
            "{} {namespace} {what}: {got:?}",
            user.name
        );
    };
    check(&jane, "a", "get core pods", true);
    check(&jane, "a", "get core pods/log", true);
    check(&jane, "a", "get core pods/exec", false);
    check(&jane, "a", "delete core pods", false);
    check(&jane, "b", "get core pods", false);
    check(&jane, "", "list core pods", false);
    check(&jane, "b", "update apps deployments/scale", true);
    check(&jane, "b", "update apps deployments", false);
    check(&jane, "a", "get core secrets s", true);
    check(&jane, "a", "get core secrets t", false);
    check(&jane, "a", "list core secrets", false);
    check(&jane, "", "get /healthz", true);
    check(&jane, "", "get /healthz/ping", false);
    check(&jane, "", "get /logs/x/y", true);
    check(&jane, "", "get /logs", false);
    check(
        &user("system:serviceaccount:a:bot", &[]),
        "a",
        "get core pods",
        true,
    );
    check(
        &user("system:serviceaccount:b:bot", &[]),
        "a",
        "get core pods",
        false,
    );
    check(
        &user("system:serviceaccount:b:bot", &[]),
        "a",
        "update core configmaps",
        true,
    );
    check(&user("root", &["ops"]), "x", "anything any things/sub", true);
    check(&user("root", &["ops"]), "", "post /any", true);
}

#[test]
fn reasons() {
    let rbac = sample();
    let allowed = ask(&rbac, &user("jane", &[]), "a", "get core pods");
    let by = r#"RBAC: allowed by RoleBinding "read/a" of ClusterRole "reader" to User "jane""#;
    assert_eq!(allowed, Decision::Allow(by.into()));
    let by = r#"RBAC: allowed by RoleBinding "own/a" of Role "local" to ServiceAccount "bot/b""#;
    let bot = user("system:serviceaccount:b:bot", &[]);
    assert_eq!(
        ask(&rbac, &bot, "a", "get core configmaps"),
        Decision::Allow(by.into())
    );
    let refused = ask(&rbac, &user("bob", &[]), "a", "get core pods");
    let why = r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(refused, Decision::NoOpinion(why.into()));
    assert_eq!(
        ask(&rbac, &user("eve", &[]), "a", "get core pods"),
        Decision::NoOpinion(String::new())
    );
}

#[test]
fn changes_take_effect_one_by_one() {
    let rbac = sample();
    let jane = user("jane", &[]);
    let may = |what: &str| matches!(ask(&rbac, &jane, "a", what), Decision::Allow(_));
    rbac.apply([Change::delete(Kind::RoleBinding, "a", "read")]);
    assert!(!may("get core pods") && may("get core secrets s"));
    let again = binding(
        "read",
        "a",
        "ClusterRole",
        "reader",
        json!([{"kind": "User", "name": "jane"}]),
    );
    rbac.apply([Change::put(Kind::RoleBinding, &again)]);
    assert!(may("get core pods"));
    let other = binding(
        "read",
        "a",
        "ClusterRole",
        "reader",
        json!([{"kind": "User", "name": "joe"}]),
    );
    rbac.apply([Change::put(Kind::RoleBinding, &other)]);
    assert!(!may("get core pods"));
    rbac.apply([
        Change::put(Kind::RoleBinding, &again),
        Change::delete(Kind::ClusterRole, "", "reader"),
    ]);
    assert!(!may("get core pods"));
}

#[test]
fn escalation_is_refused_in_upstreams_words() {
    let rbac = sample();
    let jane = user("jane", &["g1", "g2"]);
    let wanted = PolicyRule::read_all(&role(
        "r",
        "",
        json!([
            {"verbs": ["get", "delete", "watch"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]}
        ]),
    ));
    let why = escalation::confirm(&rbac, &jane, "a", &wanted).unwrap_err();
    assert_eq!(
        why,
        "user \"jane\" (groups=[\"g1\" \"g2\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
    );
    escalation::confirm(&rbac, &user("root", &["ops"]), "a", &wanted).unwrap();
}

#[test]
fn many_bindings_of_one_subject_are_kept_and_taken_back_one_by_one() {
    let rbac = sample();
    let jane = user("jane", &[]);
    let named = |index: usize| {
        binding(
            &format!("b{index}"),
            "a",
            "ClusterRole",
            "reader",
            json!([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "jane"}]),
        )
    };
    let all: Vec<Value> = (0..100).map(named).collect();
    rbac.apply(all.iter().map(|object| Change::put(Kind::RoleBinding, object)));
    let (rules, _) = {
        let index = rbac.index();
        let (rules, errors) = index.rules_for(&jane, "a");
        (rules.len(), errors)
    };
    // Those of `reader` once, `scaler` and `named`.
    assert_eq!(rules, 3);
    for index in 0..100 {
        rbac.apply([Change::delete(Kind::RoleBinding, "a", &format!("b{index}"))]);
    }
    rbac.apply([Change::delete(Kind::RoleBinding, "a", "read")]);
    assert_eq!(rbac.index().rules_for(&jane, "a").0.len(), 2);
}

#[tokio::test]
async fn a_review_of_rules_ends_at_its_bytes() {
    let rbac = Rbac::new();
    let names: Vec<String> = (0..(limits::RESOLVED_RULES_BYTES / 1_003))
        .map(|i| format!("{i:01000}"))
        .collect();
    let big = role(
        "big",
        "",
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["x"], "resourceNames": names}]),
    );
    let small = role(
        "small",
        "",
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["y"]}]),
    );
    rbac.replace(Kind::ClusterRole, [&big, &small]);
    let give = |name: &str, role: &str| {
        binding(
            name,
            "",
            "ClusterRole",
            role,
            json!([{"kind": "User", "name": "jane"}]),
        )
    };
    let jane = user("jane", &[]);
    rbac.replace(Kind::ClusterRoleBinding, [&give("a", "small")]);
    let resolved = rbac.rules_for(&jane, "a").await;
    assert!(!resolved.incomplete && resolved.resource_rules.len() == 1);
    rbac.replace(Kind::ClusterRoleBinding, [&give("a", "small"), &give("b", "big")]);
    let resolved = rbac.rules_for(&jane, "a").await;
    assert!(resolved.incomplete && resolved.resource_rules.len() == 1);
    assert_eq!(resolved.evaluation_error, "too many rules to list");
}

#[test]
fn explanations_name_the_nearest_rules() {
    let rbac = Rbac::new();
    rbac.replace(
        Kind::ClusterRole,
        [
            &role(
                "reader",
                "",
                json!([
                    {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]},
                    {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
                    {"verbs": ["delete"], "apiGroups": ["apps"], "resources": ["pods"]},
                ]),
            ),
            &role(
                "editor",
                "",
                json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods"]}]),
            ),
            &role(
                "paths",
                "",
                json!([{"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}]),
            ),
        ],
    );
    let jane = json!([{"kind": "User", "name": "jane"}]);
    rbac.replace(
        Kind::ClusterRoleBinding,
        [
            &binding("readers", "", "ClusterRole", "reader", jane.clone()),
            &binding("gone", "", "ClusterRole", "absent", jane),
        ],
    );
    let user = user("jane", &[]);
    let explain = |what: &str| about(&user, "a", what, |attributes| rbac.index().explain(attributes));
    let allowed = explain("get core pods");
    assert_eq!(allowed["allowedBy"]["index"], 1);
    assert_eq!(
        allowed["allowedBy"]["binding"],
        r#"ClusterRoleBinding "readers" of ClusterRole "reader" to User "jane""#
    );
    let refused = explain("delete core pods");
    assert_eq!(refused["bindings"], 2);
    let lacking: Vec<_> = refused["nearest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["index"].as_i64().unwrap(), rule["missing"].to_string()))
        .collect();
    assert_eq!(
        lacking,
        [
            (1, r#"["verbs"]"#.to_string()),
            (2, r#"["apiGroups"]"#.to_string())
        ]
    );
    assert_eq!(refused["rolesThatAllow"], json!(["ClusterRole editor"]));
    assert_eq!(
        refused["missingRoles"],
        json!([r#"clusterrole.rbac.authorization.k8s.io "absent" not found"#])
    );
    let path = explain("get /logs/x");
    assert_eq!(path["nearest"], json!([]));
    assert_eq!(path["rolesThatAllow"], json!(["ClusterRole paths"]));
}

#[test]
fn explanations_are_bounded() {
    let rbac = Rbac::new();
    let many: Vec<String> = (0..1_000).map(|number| format!("r{number}")).collect();
    let rules: Vec<Value> = (0..1_000)
        .map(|_| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": many}))
        .collect();
    let roles: Vec<Value> = (0..50)
        .map(|number| {
            let rules = match number {
                0 => json!(rules),
                _ => json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
            };
            role(&format!("role-{number}"), "", rules)
        })
        .collect();
    rbac.replace(Kind::ClusterRole, &roles);
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    rbac.replace(
        Kind::ClusterRoleBinding,
        [&binding("one", "", "ClusterRole", "role-0", subjects)],
    );
    let explained = about(&user("jane", &[]), "a", "get core pods other", |attributes| {
        rbac.index().explain(attributes)
    });
    assert_eq!(explained["nearest"].as_array().map(Vec::len), Some(10));
    assert_eq!(
        explained["nearest"][0]["rule"]["resourceNames"]
            .as_array()
            .map(Vec::len),
        Some(20)
    );
    assert_eq!(explained["rolesThatAllow"].as_array().map(Vec::len), Some(10));
}
