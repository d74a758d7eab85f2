//! Writing as kube-apiserver does: sequences of creates, updates, patches and applies whose answers and field owners were taken
//! down from kube-apiserver v1.36 (`writing/sequences.json`). Times are left out: they are rounded to seconds and decide only the order.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use test_support::plane_with;

const SEQUENCES: &str = include_str!("writing/sequences.json");

/// Who owns what: manager, operation, version and subresource to the fields.
type Owners = BTreeMap<[String; 4], Value>;

fn key(entry: &Value) -> [String; 4] {
    let text = |index: usize| entry[index].as_str().unwrap_or_default().to_owned();
    [text(0), text(1), text(2), text(3)]
}

fn owners(object: &Value) -> Owners {
    let entries = object["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let id = [
                text("manager"),
                text("operation"),
                text("apiVersion"),
                text("subresource"),
            ];
            (id, entry["fieldsV1"].clone())
        })
        .collect()
}

#[tokio::test]
async fn fields_are_owned_as_upstream_has_them() {
    let recorded: Value = serde_json::from_str(SEQUENCES).expect("JSON");
    // The recording was made without controllers.
    let (plane, client) = plane_with(|builder| builder.with(|o| o.controllers = vec!["-*".into()])).await;
    for object in recorded["setup"].as_array().expect("a list") {
        let path = object["path"].as_str().expect("a path");
        client.post(path, &object["body"]).await.expect(201);
    }
    let mut faults = Vec::new();
    for (index, sequence) in recorded["sequences"]
        .as_array()
        .expect("a list")
        .iter()
        .enumerate()
    {
        let namespace = format!("s{index}");
        let create = json!({"metadata": {"name": namespace}});
        client.post("/api/v1/namespaces", &create).await.expect(201);
        let account = json!({"metadata": {"name": "default"}});
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        client.post(&accounts, &account).await;
        let mut expected = Owners::new();
        for (at, step) in sequence["steps"].as_array().expect("a list").iter().enumerate() {
            let step: Value =
                serde_json::from_str(&step.to_string().replace("NS", &namespace)).expect("JSON");
            let text = |key: &str| step[key].as_str().unwrap_or_default();
            let body = match step.get("body") {
                Some(body) => body.to_string(),
                None => String::new(),
            };
            let media = match text("type") {
                "" => "application/json",
                media => media,
            };
            let answer = client.raw(text("method"), text("path"), media, body).await;
            let told = format!(
                "{} step {at}: {} {}",
                sequence["name"],
                text("method"),
                text("path")
            );
            if u64::from(answer.status) != step["status"].as_u64().unwrap_or_default() {
                faults.push(format!("{told}: {} {}", answer.status, answer.json));
                break;
            }
            if let Some(owned) = step["owned"].as_array() {
                if step["fresh"] == true {
                    expected.clear();
                }
                for lost in step["lost"].as_array().into_iter().flatten() {
                    expected.remove(&key(lost));
                }
                expected.extend(owned.iter().map(|entry| (key(entry), entry[4].clone())));
                let found = owners(&answer.json);
                if found != expected {
                    faults.push(format!("{told}:\n  wanted {expected:?}\n  found  {found:?}"));
                    break;
                }
            }
            for cause in step["causes"].as_array().into_iter().flatten() {
                let causes = answer.json["details"]["causes"].as_array();
                let same = |c: &Value| c["field"] == cause[0] && c["message"] == cause[1];
                if !causes.into_iter().flatten().any(same) {
                    faults.push(format!("{told}: no cause {cause} in {}", answer.json));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    plane.stop().await;
}
