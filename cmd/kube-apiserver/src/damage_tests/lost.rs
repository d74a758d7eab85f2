//! Changes whose keys are damaged: nobody knows what they were, so the server refuses writes until somebody takes note.

use clap::Parser;
use serde_json::{Value, json};
use test_support::{Answer, Client, eventually};

use super::{MAPS, damage_text, map, start};
use crate::check::ScrubCommand;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn admission(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A policy that denies Secrets, and its binding.
fn denial() -> [(&'static str, Value); 2] {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]});
    let policy =
        json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]});
    let binding = json!({"policyName": "deny-secrets", "validationActions": ["Deny"]});
    [
        (
            "validatingadmissionpolicies",
            admission("ValidatingAdmissionPolicy", "deny-secrets", policy),
        ),
        (
            "validatingadmissionpolicybindings",
            admission("ValidatingAdmissionPolicyBinding", "deny-secrets", binding),
        ),
    ]
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn text(answer: Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

async fn is_denied(client: &Client) {
    eventually("the policy is in force", || async {
        let answer = client.try_post(SECRETS, &secret("s")).await.ok()?;
        let body = text(answer);
        body.contains("denied request").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_its_key_refuses_writes_until_it_is_dropped() {
    for lost in denial().map(|(resource, _)| resource) {
        let dir = tempfile::tempdir().expect("a directory");
        let (plane, client) = start(dir.path()).await;
        client.post(MAPS, &map("before")).await.expect(201);
        for (resource, object) in denial() {
            client
                .post(&format!("{GROUP}/{resource}"), &object)
                .await
                .expect(201);
        }
        is_denied(&client).await;
        plane.stop().await;
        // Both copies of the header, in all pages that have it.
        damage_text(dir.path(), &format!("{lost}/deny-secrets"));

        for _ in 0..2 {
            let (plane, client) = start(dir.path()).await;
            client.get("/livez").await.expect(200);
            let unready = text(client.get("/readyz").await);
            assert!(
                unready.contains("[-]storage-integrity failed") && unready.contains("--drop-lost-changes"),
                "{unready}"
            );
            let why = client.get("/readyz/storage-integrity").await;
            assert_eq!(why.status, 500);
            assert!(text(why).contains("stored changes are lost"));
            // Reads go on, and no write is let through that nothing is there to decide about.
            client.get(&format!("{MAPS}/before")).await.expect(200);
            for (path, object) in [(SECRETS, secret("s")), (MAPS, map("new"))] {
                let refused = client.post(path, &object).await.expect(403);
                let message = refused["message"].as_str().unwrap_or_default();
                assert!(message.contains("not yet ready to handle request"), "{refused}");
            }
            client.delete(&format!("{MAPS}/before")).await.expect(403);
            client
                .put(&format!("{MAPS}/before"), &map("before"))
                .await
                .expect(403);
            plane.stop().await;
        }
        // It is made again before writes are taken: no stored policy decides about policies.
        let (plane, client) = start(dir.path()).await;
        let denial = denial();
        let again = denial.iter().find(|(resource, _)| *resource == lost);
        let again = &again.expect("one of them").1;
        client.post(&format!("{GROUP}/{lost}"), again).await.expect(201);
        client.get("/readyz").await.expect(500);
        plane.stop().await;

        let scrub = |more: &[&str]| {
            let directory = dir.path().display().to_string();
            let common = ["scrub", "--data-dir", &directory];
            ScrubCommand::parse_from(common.iter().chain(more)).run()
        };
        let named = scrub(&[]).await.expect_err("it is damaged").to_string();
        assert!(named.contains("a key that cannot be read"), "{named}");
        let dropped = scrub(&["--drop-lost-changes"])
            .await
            .expect("nothing else is wrong");
        assert!(
            dropped.contains("dropped: the header of a change at revision ")
                && dropped.contains("its key may have been `/registry/"),
            "{dropped}"
        );
        let sound = scrub(&["--drop-lost-changes"]).await.expect("it is sound");
        assert!(!sound.contains("dropped"), "{sound}");

        let (plane, client) = start(dir.path()).await;
        client.get("/readyz").await.expect(200);
        client.post(MAPS, &map("new")).await.expect(201);
        is_denied(&client).await;
        plane.stop().await;
    }
}
