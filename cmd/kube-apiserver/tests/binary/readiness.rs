//! Restarts under a stream of writes that something stored refuses: none slips through, from the first answer on, whether the server
//! was stopped or killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use control_plane::ControlPlane;
use serde_json::{Value, json};
use test_support::{Client, eventually};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::start_on;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
/// Policies beside the one that denies, so that compilation at the start takes time.
const OTHERS: usize = 60;

/// How long every stream may take to be answered after a start.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often the server is restarted: a few times, or as the environment says.
fn rounds() -> usize {
    let asked = std::env::var("READINESS_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(3)
}

async fn start(dir: &Path) -> ControlPlane {
    let builder = ControlPlane::builder()
        .on_free_port()
        .data_dir(dir)
        .with(|options| options.min_free_disk_mib = 1);
    builder.start().await.expect("the control plane starts")
}

/// Admission rules of creates of config maps.
fn rules() -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}])
}

/// Ends a server as its operator does, or as the kernel does when memory runs out.
async fn end(mut child: Child, killed: bool) {
    if killed {
        child.kill().await.expect("killed");
        return;
    }
    let pid = child.id().expect("it runs").to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(asked.is_ok_and(|status| status.success()));
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    let status = ended.expect("it ends in time").expect("a status");
    assert!(status.success(), "{status}");
}

fn policy(name: &str, expression: &str) -> [(String, Value); 2] {
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": rules()}, "validations": [{"expression": expression}]}});
    let binding = json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]}});
    [
        (format!("{GROUP}/validatingadmissionpolicies"), policy),
        (format!("{GROUP}/validatingadmissionpolicybindings"), binding),
    ]
}

fn crd() -> Value {
    let size = json!({"type": "integer", "maximum": 10});
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": size}}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"}, "versions": [version]}})
}

/// A write, and whether this is how it is answered while the server is as it should be.
struct Probe {
    what: &'static str,
    path: &'static str,
    object: Value,
    right: fn(u16) -> bool,
    client: Client,
}

/// Stores what refuses the writes, and gives the writes.
async fn prepare(admin: &Client, ca: &str) -> Vec<Probe> {
    for number in 0..OTHERS {
        for (path, object) in policy(&format!("other-{number}"), "object.metadata.name != 'x'") {
            admin.post(&path, &object).await.expect(201);
        }
    }
    for (path, object) in policy("no", "!object.metadata.name.startsWith('policy-')") {
        admin.post(&path, &object).await.expect(201);
    }
    // Nothing listens there: the failure policy decides.
    let hook = json!({"name": "away.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules(), "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "objectSelector": {"matchLabels": {"hook": "yes"}}});
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"}, "webhooks": [hook]});
    admin
        .post(&format!("{GROUP}/validatingwebhookconfigurations"), &hooks)
        .await
        .expect(201);

    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/secrets": "0"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}});
    admin.post(quotas, &quota).await.expect(201);
    let status = json!({"status": {"hard": hard, "used": {"count/secrets": "0"}}});
    admin
        .patch(&format!("{quotas}/none/status"), "merge-patch+json", &status)
        .await
        .expect(200);

    admin
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd())
        .await
        .expect(201);

    // A service account that may create leases and nothing else.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "clerk"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = admin
        .post(&format!("{accounts}/clerk/token"), &request)
        .await
        .expect(201);
    let token = issued["status"]["token"].as_str().expect("a token");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "clerk"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}]});
    admin.post(&format!("{rbac}/roles"), &role).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "clerk"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "clerk"},
        "subjects": [{"kind": "ServiceAccount", "name": "clerk", "namespace": "default"}]});
    admin
        .post(&format!("{rbac}/rolebindings"), &binding)
        .await
        .expect(201);
    let clerk = admin
        .anonymous(ca)
        .header("authorization", &format!("Bearer {token}"));

    let map = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": name, "labels": labels}});
    let probe = |what, path, object, right, client: &Client| Probe {
        what,
        path,
        object,
        right,
        client: client.clone(),
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "quota-"}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"generateName": "crd-"}, "spec": {"size": 11}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": "rbac-"}});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    vec![
        probe(
            "a policy",
            MAPS,
            map("policy-", json!({})),
            |code| code == 422,
            admin,
        ),
        probe(
            "a webhook",
            MAPS,
            map("hook-", json!({"hook": "yes"})),
            |code| code == 500,
            admin,
        ),
        probe(
            "a quota",
            "/api/v1/namespaces/default/secrets",
            secret,
            |code| code == 403,
            admin,
        ),
        probe("a schema", widgets, widget, |code| code == 422, admin),
        probe(
            "no role",
            MAPS,
            map("role-", json!({})),
            |code| code == 403,
            &clerk,
        ),
        probe("a role", leases, lease, |code| code == 201, &clerk),
    ]
}

/// Sends a write again and again, one after the other, also while the server is away; counts the answers.
async fn stream(probe: Arc<Probe>, answers: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        match probe.client.try_post(probe.path, &probe.object).await {
            // Cut short by the stop.
            Err(_) => tokio::task::yield_now().await,
            Ok(answer) => {
                let text = String::from_utf8_lossy(&answer.body);
                assert!(
                    (probe.right)(answer.status),
                    "{}: {} {text}",
                    probe.what,
                    answer.status
                );
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Whenever the server says that it is ready, the administrator's kubeconfig is there.
async fn stream_of_readiness(
    client: Client,
    kubeconfig: PathBuf,
    answers: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        match client.try_get("/readyz").await {
            Ok(answer) if answer.status == 200 => {
                assert!(kubeconfig.exists(), "ready without a kubeconfig");
                answers.fetch_add(1, Ordering::Relaxed);
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_slips_through_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["--min-free-disk-mib=1"];
    let (mut child, admin) = start_on(dir.path(), 0, &flags).await;
    let text = std::fs::read_to_string(dir.path().join("admin.kubeconfig")).expect("a kubeconfig");
    let (_, port) = text.split_once("https://127.0.0.1:").expect("an address");
    let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
    let port: u16 = digits.parse().expect("a port");
    let ca = std::fs::read_to_string(dir.path().join("pki/ca.crt")).expect("an authority");
    let probes: Vec<Arc<Probe>> = prepare(&admin, &ca).await.into_iter().map(Arc::new).collect();
    // Admission configuration takes effect a moment after it is written; a restart is what this test is about.
    for probe in &probes {
        eventually(probe.what, || async {
            let answer = probe.client.post(probe.path, &probe.object).await;
            (probe.right)(answer.status).then_some(())
        })
        .await;
    }
    let kubeconfig = dir.path().join("admin.kubeconfig");
    for round in 0..rounds() {
        // Streams of writes start before the server listens; the readiness watchers start when it is gone.
        let stop = Arc::new(AtomicBool::new(false));
        let mut streams = JoinSet::new();
        let mut counts = Vec::new();
        end(child, round % 2 == 1).await;
        std::fs::remove_file(&kubeconfig).expect("a kubeconfig");
        for probe in &probes {
            let count = Arc::new(AtomicUsize::new(0));
            streams.spawn(stream(probe.clone(), count.clone(), stop.clone()));
            counts.push(count);
        }
        let count = Arc::new(AtomicUsize::new(0));
        streams.spawn(stream_of_readiness(
            admin.clone(),
            kubeconfig.clone(),
            count.clone(),
            stop.clone(),
        ));
        counts.push(count);
        (child, _) = start_on(dir.path(), port, &flags).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while counts.iter().any(|count| count.load(Ordering::Relaxed) < 3) {
            if let Some(ended) = streams.try_join_next() {
                ended.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "round {round}: answers by stream: {counts:?}"
            );
            tokio::task::yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        while let Some(ended) = streams.join_next().await {
            ended.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
    end(child, false).await;
}

#[tokio::test]
async fn configuration_that_cannot_be_read_refuses_writes_and_readiness() {
    let dir = tempfile::tempdir().expect("a directory");
    let plane = start(dir.path()).await;
    let key = "/registry/validatingwebhookconfigurations/broken".to_string();
    let put = storage::Op::Put {
        key,
        value: bytes::Bytes::from_static(b"no object"),
        ttl: None,
    };
    let txn = storage::Txn {
        guards: Vec::new(),
        ops: vec![put],
    };
    plane.engine().commit(txn).await.expect("a write");
    plane.stop().await;

    let plane = start(dir.path()).await;
    let admin = Client::from_kubeconfig(plane.kubeconfig().as_bytes());
    let ready = admin.get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&ready.body);
    assert_eq!(ready.status, 500, "{text}");
    assert!(text.contains("[-]informer-sync failed"), "{text}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let refused = admin.post(MAPS, &map).await.expect(403);
    assert_eq!(
        refused["message"],
        "configmaps \"one\" is forbidden: not yet ready to handle request"
    );
    // Reads go on.
    admin.get(MAPS).await.expect(200);
    plane.stop().await;
}
