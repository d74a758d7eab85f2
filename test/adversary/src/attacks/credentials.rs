//! Privilege escalation: certificate requests, tokens, bindings, backups.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::{BmpString, TeletexString, UniversalString};
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
use serde_json::{Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const REFUSED: Bound = Bound::codes(&[400, 403, 422]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Certificate request: system:masters",
            "held",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(requested(arena, |masters| masters.into(), |pem| pem)),
        ),
        attack(
            "Certificate request: system:masters as a BMPString",
            "9",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(requested(arena, bmp, |pem| pem)),
        ),
        attack(
            "Certificate request: system:masters as a UniversalString",
            "9",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(requested(arena, universal, |pem| pem)),
        ),
        attack(
            "Certificate request: system:masters as a TeletexString",
            "9",
            Place::Quick,
            REFUSED,
            |arena| {
                let teletex =
                    |text: &str| TeletexString::try_from(text).map_or(text.into(), DnValue::TeletexString);
                Box::pin(requested(arena, teletex, |pem| pem))
            },
        ),
        attack(
            "Certificate request: system:masters behind PEM headers",
            "9",
            Place::Quick,
            REFUSED,
            |arena| {
                let headed =
                    |pem: String| pem.replacen("REQUEST-----\n", "REQUEST-----\nProc-Type: 4\nX: y\n\n", 1);
                Box::pin(requested(arena, |masters| masters.into(), headed))
            },
        ),
        attack(
            "Certificate request: system:masters behind a malformed block",
            "9",
            Place::Quick,
            REFUSED,
            |arena| {
                let second = |pem: String| {
                    let bad =
                        "-----BEGIN CERTIFICATE REQUEST-----\n!!!!\n-----END CERTIFICATE REQUEST-----\n";
                    format!("{bad}{pem}")
                };
                Box::pin(requested(arena, |masters| masters.into(), second))
            },
        ),
        attack(
            "Certificate request: no request at all",
            "9",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(requested(arena, |masters| masters.into(), |_| "nothing".into())),
        ),
        attack(
            "A token bound to a pod of another service account",
            "10",
            Place::Quick,
            Bound::codes(&[400]),
            |arena| Box::pin(foreign_pod(arena)),
        ),
        attack(
            "A YAML Binding with labels that are no strings",
            "13",
            Place::Quick,
            Bound::codes(&[400, 422]),
            |arena| Box::pin(binding(arena)),
        ),
        attack(
            "A backup by a role for all URLs",
            "13",
            Place::Quick,
            Bound::codes(&[403]),
            |arena| Box::pin(backup(arena)),
        ),
        attack(
            "Identity in X-Remote headers of a client",
            "held",
            Place::Quick,
            Bound::codes(&[403]),
            |arena| {
                let shot = Shot::get("/api/v1/secrets").by(&arena.nobody);
                let shot = shot
                    .header("x-remote-user", "admin")
                    .header("x-remote-group", "system:masters");
                Box::pin(arena.shoot(shot))
            },
        ),
        attack(
            "Impersonation of system:masters by a tenant",
            "held",
            Place::Quick,
            Bound::codes(&[403]),
            |arena| {
                let shot = Shot::get("/api/v1/secrets").by(&arena.tenant);
                let shot = shot
                    .header("impersonate-user", "a")
                    .header("impersonate-group", "system:masters");
                Box::pin(arena.shoot(shot))
            },
        ),
        attack(
            "Anonymous requests by odd spellings of a path",
            "held",
            Place::Quick,
            Bound::codes(&[307, 400, 401, 403, 404]),
            |arena| {
                let paths = [
                    "//api/v1/secrets",
                    "/api/v1/../v1/secrets",
                    "/healthz/../api/v1/secrets",
                    "/api%2fv1/secrets",
                    "/livez/%2e%2e/api/v1/secrets",
                ];
                let shots = paths.map(|path| Shot::get(path).by(&crate::Credential::Anonymous));
                Box::pin(arena.volley(shots.into()))
            },
        ),
    ]
}

fn bmp(text: &str) -> DnValue {
    let bytes = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    BmpString::from_utf16be(bytes).map_or(text.into(), DnValue::BmpString)
}

fn universal(text: &str) -> DnValue {
    let bytes = text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
    UniversalString::from_utf32be(bytes).map_or(text.into(), DnValue::UniversalString)
}

async fn requested(
    arena: &Arena,
    organization: fn(&str) -> DnValue,
    spell: fn(String) -> String,
) -> Result<Outcome, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "mallory");
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization("system:masters"));
    let pem = params.serialize_request(&KeyPair::generate()?)?.pem()?;
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "masters-"},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": STANDARD.encode(spell(pem)),
        },
    });
    arena.shoot(Shot::post(REQUESTS, &request)).await
}

fn pod(name: &str, account: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]},
    })
}

async fn foreign_pod(arena: &Arena) -> Result<Outcome, Error> {
    arena.made(&arena.path("pods"), &pod("foreign", "tenant")).await?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "foreign"}},
    });
    let path = arena.path("serviceaccounts/nobody/token");
    arena.shoot(Shot::post(path, &request)).await
}

async fn binding(arena: &Arena) -> Result<Outcome, Error> {
    arena
        .made(&arena.path("pods"), &pod("unbound", "default"))
        .await?;
    let body = "apiVersion: v1\nkind: Binding\nmetadata: {name: unbound, labels: {a: 1, b: true}, annotations: {c: [1]}}\n\
                target: {kind: Node, name: n}\n";
    let shot = Shot::of("POST", arena.path("pods/unbound/binding")).body("application/yaml", body);
    let mut outcome = arena.shoot(shot).await?;
    let patch = r#"{"metadata":{"labels":{"later":"yes"}}}"#;
    let patched = arena
        .send(Shot::patch(arena.path("pods/unbound"), "merge-patch+json", patch))
        .await?;
    if patched.status != 200 {
        outcome.broke(format!(
            "the pod cannot be patched afterwards: {}",
            patched.status
        ));
    }
    Ok(outcome)
}

async fn backup(arena: &Arena) -> Result<Outcome, Error> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "adversary-urls"},
        "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "adversary-urls"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "adversary-urls"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "url-reader"}],
    });
    arena.made(&format!("{RBAC}/clusterroles"), &role).await?;
    arena
        .made(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await?;
    let reader = |path: &str| Shot::get(path).header("impersonate-user", "url-reader");
    arena
        .until("the role is bound", reader("/metrics"), |answer| {
            answer.status == 200
        })
        .await?;
    arena.shoot(reader("/backup")).await
}
