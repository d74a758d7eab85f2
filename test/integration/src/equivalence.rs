//! `matchPolicy`: webhooks and policies that name one version of what is requested in another, and quotas that an update moves an object
//! into.

use base64::Engine;
use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, eventually, plane};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const SCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn rules(group: &str, version: &str, resources: &[&str]) -> Value {
    json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": [version], "resources": resources}])
}

fn reply(question: &Value, patch: Option<Value>) -> Reply {
    let mut response = json!({"allowed": true, "uid": question["request"]["uid"]});
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        let patch = base64::prelude::BASE64_STANDARD.encode(patch.to_string());
        response["patch"] = patch.into();
    }
    Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

async fn configure(client: &Client, kind: &str, webhook: &Webhook, rules: Value, policy: &str) {
    let hook = json!({"name": "a.example.com", "clientConfig": {"url": webhook.url(), "caBundle": webhook.ca_bundle()},
        "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"], "matchPolicy": policy});
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": format!("{kind}-{policy}").to_lowercase()}, "webhooks": [hook]});
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    client.post(&path, &body).await.expect(201);
}

fn scaler(name: &str, percent: u32) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": percent,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}})
}

#[tokio::test]
async fn webhooks_see_the_version_that_they_name() {
    let (_plane, client) = plane().await;
    let mutating = Webhook::start(|question| {
        let patch = json!([{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 42}]);
        reply(question, Some(patch))
    })
    .await;
    let validating = Webhook::start(|question| reply(question, None)).await;
    let exact = Webhook::start(|question| reply(question, None)).await;
    let v2 = || {
        rules(
            "autoscaling",
            "v2",
            &["horizontalpodautoscalers", "horizontalpodautoscalers/status"],
        )
    };
    configure(&client, "Mutating", &mutating, v2(), "Equivalent").await;
    configure(&client, "Validating", &validating, v2(), "Equivalent").await;
    configure(&client, "Validating", &exact, v2(), "Exact").await;
    eventually("both are asked", || async {
        let probe = client
            .post(&format!("{SCALERS}?dryRun=All"), &scaler("probe", 10))
            .await
            .expect(201);
        let changed = probe["spec"]["targetCPUUtilizationPercentage"] == 42;
        (changed && !validating.questions().is_empty()).then_some(())
    })
    .await;

    let made = client.post(SCALERS, &scaler("a", 10)).await.expect(201);
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 42);
    let asked = validating.questions().pop().expect("a question");
    let request = &asked["request"];
    assert_eq!(
        (&request["kind"]["version"], &request["resource"]["version"]),
        (&json!("v2"), &json!("v2"))
    );
    assert_eq!(
        (
            &request["requestKind"]["version"],
            &request["requestResource"]["version"]
        ),
        (&json!("v1"), &json!("v1"))
    );
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    let target = &request["object"]["spec"]["metrics"][0]["resource"]["target"];
    assert_eq!(target["averageUtilization"], 42);

    // What is there is converted, too; so are the objects of subresources.
    let status =
        json!({"status": {"currentReplicas": 1, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 7}});
    let path = format!("{SCALERS}/a/status");
    client.patch(&path, "merge-patch+json", &status).await.expect(200);
    let request = validating.questions().pop().expect("a question")["request"].clone();
    assert_eq!(
        (&request["subResource"], &request["requestSubResource"]),
        (&json!("status"), &json!("status"))
    );
    for object in ["object", "oldObject"] {
        assert_eq!(request[object]["apiVersion"], "autoscaling/v2", "{object}");
    }
    assert!(exact.questions().is_empty());

    let metrics = client.raw("GET", "/metrics", "text/plain", "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).to_string();
    for line in [
        "apiserver_admission_webhook_request_total{name=\"a.example.com\",code=\"200\",operation=\"UPDATE\",rejected=\"false\",type=\"validating\"} 1",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"a.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"}",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"ValidatingAdmissionWebhook\",operation=\"UPDATE\",rejected=\"false\",type=\"validate\"}",
        "apiserver_admission_step_admission_duration_seconds_count{operation=\"UPDATE\",rejected=\"false\",type=\"admit\"}",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn policies_see_the_version_that_they_name() {
    let (_plane, client) = plane().await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", true), version("v2", false)]}});
    client.post(CRDS, &crd).await.expect(201);
    let checked = json!([{"expression": "request.resource.version == 'v1' && request.requestResource.version == 'v2' && object.apiVersion == 'example.com/v1' \
        && (oldObject == null || oldObject.apiVersion == 'example.com/v1') && object.spec.seen == 'v1'",
        "messageExpression": "'seen as ' + object.apiVersion + ' ' + request.requestResource.version"}]);
    let change = json!([{"patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/seen', value: request.resource.version}]"}}]);
    for (kind, field, body) in [
        ("Validating", "validations", checked),
        ("Mutating", "mutations", change),
    ] {
        let constraints = json!({"matchPolicy": "Equivalent", "resourceRules": rules("example.com", "v1", &["foos", "foos/status"])});
        let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}AdmissionPolicy"),
            "metadata": {"name": "p"}, "spec": {"matchConstraints": constraints}});
        policy["spec"][field] = body;
        let mut binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}AdmissionPolicyBinding"),
            "metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        match kind {
            "Validating" => binding["spec"]["validationActions"] = json!(["Deny"]),
            _ => policy["spec"]["reinvocationPolicy"] = "Never".into(),
        }
        let path = format!("{GROUP}/{}admissionpolic", kind.to_lowercase());
        client.post(&format!("{path}ies"), &policy).await.expect(201);
        client
            .post(&format!("{path}ybindings"), &binding)
            .await
            .expect(201);
    }
    let foo = |version: &str| json!({"apiVersion": format!("example.com/{version}"), "kind": "Foo", "metadata": {"name": "a"}, "spec": {"x": 1}});
    let path = |version: &str| format!("/apis/example.com/{version}/namespaces/default/foos");
    eventually("the policies take effect", || async {
        let probe = client
            .post(&format!("{}?dryRun=All", path("v1")), &foo("v1"))
            .await;
        let message = probe.json["message"].as_str().unwrap_or_default();
        message.contains("seen as example.com/v1 v1").then_some(())
    })
    .await;
    let made = client.post(&path("v2"), &foo("v2")).await.expect(201);
    assert_eq!(made["apiVersion"], "example.com/v2");
    assert_eq!(made["spec"], json!({"x": 1, "seen": "v1"}));
    let status = json!({"status": {"y": 2}});
    let at = format!("{}/a/status", path("v2"));
    client.patch(&at, "merge-patch+json", &status).await.expect(200);
}

#[tokio::test]
async fn a_pod_that_gets_a_deadline_is_charged() {
    let (_plane, client) = plane().await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client.post(accounts, &account).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let selector = json!({"matchExpressions": [{"scopeName": "Terminating", "operator": "Exists"}]});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1"}, "scopeSelector": selector}});
    client.post(quotas, &quota).await.expect(201);
    let status = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}});
    client
        .patch(&format!("{quotas}/q/status"), "merge-patch+json", &status)
        .await
        .expect(200);
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["a", "b"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        client.post(pods, &pod).await.expect(201);
    }
    let deadline = json!({"spec": {"activeDeadlineSeconds": 60}});
    let end = async |name: &str| {
        let path = format!("{pods}/{name}");
        client.patch(&path, "merge-patch+json", &deadline).await
    };
    end("a").await.expect(200);
    let refused = end("b").await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    );
    let quota = client.get(&format!("{quotas}/q")).await.expect(200);
    assert_eq!(quota["status"]["used"], json!({"pods": "1"}));
}
