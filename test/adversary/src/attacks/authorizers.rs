//! Authorizers outside of the server: webhooks that are slow, or answer what they should not, and policies with slips.

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Reply, Webhook};

use super::attack;
use super::startup::refused;
use crate::own::beside_others;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Server, Shot};

/// Requests at once that the webhook is asked about: more than may be asked, and more than may wait.
const FLOOD: usize = 400;
const OWN: Bound = Bound::codes(&[403, 429, 500]).seconds(120);
const POLICY: &str = "abac.authorization.kubernetes.io/v1beta1";

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "400 requests at once, of a user that a webhook decides about that does not answer",
            "access",
            Place::Own,
            OWN,
            |arena| Box::pin(slow(arena)),
        ),
        attack(
            "Answers of an authorizer's webhook: 20 MB, 100,000 deep, half of one, both verdicts, texts for verdicts",
            "access",
            Place::Own,
            OWN,
            |arena| Box::pin(odd_answers(arena)),
        ),
        attack(
            "An ABAC policy with a misspelled member",
            "access",
            Place::Own,
            OWN,
            |arena| {
                let policy = json!({"apiVersion": POLICY, "kind": "Policy", "spec": {"users": "alice"}});
                Box::pin(policies(arena, policy))
            },
        ),
        attack(
            "An ABAC policy without its kind",
            "access",
            Place::Own,
            OWN,
            |arena| {
                let policy = json!({"apiVersion": POLICY, "spec": {"user": "alice"}});
                Box::pin(policies(arena, policy))
            },
        ),
    ]
}

/// A server whose requests a webhook decides about, after the roles, and the directory of its configuration.
async fn server(arena: &Arena, webhook: &Webhook) -> Result<Option<(Server, TempDir)>, Error> {
    let Some(binary) = &arena.binary else {
        return Ok(None);
    };
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("webhook.kubeconfig");
    std::fs::write(&kubeconfig, webhook.kubeconfig())?;
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
        "authorizers": [
            {"type": "RBAC", "name": "rbac"},
            {"type": "Webhook", "name": "outside", "webhook": {
                "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
                "authorizedTTL": "1s", "unauthorizedTTL": "1s",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
            }},
        ],
    });
    let file = directory.path().join("authorization.json");
    std::fs::write(&file, config.to_string())?;
    let flag = format!("--authorization-config={}", file.display());
    Ok(Some((Server::start(binary, &[&flag]).await?, directory)))
}

/// A request of a user without rights, which only the webhook could allow.
fn asked(number: usize) -> Shot {
    let shot = Shot::get(format!("/api/v1/namespaces/n{number}/secrets"));
    shot.header("impersonate-user", "mallory")
}

async fn volley(server: &Server, requests: usize) -> Result<Outcome, Error> {
    let mut flying = tokio::task::JoinSet::new();
    for number in 0..requests {
        let target = server.target.clone();
        flying.spawn(async move { target.send(asked(number)).await });
    }
    let mut outcome = Outcome::new();
    while let Some(answer) = flying.join_next().await {
        outcome.count(&answer??);
    }
    Ok(outcome)
}

async fn slow(arena: &Arena) -> Result<Outcome, Error> {
    let webhook = Webhook::start(|_| Reply::Never).await;
    let Some((server, _directory)) = server(arena, &webhook).await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    let mut outcome = beside_others(&server, &OWN, volley(&server, FLOOD)).await?;
    outcome.note = format!(
        "{} connections to the webhook; {}",
        webhook.connections(),
        outcome.note
    );
    Ok(outcome)
}

async fn odd_answers(arena: &Arena) -> Result<Outcome, Error> {
    let webhook = Webhook::start(|question| {
        let path = question["spec"]["resourceAttributes"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let review = |status: Value| {
            Reply::Json(
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}),
            )
        };
        match path {
            "n0" => Reply::Raw(200, vec![b' '; 20 << 20].into()),
            "n1" => Reply::Raw(200, "[".repeat(100_000).into()),
            "n2" => Reply::Raw(200, r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":tr"#.into()),
            "n3" => review(json!({"allowed": true, "denied": true})),
            "n4" => review(json!({"allowed": "true"})),
            "n5" => review(json!({"allowed": true, "denied": "true"})),
            "n6" => review(json!({"allowed": 1, "reason": "x".repeat(1 << 20)})),
            "n7" => review(json!({"allowed": false, "reason": "x".repeat(1 << 20)})),
            "n8" => Reply::Json(json!({"apiVersion": "v1", "kind": "Status", "status": {"allowed": true}})),
            "n9" => review(json!([{"allowed": true}])),
            _ => Reply::Raw(302, "https://169.254.169.254/".into()),
        }
    });
    let webhook = webhook.await;
    let Some((server, _directory)) = server(arena, &webhook).await? else {
        return Ok(Outcome::skipped("needs --binary"));
    };
    beside_others(&server, &OWN, volley(&server, 11)).await
}

/// A server that is started with a policy that is none has to refuse it.
async fn policies(arena: &Arena, policy: Value) -> Result<Outcome, Error> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), policy.to_string())?;
    let flag = format!("--authorization-policy-file={}", file.path().display());
    refused(arena, &["--authorization-mode=ABAC,RBAC", &flag]).await
}
