//! What is recorded of requests: stages, levels, users, refusals, annotations; and policies that change.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use control_plane::{AuditLogFlags, ControlPlane};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Client, Reply, Webhook, eventually, plane_with};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Audited {
    plane: ControlPlane,
    admin: Client,
    /// A user without rights.
    alice: Client,
    folder: TempDir,
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, content).expect("a file");
    file
}

fn policy(rules: &str) -> String {
    format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {rules}}}")
}

async fn audited(rules: &str) -> Audited {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = write(folder.path(), "tokens", "secret-of-alice,alice,1,\"dev\"\n");
    let policy = write(folder.path(), "policy", &policy(rules));
    let log = folder.path().join("audit.log");
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(tokens);
            options.audit.audit_policy_file = Some(policy);
            options.audit.log = AuditLogFlags {
                audit_log_path: Some(log),
                ..options.audit.log.clone()
            };
        })
    })
    .await;
    let alice = admin
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer secret-of-alice");
    Audited {
        plane,
        admin,
        alice,
        folder,
    }
}

impl Audited {
    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an event a line"));
        lines.collect()
    }

    /// The events of requests whose URI contains this.
    fn of(&self, uri: &str) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| {
            event["requestURI"]
                .as_str()
                .is_some_and(|text| text.contains(uri))
        });
        events
    }

    /// Stage and code of the same.
    fn stages(&self, uri: &str) -> Vec<String> {
        let shown = |event: &Value| {
            format!(
                "{} {}",
                event["stage"].as_str().unwrap_or("-"),
                event["responseStatus"]["code"]
            )
        };
        self.of(uri).iter().map(shown).collect()
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "<b>"}})
}

#[tokio::test]
async fn objects_are_recorded_at_their_level() {
    let rules = "omitManagedFields: true, rules: [
        {level: RequestResponse, users: [kubernetes-admin], resources: [{group: '', resources: [configmaps]}]},
        {level: Request, users: [kubernetes-admin], resources: [{group: '', resources: [services]}]},
        {level: Metadata, users: [kubernetes-admin], resources: [{group: '', resources: [pods, secrets, serviceaccounts/token]}]}]";
    let server = audited(rules).await;
    let created = server.admin.post(MAPS, &map("a")).await.expect(201);
    let [received, complete] = &server.of("configmaps")[..] else {
        panic!("{:?}", server.events());
    };
    assert_eq!(
        (&received["stage"], received.get("requestObject")),
        (&json!("RequestReceived"), None)
    );
    assert_eq!(received["auditID"], complete["auditID"]);
    let reference =
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    assert_eq!(complete["objectRef"], reference);
    assert_eq!(complete["requestObject"], map("a"));
    let mut answer = created.clone();
    answer["metadata"]
        .as_object_mut()
        .expect("metadata")
        .remove("managedFields");
    assert_eq!(
        complete["responseObject"], answer,
        "as answered, without managed fields"
    );
    assert_eq!(complete["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(complete["annotations"]["authorization.k8s.io/decision"], "allow");

    // In whatever form it is answered.
    for (uri, accept) in [
        (
            format!("{MAPS}/a?form=protobuf"),
            "application/vnd.kubernetes.protobuf",
        ),
        (format!("{MAPS}?form=yaml"), "application/yaml"),
        (
            format!("{MAPS}?form=table"),
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        ),
        (
            format!("{MAPS}?form=protobuf-list"),
            "application/vnd.kubernetes.protobuf",
        ),
    ] {
        server.admin.clone().header("accept", accept).get(&uri).await;
        let form = uri.split("form=").nth(1).unwrap_or_default();
        let event = server.of(&format!("form={form}")).pop().expect("an event");
        let recorded = &event["responseObject"];
        let item = match recorded["kind"].as_str() {
            Some("ConfigMap") => recorded,
            Some("ConfigMapList") => &recorded["items"][0],
            Some("Table") => &recorded["rows"][0]["object"],
            other => panic!("{form}: {other:?} in {event}"),
        };
        assert_eq!(item["metadata"]["name"], "a", "{form}");
        assert!(item["metadata"].get("managedFields").is_none(), "{form}");
    }

    // A deletion answers a Status, with which the response object is recorded, too.
    server.admin.delete(&format!("{MAPS}/a")).await.expect(200);
    let deleted = server.of("configmaps/a").pop().expect("an event");
    assert_eq!(deleted["responseStatus"]["status"], "Success");
    assert_eq!(deleted["responseStatus"]["details"]["kind"], "configmaps");
    assert_eq!(deleted["responseObject"]["kind"], "Status");

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    server
        .admin
        .post("/api/v1/namespaces/default/services", &service)
        .await
        .expect(201);
    let event = server.of("services").pop().expect("an event");
    assert_eq!(
        event["requestObject"]["spec"]["ports"][0]["protocol"], "TCP",
        "with defaults, as upstream records it"
    );
    assert!(event.get("responseObject").is_none());
    server
        .admin
        .raw(
            "PATCH",
            "/api/v1/namespaces/default/services/s?fieldManager=m",
            "application/apply-patch+yaml",
            "apiVersion: v1\nkind: Service\nspec: {}\n",
        )
        .await;
    let event = server.of("services/s").pop().expect("an event");
    assert_eq!(
        event["requestObject"],
        json!({"apiVersion": "v1", "kind": "Service", "spec": {}})
    );

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "planted"}});
    server
        .admin
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(201);
    let event = server.of("secrets").pop().expect("an event");
    assert_eq!(event["objectRef"]["name"], "s");
    assert!(!event.to_string().contains("planted") && !event.to_string().contains("cGxhbnRlZA"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-privileged"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    server.admin.post(pods, &pod).await.expect(201);
    let event = server.of("pods").pop().expect("an event");
    let policy = &event["annotations"]["pod-security.kubernetes.io/enforce-policy"];
    assert_eq!(policy, "privileged:latest");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the account", || async {
        (server.admin.get(account).await.status == 200).then_some(())
    })
    .await;
    let token = server
        .admin
        .post(&format!("{account}/token"), &request)
        .await
        .expect(201);
    let event = server.of("default/token").pop().expect("an event");
    let id = event["annotations"]["authentication.kubernetes.io/issued-credential-id"].as_str();
    assert!(id.is_some_and(|id| id.starts_with("JTI=")), "{event}");
    let token = token["status"]["token"].as_str().expect("a token");
    assert!(
        server
            .events()
            .iter()
            .all(|event| !event.to_string().contains(token))
    );
    server.plane.stop().await;
}

#[tokio::test]
async fn refusals_and_other_users_are_recorded() {
    let server = audited("rules: [{level: Metadata, users: [alice, kubernetes-admin]}, {level: Metadata, verbs: [get], nonResourceURLs: [/nothing]}]").await;
    server.alice.get(&format!("{MAPS}/of-alice")).await.expect(403);
    let event = server.of("of-alice").pop().expect("an event");
    assert_eq!(
        event["user"],
        json!({"username": "alice", "uid": "1", "groups": ["dev", "system:authenticated"]})
    );
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    assert_eq!(
        event["responseStatus"]["details"],
        json!({"name": "of-alice", "kind": "configmaps"})
    );
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");

    let nobody = server.admin.anonymous(server.plane.ca_certificate());
    server.admin.get("/nothing?timeout=soon").await.expect(400);
    assert_eq!(server.stages("timeout=soon"), ["ResponseStarted 400"]);
    let event = server.of("timeout=soon").pop().expect("an event");
    assert_eq!(event["user"], json!({}));
    assert_eq!(
        event["responseStatus"]["message"],
        "invalid timeout specified in the request URL - time: invalid duration \"soon\""
    );
    nobody
        .clone()
        .header("authorization", "Bearer wrong")
        .get("/nothing")
        .await
        .expect(401);
    assert_eq!(
        server.stages("/nothing"),
        ["ResponseStarted 400", "ResponseStarted 401"]
    );
    let event = server.of("/nothing").pop().expect("an event");
    assert_eq!(event["responseStatus"]["message"], "Unauthorized");
    assert!(!event.to_string().contains("wrong"));

    let as_bob = server
        .admin
        .clone()
        .header("impersonate-user", "bob")
        .header("impersonate-group", "ops");
    as_bob.get(&format!("{MAPS}/of-bob")).await.expect(403);
    let event = server.of("of-bob").pop().expect("an event");
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(
        event["impersonatedUser"],
        json!({"username": "bob", "groups": ["ops", "system:authenticated"]})
    );
    server
        .alice
        .clone()
        .header("impersonate-user", "bob")
        .get(&format!("{MAPS}/refused"))
        .await
        .expect(403);
    let event = server.of("/refused").pop().expect("an event");
    assert_eq!(
        (&event["user"]["username"], event.get("impersonatedUser")),
        (&json!("alice"), None)
    );
    server.plane.stop().await;
}

#[tokio::test]
async fn a_watch_has_a_start_and_an_end() {
    let server = audited("omitStages: [RequestReceived], rules: [{level: RequestResponse, verbs: [watch], users: [kubernetes-admin]}]").await;
    let watch = server.admin.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(server.stages("watch=1"), ["ResponseStarted 200"]);
    drop(watch);
    eventually("the end", || async {
        (server.stages("watch=1") == ["ResponseStarted 200", "ResponseComplete 200"]).then_some(())
    })
    .await;
    server.plane.stop().await;
}

#[tokio::test]
async fn webhooks_and_deprecated_kinds_are_noted() {
    let server =
        audited("omitStages: [RequestReceived], rules: [{level: Request, users: [kubernetes-admin]}]").await;
    let webhook = Webhook::start(|review| {
        let patch = BASE64_STANDARD.encode(r#"[{"op": "add", "path": "/data/b", "value": "2"}]"#);
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch, "auditAnnotations": {"note": "seen"}});
        Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    })
    .await;
    let hook = |name: &str, url: String| {
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 2,
            "clientConfig": {"url": url, "caBundle": webhook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
    };
    let hooks = [
        hook("one.example.com", webhook.url()),
        hook("gone.example.com", "https://localhost:1/".into()),
    ];
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "hooks"}, "webhooks": hooks});
    server
        .admin
        .post(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            &configuration,
        )
        .await
        .expect(201);
    let made = AtomicUsize::new(0);
    let annotations = eventually("the webhooks are asked", || async {
        let name = format!("m-{}", made.fetch_add(1, Ordering::Relaxed));
        server.admin.post(MAPS, &map(&name)).await.expect(201);
        let event = server
            .events()
            .into_iter()
            .rfind(|event| event["objectRef"]["name"] == name.as_str())?;
        let annotations = event["annotations"].clone();
        annotations
            .get("one.example.com/note")
            .is_some()
            .then_some(annotations)
    })
    .await;
    let value = |key: &str| {
        serde_json::from_str::<Value>(annotations[key].as_str().unwrap_or_default()).unwrap_or_default()
    };
    assert_eq!(
        value("mutation.webhook.admission.k8s.io/round_0_index_0"),
        json!({"configuration": "hooks", "webhook": "one.example.com", "mutated": true})
    );
    assert_eq!(
        value("patch.webhook.admission.k8s.io/round_0_index_0")["patch"][0]["path"],
        "/data/b"
    );
    assert_eq!(
        annotations["failed-open.mutation.webhook.admission.k8s.io/round_0_index_1"],
        "gone.example.com"
    );
    server
        .admin
        .get("/api/v1/namespaces/default/endpoints")
        .await
        .expect(200);
    let event = server.of("/endpoints").pop().expect("an event");
    assert_eq!(event["annotations"]["k8s.io/deprecated"], "true");
    server.plane.stop().await;
}

#[tokio::test]
async fn a_changed_policy_is_taken_over_and_a_wrong_one_is_not() {
    let server = audited("rules: [{level: None}]").await;
    server.admin.get(&format!("{MAPS}/one")).await;
    assert!(server.events().is_empty());
    let file = server.folder.path().join("policy");
    std::fs::write(
        &file,
        policy("rules: [{level: Metadata, users: [kubernetes-admin]}]"),
    )
    .expect("a file");
    assert_eq!(server.plane.reload().await, ["audit policy"]);
    server.admin.get(&format!("{MAPS}/two")).await;
    assert_eq!(server.of("/two").len(), 2);
    std::fs::write(&file, policy("rules: [{level: Everything}]")).expect("a file");
    assert!(server.plane.reload().await.is_empty());
    server.admin.get(&format!("{MAPS}/three")).await;
    assert_eq!(server.of("/three").len(), 2, "the policy before stays");
    let metrics = server.admin.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "apiserver_audit_level_total{level=\"Metadata\"}",
        "apiserver_audit_event_total ",
        "apiserver_audit_policy_config_controller_automatic_reloads_total",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    server.plane.stop().await;
}
