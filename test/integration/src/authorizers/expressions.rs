//! The variable `authorizer` of policies and match conditions, where a webhook decides.

use control_plane::{AuthorizationFlags, AuthorizationMode, SubjectAccessReviewVersion};
use serde_json::{Value, json};
use test_support::{Webhook, eventually};

use super::{server, webhook, write};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A check of the verb that the name of the object begins with.
const CHECK: &str = "authorizer.group('example.com').resource('gates').namespace('default').check(object.metadata.name.split('-')[0])";

#[tokio::test]
async fn expressions_ask_a_webhook_of_authorization() {
    let folder = tempfile::tempdir().expect("a directory");
    let authorizer = webhook(|review| {
        let attributes = &review["spec"]["resourceAttributes"];
        match (attributes["resource"].as_str(), attributes["verb"].as_str()) {
            (Some("configmaps"), _) => Some(json!({"allowed": true})),
            (Some("gates"), Some("pass" | "skip")) => Some(json!({"allowed": true, "reason": "open"})),
            (Some("gates"), Some("break")) => None,
            _ => Some(json!({"denied": true, "reason": "shut"})),
        }
    })
    .await;
    let flags = AuthorizationFlags {
        authorization_mode: vec![AuthorizationMode::Rbac, AuthorizationMode::Webhook],
        authorization_webhook_config_file: Some(write(&folder, "webhook", &authorizer.kubeconfig())),
        authorization_webhook_version: Some(SubjectAccessReviewVersion::V1),
        ..AuthorizationFlags::default()
    };
    let (plane, admin, alice) = server(&folder, flags).await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let mutated = Webhook::start(|question| {
        let patch = json!([{"op": "add", "path": "/data", "value": {"asked": "yes"}}]).to_string();
        let patch = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, patch);
        crate::admission::reply(
            question,
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}),
        )
    })
    .await;
    let hook = json!({"name": "a.b.c", "rules": rules, "clientConfig": {"url": mutated.url(), "caBundle": mutated.ca_bundle()}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "pass", "expression": format!("{CHECK}.allowed() && !{CHECK}.errored() && object.metadata.name.startsWith('pass-')")}]});
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hooks"}, "webhooks": [hook]});
    let spec = json!({"matchConstraints": {"resourceRules": rules},
        "variables": [{"name": "gate", "expression": CHECK}],
        "validations": [{"expression": "variables.gate.allowed()",
            "messageExpression": "variables.gate.errored() ? 'error ' + variables.gate.error() : 'refused ' + variables.gate.reason()"}]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "gates"}, "spec": spec});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "gates"}, "spec": {"policyName": "gates", "validationActions": ["Deny"]}});
    for (resource, object) in [
        ("mutatingwebhookconfigurations", &hooks),
        ("validatingadmissionpolicies", &policy),
        ("validatingadmissionpolicybindings", &binding),
    ] {
        admin
            .post(&format!("{GROUP}/{resource}"), object)
            .await
            .expect(201);
    }
    let refused = eventually("the policy takes effect", || async {
        let answer = alice.post(&format!("{MAPS}?dryRun=All"), &map("shut-1")).await;
        (answer.status == 422).then_some(answer.json)
    })
    .await;
    assert_eq!(
        refused["message"],
        "configmaps \"shut-1\" is forbidden: ValidatingAdmissionPolicy 'gates' with binding 'gates' denied request: refused shut"
    );
    let passed = alice.post(MAPS, &map("pass-1")).await.expect(201);
    assert_eq!(passed["data"]["asked"], "yes", "the condition holds");
    let skipped = alice.post(MAPS, &map("skip-1")).await.expect(201);
    assert_eq!(skipped["data"], Value::Null, "the condition does not hold");
    let broken = alice.post(MAPS, &map("break-1")).await;
    assert!(
        matches!(broken.status, 403 | 422)
            && broken.json["message"]
                .as_str()
                .is_some_and(|text| text.contains("error ")),
        "{}",
        broken.json
    );
    let about = |verb: &str| {
        let asked = authorizer.questions();
        let asked = asked.iter().map(|review| &review["spec"]["resourceAttributes"]);
        asked
            .filter(|asked| asked["resource"] == "gates" && asked["verb"] == verb)
            .count()
    };
    assert_eq!(about("pass"), 1, "an answer is remembered for all expressions");
    alice.post(MAPS, &map("pass-2")).await.expect(201);
    assert_eq!(about("pass"), 1, "and for the next request");
    plane.stop().await;
}
