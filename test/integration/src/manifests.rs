//! Webhooks and policies from files.

use std::path::Path;

use serde_json::{Value, json};
use test_support::{Client, Webhook, eventually, plane_with};

use super::admission::reply;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VERSION: &str = "admissionregistration.k8s.io/v1";

fn rule(group: &str, resources: &[&str]) -> Value {
    json!({"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [group], "apiVersions": ["*"], "resources": resources})
}

fn policy(name: &str, rules: &[Value], expression: &str) -> [Value; 2] {
    let policy = json!({"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]}});
    let binding = json!({"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]}});
    [policy, binding]
}

fn write(directory: &Path, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    std::fs::write(directory.join("manifests.yaml"), text.join("\n---\n")).expect("it is written");
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn refusal(client: &Client, path: &str, object: &Value) -> String {
    let refused = client.post(path, object).await;
    let text = refused.json["message"].as_str().unwrap_or_default();
    format!("{} {text}", refused.status)
}

#[tokio::test]
async fn they_count_from_the_start_and_for_admission_itself() {
    let folder = tempfile::tempdir().expect("a directory");
    let [policies, hooks] = ["policies", "hooks"].map(|name| {
        let directory = folder.path().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        directory
    });
    // Nobody removes policies, or makes any that are called evil; nobody makes a map that is called bad.
    let guard = [
        rule("admissionregistration.k8s.io", &["*"]),
        rule("", &["configmaps"]),
    ];
    let name = "guard.static.k8s.io";
    let expression = "request.operation == 'DELETE' ? request.resource.resource != 'validatingadmissionpolicies' : !object.metadata.name.startsWith('bad')";
    write(&policies, &policy(name, &guard, expression));
    let webhook = Webhook::start(|question| {
        let evil = question["request"]["name"] == "evil";
        reply(question, json!({"allowed": !evil, "status": {"message": "evil"}}))
    })
    .await;
    let configuration = json!({"apiVersion": VERSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hooks.static.k8s.io"},
        "webhooks": [{"name": "hook.example.com", "clientConfig": {"url": webhook.url(), "caBundle": webhook.ca_bundle()},
            "rules": [rule("admissionregistration.k8s.io", &["validatingwebhookconfigurations"])], "sideEffects": "None",
            "admissionReviewVersions": ["v1"]}]});
    write(&hooks, &[configuration]);
    let file = folder.path().join("admission.yaml");
    let plugin = |name: &str, kind: &str, directory: &Path| json!({"name": name, "configuration": {"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": directory}});
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
        plugin("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration", &policies),
        plugin("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", &hooks)]});
    std::fs::write(&file, config.to_string()).expect("it is written");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.admission_control_config_file = Some(file.clone());
            options.feature_gates = vec!["ManifestBasedAdmissionControlConfig=true".into()];
        })
    })
    .await;

    let denied = "denied request: failed expression";
    let refused = refusal(&client, MAPS, &map("bad")).await;
    assert!(
        refused.starts_with(
            "422 configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'guard.static.k8s.io'"
        ) && refused.contains(denied),
        "{refused}"
    );
    client.post(MAPS, &map("good")).await.expect(201);
    // A policy of the API is kept from being removed.
    let [own, _] = policy("own", &[rule("", &["pods"])], "true");
    let at = format!("{GROUP}/validatingadmissionpolicies");
    client.post(&at, &own).await.expect(201);
    let kept = client.delete(&format!("{at}/own")).await.expect(422);
    assert!(
        kept["message"].as_str().expect("a message").contains(denied),
        "{kept}"
    );
    let [bad, _] = policy("bad", &[rule("", &["pods"])], "true");
    assert!(refusal(&client, &at, &bad).await.contains(denied));
    // A webhook of a file is asked about webhooks.
    let evil = json!({"apiVersion": VERSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "evil"}});
    let at_hooks = format!("{GROUP}/validatingwebhookconfigurations");
    assert_eq!(
        refusal(&client, &at_hooks, &evil).await,
        "400 admission webhook \"hook.example.com\" denied the request: evil"
    );
    // The names of files are not for the API, where nothing of them is seen.
    let [reserved, _] = policy("x.static.k8s.io", &[rule("", &["pods"])], "true");
    assert_eq!(
        refusal(&client, &at, &reserved).await,
        "422 ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x.static.k8s.io\" is invalid: metadata.name: Invalid value: \
         \"x.static.k8s.io\": names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be \
         managed via the API"
    );
    client.get(&format!("{at}/{name}")).await.expect(404);

    // A bad change leaves the policy in use, a good one replaces it.
    write(&policies, &[json!({"kind": "Odd"})]);
    assert_eq!(plane.reload().await, [""; 0]);
    assert!(refusal(&client, MAPS, &map("bad")).await.contains(denied));
    write(
        &policies,
        &policy(
            name,
            &[rule("", &["configmaps"])],
            "!object.metadata.name.startsWith('worse')",
        ),
    );
    assert_eq!(plane.reload().await, ["manifests of admission"]);
    client.post(MAPS, &map("bad")).await.expect(201);
    assert!(refusal(&client, MAPS, &map("worse")).await.contains(denied));
    client.delete(&format!("{at}/own")).await.expect(200);
    let metrics = client.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body);
    for status in ["success", "failure"] {
        let labels = format!("plugin=\"ValidatingAdmissionPolicy\",status=\"{status}\"}}");
        assert!(metrics.contains(&labels), "{labels}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn their_names_are_warned_of_without_them() {
    let (plane, client) = plane_with(|builder| builder).await;
    let [reserved, _] = policy("x.static.k8s.io", &[rule("", &["pods"])], "true");
    let created = client
        .post(&format!("{GROUP}/validatingadmissionpolicies"), &reserved)
        .await;
    assert_eq!(created.status, 201);
    assert_eq!(
        created.headers["warning"],
        "299 - \"metadata.name: names ending with \\\".static.k8s.io\\\" are reserved for static manifest-based configurations and cannot be \
         managed via the API\""
    );
    plane.stop().await;
}

#[tokio::test]
async fn policies_do_not_see_reviews_and_see_webhooks() {
    let (plane, client) = plane_with(|builder| builder).await;
    let [everything, binding] = policy("everything", &[rule("*", &["*"])], "false");
    for (resource, object) in [
        ("validatingadmissionpolicies", &everything),
        ("validatingadmissionpolicybindings", &binding),
    ] {
        client
            .post(&format!("{GROUP}/{resource}"), object)
            .await
            .expect(201);
    }
    eventually("the policy counts", || async {
        (client.post(MAPS, &map("any")).await.status == 422).then_some(())
    })
    .await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    client
        .post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
        .await
        .expect(201);
    let hooks = json!({"apiVersion": VERSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hooks"}});
    client
        .post(&format!("{GROUP}/validatingwebhookconfigurations"), &hooks)
        .await
        .expect(422);
    client
        .delete(&format!("{GROUP}/validatingadmissionpolicybindings/everything"))
        .await
        .expect(200);
    plane.stop().await;
}
