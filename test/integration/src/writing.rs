//! Writing as kube-apiserver does: sequences of creates, updates, patches and applies whose answers and field owners were taken
//! down from kube-apiserver v1.36 (`writing/sequences.json`). Times are left out: they are rounded to seconds and decide only the order.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use test_support::plane_with;

const SEQUENCES: &str = include_str!("writing/sequences.json");

/// Field ownership: manager, operation, version and subresource to the fields.
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
            let label = format!(
                "{} step {at}: {} {}",
                sequence["name"],
                text("method"),
                text("path")
            );
            if u64::from(answer.status) != step["status"].as_u64().unwrap_or_default() {
                faults.push(format!("{label}: {} {}", answer.status, answer.json));
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
                    faults.push(format!("{label}:\n  wanted {expected:?}\n  found  {found:?}"));
                    break;
                }
            }
            for cause in step["causes"].as_array().into_iter().flatten() {
                let causes = answer.json["details"]["causes"].as_array();
                let same = |c: &Value| c["field"] == cause[0] && c["message"] == cause[1];
                if !causes.into_iter().flatten().any(same) {
                    faults.push(format!("{label}: no cause {cause} in {}", answer.json));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    plane.stop().await;
}

#[tokio::test]
async fn a_selector_is_replaced_by_a_strategic_patch() {
    let (plane, client) = plane_with(|builder| builder.with(|o| o.controllers = vec!["-*".into()])).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "1", "b": "2"}}}});
    client.post(budgets, &budget).await.expect(201);
    let patch = json!({"spec": {"selector": {"matchExpressions": [{"key": "c", "operator": "Exists"}]}}});
    let patched = client
        .patch(&format!("{budgets}/b"), "strategic-merge-patch+json", &patch)
        .await
        .expect(200);
    assert_eq!(patched["spec"]["selector"], patch["spec"]["selector"]);
    plane.stop().await;
}

#[tokio::test]
async fn a_huge_collection_is_deleted() {
    let (plane, client) = plane_with(|builder| builder.with(|o| o.controllers = vec!["-*".into()])).await;
    let store = plane
        .directory()
        .get(&machinery::GroupResource::new("", "configmaps"))
        .expect("config maps")
        .store;
    // More than upstream's page, straight into the store: it is not creating that is looked at here.
    let label = |index: usize| ["a", "b"][usize::from(index >= 10_100)];
    let objects: Vec<Value> = (0..10_200)
        .map(|index| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{index:05}"),
                "namespace": "default", "uid": format!("u-{index}"), "labels": {"l": label(index)}}})
        })
        .collect();
    let mut inserts = tokio::task::JoinSet::new();
    for object in objects {
        let store = store.clone();
        inserts.spawn(async move { store.as_system().insert(&object, None).await.map(|_| ()) });
    }
    for done in inserts.join_all().await {
        done.expect("it is stored");
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    // A page at a time makes progress too.
    let some = client
        .delete(&format!("{maps}?labelSelector=l%3Da&limit=50"))
        .await
        .expect(200);
    assert_eq!(some["items"].as_array().map(Vec::len), Some(50));
    let rest = client
        .delete(&format!("{maps}?labelSelector=l%3Da"))
        .await
        .expect(200);
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(10_050));
    let left = client.get(&format!("{maps}?limit=1")).await.expect(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "m-10100");
    assert_eq!(left["metadata"]["remainingItemCount"], 99);
    plane.stop().await;
}
