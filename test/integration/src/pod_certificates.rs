//! PodCertificateRequests: their switches, what nodes may ask for, and who may sign.

use serde_json::{Value, json};
use test_support::{Client, plane_with};

const V1BETA1: &str = "/apis/certificates.k8s.io/v1beta1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A request for a certificate with a key of Ed25519, in DER.
fn stub() -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let params = rcgen::CertificateParams::new(Vec::new()).expect("a request");
    let request = params.serialize_request(&key).expect("a request");
    base64::engine::general_purpose::STANDARD.encode(request.der())
}

fn request(name: &str, node: (&str, &str), pod: (&str, &str), account: (&str, &str)) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest", "metadata": {"name": name},
        "spec": {"signerName": "example.com/s", "nodeName": node.0, "nodeUID": node.1, "podName": pod.0, "podUID": pod.1,
            "serviceAccountName": account.0, "serviceAccountUID": account.1, "stubPKCS10Request": stub()}})
}

async fn made(admin: &Client, path: &str, object: Value) -> String {
    let answer = admin.post(path, &object).await;
    let found = match answer.status {
        409 => {
            let name = object["metadata"]["name"].as_str().expect("a name");
            admin.get(&format!("{path}/{name}")).await.expect(200)
        }
        _ => answer.expect(201),
    };
    found["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

#[tokio::test]
async fn nodes_ask_for_certificates_of_their_pods() {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = folder.path().join("tokens");
    let users = "node,system:node:n1,1,system:nodes\nother,system:node:n2,2,system:nodes\nbob,bob,3\n";
    std::fs::write(&tokens, users).expect("a file");
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            options.authorization.authorization_mode = vec![
                control_plane::AuthorizationMode::Node,
                control_plane::AuthorizationMode::Rbac,
            ];
            options.enable_admission_plugins = vec!["NodeRestriction".into()];
            options.feature_gates = vec!["PodCertificateRequest=true".into()];
            options.runtime_config = vec!["certificates.k8s.io/v1beta1=true".into()];
        })
    })
    .await;
    let pem = plane.ca_certificate().to_string();
    let of = |token: &str| {
        admin
            .anonymous(&pem)
            .header("authorization", &format!("Bearer {token}"))
    };
    let (node, other, bob) = (of("node"), of("other"), of("bob"));
    let n1 = made(
        &admin,
        "/api/v1/nodes",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
    )
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let account = made(&admin, accounts, account).await;
    let projected = json!({"signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "x"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1",
        "volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": projected.clone()}]}}],
        "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let pod = made(&admin, pods, pod).await;
    let stored = admin.get(&format!("{pods}/p")).await.expect(200);
    let source = &stored["spec"]["volumes"][0]["projected"]["sources"][0]["podCertificate"];
    assert_eq!(source, &projected);

    let own = ("n1", n1.as_str());
    let refused = node
        .post(
            REQUESTS,
            &request("r", ("n2", "x"), ("p", &pod), ("default", &account)),
        )
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        r#"podcertificaterequests.certificates.k8s.io "r" is forbidden: PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1""#
    );
    let early = node
        .post(REQUESTS, &request("r", own, ("q", "1"), ("default", &account)))
        .await
        .expect(500);
    assert_eq!(
        early["message"],
        r#"while retrieving pod "default/q" named in the PodCertificateRequest: pod "q" not found"#
    );
    node.post(REQUESTS, &request("r", own, ("p", "1"), ("default", &account)))
        .await
        .expect(500);
    node.post(REQUESTS, &request("r", own, ("p", &pod), ("a", &account)))
        .await
        .expect(403);
    node.post(REQUESTS, &request("r", own, ("p", &pod), ("default", "1")))
        .await
        .expect(500);
    let good = request("r", own, ("p", &pod), ("default", &account));
    let asked = node.post(REQUESTS, &good).await.expect(201);
    assert_eq!(asked["spec"]["maxExpirationSeconds"], 86_400);
    let path = format!("{REQUESTS}/r");
    let selected = format!("{V1BETA1}/podcertificaterequests?fieldSelector=spec.nodeName%3Dn1");
    // The authorizer's index follows what is written.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while node.get(&path).await.status != 200 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the node sees its request"
        );
        tokio::task::yield_now().await;
    }
    let list = node.get(&selected).await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    other.get(&path).await.expect(403);
    other.get(&selected).await.expect(403);
    node.delete(&path).await.expect(403);

    // Who writes the status has to sign for the signer.
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "update"], "resources": ["podcertificaterequests/status"]});
    let signs = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["sign"], "resources": ["signers"], "resourceNames": ["example.com/*"]});
    for (name, rule) in [("writer", rule), ("signer", signs)] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
        let mut denied = asked.clone();
        denied["status"] = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let status = format!("{path}/status");
        if name == "signer" {
            let refused = bob.put(&status, &denied).await.expect(422);
            assert_eq!(
                refused["message"],
                r#"PodCertificateRequest.certificates.k8s.io "r" is invalid: spec.signerName: Forbidden: User "bob" is not permitted to "sign" for signer "example.com/s""#
            );
        }
        admin
            .post(&format!("{RBAC}/clusterroles"), &role)
            .await
            .expect(201);
        admin
            .post(&format!("{RBAC}/clusterrolebindings"), &binding)
            .await
            .expect(201);
        if name == "signer" {
            bob.put(&status, &denied).await.expect(200);
        }
    }
    let table = admin
        .clone()
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.get(&path).await.expect(200);
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["r", "p", "default", "n1", "example.com/s", "Denied", "<none>"])
    );
    plane.stop().await;
}

#[tokio::test]
async fn requests_need_both_switches() {
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| options.runtime_config = vec!["certificates.k8s.io/v1beta1=true".into()])
    })
    .await;
    admin.get(REQUESTS).await.expect(404);
    plane.stop().await;
}
