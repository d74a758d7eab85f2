//! ClusterTrustBundles: both of their versions, their switches, and who may name a signer.

use serde_json::{Value, json};
use test_support::plane_with;

const BETA: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const ALPHA: &str = "/apis/certificates.k8s.io/v1alpha1/clustertrustbundles";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn bundle(version: &str, name: &str, signer: &str, pem: &str) -> Value {
    json!({"apiVersion": format!("certificates.k8s.io/{version}"), "kind": "ClusterTrustBundle",
        "metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}})
}

#[tokio::test]
async fn bundles_of_a_signer_are_attested() {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "secret,alice,1\n").expect("a file");
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            options.feature_gates = vec!["ClusterTrustBundle=true".into()];
            options.runtime_config = vec![
                "certificates.k8s.io/v1beta1=true".into(),
                "certificates.k8s.io/v1alpha1=true".into(),
            ];
        })
    })
    .await;
    let pem = plane.ca_certificate().to_string();
    let alice = admin.anonymous(&pem).header("authorization", "Bearer secret");
    let group = admin.get("/apis/certificates.k8s.io").await.expect(200);
    let versions = group["versions"].as_array().expect("versions").iter();
    let versions: Vec<&str> = versions.filter_map(|one| one["version"].as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta1", "v1alpha1"]);
    let rule = |verbs: &[&str], resource: &str, names: &[&str]| json!({"apiGroups": ["certificates.k8s.io"], "verbs": verbs, "resources": [resource], "resourceNames": names});
    let role = |name: &str, rules: &[Value]| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = |name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]})
    };
    let roles = format!("{RBAC}/clusterroles");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let writer = role(
        "writer",
        &[rule(
            &["create", "update", "get", "list"],
            "clustertrustbundles",
            &[],
        )],
    );
    let attester = role("attester", &[rule(&["attest"], "signers", &["example.com/*"])]);
    for (path, object) in [
        (&roles, &writer),
        (&bindings, &binding("writer")),
        (&roles, &attester),
    ] {
        admin.post(path, object).await.expect(201);
    }

    // Without a signer the right to write is enough.
    alice
        .post(BETA, &bundle("v1beta1", "plain", "", &pem))
        .await
        .expect(201);
    let signed = bundle("v1alpha1", "example.com:ca:one", "example.com/ca", &pem);
    let refused = alice.post(ALPHA, &signed).await.expect(403);
    assert_eq!(
        refused["message"],
        "clustertrustbundles.certificates.k8s.io \"example.com:ca:one\" is forbidden: user not permitted to attest for signerName \"example.com/ca\""
    );
    admin.post(&bindings, &binding("attester")).await.expect(201);
    let made = alice.post(ALPHA, &signed).await;
    assert_eq!(
        (made.status, made.headers["warning"].to_str().expect("text")),
        (
            201,
            "299 - \"certificates.k8s.io/v1alpha1 ClusterTrustBundle is deprecated in v1.34+, unavailable in v1.37+\""
        )
    );
    let other = bundle("v1beta1", "example.org:ca:one", "example.org/ca", &pem);
    alice.post(BETA, &other).await.expect(403);
    let invalid = alice
        .post(BETA, &bundle("v1beta1", "two", "example.com/ca", "none"))
        .await
        .expect(422);
    let causes = invalid["details"]["causes"].as_array().expect("causes").iter();
    let fields: Vec<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
    assert_eq!(fields, ["metadata.name", "spec.trustBundle"]);

    // One store, two versions, a field and a table.
    for (path, version) in [(BETA, "v1beta1"), (ALPHA, "v1alpha1")] {
        let found = alice.get(&format!("{path}/example.com:ca:one")).await.expect(200);
        assert_eq!(found["apiVersion"], format!("certificates.k8s.io/{version}"));
        assert_eq!(found["spec"]["trustBundle"], pem);
        let list = alice
            .get(&format!(
                "{path}?fieldSelector=spec.signerName%3Dexample.com%2Fca"
            ))
            .await
            .expect(200);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        let documents = admin
            .get(&format!("/openapi/v3/apis/certificates.k8s.io/{version}"))
            .await;
        assert!(String::from_utf8_lossy(&documents.body).contains("ClusterTrustBundle"));
    }
    let table = admin.header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(BETA).await.expect(200);
    let cells: Vec<&Value> = table["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["cells"])
        .collect();
    assert_eq!(
        cells,
        [
            &json!(["example.com:ca:one", "example.com/ca"]),
            &json!(["plain", "<none>"])
        ]
    );
    plane.stop().await;
}

#[tokio::test]
async fn bundles_need_both_switches() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| options.runtime_config = vec!["certificates.k8s.io/v1beta1=true".into()])
    })
    .await;
    admin.get(BETA).await.expect(404);
    let role = format!("{RBAC}/clusterroles/system:cluster-trust-bundle-discovery");
    admin.get(&role).await.expect(404);
    plane.stop().await;

    // The alpha version alone has the same store, and is collected and written like others.
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.feature_gates = vec!["ClusterTrustBundle=true".into()];
            options.runtime_config = vec!["certificates.k8s.io/v1alpha1=true".into()];
        })
    })
    .await;
    admin.get(&role).await.expect(200);
    admin.get(BETA).await.expect(404);
    let made = bundle("v1alpha1", "plain", "", plane.ca_certificate());
    admin.post(ALPHA, &made).await.expect(201);
    let removed = admin.delete(&format!("{ALPHA}/plain")).await.expect(200);
    assert_eq!(removed["status"], "Success");
    admin.get(&format!("{ALPHA}/plain")).await.expect(404);
    plane.stop().await;
}
