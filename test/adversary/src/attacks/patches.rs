//! Patches whose work grows faster than their bytes.

use serde_json::{Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const REFUSED: Bound = Bound::codes(&[400, 413, 422]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "JSON patch: 9,990 insertions before 300,000 items, twice at once",
            "5a",
            Place::Large,
            REFUSED,
            |arena| Box::pin(json_patch(arena, fronts(9_990, 300_000, "add"), 2)),
        ),
        attack(
            "JSON patch: 9,990 removals before 300,000 items",
            "5a",
            Place::Large,
            REFUSED,
            |arena| Box::pin(json_patch(arena, fronts(9_990, 300_000, "remove"), 1)),
        ),
        attack(
            "JSON patch: 9,990 copies of 100 KB",
            "5a",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(json_patch(arena, copies(9_990, 100_000), 1)),
        ),
        attack(
            "JSON patch: 9,990 moves of 1 MB",
            "5a",
            Place::Large,
            Bound::codes(&[200, 400, 413, 422]),
            |arena| Box::pin(json_patch(arena, moves(9_990, 1_000_000), 1)),
        ),
        attack(
            "JSON patch: one copied list compared 4,000 times",
            "5a",
            Place::Large,
            Bound::codes(&[200, 400, 413, 422]),
            |arena| Box::pin(json_patch(arena, comparisons(), 1)),
        ),
        attack(
            "JSON patch: 10,001 operations",
            "held",
            Place::Quick,
            Bound::codes(&[413]),
            |arena| Box::pin(json_patch(arena, fronts(10_000, 1, "add"), 1)),
        ),
        attack(
            "Strategic merge patch: 20,000 volumes by name into 20,000",
            "5",
            Place::Large,
            Bound::DEFAULT.answer(4 << 20).memory(512.0),
            |arena| Box::pin(strategic(arena)),
        ),
        attack(
            "Apply: 30,000 keys, by two managers with conflicts",
            "5",
            Place::Large,
            Bound::DEFAULT.answer(6 << 20).memory(512.0),
            |arena| Box::pin(applied(arena)),
        ),
    ]
}

async fn json_patch(arena: &Arena, patch: String, times: usize) -> Result<Outcome, Error> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}});
    arena.made(&arena.path("configmaps"), &object).await?;
    let path = arena.path("configmaps/patched");
    let shot = Shot::patch(path, "json-patch+json", patch).by(&arena.tenant);
    arena.volley(vec![shot; times]).await
}

fn operations(first: &str, next: &str, count: usize) -> String {
    format!("[{first}{}]", format!(",{next}").repeat(count))
}

fn fronts(count: usize, length: usize, operation: &str) -> String {
    let list = format!(
        r#"{{"op":"add","path":"/x","value":[{}0]}}"#,
        "0,".repeat(length - 1)
    );
    let value = if operation == "add" { r#","value":0"# } else { "" };
    operations(
        &list,
        &format!(r#"{{"op":"{operation}","path":"/x/0"{value}}}"#),
        count,
    )
}

fn copies(count: usize, length: usize) -> String {
    let list = format!(r#"{{"op":"add","path":"/x","value":["{}"]}}"#, "x".repeat(length));
    operations(&list, r#"{"op":"copy","from":"/x/0","path":"/x/0"}"#, count)
}

fn moves(count: usize, length: usize) -> String {
    let list = format!(
        r#"{{"op":"add","path":"/x","value":[[{}0],0]}}"#,
        "0,".repeat(length / 2)
    );
    operations(&list, r#"{"op":"move","from":"/x/0","path":"/x/1"}"#, count)
}

/// `test` compares with a value that the patch has itself, so that long ones take bytes: 4,000 tests of 300 bytes each.
fn comparisons() -> String {
    let long = format!("[{}0]", "0,".repeat(150));
    let first = format!(r#"{{"op":"add","path":"/x","value":{long}}}"#);
    operations(
        &first,
        &format!(r#"{{"op":"test","path":"/x","value":{long}}}"#),
        4_000,
    )
}

async fn strategic(arena: &Arena) -> Result<Outcome, Error> {
    let volumes = |from: usize| -> Vec<Value> {
        (from..from + 20_000)
            .map(|i| json!({"name": format!("v{i}"), "emptyDir": {}}))
            .collect()
    };
    let template = |volumes: Vec<Value>| {
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes},
        })
    };
    let object = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "merged"}, "template": template(volumes(0)),
    });
    let path = arena.path("podtemplates");
    // The role `admin` does not let tenants write these.
    let mut outcome = arena.shoot(Shot::post(&path, &object)).await?;
    let patch = json!({"template": template(volumes(10_000))}).to_string();
    let shot = Shot::patch(format!("{path}/merged"), "strategic-merge-patch+json", patch);
    outcome.merge(arena.shoot(shot).await?);
    arena.gone(&format!("{path}/merged")).await?;
    Ok(outcome)
}

async fn applied(arena: &Arena) -> Result<Outcome, Error> {
    let data = |value: &str| -> serde_json::Map<String, Value> {
        (0..30_000)
            .map(|i| (format!("k{i}"), Value::from(value)))
            .collect()
    };
    let mut outcome = Outcome::new();
    for (manager, value) in [("one", "a"), ("two", "b")] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data(value),
        });
        let path = arena.path(&format!("configmaps/applied?fieldManager={manager}"));
        let shot = Shot::patch(path, "apply-patch+yaml", object.to_string());
        outcome.merge(arena.shoot(shot.by(&arena.tenant)).await?);
    }
    arena.gone(&arena.path("configmaps/applied")).await?;
    Ok(outcome)
}
