//! The first seconds of a server, and what its flags promise. Each of these starts servers of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use generic_server::pki::Authority;
use serde_json::{Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Server, Shot, Target};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: usize = 200;
const RESTARTS: usize = 4;
/// Clients that create while the server starts.
const CLIENTS: usize = 8;
/// For how long creates go on after `/readyz` says ok.
const AFTER_READY: Duration = Duration::from_secs(3);
/// How long a server with wrong flags may take to fail.
const REFUSAL: Duration = Duration::from_secs(10);

const OWN: Bound = Bound::DEFAULT.seconds(240);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Creates that a policy denies, during 4 restarts with 200 policies",
            "3",
            Place::Own,
            OWN,
            |arena| Box::pin(restarts(arena)),
        ),
        attack(
            "Creates that a webhook denies, during 2 restarts",
            "3",
            Place::Own,
            OWN,
            |arena| Box::pin(webhook_restarts(arena)),
        ),
        attack(
            "The own CA's administrator beside --client-ca-file",
            "13",
            Place::Own,
            OWN,
            |arena| Box::pin(own_authority(arena)),
        ),
        attack(
            "--enable-admission-plugins=Bogus",
            "8",
            Place::Own,
            OWN,
            |arena| Box::pin(refused(arena, &["--enable-admission-plugins=Bogus"])),
        ),
        attack(
            "--disable-admission-plugins=Bogus",
            "8",
            Place::Own,
            OWN,
            |arena| Box::pin(refused(arena, &["--disable-admission-plugins=Bogus"])),
        ),
        attack(
            "--disable-admission-plugins=ServiceAccount",
            "8",
            Place::Own,
            OWN,
            |arena| Box::pin(disabled(arena)),
        ),
        attack(
            "A privileged pod without --allow-privileged",
            "8",
            Place::Own,
            OWN,
            |arena| Box::pin(privileged(arena)),
        ),
    ]
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn made(target: &Target, path: &str, object: &Value) -> Result<(), Error> {
    let answer = target.send(Shot::post(path, object)).await?;
    match answer.status {
        201 | 409 => Ok(()),
        other => Err(format!("POST {path}: {other}").into()),
    }
}

fn policy(name: &str, expression: &str) -> [(&'static str, Value); 2] {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": expression}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ]
}

async fn restarts(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let mut server = Server::start(binary, &[]).await?;
    for i in 0..POLICIES {
        for (resource, object) in policy(&format!("idle-{i}"), "object.metadata.name != 'nobody'") {
            made(&server.target, &format!("{ADMISSION}/{resource}"), &object).await?;
        }
    }
    for (resource, object) in policy("zz-denies", "!object.metadata.name.startsWith('denied-')") {
        made(&server.target, &format!("{ADMISSION}/{resource}"), &object).await?;
    }
    slipped(&mut server, RESTARTS).await
}

/// A webhook that cannot be reached and must not be passed over denies as well, and is read from another list.
async fn webhook_restarts(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let mut server = Server::start(binary, &[]).await?;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "denies"},
        "webhooks": [{
            "name": "denies.example.com", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    let path = format!("{ADMISSION}/validatingwebhookconfigurations");
    made(&server.target, &path, &hook).await?;
    slipped(&mut server, 2).await
}

/// Restarts a server on which every ConfigMap `denied-...` is to be denied, under a stream of such creates.
async fn slipped(server: &mut Server, restarts: usize) -> Result<Outcome, Error> {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let begun = std::time::Instant::now();
    loop {
        let name = format!("denied-first-{}", begun.elapsed().as_millis());
        let answer = server.target.send(Shot::post(MAPS, &config_map(&name))).await?;
        if answer.status != 201 {
            break;
        }
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("nothing is ever denied".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (tried, through) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for restart in 0..restarts {
        server.restart(None).await?;
        let over = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let (target, over) = (server.target.clone(), over.clone());
            let (tried, through) = (tried.clone(), through.clone());
            clients.spawn(async move {
                let mut turn = 0;
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut send) = target.connect(&Credential::Admin).await else {
                        // It does not listen yet.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        continue;
                    };
                    // One connection for many, so that no handshake hides the moment in which a create is let in.
                    while !over.load(Ordering::Relaxed) {
                        turn += 1;
                        let name = format!("denied-{restart}-{client}-{turn}");
                        let shot = Shot::post(MAPS, &config_map(&name));
                        let Ok(answer) = target.send_over(&mut send, shot).await else {
                            break;
                        };
                        if answer.status == 0 {
                            break;
                        }
                        tried.fetch_add(1, Ordering::Relaxed);
                        through.fetch_add(usize::from(answer.status == 201), Ordering::Relaxed);
                    }
                }
            });
        }
        server.ready().await?;
        tokio::time::sleep(AFTER_READY).await;
        over.store(true, Ordering::Relaxed);
        while clients.join_next().await.is_some() {}
    }
    let (tried, through) = (tried.load(Ordering::Relaxed), through.load(Ordering::Relaxed));
    let mut outcome = Outcome::new();
    outcome.note = format!("{through} of {tried} creates let in");
    if through > 0 {
        outcome.broke(outcome.note.clone());
    }
    Ok(outcome)
}

async fn own_authority(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let mut server = Server::start(binary, &[]).await?;
    let other = Authority::generate("other")?;
    let file = server.directory().join("other-ca.crt");
    std::fs::write(&file, &other.certificate)?;
    let flag = format!("--client-ca-file={}", file.display());
    server.restart(Some(&[&flag])).await?;
    let mut outcome = Outcome::new();
    // The administrator may no longer be one, so that `/readyz` is asked for without a credential.
    let begun = std::time::Instant::now();
    loop {
        let asked = server
            .target
            .send(Shot::get("/readyz").by(&Credential::Anonymous))
            .await;
        if asked.is_ok_and(|answer| answer.status == 200) {
            break;
        }
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("the server did not become ready".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = match server.target.send(Shot::get("/api/v1/secrets")).await {
        Ok(answer) => answer.status,
        // Refused in the handshake.
        Err(_) => 401,
    };
    outcome.codes.insert(status, 1);
    if status == 200 {
        outcome.broke("its certificate is still system:masters");
    }
    Ok(outcome)
}

pub(super) async fn refused(arena: &Arena, flags: &[&str]) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let directory = tempfile::tempdir()?;
    let child = command(binary, directory.path(), flags).spawn()?;
    let ended = tokio::time::timeout(REFUSAL, child.wait_with_output()).await;
    let mut outcome = Outcome::new();
    match ended {
        Err(_) => outcome.broke("accepted without a word"),
        Ok(output) => {
            let status = output?.status;
            outcome.note = format!("{status}");
            if status.success() {
                outcome.broke("ended well");
            }
        }
    }
    Ok(outcome)
}

fn command(binary: &Path, directory: &Path, flags: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(binary);
    command
        .arg("--data-dir")
        .arg(directory)
        .args(["--bind-address=127.0.0.1", "--secure-port=0"])
        .args(flags)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    command
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

async fn disabled(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let server = Server::start(binary, &["--disable-admission-plugins=ServiceAccount"]).await?;
    let shot = Shot::post("/api/v1/namespaces/default/pods", &pod("bare"));
    let answer = server.target.send(shot).await?;
    let mut outcome = Outcome::new();
    outcome.count(&answer);
    if answer.status != 201 || !answer.json()["spec"]["volumes"].is_null() {
        outcome.broke("the plugin still runs");
    }
    Ok(outcome)
}

async fn privileged(arena: &Arena) -> Result<Outcome, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let server = Server::start(binary, &["--allow-privileged=false"]).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    made(
        &server.target,
        "/api/v1/namespaces/default/serviceaccounts",
        &account,
    )
    .await?;
    let mut object = pod("privileged");
    object["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let shot = Shot::post("/api/v1/namespaces/default/pods", &object);
    let answer = server.target.send(shot).await?;
    let mut outcome = Outcome::new();
    outcome.count(&answer);
    if answer.status == 201 {
        outcome.broke("a privileged pod is let in");
    }
    Ok(outcome)
}
