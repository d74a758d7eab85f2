use serde_json::json;

use super::*;
use machinery::meta::dig_str;

/// Roles and bindings of alice that differ in everything that a decision looks at, made of a number.
fn role(kind: &str, at: usize) -> Value {
    let resource = match at % 6 {
        0 => ["pods", "pods/log", "*/scale", "secrets", "*"][at / 6 % 5].to_string(),
        _ => format!("r{at}"),
    };
    let mut rule = match at % 11 {
        0 => json!({"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]}),
        _ => {
            json!({"verbs": ["get"], "apiGroups": ["", "apps"], "resources": [resource, format!("other{at}")]})
        }
    };
    match at % 7 {
        0 => rule["verbs"] = json!(["*"]),
        1 | 2 => rule["resourceNames"] = json!(["a", format!("n{at}")]),
        3 => {
            rule["resources"] = json!(["x", "y", "z"]);
            rule["resourceNames"] = json!((0..20).map(|n| format!("m{n}")).collect::<Vec<_>>());
        }
        _ => {}
    }
    let mut role = json!({"metadata": {"name": format!("role{at}")}, "rules": [rule]});
    if kind == "Role" {
        role["metadata"]["namespace"] = "ns".into();
    }
    role
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "all"}, {"kind": "User", "name": "alice"}]})
}

fn questions(user: &User) -> Vec<Attributes<'_>> {
    let plain = Attributes {
        user,
        verb: "get",
        is_resource: true,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespace: "ns",
        name: "",
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let mut questions = Vec::new();
    for (resource, subresource) in [
        ("pods", ""),
        ("pods", "log"),
        ("pods", "scale"),
        ("secrets", ""),
        ("y", ""),
        ("none", ""),
    ] {
        for name in ["", "a", "n8", "m3"] {
            for verb in ["get", "delete"] {
                for namespace in ["", "ns", "elsewhere"] {
                    questions.push(Attributes {
                        verb,
                        resource,
                        subresource,
                        name,
                        namespace,
                        ..plain
                    });
                }
            }
        }
    }
    for path in ["/x", "/y/z", "/none"] {
        questions.push(Attributes {
            is_resource: false,
            resource: "",
            namespace: "",
            path,
            ..plain
        });
    }
    questions
}

/// Looks at every binding.
fn decide_by_all(index: &Index, request: &Attributes<'_>) -> Decision {
    let mut errors = Vec::new();
    let found = index.visit(
        request.user,
        request.namespace,
        None,
        &mut |binding, subject, outcome| {
            match outcome {
                Ok(role) if role.allows(request) => return Some(binding.describe(subject)),
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

#[test]
fn many_bindings_decide_as_if_all_were_looked_at() {
    let mut seed = 7u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (kinds, places) = (["ClusterRole", "Role"], ["", "ns"]);
    let users = ["alice", "bob"].map(|name| User {
        name: name.into(),
        groups: vec!["all".into()],
        ..User::default()
    });
    let mut index = Index::default();
    let mut skipped = 0;
    for step in 0..1_500 {
        let at = random(120);
        let kind = kinds[random(2)];
        // The first steps fill the index, the others take away as much as they add.
        let put = step < 400 || random(2) == 0;
        if random(3) == 0 {
            let put = put || random(3) == 0;
            let role = role(kind, at);
            let of = if kind == "Role" {
                Kind::Role
            } else {
                Kind::ClusterRole
            };
            let (namespace, name) = (meta::namespace(&role).to_string(), meta::name(&role).to_string());
            index.apply(&match put {
                true => Change::put(of, &role),
                false => Change::delete(of, &namespace, &name),
            });
        } else {
            let namespace = places[random(2)];
            let kind = if namespace.is_empty() { "ClusterRole" } else { kind };
            let object = binding(
                namespace,
                &format!("b{at}"),
                kind,
                &format!("role{}", random(120)),
            );
            let of = if namespace.is_empty() {
                Kind::ClusterRoleBinding
            } else {
                Kind::RoleBinding
            };
            index.apply(&match put {
                true => Change::put(of, &object),
                false => Change::delete(of, namespace, dig_str(&object, &["metadata", "name"])),
            });
        }
        if step % 100 == 99 {
            for user in &users {
                for request in questions(user) {
                    assert_eq!(
                        index.decide(&request),
                        decide_by_all(&index, &request),
                        "{step} {request:?}"
                    );
                    assert_eq!(
                        index.matched(&request).is_some(),
                        matches!(index.decide(&request), Decision::Allow(_))
                    );
                    let held = index.cluster_bindings.of(user).next();
                    let some = held.and_then(|held| index.relevant(held, "", &request));
                    skipped += usize::from(some.is_some());
                }
            }
        }
    }
    assert!(skipped > 100, "bindings were left out {skipped} times");
    // What is counted is what is there.
    let counted = (index.named.clone(), index.missing.clone());
    for kind in [
        Kind::Role,
        Kind::ClusterRole,
        Kind::RoleBinding,
        Kind::ClusterRoleBinding,
    ] {
        let mut cleared = index.clone();
        cleared.clear(kind);
        for (role, count) in &cleared.named {
            assert!(counted.0.get(role).is_some_and(|before| before >= count));
            assert_eq!(cleared.missing.contains(role), !cleared.has(role));
        }
    }
    let mut again = index.clone();
    again.clear(Kind::Role);
    assert!(counted.1.iter().all(|role| again.missing.contains(role)));
}

#[test]
fn a_decision_looks_at_few_of_a_thousand_bindings() {
    let mut index = Index::default();
    let user = User {
        name: "alice".into(),
        ..User::default()
    };
    for at in 0..1_000 {
        let role = json!({"metadata": {"name": format!("r{at}")}, "rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("pod{at}")]}]});
        index.apply(&Change::put(Kind::ClusterRole, &role));
        let binding = binding("", &format!("b{at}"), "ClusterRole", &format!("r{at}"));
        index.apply(&Change::put(Kind::ClusterRoleBinding, &binding));
    }
    let request = |resource, name| Attributes {
        resource,
        name,
        namespace: "",
        ..questions(&user)[0]
    };
    let looks = |index: &Index, request: &Attributes<'_>| {
        let held = index.cluster_bindings.of(&user).next().expect("bindings");
        index.relevant(held, "", request).map(|some| some.len())
    };
    for (resource, name, expected) in [("pods", "pod7", 1), ("pods", "", 0), ("secrets", "a", 0)] {
        assert_eq!(looks(&index, &request(resource, name)), Some(expected));
    }
    assert!(matches!(
        index.decide(&request("pods", "pod999")),
        Decision::Allow(_)
    ));
    // A role that goes is missed in refusals.
    index.apply(&Change::delete(Kind::ClusterRole, "", "r500"));
    let refused = index.decide(&request("secrets", "a"));
    let text = "RBAC: clusterrole.rbac.authorization.k8s.io \"r500\" not found";
    assert_eq!(refused, Decision::NoOpinion(text.into()));
    // Thirty-two are looked at one by one again.
    for at in 32..1_000 {
        index.apply(&Change::delete(Kind::ClusterRoleBinding, "", &format!("b{at}")));
    }
    assert_eq!(looks(&index, &request("pods", "pod7")), None);
    assert!(index.missing.is_empty());
    assert!(matches!(
        index.decide(&request("pods", "pod31")),
        Decision::Allow(_)
    ));
}
