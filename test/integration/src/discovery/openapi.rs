//! OpenAPI documents, compared with kube-apiserver 1.36 in everything but the words of descriptions.

use generic_server::openapi::digest;
use serde_json::{Map, Value};
use test_support::plane;

/// A line for each document of kube-apiserver 1.36 without flags: its path below `/openapi/v3/` (or `v2`), and the digests of its paths and of its
/// schemas in [`form`].
const UPSTREAM: &str = include_str!("openapi.txt");

/// A document without what does not matter: descriptions are there or not, parameters and required fields have no order.
fn form(value: &Value) -> Value {
    let member = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            ("description", Value::String(_)) => true.into(),
            ("required" | "parameters", Value::Array(items)) => {
                let mut items: Vec<Value> = items.iter().map(form).collect();
                items.sort_by_cached_key(Value::to_string);
                items.into()
            }
            (_, value) => form(value),
        };
        (key.clone(), value)
    };
    match value {
        Value::Object(map) => {
            let mut members: Vec<(String, Value)> = map.iter().map(member).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(Map::from_iter(members))
        }
        Value::Array(items) => items.iter().map(form).collect(),
        other => other.clone(),
    }
}

fn mark(value: &Value) -> String {
    let mut digest = digest(form(value).to_string().as_bytes());
    digest.truncate(16);
    digest
}

/// Puts shared parameters in the place of references to them: their names hold a digest of their texts.
fn without_references(value: &mut Value, parameters: &Value) {
    match value {
        Value::Object(map) => {
            let shared = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|name| name.strip_prefix("#/parameters/"))
                .map(|name| parameters[name].clone());
            match shared {
                Some(shared) => *value = shared,
                None => map
                    .values_mut()
                    .for_each(|value| without_references(value, parameters)),
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|value| without_references(value, parameters)),
        _ => {}
    }
}

#[tokio::test]
async fn openapi_documents_are_upstreams() {
    let (plane, client) = plane().await;
    let index: Value = client.get("/openapi/v3").await.expect(200);
    let paths = index["paths"].as_object().expect("paths");
    let mut lines = Vec::new();
    for path in paths.keys() {
        let document: Value = client.get(&format!("/openapi/v3/{path}")).await.expect(200);
        let none = Value::Object(Map::new());
        let schemas = document.pointer("/components/schemas").unwrap_or(&none);
        lines.push(format!("{path} {} {}", mark(&document["paths"]), mark(schemas)));
    }
    lines.sort();
    let mut document: Value = client.get("/openapi/v2").await.expect(200);
    let parameters = document["parameters"].take();
    without_references(&mut document["paths"], &parameters);
    lines.push(format!(
        "v2 {} {}",
        mark(&document["paths"]),
        mark(&document["definitions"])
    ));
    let expected: Vec<&str> = UPSTREAM.lines().collect();
    let differ: Vec<_> = lines
        .iter()
        .filter(|line| !expected.contains(&line.as_str()))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(lines.len(), expected.len());
    plane.stop().await;
}
