use generic_server::User;
use generic_server::authz::Authorizer;
use serde_json::json;

use super::*;
use crate::rbac::{Kind, Rbac};

fn rbac() -> std::sync::Arc<Rbac> {
    let rbac = Rbac::new();
    rbac.replace(
        Kind::Role,
        [
            &json!({"metadata": {"name": "readers", "namespace": "ns"}, "rules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}]}),
        ],
    );
    rbac.replace(
        Kind::RoleBinding,
        [&json!({"metadata": {"name": "dev", "namespace": "ns"}, "roleRef": {"kind": "Role", "name": "readers"},
            "subjects": [{"kind": "Group", "name": "dev"}]})],
    );
    rbac
}

async fn ask(rbac: &Rbac, user: &str, verb: &str, name: &str) {
    let user = User {
        name: user.into(),
        groups: vec!["dev".into()],
        ..User::default()
    };
    let attributes = Attributes {
        user: &user,
        verb,
        is_resource: true,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespace: "ns",
        name,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let generic_server::authz::Decision::Allow(reason) = rbac.authorize(&attributes).await else {
        panic!("it is allowed")
    };
    rbac.used(&attributes, &reason);
    rbac.used(&attributes, "another authorizer's reason");
}

#[tokio::test]
async fn uses_are_recorded_while_they_are_wanted() {
    let rbac = rbac();
    ask(&rbac, "jane", "get", "a").await;
    let report = |role: Option<&str>| rbac.usage().report(&rbac.index(), role);
    assert_eq!(report(None)["used"], json!([]), "nobody wanted it");
    rbac.usage().record_for(Some(60));
    for name in ["a", "b"] {
        ask(&rbac, "jane", "get", name).await;
    }
    ask(&rbac, "joe", "get", "a").await;
    let found = report(None);
    let used = found["used"].as_array().expect("a list");
    let summary: Vec<Value> = used
        .iter()
        .map(|use_| {
            json!([
                use_["user"],
                use_["role"],
                use_["binding"],
                use_["subject"],
                use_["index"],
                use_["count"],
                use_["verbs"]
            ])
        })
        .collect();
    let of = |user: &str, count: u64| {
        json!([
            user,
            "Role/ns/readers",
            "RoleBinding dev/ns",
            "Group \"dev\"",
            0,
            count,
            ["get"]
        ])
    };
    assert_eq!(summary, [of("jane", 2), of("joe", 1)]);
    assert_eq!(
        found["unused"],
        json!([{"role": "Role/ns/readers", "rules": [
            {"index": 0, "rule": used[0]["rule"], "used": true, "unused": {"verbs": ["list"], "resources": ["secrets"]}},
            {"index": 1, "rule": {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}, "used": false}]}])
    );
    assert_eq!(report(Some("ClusterRole/readers"))["used"], json!([]));
    rbac.usage().record_for(None);
    ask(&rbac, "jane", "delete", "a").await;
    let ended = report(Some("Role/ns/readers"));
    assert_eq!(
        (&ended["recording"], ended["used"].as_array().map(Vec::len)),
        (&json!(false), Some(2))
    );
}

#[tokio::test]
async fn records_are_bounded() {
    let rbac = rbac();
    rbac.usage().record_for(Some(60));
    for number in 0..RECORDS + 5 {
        ask(&rbac, &format!("user-{number}"), "get", "a").await;
    }
    ask(&rbac, &"é".repeat(NAME_BYTES), "list", "a").await;
    let report = rbac.usage().report(&rbac.index(), None);
    assert_eq!(report["omitted"], 6);
    assert_eq!(report["used"].as_array().map(Vec::len), Some(LISTED));
    assert_eq!(report["unlisted"], RECORDS - LISTED);
    assert_eq!(beginning(&"é".repeat(NAME_BYTES)).len(), NAME_BYTES);
    assert_eq!(beginning("a"), "a");
}
