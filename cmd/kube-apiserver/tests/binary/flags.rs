//! Flags whose effect is seen from outside.

use generic_server::pki::{Authority, Pki, ServingNames, kubeconfig};
use serde_json::{Value, json};
use test_support::Client;

use super::{authority_of, launch, start_on};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, context: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "securityContext": context}]}})
}

#[tokio::test]
async fn admission_plugins_are_turned_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let off = [
        "ServiceAccount",
        "NamespaceLifecycle",
        "ValidatingAdmissionWebhook",
        "Priority",
        "PodTolerationRestriction",
        "PodResizeValidator",
    ];
    let off = off.join(",");
    let (_child, client) = start_on(dir.path(), 0, &["--disable-admission-plugins", &off]).await;
    let rules =
        json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let hook = json!({"name": "away.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules,
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"}, "webhooks": [hook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    client.post(path, &hooks).await.expect(201);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    client.post(MAPS, &map).await.expect(201);
    client
        .post("/api/v1/namespaces/nowhere/configmaps", &map)
        .await
        .expect(201);
    let pod = client.post(PODS, &pod("one", Value::Null)).await.expect(201);
    assert!(pod["spec"]["serviceAccountName"].is_null(), "{pod}");
    assert!(pod["spec"]["priority"].is_null(), "{pod}");
    client.get("/readyz").await.expect(200);

    // The namespace allows no such toleration, and the node has no room for the pod.
    let annotations = json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[{\"key\": \"b\"}]"});
    let strict = json!({"metadata": {"name": "strict", "annotations": annotations}});
    client.post("/api/v1/namespaces", &strict).await.expect(201);
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
    client.post("/api/v1/nodes", &node).await.expect(201);
    let sized = |cpu: &str| json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]);
    let tolerations = json!([{"key": "a", "operator": "Exists"}]);
    let running = json!({"metadata": {"name": "a"},
        "spec": {"nodeName": "n", "tolerations": tolerations, "containers": sized("1")}});
    let pods = "/api/v1/namespaces/strict/pods";
    client.post(pods, &running).await.expect(201);
    let larger = json!({"spec": {"containers": sized("3")}});
    let resize = format!("{pods}/a/resize");
    client
        .patch(&resize, "merge-patch+json", &larger)
        .await
        .expect(200);
}

#[tokio::test]
async fn privileged_containers_are_forbidden_by_flag() {
    let yes = json!({"privileged": true});
    let without = "--disable-admission-plugins=ServiceAccount";
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(dir.path(), 0, &["--allow-privileged=false", without]).await;
    let refused = client.post(PODS, &pod("one", yes.clone())).await.expect(422);
    assert_eq!(
        refused["message"],
        "Pod \"one\" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
    );
    client.post(PODS, &pod("two", Value::Null)).await.expect(201);
    let labels = json!({"app": "web"});
    let mut template = pod("", yes.clone());
    template["metadata"] = json!({"labels": labels});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": template["metadata"], "spec": template["spec"]}}});
    let refused = client
        .post("/apis/apps/v1/namespaces/default/deployments", &web)
        .await
        .expect(422);
    assert_eq!(
        refused["message"],
        "Deployment.apps \"web\" is invalid: spec.template.spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
    );

    let dir = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(dir.path(), 0, &[without]).await;
    client.post(PODS, &pod("one", yes)).await.expect(201);
}

#[tokio::test]
async fn the_status_page_is_turned_off_by_flag() {
    for (flags, status) in [(&[][..], 200), (&["--enable-ui=false"], 404)] {
        let dir = tempfile::tempdir().expect("a directory");
        let (_child, client) = start_on(dir.path(), 0, flags).await;
        for path in ["/ui/", "/debug/status"] {
            assert_eq!(client.get(path).await.status, status, "{path} {flags:?}");
        }
    }
}

#[tokio::test]
async fn transport_security_is_announced() {
    let dir = tempfile::tempdir().expect("a directory");
    let directives = "--strict-transport-security-directives=max-age=31536000,preload";
    let (_child, client) = start_on(dir.path(), 0, &[directives]).await;
    let answer = client.get("/version").await;
    let header = answer.headers.get("strict-transport-security");
    assert_eq!(
        header.and_then(|value| value.to_str().ok()),
        Some("max-age=31536000; preload")
    );
}

/// The user that the server takes a client for.
async fn whoami(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    client.post(path, &review).await.json["status"]["userInfo"]["username"].clone()
}

#[tokio::test]
async fn given_authorities_are_the_only_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let [clients, proxies] =
        ["clients", "proxies"].map(|name| Authority::generate(name).expect("an authority"));
    let [client_file, proxy_file] = ["clients.crt", "proxies.crt"].map(|name| dir.path().join(name));
    std::fs::write(&client_file, &clients.certificate).expect("a file");
    std::fs::write(&proxy_file, &proxies.certificate).expect("a file");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::write(data.join("admin.kubeconfig"), "of an earlier start").expect("a file");
    let flags = [
        "--client-ca-file",
        client_file.to_str().expect("a path"),
        "--requestheader-client-ca-file",
        proxy_file.to_str().expect("a path"),
        "--requestheader-allowed-names=gate",
        "--requestheader-username-headers=X-Remote-User,X-My-User",
    ];
    let (mut child, server, mut output) = launch(&data, 0, &flags).await;
    let ca = authority_of(&data);
    let own = Pki::open(&data.join("pki"), &ServingNames::default()).expect("the server's keys");
    let own_admin = Client::from_kubeconfig(kubeconfig(&server, &ca, &own.admin).as_bytes());
    let of = |by: &Authority, name: &str, group: &str| {
        let issued = by.client(name, group).expect("a certificate");
        Client::from_kubeconfig(kubeconfig(&server, &ca, &issued).as_bytes())
    };
    own_admin.get(MAPS).await.expect(401);
    of(&clients, "visitor", "system:masters")
        .get(MAPS)
        .await
        .expect(200);
    assert!(!data.join("admin.kubeconfig").exists(), "it would lead nowhere");

    let alice = of(&proxies, "gate", "").header("X-My-User", "alice");
    assert_eq!(whoami(&alice).await, "alice");
    let other = of(&proxies, "another", "").header("X-Remote-User", "alice");
    assert_eq!(other.get(MAPS).await.status, 401);
    let own = kubeconfig(&server, &ca, &own.front_proxy_client);
    let own = Client::from_kubeconfig(own.as_bytes()).header("X-Remote-User", "alice");
    assert_eq!(own.get(MAPS).await.status, 401);

    let facts = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let facts = of(&clients, "visitor", "system:masters")
        .get(facts)
        .await
        .expect(200);
    assert_eq!(facts["data"]["client-ca-file"], clients.certificate);
    assert_eq!(facts["data"]["requestheader-client-ca-file"], proxies.certificate);
    assert_eq!(facts["data"]["requestheader-allowed-names"], "[\"gate\"]");

    child.kill().await.expect("killed");
    while let Some(line) = output.next_line().await.expect("a line") {
        assert!(!line.contains("kubeconfig"), "{line}");
    }
}

#[tokio::test]
async fn the_first_issuer_issues_and_all_are_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = "--service-account-issuer=https://old.example.com";
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (mut child, client) = start_on(dir.path(), 0, &[old]).await;
    client.post(accounts, &account).await.expect(201);
    let issued = client
        .post(&format!("{accounts}/worker/token"), &request)
        .await
        .expect(201);
    let token = issued["status"]["token"].as_str().expect("a token").to_string();
    child.kill().await.expect("killed");

    let new = "--service-account-issuer=https://new.example.com";
    let (_child, client) = start_on(dir.path(), 0, &[new, old]).await;
    let holder = client.anonymous(&authority_of(dir.path()));
    let holder = holder.header("authorization", &format!("Bearer {token}"));
    assert_eq!(whoami(&holder).await, "system:serviceaccount:default:worker");
    let discovery = client.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(discovery["issuer"], "https://new.example.com");
}

#[tokio::test]
async fn a_role_for_all_paths_is_not_one_for_backups() {
    let (plane, client) = test_support::plane().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client.post(accounts, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = client
        .post(&format!("{accounts}/reader/token"), &request)
        .await
        .expect(201);
    let token = issued["status"]["token"].as_str().expect("a token");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "paths"},
        "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]});
    client
        .post(&format!("{rbac}/clusterroles"), &role)
        .await
        .expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "paths"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "paths"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
    client
        .post(&format!("{rbac}/clusterrolebindings"), &binding)
        .await
        .expect(201);
    let reader = client
        .anonymous(plane.ca_certificate())
        .header("authorization", &format!("Bearer {token}"));
    test_support::eventually("the role is in force", || async {
        (reader.get("/metrics").await.status == 200).then_some(())
    })
    .await;
    let refused = reader.get("/backup").await.expect(403);
    assert_eq!(
        refused["message"],
        "forbidden: User \"system:serviceaccount:default:reader\" cannot get path \"/backup\": only members of system:masters can"
    );
    assert_eq!(client.get("/backup").await.status, 200);
    plane.stop().await;
}

#[tokio::test]
async fn what_brings_a_webhook_back_goes_past_it_by_flag() {
    for (flags, status) in [(&[][..], 500), (&["--webhook-break-glass"], 201)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut all = vec!["--disable-admission-plugins=ServiceAccount"];
        all.extend(flags);
        let (_child, client) = start_on(dir.path(), 0, &all).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
            "spec": {"clusterIP": "None", "selector": {"app": "hook"}, "ports": [{"port": 443}]}});
        client
            .post("/api/v1/namespaces/default/services", &service)
            .await
            .expect(201);
        let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "lock"}, "webhooks": [{"name": "hook.example.com", "rules": rules, "sideEffects": "None",
                "clientConfig": {"service": {"namespace": "default", "name": "hook"}}, "admissionReviewVersions": ["v1"]}]});
        client
            .post(
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                &hooks,
            )
            .await
            .expect(201);
        let own = |name: &str, app: &str| {
            let mut pod = pod(name, json!({}));
            pod["metadata"]["labels"] = json!({"app": app});
            pod
        };
        test_support::eventually("the webhook counts", || async {
            let other = client
                .post(&format!("{PODS}?dryRun=All"), &own("other", "other"))
                .await;
            (other.status == 500).then_some(())
        })
        .await;
        assert_eq!(
            client.post(PODS, &own("own", "hook")).await.status,
            status,
            "{flags:?}"
        );
    }
}

#[tokio::test]
async fn the_verbosity_is_changed_at_run_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_child, client) = start_on(dir.path(), 0, &["-v", "0"]).await;
    let put = async |level: &str| {
        let answer = client
            .raw("PUT", "/debug/flags/v", "text/plain", level.to_owned())
            .await;
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let said = |code: u16, text: &str| (code, format!("{text}\n"));
    assert_eq!(
        put("3").await,
        said(200, "successfully set klog.logging.verbosity to 3")
    );
    assert_eq!(
        put("x").await,
        said(400, "strconv.ParseUint: parsing \"x\": invalid syntax")
    );
    client.get("/debug/flags/v").await.expect(406);
    assert_eq!(
        put("0").await,
        said(200, "successfully set klog.logging.verbosity to 0")
    );
}

#[tokio::test]
async fn flags_are_shown_and_debugging_is_turned_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = async |client: &Client, path: &str| {
        let answer = client.get(path).await;
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    {
        let (_child, client) = start_on(dir.path(), 0, &["--request-timeout=90s"]).await;
        let (code, flags) = text(&client, "/flagz").await;
        assert_eq!(code, 200);
        assert!(flags.starts_with("\napiserver flagz\nWarning: "), "{flags}");
        let kubeconfig = std::fs::read(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
        let media = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz";
        let asks = Client::from_kubeconfig(&kubeconfig).header("accept", media);
        let object = asks.get("/flagz").await;
        assert_eq!(object.headers["content-type"], media);
        let object = object.expect(200);
        assert_eq!(object["flags"]["request-timeout"], "1m30s");
        assert_eq!(object["flags"]["profiling"], "true");
        let (code, index) = text(&client, "/debug/pprof/").await;
        assert!(code == 200 && index.contains("/debug/pprof/"), "{index}");
        let (code, why) = text(&client, "/debug/pprof/heap").await;
        assert!(
            code == 501 && why.contains("the allocator keeps no profile"),
            "{why}"
        );
        assert_eq!(
            text(&client, "/debug/pprof/cmdline").await,
            (404, "Unknown profile\n".into())
        );
        assert_eq!(
            client.get("/debug/pprof").await.headers["location"],
            "/debug/pprof/"
        );
        let (code, index) = text(&client, "/debug/flags").await;
        assert!(code == 200 && index.contains("<tr>v<br>"), "{index}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let off = ["--profiling=false", "--feature-gates=ComponentFlagz=false"];
    let (_child, client) = start_on(dir.path(), 0, &off).await;
    for path in [
        "/flagz",
        "/debug/pprof/",
        "/debug/pprof/profile",
        "/debug/flags",
        "/debug/flags/v",
    ] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn metrics_are_chosen_by_flags() {
    let dir = tempfile::tempdir().expect("a directory");
    let allowed = dir.path().join("allowed.yaml");
    std::fs::write(&allowed, "apiserver_request_total,verb: GET\n").expect("a file");
    let manifest = format!("--allow-metric-labels-manifest={}", allowed.display());
    let flags = [
        "--show-hidden-metrics-for-version=1.35",
        "--disabled-metrics=apiserver_request_duration_seconds,process_open_fds",
        &manifest,
    ];
    let metrics = async |flags: &[&str]| {
        let dir = tempfile::tempdir().expect("a directory");
        let (_child, client) = start_on(dir.path(), 0, flags).await;
        client.get("/api/v1/namespaces").await.expect(200);
        client.get("/version").await.expect(200);
        String::from_utf8_lossy(&client.get("/metrics").await.body).into_owned()
    };
    let chosen = metrics(&flags).await;
    let has = |text: &str| chosen.contains(text);
    assert!(has("apiserver_request_slo_duration_seconds_bucket{"), "{chosen}");
    assert!(
        !has("apiserver_request_duration_seconds") && !has("process_open_fds"),
        "{chosen}"
    );
    assert!(
        has("verb=\"unexpected\"") && !has("apiserver_request_total{verb=\"LIST\""),
        "{chosen}"
    );
    let flag = "--allow-metric-labels=\"apiserver_request_total,verb=LIST\",\"apiserver_request_total,scope=cluster\"";
    let restricted = metrics(&[flag]).await;
    assert!(
        restricted.contains("apiserver_request_total{verb=\"LIST\""),
        "{restricted}"
    );
    assert!(restricted.contains("scope=\"unexpected\""), "{restricted}");
    assert!(
        !restricted.contains("apiserver_request_total{verb=\"GET\""),
        "{restricted}"
    );
}
