//! The configuration of admission plugins by a file.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Client, HttpsServer, Reply, Webhook, eventually, json_answer};
use tokio::process::Child;
use tokio::sync::Mutex;

use super::start_on;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with these plugins on, besides the default ones, and a file with their configurations.
async fn server(enable: &[&str], configs: &[(&str, Value)]) -> (TempDir, Child, Client) {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("admission.yaml");
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n".to_string();
    for (name, config) in configs {
        // The first of them in a file beside.
        let entry = match text.ends_with("plugins:\n") {
            true => {
                let beside = folder.path().join("beside.json");
                std::fs::write(beside, config.to_string()).expect("it is written");
                "path: beside.json".to_string()
            }
            false => format!("configuration: {config}"),
        };
        writeln!(text, "- name: {name}\n  {entry}").expect("it is written");
    }
    std::fs::write(&file, text).expect("it is written");
    let named = ["--admission-control-config-file", file.to_str().expect("a path")];
    let mut flags = vec!["--disable-admission-plugins=ServiceAccount"];
    flags.extend(named);
    let enable = format!("--enable-admission-plugins={}", enable.join(","));
    if !enable.ends_with('=') {
        flags.push(&enable);
    }
    let (child, client) = start_on(folder.path(), 0, &flags).await;
    (folder, child, client)
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

async fn namespace(client: &Client, name: &str, metadata: Value) -> String {
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    object["metadata"]["name"] = name.into();
    client.post("/api/v1/namespaces", &object).await.expect(201);
    format!("/api/v1/namespaces/{name}/pods")
}

#[tokio::test]
async fn pod_security_has_defaults_and_exemptions() {
    let config = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline"}, "exemptions": {"namespaces": ["exempt"], "runtimeClasses": ["sandboxed"]}});
    let (_folder, _child, client) = server(&[], &[("PodSecurity", config)]).await;
    let host = pod("a", json!({"hostNetwork": true}));
    let refused = client.post(PODS, &host).await.expect(403);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("violates PodSecurity \"baseline:latest\": host namespaces"),
        "{message}"
    );
    client.post(PODS, &pod("b", json!({}))).await.expect(201);

    // A class that is exempt.
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandboxed"}, "handler": "h"});
    client
        .post("/apis/node.k8s.io/v1/runtimeclasses", &class)
        .await
        .expect(201);
    let sandboxed = pod("c", json!({"hostNetwork": true, "runtimeClassName": "sandboxed"}));
    client.post(PODS, &sandboxed).await.expect(201);

    // A namespace that is exempt, whose labels are warned of.
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let exempt =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exempt", "labels": labels}});
    let created = client.post("/api/v1/namespaces", &exempt).await;
    assert_eq!(created.status, 201);
    assert_eq!(
        created.headers["warning"],
        "299 - \"namespace \\\"exempt\\\" is exempt from Pod Security, and the policy (enforce=restricted:latest) \
         will be ignored\""
    );
    client
        .post("/api/v1/namespaces/exempt/pods", &host)
        .await
        .expect(201);
}

#[tokio::test]
async fn events_are_limited() {
    let limit = |kind: &str, burst: i32| json!({"type": kind, "qps": 1, "burst": burst});
    // A burst that is not reached, and another whose bucket does not fill up again while the test runs.
    let config = json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration",
        "limits": [limit("Server", 1_000_000), limit("Namespace", 1)]});
    let (_folder, _child, client) = server(&["EventRateLimit"], &[("EventRateLimit", config)]).await;
    namespace(&client, "other", json!({})).await;
    let event = |namespace: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": "Pod", "name": "a", "namespace": namespace}})
    };
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/events");
    // Dry runs are not counted.
    for _ in 0..3 {
        let dry = format!("{}?dryRun=All", path("default"));
        client.post(&dry, &event("default", "a")).await.expect(201);
    }
    let mut refused = None;
    for index in 0..1_000 {
        let answer = client
            .post(&path("default"), &event("default", &format!("e{index}")))
            .await;
        if answer.status != 201 {
            refused = Some(answer.expect(429));
            break;
        }
    }
    let refused = refused.expect("the bucket is empty at last");
    assert_eq!(
        (refused["reason"].as_str(), refused["message"].as_str()),
        (
            Some("TooManyRequests"),
            Some("Too many requests: limit reached on type Namespace for key default")
        )
    );
    client
        .post(&path("other"), &event("other", "a"))
        .await
        .expect(201);
}

#[tokio::test]
async fn tolerations_and_node_selectors_of_namespaces() {
    let tolerations = json!({"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration",
        "default": [{"key": "a", "operator": "Exists"}],
        "whitelist": [{"key": "a", "operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]});
    let selectors = json!({"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "disk=ssd", "narrow": "zone=a"}});
    let (_folder, _child, client) = server(
        &["PodNodeSelector", "PodTolerationRestriction"],
        &[
            ("PodTolerationRestriction", tolerations),
            ("PodNodeSelector", selectors),
        ],
    )
    .await;
    let keys = |pod: &Value| -> Vec<String> {
        let all = pod["spec"]["tolerations"].as_array().expect("tolerations");
        all.iter()
            .map(|one| one["key"].as_str().expect("a key").to_string())
            .collect()
    };
    let created = client.post(PODS, &pod("a", json!({}))).await.expect(201);
    assert_eq!(created["spec"]["nodeSelector"], json!({"disk": "ssd"}));
    assert_eq!(
        keys(&created),
        [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "a"
        ]
    );
    let other = pod("b", json!({"tolerations": [{"key": "b", "operator": "Exists"}]}));
    let refused = client.post(PODS, &other).await.expect(500);
    assert_eq!(
        refused["message"],
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
    );

    // Annotations of the namespace come before the configuration.
    let annotations = json!({"scheduler.alpha.kubernetes.io/defaultTolerations": "",
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[{\"operator\": \"Exists\", \"key\": \"b\"}]",
        "scheduler.alpha.kubernetes.io/node-selector": ""});
    let own = namespace(&client, "own", json!({"annotations": annotations})).await;
    let refused = client.post(&own, &pod("a", json!({}))).await.expect(500);
    assert_eq!(
        refused["message"],
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"
    );
    let annotations =
        json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[{\"operator\": \"Exists\"}]"});
    let open = namespace(&client, "open", json!({"annotations": annotations})).await;
    let sized = json!({"tolerations": [{"key": "b", "operator": "Exists"}],
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
    let created = client.post(&open, &pod("a", sized)).await.expect(201);
    assert!(
        keys(&created).contains(&"node.kubernetes.io/memory-pressure".to_string()),
        "{created}"
    );

    // Other labels than those of the namespace's list.
    let narrow = namespace(&client, "narrow", json!({})).await;
    let refused = client.post(&narrow, &pod("a", json!({}))).await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"a\" is forbidden: pod node label selector labels conflict with its namespace whitelist"
    );
}

#[tokio::test]
async fn pods_are_resized_within_their_node() {
    let (_folder, _child, client) = server(&[], &[]).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
    client.post("/api/v1/nodes", &node).await.expect(201);
    let sized = |cpu: &str| json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]);
    let running = pod("a", json!({"nodeName": "n", "containers": sized("1")}));
    client.post(PODS, &running).await.expect(201);
    let resize = async |cpu: &str| {
        client
            .patch(
                &format!("{PODS}/a/resize"),
                "merge-patch+json",
                &json!({"spec": {"containers": sized(cpu)}}),
            )
            .await
    };
    resize("2").await.expect(200);
    let refused = resize("3").await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"a\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"
    );
    assert_eq!(refused["details"]["causes"], json!([{"reason": "NodeCapacity"}]));
}

#[tokio::test]
async fn images_are_reviewed_outside() {
    let reviewer = Webhook::start(|question| {
        let images = question["spec"]["containers"].to_string();
        let status = match images.contains("bad") {
            true => json!({"allowed": false, "reason": "bad image"}),
            false => json!({"allowed": true, "auditAnnotations": {"reviewed": "yes"}}),
        };
        Reply::Json(
            json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status}),
        )
    })
    .await;
    let folder = tempfile::tempdir().expect("a directory");
    let kubeconfig = folder.path().join("images.kubeconfig");
    std::fs::write(&kubeconfig, reviewer.kubeconfig()).expect("it is written");
    let policy = |open: bool| json!({"imagePolicy": {"kubeConfigFile": kubeconfig, "allowTTL": 60, "denyTTL": 60, "retryBackoff": 1, "defaultAllow": open}});
    let (_folder, _child, client) =
        server(&["ImagePolicyWebhook"], &[("ImagePolicyWebhook", policy(false))]).await;
    let annotated = |name: &str, image: &str| {
        let mut pod = pod(name, json!({"containers": [{"name": "c", "image": image}]}));
        pod["metadata"]["annotations"] = json!({"a.image-policy.k8s.io/why": "because", "other": "x"});
        pod
    };
    client.post(PODS, &annotated("a", "good")).await.expect(201);
    let questions = reviewer.questions();
    assert_eq!(
        questions.last().map(|question| &question["spec"]),
        Some(
            &json!({"containers": [{"image": "good"}], "annotations": {"a.image-policy.k8s.io/why": "because"}, "namespace": "default"})
        )
    );
    // The answer is remembered.
    client.post(PODS, &annotated("b", "good")).await.expect(201);
    assert_eq!(reviewer.questions().len(), 1);
    let refused = client.post(PODS, &annotated("c", "bad")).await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"c\" is forbidden: image policy webhook backend denied one or more images: bad image"
    );
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "bad"}]}});
    let refused = client
        .patch(
            &format!("{PODS}/a/ephemeralcontainers"),
            "strategic-merge-patch+json",
            &ephemeral,
        )
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        "pods \"a\" is forbidden: image policy webhook backend denied one or more images: bad image"
    );

    // Without the reviewer only what is remembered passes, unless the policy fails open.
    drop(reviewer);
    client.post(PODS, &annotated("d", "good")).await.expect(201);
    let refused = client.post(PODS, &annotated("e", "new")).await.expect(403);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.starts_with("pods \"e\" is forbidden: Post \"https://localhost:")
            && message.contains("/?timeout=30s\": "),
        "{message}"
    );
    let (_folder, _child, client) =
        server(&["ImagePolicyWebhook"], &[("ImagePolicyWebhook", policy(true))]).await;
    client.post(PODS, &annotated("e", "new")).await.expect(201);
}

#[tokio::test]
async fn webhooks_are_asked_as_the_user_that_is_named_after_them() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = seen.clone();
    let hook = HttpsServer::start(move |_| {
        move |request: http::Request<hyper::body::Incoming>| {
            let header = request.headers().get("authorization").cloned();
            let shown = header.map(|header| header.to_str().expect("a text").to_string());
            let kept = kept.clone();
            async move {
                kept.lock().await.push(shown.unwrap_or_default());
                let body = http_body_util::BodyExt::collect(request.into_body()).await;
                let body = body.expect("a body").to_bytes();
                let question: Value = serde_json::from_slice(&body).expect("a review");
                let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": question["request"]["uid"], "allowed": true}});
                json_answer(200, review.to_string())
            }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("a directory");
    let kubeconfig = folder.path().join("hooks.kubeconfig");
    let users = json!({"users": [
        {"name": format!("localhost:{}", hook.port()), "user": {"token": "secret"}},
        {"name": "*", "user": {"username": "u", "password": "p"}}]});
    std::fs::write(&kubeconfig, users.to_string()).expect("it is written");
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": kubeconfig});
    let (_folder, _child, client) = server(&[], &[("ValidatingAdmissionWebhook", config)]).await;
    let bundle = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, hook.ca());
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    for kind in ["Validating", "Mutating"] {
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": "test"}, "webhooks": [{"name": "a.example.com", "rules": rules, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "clientConfig": {"url": format!("{}/", hook.url()), "caBundle": bundle}}]});
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        client.post(&path, &body).await.expect(201);
    }
    eventually("both are asked", || async {
        seen.lock().await.clear();
        client
            .post(&format!("{PODS}?dryRun=All"), &pod("a", json!({})))
            .await
            .expect(201);
        let mut seen = seen.lock().await.clone();
        seen.sort();
        // The file is that of one of the two plugins.
        (seen == ["", "Bearer secret"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn limited_resources_need_a_quota() {
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchContains": ["pods"]}]});
    let (_folder, _child, client) = server(&[], &[("ResourceQuota", config)]).await;
    let refused = client.post(PODS, &pod("a", json!({}))).await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"a\" is forbidden: insufficient quota to consume: count/pods,pods"
    );
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"pods": "5", "count/pods": "5"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    client.post(quotas, &quota).await.expect(201);
    let status = json!({"status": {"hard": hard, "used": {"pods": "0", "count/pods": "0"}}});
    client
        .patch(&format!("{quotas}/q/status"), "merge-patch+json", &status)
        .await
        .expect(200);
    // Of many that come at once, as many as the quota allows.
    let names: Vec<String> = (0..20).map(|index| format!("p{index}")).collect();
    let (client, mut created) = (&client, 0);
    let posted = names
        .iter()
        .map(|name| async move { client.post(PODS, &pod(name, json!({}))).await });
    for answer in futures_util::future::join_all(posted).await {
        match answer.status {
            201 => created += 1,
            _ => {
                let refused = answer.expect(403);
                let message = refused["message"].as_str().expect("a message");
                assert!(
                    message.contains("exceeded quota: q, requested: count/pods=1,pods=1"),
                    "{message}"
                );
            }
        }
    }
    assert_eq!(created, 5);
    let quota = client.get(&format!("{quotas}/q")).await.expect(200);
    assert_eq!(quota["status"]["used"], json!({"pods": "5", "count/pods": "5"}));
}
