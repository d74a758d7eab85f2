//! Nothing that the server says holds a secret: its log at every level, its metrics, its audit log at the levels that leave objects out, and
//! the answers to requests that it refuses.

use std::path::Path;

use serde_json::{Value, json};
use test_support::{Client, Reply, Webhook, eventually};

use super::{authority_of, start_on};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// The token of a file of users.
const STATIC: &str = "planted-static-token-7f3a";
/// The secret half of a bootstrap token.
const BOOTSTRAP: &str = "plantedbootstrap";
/// Values of secrets, as they are sent in each form.
const PLAIN: &str = "planted-value-of-a-secret";
const APPLIED: &str = "planted-value-that-is-applied";
const PATCHED: &str = "planted-value-of-a-patch";
/// The credentials towards a webhook.
const WEBHOOK: &str = "planted-token-of-a-webhook";
/// Credentials that the server refuses.
const UNKNOWN: &str = "planted-unknown-token-9c";
/// `planted:basic-pw`.
const BASIC: &str = "cGxhbnRlZDpiYXNpYy1wdw==";
/// 32 bytes, as a key of encryption at rest.
const KEY: &str = "cGxhbnRlZC1lbmNyeXB0aW9uLWtleS0zMi1ieXRlcyE=";

/// Everything that must not be found, with a name that may be printed.
struct Planted(Vec<(&'static str, String)>);

impl Planted {
    fn add(&mut self, name: &'static str, text: impl Into<String>) {
        self.0.push((name, text.into()));
    }

    fn check(&self, place: &str, said: &[u8]) {
        for (name, text) in &self.0 {
            let found = said.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!found, "{place} holds {name}");
        }
    }

    /// A secret in the plain and as objects and JSON Web Tokens hold it.
    fn add_value(&mut self, name: &'static str, text: &str) {
        use base64::Engine;
        self.add(name, text);
        let encoded = base64::prelude::BASE64_STANDARD.encode(text);
        self.add(name, encoded.trim_end_matches('='));
    }
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, text).expect("a file");
    file.display().to_string()
}

/// What the administrator and strangers do, good and bad. Every answer to something refused is checked.
async fn run(client: &Client, stranger: &Client, planted: &mut Planted) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"k": PLAIN}});
    client.post(SECRETS, &secret).await.expect(201);
    let bootstrap = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef"},
        "stringData": {"token-id": "abcdef", "token-secret": BOOTSTRAP, "usage-bootstrap-authentication": "true"}});
    client
        .post("/api/v1/namespaces/kube-system/secrets", &bootstrap)
        .await
        .expect(201);
    let one = format!("{SECRETS}/one");
    let applied = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: one}}\nstringData: {{applied: {APPLIED}}}\n"
    );
    client
        .raw(
            "PATCH",
            &format!("{one}?fieldManager=planter&force=true"),
            "application/apply-patch+yaml",
            applied,
        )
        .await
        .expect(200);
    let merge = json!({"stringData": {"patched": PATCHED}});
    client.patch(&one, "merge-patch+json", &merge).await.expect(200);
    client.get(&one).await.expect(200);
    client.get(SECRETS).await.expect(200);

    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    eventually("the account", || async {
        (client.get(ACCOUNT).await.status == 200).then_some(())
    })
    .await;
    let given = client.post(&format!("{ACCOUNT}/token"), &asked).await.expect(201);
    let issued = given["status"]["token"].as_str().expect("a token");
    planted.add(
        "the signature of a service account's token",
        issued.rsplit('.').next().expect("a signature"),
    );
    let bearer = |token: &str| {
        stranger
            .clone()
            .header("authorization", &format!("Bearer {token}"))
    };
    for (token, expected) in [
        (STATIC, 200),
        (&*format!("abcdef.{BOOTSTRAP}"), 200),
        (issued, 200),
        (UNKNOWN, 401),
        // Each of them, spoiled.
        (&*format!("{STATIC}x"), 401),
        (&*format!("abcdef.{BOOTSTRAP}x"), 401),
        (&*format!("{issued}x"), 401),
    ] {
        let answer = bearer(token).get("/api").await;
        assert_eq!(answer.status, expected);
        planted.check("the answer to credentials", &answer.body);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = client.post(REVIEWS, &review).await.expect(201);
        planted.check("the status of a review", answer["status"].to_string().as_bytes());
    }
    let basic = stranger
        .clone()
        .header("authorization", &format!("Basic {BASIC}"))
        .get("/api")
        .await;
    planted.check("the answer to a password", &basic.body);

    // Writes that are refused, by each stage that reads them.
    let refused = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "Bad Name"}, "stringData": {"k": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"k": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two"}, "stringData": {"bad key!": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "two"}, "stringData": {"tls.key": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": {"name": "two"}, "stringData": {".dockerconfigjson": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two"}, "data": {"k": PLAIN}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two"}, "spec": {}, "stringData": {"k": PLAIN}}),
    ];
    for body in refused {
        let answer = client.post(SECRETS, &body).await;
        assert!((400..500).contains(&answer.status), "{} to {body}", answer.status);
        planted.check("the answer to a bad secret", &answer.body);
    }
    let broken = format!("{{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"data\": {{\"k\": \"{PLAIN}");
    let answer = client.raw("POST", SECRETS, "application/json", broken).await;
    planted.check("the answer to a broken body", &answer.body);
    let denied = bearer(STATIC).post(SECRETS, &secret).await;
    assert_eq!(denied.status, 403);
    planted.check("a refusal", &denied.body);
    // A change of what may not change.
    let mut immutable = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true, "metadata": {"name": "fixed"}, "stringData": {"k": PLAIN}});
    client.post(SECRETS, &immutable).await.expect(201);
    immutable["stringData"]["k"] = json!(PATCHED);
    let answer = client.put(&format!("{SECRETS}/fixed"), &immutable).await;
    assert_eq!(answer.status, 422);
    planted.check("the answer to a change", &answer.body);
    client.delete(&format!("{SECRETS}/fixed")).await.expect(200);
}

#[tokio::test]
async fn nothing_that_the_server_says_holds_a_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    // It fails, so that what is said about a failure is seen.
    let webhook = Webhook::start(|_| Reply::Raw(500, "broken".into())).await;
    let mut kubeconfig: Value = serde_json::from_str(&webhook.kubeconfig()).expect("JSON");
    kubeconfig["users"][0]["user"] = json!({"token": WEBHOOK});
    let file = |name: &str, text: &str| write(dir.path(), name, text);
    let tokens = file("tokens.csv", &format!("{STATIC},planted-user,uid\n"));
    let webhook_file = file("webhook.kubeconfig", &kubeconfig.to_string());
    let encryption = file(
        "encryption.yaml",
        &format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc: {{keys: [{{name: k, secret: {KEY}}}]}}\n"
        ),
    );
    let policy = file(
        "policy.yaml",
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources:\n  - {group: \"\", resources: [secrets, serviceaccounts/token]}\n  - {group: authentication.k8s.io, resources: [tokenreviews]}\n- level: RequestResponse\n",
    );
    let audit_log = dir.path().join("audit.log");
    let flags = [
        "-v=trace".to_string(),
        "--logging-format=json".to_string(),
        "--enable-bootstrap-token-auth".into(),
        format!("--token-auth-file={tokens}"),
        format!("--authentication-token-webhook-config-file={webhook_file}"),
        format!("--encryption-provider-config={encryption}"),
        format!("--audit-policy-file={policy}"),
        format!("--audit-log-path={}", audit_log.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (mut child, client) = start_on(dir.path(), 0, &flags).await;
    let stranger = client.anonymous(&authority_of(dir.path()));

    let mut planted = Planted(Vec::new());
    planted.add("a static token", STATIC);
    planted.add("a bootstrap token", BOOTSTRAP);
    planted.add_value("a secret", PLAIN);
    planted.add_value("a secret that was applied", APPLIED);
    planted.add_value("a secret of a patch", PATCHED);
    planted.add("the credentials of a webhook", WEBHOOK);
    planted.add("an unknown token", UNKNOWN);
    planted.add("a password", BASIC);
    planted.add("a key of encryption", KEY);
    planted.add("a key of encryption, decoded", "planted-encryption-key-32-bytes!");
    for key in ["ca.key", "sa.key", "front-proxy-ca.key"] {
        let text = std::fs::read_to_string(dir.path().join("pki").join(key)).expect("a key");
        planted.add("a private key", text.lines().nth(1).expect("a line of it"));
    }
    run(&client, &stranger, &mut planted).await;
    let metrics = client.get("/metrics").await;
    planted.check("/metrics", &metrics.body);
    for path in [
        "/configz",
        "/healthz?verbose",
        "/readyz?verbose",
        "/debug/flags",
        "/debug/pprof/",
        "/flagz",
        "/version",
    ] {
        planted.check(path, &client.get(path).await.body);
    }
    let pid = child.id().expect("a process").to_string();
    let stopped = std::process::Command::new("kill").arg(pid).status();
    assert!(stopped.expect("kill").success());
    child.wait().await.expect("it ends");

    let log = std::fs::read(dir.path().join("server.log")).expect("a log");
    assert!(
        log.windows(5).any(|word| word == b"\"v\":6"),
        "all levels are there"
    );
    planted.check("the log", &log);
    let audit = std::fs::read(&audit_log).expect("an audit log");
    assert!(
        audit.windows(7).any(|word| word == b"secrets"),
        "secrets were recorded"
    );
    planted.check("the audit log", &audit);
}
