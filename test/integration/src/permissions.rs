//! Writes that other objects or the writer's permissions decide on: parameters of policies, admin access to devices, the status of claims,
//! classes that the system needs.

use serde_json::{Value, json};
use test_support::plane_with;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// A role of alice's, as two objects with their paths.
fn grant(name: &str, rule: &Value) -> [(String, Value); 2] {
    let role = json!({"metadata": {"name": name}, "rules": [rule]});
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    [
        (format!("{RBAC}/clusterroles"), role),
        (format!("{RBAC}/clusterrolebindings"), binding),
    ]
}

#[tokio::test]
async fn what_a_writer_may_not_do_itself_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "secret,alice,1\n").expect("a file");
    let (plane, admin) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(tokens))).await;
    let pem = plane.ca_certificate().to_string();
    let alice = admin.anonymous(&pem).header("authorization", "Bearer secret");
    let groups = [
        "admissionregistration.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
    ];
    let resources = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "resourceclaims",
        "resourceclaims/status",
        "priorityclasses",
    ];
    for (path, object) in grant(
        "writer",
        &json!({"apiGroups": groups, "resources": resources, "verbs": ["*"]}),
    ) {
        admin.post(&path, &object).await.expect(201);
    }

    // Expressions of a policy can tell what is in its parameters.
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "false", "messageExpression": "string(params.data.k)"}]}});
    let at = format!("{POLICIES}/validatingadmissionpolicies");
    let refused = alice.post(&at, &policy).await.expect(422);
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Forbidden: user &{alice 1 [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
    );
    admin.post(&at, &policy).await.expect(201);
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "s", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}}});
    let at = format!("{POLICIES}/validatingadmissionpolicybindings");
    let refused = alice.post(&at, &binding).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.paramRef");
    // What does not change is not asked about again, and what is readable may be named.
    for (path, object) in grant(
        "reader",
        &json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
    ) {
        admin.post(&path, &object).await.expect(201);
    }
    alice.post(&at, &binding).await.expect(201);

    // Devices in use belong to namespaces that are marked for it.
    let claim = |name: &str, admin: bool| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "adminAccess": admin}}]}}})
    };
    let refused = admin.post(CLAIMS, &claim("a", true)).await.expect(422);
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    );
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    admin
        .patch("/api/v1/namespaces/default", "merge-patch+json", &label)
        .await
        .expect(200);
    admin.post(CLAIMS, &claim("a", true)).await.expect(201);

    // Who may write a status allocates nothing by that.
    let reserved = json!({"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    admin.post(CLAIMS, &claim("b", false)).await.expect(201);
    let status = format!("{CLAIMS}/b/status");
    let refused = alice
        .patch(&status, "merge-patch+json", &reserved)
        .await
        .expect(422);
    let text = refused["details"]["causes"][0]["message"]
        .as_str()
        .unwrap_or_default();
    let expected = "Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    assert_eq!(text, expected);
    admin
        .patch(&status, "merge-patch+json", &reserved)
        .await
        .expect(200);
    let devices = json!({"status": {"devices": [{"driver": "d.example.com", "pool": "p", "device": "d", "data": {"a": 1}}]}});
    let refused = alice
        .patch(&status, "merge-patch+json", &devices)
        .await
        .expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "status.devices");
    let rule = json!({"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "resourceNames": ["d.example.com"], "verbs": ["arbitrary-node:patch"]});
    for (path, object) in grant("driver", &rule) {
        admin.post(&path, &object).await.expect(201);
    }
    alice
        .patch(&status, "merge-patch+json", &devices)
        .await
        .expect(200);

    let class = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let refused = alice.delete(class).await.expect(403);
    let text = refused["message"].as_str().unwrap_or_default();
    assert!(
        text.ends_with("this is a system priority class and cannot be deleted"),
        "{text}"
    );
    plane.stop().await;
}
