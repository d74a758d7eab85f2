//! Auditing: requests that would forge events, split them or leave none, and a sink that does not take them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{HttpsServer, Reply, Webhook, json_answer};
use tokio::io::AsyncWriteExt;

use super::attack;
use crate::own::beside_others;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Server, Shot};

const OWN: Bound = Bound::codes(&[200, 201, 400, 403, 404, 409, 415, 422]).seconds(120);
/// What a hostile client would like to find in the log, as a line of its own.
const FORGED: &str = "\n{\"kind\":\"Event\",\"auditID\":\"forged\",\"stage\":\"ResponseComplete\"}\n";
/// Requests of clients that hang up.
const HASTY: usize = 50;
/// Requests at once while the sink takes nothing, each of this many bytes.
const FLOOD: usize = 400;
const LARGE: usize = 1 << 20;
/// How long an event may take to be in the log.
const PATIENCE: Duration = Duration::from_secs(20);

const STUCK: Bound = Bound::codes(&[0, 201, 409, 429, 500, 503, 504])
    .memory(512.0)
    .seconds(180);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Audit: paths, queries, agents, bodies and patches that look like events",
            "audit",
            Place::Own,
            OWN,
            |arena| Box::pin(forged(arena)),
        ),
        attack(
            "Audit: Statuses of an aggregated server with line breaks and foreign members",
            "audit",
            Place::Own,
            OWN,
            |arena| Box::pin(foreign(arena)),
        ),
        attack(
            "Audit: 50 clients that hang up behind their request",
            "audit",
            Place::Own,
            OWN,
            |arena| Box::pin(hasty(arena)),
        ),
        attack(
            "Audit: 400 creates of 1 MiB at once, while a blocking webhook takes no events",
            "audit",
            Place::Own,
            STUCK,
            |arena| Box::pin(stuck(arena)),
        ),
    ]
}

/// A server that records everything but reads of health, and the directory of its files.
struct Recorded {
    server: Server,
    directory: TempDir,
}

impl Recorded {
    async fn start(
        arena: &Arena,
        sink: &(dyn Fn(&Path) -> Vec<String> + Sync),
    ) -> Result<Option<Recorded>, Error> {
        let Some(binary) = &arena.binary else {
            return Ok(None);
        };
        let directory = tempfile::tempdir()?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
                {"level": "None", "verbs": ["get"], "resources": [{"group": "", "resources": ["namespaces"]}]},
                {"level": "None", "resources": [{"group": "rbac.authorization.k8s.io"}]},
                {"level": "RequestResponse"},
            ],
        });
        let file = directory.path().join("policy.json");
        std::fs::write(&file, policy.to_string())?;
        let mut flags = vec![format!("--audit-policy-file={}", file.display())];
        flags.extend(sink(directory.path()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start(binary, &flags).await?;
        Ok(Some(Recorded { server, directory }))
    }

    async fn with_log(arena: &Arena) -> Result<Option<Recorded>, Error> {
        Recorded::start(arena, &|directory| {
            vec![
                format!("--audit-log-path={}", log_in(directory).display()),
                "--audit-log-mode=blocking".into(),
            ]
        })
        .await
    }

    /// The lines of the log, each as an event; what broke where one is none.
    fn events(&self) -> Result<Vec<Value>, String> {
        let text =
            std::fs::read_to_string(log_in(self.directory.path())).map_err(|error| error.to_string())?;
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(event).collect()
    }

    /// Sends requests one by one.
    async fn play(&self, shots: Vec<Shot>) -> Result<Outcome, Error> {
        let mut outcome = Outcome::new();
        for shot in shots {
            outcome.count(&self.server.target.send(shot).await?);
        }
        Ok(outcome)
    }
}

fn log_in(directory: &Path) -> PathBuf {
    directory.join("audit.log")
}

/// A line of the log, if it is one event of the server's.
fn event(line: &str) -> Result<Value, String> {
    let short = || line.chars().take(120).collect::<String>();
    let event: Value =
        serde_json::from_str(line).map_err(|_| format!("a line that is no event: {}", short()))?;
    match (&event["kind"], &event["auditID"]) {
        (Value::String(kind), Value::String(id)) if kind == "Event" && id != "forged" => Ok(event),
        _ => Err(format!("a forged event: {}", short())),
    }
}

async fn forged(arena: &Arena) -> Result<Outcome, Error> {
    let Some(recorded) = Recorded::with_log(arena).await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let encoded: String = FORGED.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let name = format!("{maps}/{encoded}");
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {"a": FORGED}}, "data": {"d": FORGED}});
    let shots = vec![
        Shot::get(name.clone()),
        Shot::of("DELETE", name.clone()),
        Shot::get(format!("{maps}?labelSelector={encoded}")),
        Shot::get(format!("{maps}?fieldManager={encoded}&{encoded}={encoded}")),
        Shot::get(format!("/{encoded}")),
        Shot::get(maps).header("user-agent", FORGED.trim()),
        Shot::get(maps).header("impersonate-user", FORGED.trim()),
        Shot::get(maps).header("audit-id", FORGED.trim()),
        Shot::post(maps, &object("sound")),
        Shot::post(maps, &object(FORGED)),
        Shot::of("POST", maps).body("application/json", FORGED),
        Shot::of("POST", maps).body(
            "application/yaml",
            format!("a: |{}", FORGED.replace('\n', "\n  ")),
        ),
        Shot::of("POST", maps).body("application/vnd.kubernetes.protobuf", FORGED),
        Shot::of("POST", maps).body(FORGED.trim(), "{}"),
        Shot::patch(
            format!("{maps}/sound"),
            "application/json-patch+json",
            format!("[{FORGED}]"),
        ),
        Shot::patch(
            format!("{maps}/sound"),
            "application/merge-patch+json",
            json!({"data": {"e": FORGED}}).to_string(),
        ),
        Shot::patch(
            format!("{maps}/sound?fieldManager=m&force=true"),
            "application/apply-patch+yaml",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"f": FORGED}}).to_string(),
        ),
        Shot::patch(format!("{maps}/sound"), "application/merge-patch+json", FORGED),
    ];
    let sent = shots.len();
    let before = recorded.events()?.len();
    let play = recorded.play(shots);
    let mut outcome = beside_others(&recorded.server, &OWN, play).await?;
    match recorded.events() {
        Ok(events) => {
            let of_ours = &events[before.min(events.len())..];
            let paths = of_ours.iter().filter(|event| is_of_admin(event)).count();
            if paths < sent {
                outcome.broke(format!("{sent} requests left {paths} events"));
            }
        }
        Err(broken) => outcome.broke(broken),
    }
    Ok(outcome)
}

/// Whether an event is of the administrator, as whom the attacks here ask.
fn is_of_admin(event: &Value) -> bool {
    let groups = event["user"]["groups"].as_array();
    groups.is_some_and(|groups| groups.iter().any(|group| group == "system:masters"))
}

async fn foreign(arena: &Arena) -> Result<Outcome, Error> {
    const GROUP: &str = "records.example.com";
    let Some(recorded) = Recorded::with_log(arena).await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let backend = HttpsServer::start(|_| {
        |request: http::Request<hyper::body::Incoming>| async move {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": FORGED,
                "kind ": "Event", "details": {"causes": [{"message": FORGED}], "foreign": FORGED},
            });
            match request.uri().path() {
                path if path.ends_with("/v1") => {
                    json_answer(200, json!({"kind": "APIResourceList"}).to_string())
                }
                path if path.ends_with("/indented") => {
                    json_answer(403, serde_json::to_string_pretty(&status).unwrap_or_default())
                }
                path if path.ends_with("/twice") => json_answer(403, format!("{status}{FORGED}{status}")),
                path if path.ends_with("/half") => json_answer(403, status.to_string()[..90].to_owned()),
                _ => json_answer(403, status.to_string()),
            }
        }
    })
    .await;
    let target = &recorded.server.target;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    target
        .send(Shot::post("/api/v1/namespaces/default/services", &service))
        .await?;
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "backend", "port": backend.port()},
        },
    });
    target
        .send(Shot::post(
            "/apis/apiregistration.k8s.io/v1/apiservices",
            &registration,
        ))
        .await?;
    let begun = Instant::now();
    while target
        .send(Shot::get(format!("/apis/{GROUP}/v1/plain")))
        .await?
        .status
        != 403
    {
        if begun.elapsed() > PATIENCE {
            return Err("the backend does not become available".into());
        }
        // The condition is of another process.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let shots =
        ["plain", "indented", "twice", "half"].map(|path| Shot::get(format!("/apis/{GROUP}/v1/{path}")));
    let mut outcome = beside_others(&recorded.server, &OWN, recorded.play(shots.to_vec())).await?;
    match recorded.events() {
        Ok(events) => {
            let codes = |path: &str| {
                let found = events.iter().rfind(|event| {
                    event["requestURI"]
                        .as_str()
                        .is_some_and(|uri| uri.ends_with(path))
                });
                found.map(|event| event["responseStatus"]["code"].clone())
            };
            for path in ["plain", "indented", "twice", "half"] {
                if codes(path) != Some(json!(403)) {
                    outcome.broke(format!("{path}: recorded as {:?}", codes(path)));
                }
            }
        }
        Err(broken) => outcome.broke(broken),
    }
    Ok(outcome)
}

async fn hasty(arena: &Arena) -> Result<Outcome, Error> {
    let Some(recorded) = Recorded::with_log(arena).await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let target = &recorded.server.target;
    let play = async {
        for number in 0..HASTY {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("hasty-{number}")}});
            let body = body.to_string();
            let head = format!(
                "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                target.authority(),
                body.len(),
            );
            let mut stream = target.tls(&Credential::Admin, &["http/1.1"]).await?;
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            // The connection ends without a TLS close_notify, as when a client crashes.
            drop(stream);
        }
        Ok(Outcome::new())
    };
    let mut outcome = beside_others(&recorded.server, &OWN, play).await?;
    // What became of each object that is there has to be on record.
    let begun = Instant::now();
    loop {
        let listed = target
            .send(Shot::get("/api/v1/namespaces/default/configmaps"))
            .await?
            .json();
        let made: BTreeSet<&str> = listed["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .filter(|name| name.starts_with("hasty-"))
            .collect();
        let events = recorded.events()?;
        let named: BTreeSet<&str> = events
            .iter()
            .filter(|event| event["verb"] == "create")
            .filter_map(|event| event["requestObject"]["metadata"]["name"].as_str())
            .collect();
        let silent = made.difference(&named).count();
        outcome.note = format!(
            "{} of {HASTY} were done, {silent} of these without an event; {}",
            made.len(),
            outcome.note
        );
        if silent == 0 {
            return Ok(outcome);
        }
        if begun.elapsed() > PATIENCE {
            outcome.broke(format!("{silent} objects were made without an event"));
            return Ok(outcome);
        }
        // The condition is of another process.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn stuck(arena: &Arena) -> Result<Outcome, Error> {
    let webhook = Webhook::start(|_| Reply::Never).await;
    let kubeconfig = webhook.kubeconfig();
    let sink = |directory: &Path| {
        let file = directory.join("audit.kubeconfig");
        match std::fs::write(&file, &kubeconfig) {
            Ok(()) => vec![
                format!("--audit-webhook-config-file={}", file.display()),
                "--audit-webhook-mode=blocking".into(),
            ],
            Err(_) => Vec::new(),
        }
    };
    let started = Recorded::start(arena, &sink);
    let Some(recorded) = started.await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "mallory"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    recorded
        .server
        .target
        .send(Shot::post(bindings, &binding))
        .await?;
    let flood = async {
        let mut flying = tokio::task::JoinSet::new();
        for number in 0..FLOOD {
            let target = recorded.server.target.clone();
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")},
                "data": {"d": "x".repeat(LARGE - 1024)},
            });
            flying.spawn(async move {
                let shot = Shot::post("/api/v1/namespaces/default/configmaps?timeout=20s", &object);
                // Members of system:masters wait for no seat.
                let shot = shot.header("impersonate-user", "mallory");
                tokio::time::timeout(Duration::from_secs(60), target.send(shot)).await
            });
        }
        let mut outcome = Outcome::new();
        let mut waiting = 0;
        while let Some(answer) = flying.join_next().await {
            match answer? {
                Ok(answer) => outcome.count(&answer?),
                Err(_) => waiting += 1,
            }
        }
        outcome.note = format!("{waiting} still wait for the sink after a minute");
        Ok(outcome)
    };
    beside_others(&recorded.server, &STUCK, flood).await
}
