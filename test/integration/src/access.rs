//! Authentication and authorization of whole servers.

use std::sync::atomic::{AtomicBool, Ordering};

use control_plane::ControlPlane;
use generic_server::pki::{Authority, Pki, ServingNames, kubeconfig};
use serde_json::{Value, json};

use test_support::{Client, Reply, Webhook, eventually, plane, plane_with};

#[tokio::test]
async fn unauthorized_requests_are_refused() {
    let (plane, client) = plane().await;
    let stranger = client.anonymous(plane.ca_certificate());
    let refused = stranger.get("/api/v1/namespaces/default/pods").await.expect(403);
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    stranger.get("/version").await.expect(200);
    let forged = stranger.header("authorization", "Bearer nonsense");
    forged.get("/version").await.expect(401);
    plane.stop().await;
}

#[tokio::test]
async fn roles_take_effect_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret,alice,1,\"dev\"\n").expect("a token file");
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(file.clone()))).await;
    let alice = client
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    let pods = "/api/v1/namespaces/default/pods";
    alice.get(pods).await.expect(403);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    client.post(bindings, &binding).await.expect(201);
    test_support::eventually("the role holds", || async {
        (alice.get(pods).await.status == 200).then_some(())
    })
    .await;
    alice.get("/api/v1/namespaces/kube-system/pods").await.expect(403);
    plane.stop().await;
}

#[tokio::test]
async fn escalation_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret,alice,1,\"dev\"\n").expect("a token file");
    let (plane, client) =
        plane_with(|builder| builder.with(|options| options.token_auth_file = Some(file.clone()))).await;
    let alice = client
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |name: &str, resource: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": ["rbac.authorization.k8s.io", ""], "resources": [resource], "verbs": ["create", "get"]}],
        })
    };
    client.post(roles, &role("keeper", "roles")).await.expect(201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keeper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    client
        .post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            &binding,
        )
        .await
        .expect(201);
    test_support::eventually("the role holds", || async {
        (alice.get(&format!("{roles}/keeper")).await.status == 200).then_some(())
    })
    .await;
    alice.post(roles, &role("same", "roles")).await.expect(201);
    let refused = alice.post(roles, &role("more", "secrets")).await.expect(403);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held"),
        "{message}"
    );
    plane.stop().await;
}

/// A client of this server with a certificate of an authority, trusting another.
fn client_of(plane: &ControlPlane, trusted: &Authority, by: &Authority) -> Client {
    let issued = by.client("visitor", "system:masters").expect("a certificate");
    let server = format!("https://{}", plane.address());
    Client::from_kubeconfig(kubeconfig(&server, &trusted.certificate, &issued).as_bytes())
}

#[tokio::test]
async fn certificates_and_authorities_are_read_again() {
    let [one, other] = ["one", "other"].map(|name| Authority::generate(name).expect("an authority"));
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| directory.path().join(name));
    let serve = |by: &Authority| {
        let issued = by.server("kube-apiserver", &["127.0.0.1".into()]);
        let issued = issued.expect("a certificate");
        std::fs::write(&certificate, issued.certificate).expect("a file");
        std::fs::write(&key, issued.key).expect("a file");
    };
    serve(&one);
    std::fs::write(&ca, &one.certificate).expect("a file");
    let (plane, _) = plane_with(|builder| {
        builder.with(|options| {
            options.tls_cert_file = Some(certificate.clone());
            options.tls_private_key_file = Some(key.clone());
            options.client_ca_file = Some(ca.clone());
        })
    })
    .await;
    let path = "/api/v1/namespaces";
    client_of(&plane, &one, &one).get(path).await.expect(200);
    client_of(&plane, &one, &other).get(path).await.expect(401);
    assert_eq!(plane.reload().await, [""; 0]);

    // An invalid file changes nothing.
    std::fs::write(&ca, "no authority").expect("a file");
    std::fs::write(&key, "no key").expect("a file");
    assert_eq!(plane.reload().await, [""; 0]);
    client_of(&plane, &one, &one).get(path).await.expect(200);

    serve(&other);
    std::fs::write(&ca, &other.certificate).expect("a file");
    let mut taken = plane.reload().await;
    taken.sort_unstable();
    assert_eq!(taken, ["client CA", "serving certificate"]);
    client_of(&plane, &other, &other).get(path).await.expect(200);
    client_of(&plane, &other, &one).get(path).await.expect(401);
    let refused = client_of(&plane, &one, &other).try_get(path).await;
    assert!(refused.is_err(), "the old certificate is still shown");
    plane.stop().await;
}

/// Makes a service account and gives a token of it.
async fn new_account(client: &Client, name: &str) -> String {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client.post(accounts, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/{name}/token");
    let issued = client.post(&path, &request).await.expect(201);
    issued["status"]["token"].as_str().expect("a token").to_string()
}

#[tokio::test]
async fn keys_of_tokens_are_read_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let (plane, client) = plane_with(|builder| builder.data_dir(&data).with(on_disk)).await;
    let token = new_account(&client, "worker").await;
    plane.stop().await;

    // Another key signs from now on, and the old one is not among those that are trusted.
    let [signing, trusted] = ["new.key", "trusted.key"].map(|name| directory.path().join(name));
    let new = Pki::in_memory(&ServingNames::default())
        .expect("keys")
        .service_account_key;
    std::fs::write(&signing, &new).expect("a file");
    std::fs::write(&trusted, &new).expect("a file");
    let (plane, client) = plane_with(|builder| {
        builder.data_dir(&data).with(|options| {
            on_disk(options);
            options.service_account_signing_key_file = Some(signing);
            options.service_account_key_file = vec![trusted.clone()];
        })
    })
    .await;
    let ca = plane.ca_certificate().to_string();
    let holder = client
        .anonymous(&ca)
        .header("authorization", &format!("Bearer {token}"));
    let path = "/api";
    holder.get(path).await.expect(401);
    let old = std::fs::read_to_string(data.join("pki/sa.key")).expect("the old key");
    std::fs::write(&trusted, old).expect("a file");
    assert_eq!(plane.reload().await, ["service account keys"]);
    holder.get(path).await.expect(200);
    std::fs::write(&trusted, new).expect("a file");
    assert_eq!(plane.reload().await, ["service account keys"]);
    holder.get(path).await.expect(401);
    plane.stop().await;
}

#[tokio::test]
async fn a_webhook_authenticates_tokens() {
    let overloaded = AtomicBool::new(true);
    let webhook = Webhook::start(move |review| {
        let status = match review["spec"]["token"].as_str() {
            Some("again") if overloaded.swap(false, Ordering::Relaxed) => {
                return Reply::Raw(429, "later".into());
            }
            Some("again") => json!({"authenticated": true, "user": {"username": "jane"}}),
            Some("jane") => json!({"authenticated": true, "user": {
                "username": "jane", "uid": "7", "groups": ["dev"], "extra": {"team": ["blue"]},
            }}),
            Some("elsewhere") => {
                json!({"authenticated": true, "user": {"username": "jane"}, "audiences": ["another"]})
            }
            Some("expired") => json!({"authenticated": false, "error": "the token has expired"}),
            Some("old") => {
                return Reply::Json(
                    json!({"apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview",
                    "status": {"authenticated": true, "user": {"username": "jane"}}}),
                );
            }
            Some("down") => return Reply::Raw(403, "no".into()),
            _ => json!({"authenticated": false}),
        };
        Reply::Json(
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}),
        )
    })
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("webhook.kubeconfig");
    std::fs::write(&file, webhook.kubeconfig()).expect("a file");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.authentication_token_webhook_config_file = Some(file);
            options.authentication_token_webhook_version = control_plane::TokenReviewVersion::V1;
        })
    })
    .await;
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = |token: &str, audiences: serde_json::Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": audiences}});
    for _ in 0..2 {
        let holder = client
            .anonymous(plane.ca_certificate())
            .header("authorization", "Bearer jane");
        holder.get("/api").await.expect(200);
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let own = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let user = holder.post(path, &own).await.expect(201)["status"]["userInfo"].clone();
        assert_eq!(
            user,
            json!({"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"team": ["blue"]}})
        );
    }
    assert_eq!(webhook.questions().len(), 1, "what it said is kept");
    let asked = &webhook.questions()[0];
    assert_eq!(asked["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(
        asked["spec"]["audiences"],
        json!(["https://kubernetes.default.svc.cluster.local"])
    );
    for token in ["elsewhere", "expired", "old", "down", "stranger", "stranger"] {
        let holder = client.anonymous(plane.ca_certificate());
        let holder = holder.header("authorization", &format!("Bearer {token}"));
        holder.get("/api").await.expect(401);
    }
    assert_eq!(webhook.questions().len(), 6, "what is nobody's is kept, too");
    let patient = client.anonymous(plane.ca_certificate());
    let patient = patient.header("authorization", "Bearer again");
    patient.get("/api").await.expect(200);
    assert_eq!(
        webhook.questions().len(),
        8,
        "an overloaded webhook is asked again"
    );

    let status = client
        .post(reviews, &review("elsewhere", json!(["another", "more"])))
        .await
        .expect(201)["status"]
        .clone();
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["another"]))
    );
    let status = client
        .post(reviews, &review("expired", json!([])))
        .await
        .expect(201)["status"]
        .clone();
    assert!(
        status["error"].to_string().contains("the token has expired"),
        "{status}"
    );
    plane.stop().await;
}

#[tokio::test]
async fn own_keys_and_authorities_are_rotated_while_serving() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let (plane, client) = plane_with(|builder| builder.data_dir(&data).with(on_disk)).await;
    let before = new_account(&client, "before").await;
    let next = Pki::in_memory(&ServingNames::default()).expect("keys");
    let file = |name: &str| data.join("pki").join(name);
    let append = |name: &str, more: &str| {
        let text = std::fs::read_to_string(file(name)).expect("a file");
        std::fs::write(file(name), format!("{text}{more}")).expect("a file");
    };
    append("ca.crt", &next.ca.certificate);
    append("sa.pub", &next.service_account_public_keys);
    std::fs::write(file("sa.key"), &next.service_account_key).expect("a file");
    assert_eq!(plane.reload().await, ["client CA", "service account keys"]);

    // A new key signs, and what the one before has signed is good.
    let after = new_account(&client, "after").await;
    let key_id = |token: &str| token.split('.').next().expect("a header").to_owned();
    assert_ne!(key_id(&before), key_id(&after));
    for token in [before, after] {
        let holder = client.anonymous(plane.ca_certificate());
        let holder = holder.header("authorization", &format!("Bearer {token}"));
        holder.get("/api").await.expect(200);
    }
    let published = client.get("/openid/v1/jwks").await.expect(200);
    assert_eq!(published["keys"].as_array().map(Vec::len), Some(2));
    // Certificates of the successor are accepted, and pods learn of it.
    let jane = next.ca.client("jane", "system:masters").expect("a certificate");
    let config = kubeconfig(&plane.url(), plane.ca_certificate(), &jane);
    let jane = Client::from_kubeconfig(config.as_bytes());
    jane.get("/api/v1/namespaces").await.expect(200);
    eventually("kube-root-ca.crt has both authorities", || async {
        let path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
        let map = client.get(path).await;
        let text = map.json["data"]["ca.crt"].as_str().unwrap_or_default();
        (text.matches("BEGIN CERTIFICATE").count() == 2).then_some(())
    })
    .await;

    // A file that has invalid content changes nothing.
    std::fs::write(file("sa.key"), "nonsense").expect("a file");
    assert!(plane.reload().await.is_empty());
    new_account(&client, "later").await;
    plane.stop().await;
}

#[tokio::test]
async fn a_deleted_accounts_token_dies_at_once() {
    let (plane, client) = plane().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let token = new_account(&client, "robot").await;
    let robot = client
        .anonymous(plane.ca_certificate())
        .header("Authorization", &format!("Bearer {token}"));
    robot.get("/api").await.expect(200);
    client.delete(&format!("{accounts}/robot")).await.expect(200);
    assert_eq!(robot.get("/api").await.status, 401);
    plane.stop().await;
}

fn on_disk(options: &mut control_plane::Options) {
    options.storage_backend = None;
    options.min_free_disk_mib = 1;
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).expect("a text")
}

#[tokio::test]
async fn the_server_has_a_lease_while_it_runs() {
    let folder = tempfile::tempdir().expect("a directory");
    let start = async || {
        plane_with(|builder| {
            builder
                .data_dir(folder.path())
                .with(|options| options.storage_backend = None)
        })
        .await
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let own = format!("{leases}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver");
    let (plane, client) = start().await;
    let lease = eventually("the server's lease is there", || async {
        client.get(&own).await.expect(200)["items"].get(0).cloned()
    })
    .await;
    let name = text(&lease, "/metadata/name");
    assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
    assert!(text(&lease, "/spec/holderIdentity").starts_with(&format!("{name}_")));
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
    // One of a server that died is removed at the next start; that of a server that runs stays.
    for (name, renewed) in [
        ("gone", "2020-01-01T00:00:00.000000Z"),
        ("other", "2099-01-01T00:00:00.000000Z"),
    ] {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed},
        });
        client.post(leases, &body).await.expect(201);
    }
    plane.stop().await;
    let (plane, client) = start().await;
    let holder = eventually("leases are collected", || async {
        let all = client.get(&own).await.expect(200);
        let items = all["items"].as_array().expect("items").clone();
        let is_there = |name: &str| items.iter().any(|lease| lease["metadata"]["name"] == name);
        let found = items.iter().find(|lease| lease["metadata"]["name"] == *name);
        (!is_there("gone") && is_there("other")).then_some(())?;
        Some(text(found?, "/spec/holderIdentity").to_string())
    })
    .await;
    assert_ne!(
        holder,
        text(&lease, "/spec/holderIdentity"),
        "a server of its own"
    );
    plane.stop().await;
}

#[tokio::test]
async fn since_when_tokens_are_tracked_is_kept() {
    let (plane, client) = plane().await;
    let map =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = async || {
        let found = client.get(map).await;
        (found.status == 200).then(|| text(&found.json, "/data/since").to_string())
    };
    let today = eventually("the ConfigMap is there", since).await;
    assert_eq!(today.len(), "2006-01-02".len());
    let odd = json!({"data": {"since": "yesterday"}});
    client.patch(map, "merge-patch+json", &odd).await.expect(200);
    eventually("the day is restored", || async {
        since().await.filter(|since| *since != "yesterday")
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn decisions_are_explained_to_those_who_may_ask() {
    let (plane, client) = plane_with(|builder| builder).await;
    const EXPLAIN: &str = "/debug/authorization/explain";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "readers"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]});
    for (resource, object) in [("roles", role), ("rolebindings", binding)] {
        client
            .post(&format!("{rbac}/namespaces/default/{resource}"), &object)
            .await
            .expect(201);
    }
    let ask = async |query: &str| client.get(&format!("{EXPLAIN}?{query}")).await.expect(200);
    let jane = "user=jane&group=system:authenticated&namespace=default&resource=pods";
    let allowed = ask(&format!("{jane}&verb=get")).await;
    assert_eq!(
        (&allowed["allowed"], &allowed["authorizer"]),
        (&json!(true), &json!("rbac"))
    );
    assert_eq!(
        allowed["rbac"]["allowedBy"]["binding"],
        r#"RoleBinding "readers/default" of Role "readers" to User "jane""#
    );
    let refused = ask(&format!("{jane}&verb=delete")).await;
    assert_eq!(
        (&refused["allowed"], &refused["authorizer"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(refused["rbac"]["nearest"][0]["missing"], json!(["verbs"]));
    let roles = refused["rbac"]["rolesThatAllow"].to_string();
    assert!(roles.contains("ClusterRole edit"), "{roles}");
    // A user that is named is authenticated, as the real one would be.
    let discovery = ask("user=jane&verb=get&path=/healthz").await;
    assert_eq!(discovery["allowed"], true, "{discovery}");
    let nobody = ask("user=system:anonymous&verb=get&path=/metrics").await;
    assert_eq!(nobody["user"]["groups"], json!([]));
    // Of oneself.
    let own = ask("verb=get&path=/metrics").await;
    assert_eq!(own["authorizer"], "system:masters");
    // Reviews say what they said before, and the path is for administrators.
    client.get(&format!("{EXPLAIN}?verb=get")).await.expect(400);
    client.post(EXPLAIN, &json!({})).await.expect(405);
    let jane = client.clone().header("impersonate-user", "jane");
    let query = format!("{EXPLAIN}?verb=get&resource=pods");
    jane.get(&query).await.expect(403);
    client
        .anonymous(plane.ca_certificate())
        .get(&query)
        .await
        .expect(403);
    plane.stop().await;
}

#[tokio::test]
async fn who_uses_which_rule_is_recorded_on_request() {
    let (plane, client) = plane_with(|builder| builder).await;
    const USAGE: &str = "/debug/authorization/usage";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "readers"}, "rules": [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]}]});
    let binding = json!({"metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]});
    for (resource, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{rbac}/namespaces/default/{resource}");
        client.post(&path, &object).await.expect(201);
    }
    let jane = client.clone().header("impersonate-user", "jane");
    let used = async || {
        client
            .get(&format!("{USAGE}?role=Role/default/readers"))
            .await
            .expect(200)
    };
    jane.get(PODS).await.expect(200);
    assert_eq!(used().await["used"], json!([]), "nobody wanted it");
    let begun = client
        .post(&format!("{USAGE}?for=10m"), &json!({}))
        .await
        .expect(200);
    assert_eq!(begun["recording"], true);
    for _ in 0..2 {
        jane.get(PODS).await.expect(200);
    }
    // A review is no use.
    let review = json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "secrets"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = jane.post(reviews, &review).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    let report = used().await;
    let one = &report["used"][0];
    assert_eq!(
        (&one["user"], &one["count"], &one["verbs"]),
        (&json!("jane"), &json!(2), &json!(["list"]))
    );
    assert_eq!(one["binding"], "RoleBinding readers/default");
    assert_eq!(report["used"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        report["unused"][0]["rules"][0]["unused"],
        json!({"verbs": ["get"], "resources": ["secrets"]})
    );
    for bad in ["?for=0s", "?for=1000h", "?for=soon", "?role=x"] {
        client
            .post(&format!("{USAGE}{bad}"), &json!({}))
            .await
            .expect(400);
    }
    client.put(USAGE, &json!({})).await.expect(405);
    let ended = client.delete(USAGE).await.expect(200);
    assert_eq!(ended["recording"], false);
    // It names users and roles: it is not everybody's.
    jane.get(USAGE).await.expect(403);
    jane.post(USAGE, &json!({})).await.expect(403);
    plane.stop().await;
}

#[tokio::test]
async fn documents_about_keys_may_be_kept() {
    let (plane, client) = plane().await;
    for path in ["/openid/v1/jwks", "/.well-known/openid-configuration"] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["cache-control"], "public, max-age=3600", "{path}");
    }
    plane.stop().await;
}
