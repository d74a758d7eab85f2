//! Admission that users configure: webhooks and policies, from the moment they are created to the moment they are gone.

use base64::Engine;
use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, eventually, plane};

use crate::aggregation::routing::slice;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn rules(operations: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}])
}

/// A webhook's answer to a review.
pub(super) fn reply(question: &Value, response: Value) -> Reply {
    let mut response = response;
    response["uid"] = question["request"]["uid"].clone();
    Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn patch(operations: &Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": text})
}

async fn configure(client: &Client, kind: &str, hooks: Value) {
    let path = format!("{GROUP}/{}configurations", kind.to_lowercase());
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}Configuration"), "metadata": {"name": "test"}, "webhooks": hooks});
    client.post(&path, &body).await.expect(201);
}

fn hook(name: &str, webhook: &Webhook, operations: &[&str]) -> Value {
    json!({"name": name, "clientConfig": {"url": webhook.url(), "caBundle": webhook.ca_bundle()}, "rules": rules(operations),
        "sideEffects": "None", "admissionReviewVersions": ["v1"]})
}

#[tokio::test]
async fn webhooks_change_and_refuse() {
    let (plane, client) = plane().await;
    // Adds a counter of how often it was asked about an object, and a note when another webhook was called before.
    let mutating = Webhook::start(|question| {
        let object = &question["request"]["object"];
        let rounds = object["data"]["rounds"].as_str().map_or(0, str::len);
        reply(
            question,
            patch(&json!([{"op": "add", "path": "/data/rounds", "value": "x".repeat(rounds + 1)}])),
        )
    })
    .await;
    let second = Webhook::start(|question| {
        reply(
            question,
            patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}])),
        )
    })
    .await;
    let validating = Webhook::start(|question| {
        let request = &question["request"];
        if request["object"]["data"]["bad"] == "true" {
            return reply(
                question,
                json!({"allowed": false, "status": {"code": 403, "message": "no bad ones"}}),
            );
        }
        reply(question, json!({"allowed": true, "warnings": ["looked at"]}))
    })
    .await;
    let mut first = hook("first.example.com", &mutating, &["CREATE"]);
    first["reinvocationPolicy"] = "IfNeeded".into();
    let last = hook("last.example.com", &second, &["CREATE"]);
    configure(&client, "MutatingWebhook", json!([first, last])).await;
    let mut judge = hook("judge.example.com", &validating, &["CREATE", "UPDATE"]);
    judge["matchConditions"] =
        json!([{"name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')"}]);
    configure(&client, "ValidatingWebhook", json!([judge])).await;
    eventually("both take effect", || async {
        let probe = client
            .post(&format!("{MAPS}?dryRun=All"), &map("probe", &json!({"a": "b"})))
            .await;
        let warned = probe.headers.contains_key("warning");
        (warned && probe.json["metadata"]["labels"]["seen"] == "yes").then_some(())
    })
    .await;

    let made = client
        .post(MAPS, &map("one", &json!({"a": "b"})))
        .await
        .expect(201);
    // The first one was called again, because the second one changed what it had seen.
    assert_eq!(made["data"], json!({"a": "b", "rounds": "xx"}));
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    let asked = validating.questions();
    let asked = &asked.last().expect("a question")["request"];
    assert_eq!(
        (
            &asked["operation"],
            &asked["name"],
            &asked["namespace"],
            &asked["dryRun"]
        ),
        (&json!("CREATE"), &json!("one"), &json!("default"), &json!(false))
    );
    assert_eq!(asked["object"]["kind"], "ConfigMap");
    assert_eq!(asked["object"]["data"]["rounds"], "xx");

    let refused = client
        .post(MAPS, &map("two", &json!({"bad": "true"})))
        .await
        .expect(403);
    assert_eq!(
        refused["message"],
        "admission webhook \"judge.example.com\" denied the request: no bad ones"
    );
    client.get(&format!("{MAPS}/two")).await.expect(404);
    client
        .post(MAPS, &map("exempt", &json!({"bad": "true"})))
        .await
        .expect(201);

    drop(validating);
    let failed = client
        .post(MAPS, &map("three", &json!({"a": "b"})))
        .await
        .expect(500);
    let message = failed["message"].as_str().expect("a message");
    assert!(
        message.starts_with("Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post \"https://localhost:")
            && message.contains("connection refused"),
        "{message}"
    );
    // Configurations of admission are never asked about: a broken webhook can be removed.
    let path = format!("{GROUP}/validatingwebhookconfigurations/test");
    client.delete(&path).await.expect(200);
    eventually("writes go on without it", || async {
        (client.post(MAPS, &map("four", &json!({"a": "b"}))).await.status == 201).then_some(())
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn webhooks_that_fail_are_named() {
    let (plane, client) = plane().await;
    let broken = Webhook::start(|question| match question["request"]["name"].as_str() {
        Some("garbage") => Reply::Raw(200, "no JSON".into()),
        Some("error") => Reply::Raw(500, "oops".into()),
        Some("other") => {
            Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "other", "allowed": true}}))
        }
        Some("patch") => reply(question, patch(&json!([{"op": "add", "path": "/data", "value": 7}]))),
        _ => reply(question, json!({"allowed": true})),
    })
    .await;
    let mut effects = hook("effects.example.com", &broken, &["DELETE"]);
    effects["sideEffects"] = "NoneOnDryRun".into();
    let ignored = {
        let mut hook = hook("ignored.example.com", &broken, &["UPDATE"]);
        hook["failurePolicy"] = "Ignore".into();
        hook["clientConfig"]["caBundle"] = Value::Null;
        hook
    };
    let hooks = json!([hook("broken.example.com", &broken, &["CREATE"]), effects, ignored]);
    configure(&client, "MutatingWebhook", hooks).await;
    eventually("it takes effect", || async {
        let answer = client
            .post(&format!("{MAPS}?dryRun=All"), &map("error", &json!({})))
            .await;
        (answer.status == 500).then_some(())
    })
    .await;
    for (name, text) in [
        ("garbage", "json parse error"),
        (
            "error",
            "an error on the server (\"oops\") has prevented the request from succeeding",
        ),
        (
            "other",
            "received invalid webhook response: expected response.uid=",
        ),
        ("patch", "cannot unmarshal number"),
    ] {
        let answer = client.post(MAPS, &map(name, &json!({}))).await.expect(500);
        let message = answer["message"].as_str().expect("a message");
        assert!(message.contains(text), "{name}: {message}");
    }
    client.post(MAPS, &map("good", &json!({}))).await.expect(201);
    // Its certificate is not trusted without the bundle, and the failure is ignored.
    client
        .put(&format!("{MAPS}/good"), &map("good", &json!({"a": "b"})))
        .await
        .expect(200);
    client
        .delete(&format!("{MAPS}/good?dryRun=All"))
        .await
        .expect(200);
    plane.stop().await;
}

#[tokio::test]
async fn policies_refuse_warn_and_change() {
    let (plane, client) = plane().await;
    let policy = |kind: &str, name: &str, mut spec: Value| {
        spec["matchConstraints"] = json!({"resourceRules": rules(&["CREATE", "UPDATE"])});
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    let limits = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "most", "expression": "int(params.data.most)"}, {"name": "size", "expression": "has(object.data) ? size(object.data) : 0"}],
        "matchConditions": [{"name": "not-limits", "expression": "object.metadata.name != 'limits'"}],
        "validations": [{"expression": "variables.size <= variables.most", "messageExpression": "'at most ' + string(variables.most) + ' in ' + namespaceObject.metadata.name", "reason": "Forbidden"},
            {"expression": "authorizer.group('').resource('configmaps').namespace(request.namespace).check('create').allowed()"}]});
    let path = format!("{GROUP}/validatingadmissionpolicies");
    client
        .post(MAPS, &map("limits", &json!({"most": "2"})))
        .await
        .expect(201);
    client
        .post(&path, &policy("ValidatingAdmissionPolicy", "limits", limits))
        .await
        .expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "limits"},
        "spec": {"policyName": "limits", "validationActions": ["Deny", "Audit"], "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}}});
    client
        .post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding)
        .await
        .expect(201);
    let many = map("many", &json!({"a": "", "b": "", "c": ""}));
    let refused = eventually("the policy takes effect", || async {
        let answer = client.post(&format!("{MAPS}?dryRun=All"), &many).await;
        (answer.status == 403).then_some(answer.json)
    })
    .await;
    assert_eq!(
        refused["message"],
        "configmaps \"many\" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'limits' denied request: at most 2 in default"
    );
    client
        .post(MAPS, &map("few", &json!({"a": ""})))
        .await
        .expect(201);
    // The parameters are read when they are needed, not when the policy is made.
    client
        .put(&format!("{MAPS}/limits"), &map("limits", &json!({"most": "3"})))
        .await
        .expect(200);
    client.post(MAPS, &many).await.expect(201);
    client.delete(&format!("{MAPS}/limits")).await.expect(200);
    let refused = client.post(MAPS, &map("later", &json!({}))).await.expect(422);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.ends_with("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{message}"
    );
    client
        .delete(&format!("{GROUP}/validatingadmissionpolicybindings/limits"))
        .await
        .expect(200);

    let mutations = json!({"reinvocationPolicy": "Never", "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'by': 'policy'}}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, JSONPatch{op: 'replace', path: '/data/k', value: object.metadata.labels.by}]"}}]});
    client
        .post(
            &format!("{GROUP}/mutatingadmissionpolicies"),
            &policy("MutatingAdmissionPolicy", "labels", mutations),
        )
        .await
        .expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "labels"}, "spec": {"policyName": "labels"}});
    client
        .post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding)
        .await
        .expect(201);
    eventually("the policy takes effect", || async {
        let answer = client
            .post(&format!("{MAPS}?dryRun=All"), &map("x", &json!({"k": "v"})))
            .await;
        (answer.json["metadata"]["labels"]["by"] == "policy").then_some(())
    })
    .await;
    let changed = client
        .post(MAPS, &map("changed", &json!({"k": "v"})))
        .await
        .expect(201);
    assert_eq!(changed["data"], json!({"k": "policy"}));
    let kept = client
        .post(MAPS, &map("kept", &json!({"k": "other"})))
        .await
        .expect(201);
    assert_eq!(kept["data"], json!({"k": "other"}));

    let bad = policy(
        "ValidatingAdmissionPolicy",
        "bad",
        json!({"validations": [{"expression": "object.x +"}]}),
    );
    let refused = client.post(&path, &bad).await.expect(422);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("spec.validations[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: <input>:1:11: Syntax error"),
        "{message}"
    );
    plane.stop().await;
}

#[tokio::test]
async fn namespaces_hold_pods_to_a_standard() {
    let (plane, client) = plane().await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"});
    let space =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "held", "labels": labels}});
    client.post("/api/v1/namespaces", &space).await.expect(201);
    eventually("the default account is there", || async {
        let account = client
            .get("/api/v1/namespaces/held/serviceaccounts/default")
            .await;
        (account.status == 200).then_some(())
    })
    .await;
    let container = |privileged: bool| json!([{"name": "c", "image": "i", "securityContext": {"privileged": privileged}}]);
    let pod = |name: &str, privileged: bool| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": container(privileged)}});
    let pods = "/api/v1/namespaces/held/pods";
    let refused = client.post(pods, &pod("bad", true)).await.expect(403);
    assert_eq!(
        refused["message"],
        "pods \"bad\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"c\" must not set securityContext.privileged=true)"
    );
    let taken = client.post(pods, &pod("plain", false)).await;
    let warned = taken.headers.get_all("warning").iter();
    let warned: Vec<&str> = warned.filter_map(|text| text.to_str().ok()).collect();
    assert!(
        warned
            .iter()
            .any(|text| text.contains("would violate PodSecurity") && text.contains("restricted:latest")),
        "{warned:?}"
    );
    taken.expect(201);
    // A template is warned of, and taken: its pods will be refused.
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": container(true)}}}});
    let deployments = "/apis/apps/v1/namespaces/held/deployments";
    client.post(deployments, &deployment).await.expect(201);
    let metrics = client.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let counted = |decision: &str, mode: &str, level: &str, resource: &str| {
        format!(
            "pod_security_evaluations_total{{decision=\"{decision}\",mode=\"{mode}\",policy_level=\"{level}\",policy_version=\"latest\",\
             request_operation=\"create\",resource=\"{resource}\",subresource=\"\"}} 1\n"
        )
    };
    for line in [
        counted("deny", "enforce", "baseline", "pod"),
        counted("allow", "enforce", "baseline", "pod"),
        counted("deny", "warn", "restricted", "pod"),
        counted("deny", "warn", "restricted", "controller"),
        "pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"} 0\n"
            .into(),
    ] {
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    plane.stop().await;
}

#[tokio::test]
async fn claims_grow_when_bound_and_allowed() {
    let (plane, client) = plane().await;
    for (name, grows) in [("fixed", false), ("growing", true)] {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/p", "allowVolumeExpansion": grows});
        let classes = "/apis/storage.k8s.io/v1/storageclasses";
        client.post(classes, &class).await.expect(201);
    }
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let merge = "merge-patch+json";
    // A claim that is not bound is refused before its class is looked up.
    for (name, class, bound, expected) in [
        ("unbound", "growing", false, 422),
        ("fixed", "fixed", true, 403),
        ("growing", "growing", true, 200),
    ] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}});
        client.post(claims, &claim).await.expect(201);
        let path = format!("{claims}/{name}");
        if bound {
            let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
            client
                .patch(&format!("{path}/status"), merge, &status)
                .await
                .expect(200);
        }
        let grown = client.patch(&path, merge, &grow).await;
        assert_eq!(grown.status, expected, "{name}: {}", grown.json);
    }
    plane.stop().await;
}

#[tokio::test]
async fn policies_are_checked_against_what_they_match() {
    let (plane, client) = plane().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}});
    client
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd)
        .await
        .expect(201);
    let rule = |group: &str, resource: &str| json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "checked"},
        "spec": {"matchConstraints": {"resourceRules": [rule("apps", "deployments"), rule("example.com", "widgets")]},
            "validations": [{"expression": "object.spec.replicas > 1"}, {"expression": "has(object.metadata.name)"}]}});
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    client.post(&policies, &policy).await.expect(201);
    let status = async |generation: i64| {
        eventually("the policy is checked", || async {
            let found = client.get(&format!("{policies}/checked")).await.expect(200);
            let status = found["status"].clone();
            (status["observedGeneration"] == generation).then_some(status)
        })
        .await
    };
    let expected = "example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n";
    assert_eq!(
        status(1).await["typeChecking"],
        json!({"expressionWarnings": [{"fieldRef": "spec.validations[0].expression", "warning": expected}]})
    );
    // The warnings go when the policy is about deployments alone, and nobody but the controller owns them.
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule("apps", "deployments")]);
    let known = client.get(&format!("{policies}/checked")).await.expect(200);
    policy["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"].clone();
    client
        .put(&format!("{policies}/checked"), &policy)
        .await
        .expect(200);
    assert_eq!(status(2).await["typeChecking"], json!({}));
    let known = client.get(&format!("{policies}/checked")).await.expect(200);
    let managers = known["metadata"]["managedFields"]
        .as_array()
        .expect("managed fields");
    let owner = managers
        .iter()
        .find(|one| one["subresource"] == "status")
        .expect("an owner");
    assert_eq!(
        (&owner["manager"], &owner["operation"]),
        (&json!("validatingadmissionpolicy-status"), &json!("Apply"))
    );
    plane.stop().await;
}

/// A service without a selector, whose only endpoint is in an EndpointSlice; and one that has none.
#[tokio::test]
async fn webhooks_behind_services_are_found_by_their_slices() {
    let webhook = Webhook::start(|question| {
        reply(
            question,
            json!({"allowed": false, "status": {"code": 403, "reason": "in use", "message": "seen"}}),
        )
    })
    .await;
    let (plane, client) = plane().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    client
        .post("/api/v1/namespaces/default/services", &service)
        .await
        .expect(201);
    slice(&plane, "webhook", "one", ([127, 0, 0, 1], webhook.port()).into()).await;
    let mut asked = hook("slices.example.com", &webhook, &["CREATE"]);
    let service = |port: u16| json!({"namespace": "default", "name": "webhook", "port": port});
    asked["clientConfig"] = json!({"service": service(443), "caBundle": webhook.ca_bundle()});
    configure(&client, "ValidatingWebhook", json!([asked])).await;
    let refused = client.post(MAPS, &map("a", &json!({}))).await.expect(403);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("denied the request: seen"), "{message}");
    assert_eq!(
        refused["reason"], "in use",
        "a webhook may have a reason of its own"
    );

    let path = format!("{GROUP}/validatingwebhookconfigurations/test");
    let change =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/service", "value": service(8443)}]);
    client.patch(&path, "json-patch+json", &change).await.expect(200);
    let refused = eventually("the other port is asked for", || async {
        let answer = client.post(MAPS, &map("a", &json!({}))).await;
        (answer.status == 500).then(|| answer.expect(500))
    })
    .await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("no service port 8443 found for service \"webhook\""),
        "{message}"
    );
    plane.stop().await;
}
