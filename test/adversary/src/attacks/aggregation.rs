//! Attacks that make the aggregator pass on another identity, or another request than the one that was authorized.

use serde_json::{Value, json};

use super::attack;
use crate::backend::{Arrived, Backend};
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Shot};

const GROUP: &str = "adversary.example.com";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ANY: Bound = Bound::codes(&[200, 400, 403]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Connection: x-remote-user, x-remote-group",
            "6",
            Place::Quick,
            ANY,
            |arena| Box::pin(stripped(arena, "x-remote-user, x-remote-group")),
        ),
        attack("Connection: x-remote-group", "6", Place::Quick, ANY, |arena| {
            Box::pin(stripped(arena, "X-Remote-Group"))
        }),
        attack(
            "Connection: x-remote-uid and extras",
            "6",
            Place::Quick,
            ANY,
            |arena| {
                Box::pin(stripped(
                    arena,
                    "x-remote-uid, x-remote-extra-authentication.kubernetes.io%2fcredential-id",
                ))
            },
        ),
        attack(
            "Connection: x-remote-user on an upgrade",
            "6",
            Place::Quick,
            Bound::DEFAULT,
            |arena| Box::pin(stripped(arena, "upgrade, x-remote-user, x-remote-group")),
        ),
        attack(
            "X-Remote-Group: system:masters from a client",
            "held",
            Place::Quick,
            ANY,
            |arena| Box::pin(added(arena)),
        ),
        attack(
            "One allowed name: a field selector with ';'",
            "7",
            Place::Quick,
            ANY,
            |arena| Box::pin(selected(arena, "fieldSelector=metadata.name%3Dallowed,x!%3D;")),
        ),
        attack(
            "One allowed name: a field selector with '%zz'",
            "7",
            Place::Quick,
            ANY,
            |arena| Box::pin(selected(arena, "fieldSelector=metadata.name%3Dallowed%zz")),
        ),
        attack(
            "One allowed name: two field selectors",
            "7",
            Place::Quick,
            ANY,
            |arena| {
                Box::pin(selected(
                    arena,
                    "fieldSelector=metadata.name%3Dallowed&fieldSelector=",
                ))
            },
        ),
        attack(
            "One allowed name: an empty selector first",
            "7",
            Place::Quick,
            ANY,
            |arena| {
                Box::pin(selected(
                    arena,
                    "fieldSelector=&fieldSelector=metadata.name%3Dallowed",
                ))
            },
        ),
        attack(
            "The right to watch alone: watch=1;",
            "7",
            Place::Quick,
            ANY,
            |arena| Box::pin(watched(arena, "watch=1;")),
        ),
        attack(
            "The right to watch alone: watch=1%zz",
            "7",
            Place::Quick,
            ANY,
            |arena| Box::pin(watched(arena, "watch=1%zz")),
        ),
        attack(
            "The right to watch alone: watch=1&watch=0",
            "7",
            Place::Quick,
            ANY,
            |arena| Box::pin(watched(arena, "watch=0&watch=1")),
        ),
    ]
}

/// A backend that is registered and available; attacks take turns, each with one of its own.
async fn backend(arena: &Arena) -> Result<Backend, Error> {
    let backend = Backend::start().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    arena.made(&arena.path("services"), &service).await?;
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": arena.namespace, "name": "backend", "port": backend.port},
        },
    });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    arena.gone(&format!("{services}/v1.{GROUP}")).await?;
    arena.made(services, &registration).await?;
    let probe = Shot::get(format!("/apis/{GROUP}/v1/probes"));
    arena
        .until("the backend is available", probe, |answer| {
            answer.status == 200 && !backend.take("/probes").is_empty()
        })
        .await?;
    Ok(backend)
}

/// A user with one rule for `things`, bound cluster-wide.
async fn user(arena: &Arena, name: &str, rule: Value) -> Result<Credential, Error> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    arena.made(&arena.path("serviceaccounts"), &account).await?;
    let full = format!("adversary-{name}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": full}, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": full},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": arena.namespace}],
    });
    arena.made(&format!("{RBAC}/clusterroles"), &role).await?;
    arena
        .made(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await?;
    arena.token(name).await
}

fn header<'a>(arrived: &'a Arrived, name: &str) -> Option<&'a str> {
    arrived.headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether a request that arrived carries its sender's identity: a service account of this arena, in its groups.
fn check_identity(arena: &Arena, arrived: &[Arrived], outcome: &mut Outcome) {
    if arrived.is_empty() {
        outcome.note = "nothing was passed on".into();
    }
    let prefix = format!("system:serviceaccount:{}:", arena.namespace);
    for request in arrived {
        let user = header(request, "x-remote-user").unwrap_or_default();
        let groups: Vec<&str> = request
            .headers
            .get_all("x-remote-group")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        if !user.starts_with(&prefix) {
            outcome.broke(format!("passed on as the user '{user}'"));
        } else if !groups.contains(&"system:authenticated") || groups.contains(&"system:masters") {
            outcome.broke(format!("passed on with the groups {groups:?}"));
        } else if header(request, "x-remote-uid").is_none_or(str::is_empty) {
            outcome.broke("passed on without a uid");
        } else if !request
            .headers
            .keys()
            .any(|name| name.as_str().starts_with("x-remote-extra-"))
        {
            outcome.broke("passed on without extras");
        }
    }
}

async fn reader(arena: &Arena) -> Result<Credential, Error> {
    let rule = json!({"apiGroups": [GROUP], "resources": ["things"], "verbs": ["get", "list"]});
    user(arena, "reader", rule).await
}

/// Waits until a user's rule is known, by a request that it allows.
async fn known(arena: &Arena, who: &Credential, path: &str) -> Result<(), Error> {
    let shot = Shot::get(path).by(who);
    arena
        .until("the rule is known", shot, |answer| answer.status == 200)
        .await
}

async fn stripped(arena: &Arena, connection: &str) -> Result<Outcome, Error> {
    let backend = backend(arena).await?;
    let who = reader(arena).await?;
    let path = format!("/apis/{GROUP}/v1/things");
    known(arena, &who, &path).await?;
    backend.take("/things");
    let mut shot = Shot::get(path).by(&who).header("connection", connection);
    if connection.contains("upgrade") {
        shot = shot.header("upgrade", "websocket");
    }
    let mut outcome = arena.shoot(shot).await?;
    // The backend does not upgrade, so that any answer of the aggregator is fine.
    if connection.contains("upgrade") {
        outcome.codes.clear();
    }
    check_identity(arena, &backend.take("/things"), &mut outcome);
    Ok(outcome)
}

async fn added(arena: &Arena) -> Result<Outcome, Error> {
    let backend = backend(arena).await?;
    let who = reader(arena).await?;
    let path = format!("/apis/{GROUP}/v1/things");
    known(arena, &who, &path).await?;
    backend.take("/things");
    let shot = Shot::get(path)
        .by(&who)
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters")
        .header("x_remote_group", "system:masters");
    let mut outcome = arena.shoot(shot).await?;
    check_identity(arena, &backend.take("/things"), &mut outcome);
    Ok(outcome)
}

/// The values of a query's key, by Go's rules: a pair with a semicolon or a bad escape is none.
fn values(target: &str, key: &str) -> Vec<String> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    query
        .split('&')
        .filter(|pair| !pair.contains(';') && !pair.contains("%zz"))
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value.replace("%3D", "=").replace("%3d", "="))
        .collect()
}

async fn selected(arena: &Arena, query: &str) -> Result<Outcome, Error> {
    let backend = backend(arena).await?;
    let rule = json!({
        "apiGroups": [GROUP], "resources": ["things"], "resourceNames": ["allowed"], "verbs": ["list"],
    });
    let who = user(arena, "one-name", rule).await?;
    let path = format!("/apis/{GROUP}/v1/things");
    let allowed = format!("{path}?fieldSelector=metadata.name%3Dallowed");
    known(arena, &who, &allowed).await?;
    backend.take("/things");
    let mut outcome = arena.shoot(Shot::get(format!("{path}?{query}")).by(&who)).await?;
    for arrived in backend.take("/things") {
        let first = values(&arrived.target, "fieldSelector").into_iter().next();
        if first.as_deref() != Some("metadata.name=allowed") {
            outcome.broke(format!("passed on as {}", arrived.target));
        }
    }
    Ok(outcome)
}

async fn watched(arena: &Arena, query: &str) -> Result<Outcome, Error> {
    let backend = backend(arena).await?;
    let rule = json!({"apiGroups": [GROUP], "resources": ["things"], "verbs": ["watch"]});
    let who = user(arena, "watcher", rule).await?;
    let path = format!("/apis/{GROUP}/v1/things");
    known(arena, &who, &format!("{path}?watch=1")).await?;
    backend.take("/things");
    let mut outcome = arena.shoot(Shot::get(format!("{path}?{query}")).by(&who)).await?;
    for arrived in backend.take("/things") {
        let first = values(&arrived.target, "watch").into_iter().next();
        if !matches!(first.as_deref(), Some("1" | "true")) {
            outcome.broke(format!("passed on as {}", arrived.target));
        }
    }
    Ok(outcome)
}
