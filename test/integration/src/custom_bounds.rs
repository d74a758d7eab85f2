//! Custom resources under bad input and at bad moments: clear errors, bounded work, and the server goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use test_support::{Client, eventually, plane};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(plural: &str, kind: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bounds.example.com")},
        "spec": {
            "group": "bounds.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn objects(plural: &str) -> String {
    format!("/apis/bounds.example.com/v1/namespaces/default/{plural}")
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "bounds.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn refused(client: &Client, crd: &Value, code: u16, expected: &str) {
    let answer = client.post(CRDS, crd).await.expect(code);
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(expected),
        "{}",
        message.chars().take(2000).collect::<String>()
    );
}

#[tokio::test]
async fn a_schema_of_a_mebibyte_is_served_and_a_larger_body_refused() {
    let (_plane, client) = plane().await;
    let text =
        "What this field is for, in as many words as generators like to write about every one of them.";
    let mut fields = Map::new();
    for index in 0..7500 {
        fields.insert(
            format!("field{index}"),
            json!({"type": "string", "maxLength": 64, "description": text}),
        );
    }
    let spec = json!({"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": "has(self.field7)"}]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let large = crd("larges", "Large", schema);
    assert!(large.to_string().len() > 1 << 20);
    client.post(CRDS, &large).await.expect(201);
    let path = objects("larges");
    client
        .post(&path, &object("Large", "a", json!({"field7": "x"})))
        .await
        .expect(201);
    client
        .post(&path, &object("Large", "b", json!({"field8": "x"})))
        .await
        .expect(422);

    let mut huge = large;
    huge["metadata"]["annotations"] = json!({"a": "x".repeat(3 << 20)});
    refused(&client, &huge, 413, "Request entity too large").await;
}

#[tokio::test]
async fn deep_schemas_and_deep_objects_are_answered() {
    let (_plane, client) = plane().await;
    let nested = |depth: usize| {
        let mut schema = json!({"type": "string"});
        for _ in 0..depth {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        schema
    };
    let root = |schema: Value| json!({"type": "object", "properties": {"spec": schema}});
    client
        .post(CRDS, &crd("deeps", "Deep", root(nested(60))))
        .await
        .expect(201);
    let deep = |depth: usize| (0..depth).fold(json!("x"), |value, _| json!({ "a": value }));
    client
        .post(&objects("deeps"), &object("Deep", "a", deep(60)))
        .await
        .expect(201);
    // Written as text: a value too deep to be decoded is too deep for `json!` too.
    let (open, close) = ("{\"type\":\"object\",\"properties\":{\"a\":", "}}");
    let schema = format!(
        "{}{{\"type\":\"string\"}}{}",
        open.repeat(20_000),
        close.repeat(20_000)
    );
    let text = crd(
        "abysses",
        "Abyss",
        json!({"type": "object", "description": "HERE"}),
    )
    .to_string()
    .replace("{\"description\":\"HERE\",\"type\":\"object\"}", &schema);
    assert!(text.len() > 20_000 * 10, "the schema is in it");
    let answer = client.raw("POST", CRDS, "application/json", text).await;
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    let text = object("Deep", "b", json!("HERE")).to_string().replace(
        "\"HERE\"",
        &format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000)),
    );
    let answer = client
        .raw("POST", &objects("deeps"), "application/json", text)
        .await;
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    client.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn patterns_that_explode_are_refused() {
    let (_plane, client) = plane().await;
    let schema = |pattern: &str| json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}});
    for (pattern, expected) in [
        (
            "(((a{500}){500}){500})",
            "error parsing regexp: invalid repeat count: `{500}`",
        ),
        ("a**(", "error parsing regexp"),
        ("(a", "error parsing regexp: missing closing ): `(a`"),
    ] {
        refused(&client, &crd("odds", "Odd", schema(pattern)), 422, expected).await;
    }
    // Patterns that make backtracking matchers explode are linear here.
    client
        .post(CRDS, &crd("evens", "Even", schema("^(a+)+$")))
        .await
        .expect(201);
    let text = format!("{}b", "a".repeat(100_000));
    client
        .post(&objects("evens"), &object("Even", "a", json!(text)))
        .await
        .expect(422);
}

#[tokio::test]
async fn rules_that_cost_too_much_are_refused() {
    let (_plane, client) = plane().await;
    let schema = |rule: &str, bounded: bool| {
        let mut list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]});
        if bounded {
            list["maxItems"] = 10.into();
        }
        json!({"type": "object", "properties": {"spec": list}})
    };
    let cubic = "self.all(a, self.all(b, self.all(c, a + b == c)))";
    refused(
        &client,
        &crd("costlies", "Costly", schema(cubic, false)),
        422,
        "estimated rule cost exceeds budget",
    )
    .await;
    client
        .post(CRDS, &crd("cheaps", "Cheap", schema(cubic, true)))
        .await
        .expect(201);
    let list: Vec<u32> = (0..10).collect();
    client
        .post(&objects("cheaps"), &object("Cheap", "a", json!(list)))
        .await
        .expect(422);
    let deep = format!("{}true{}", "(".repeat(5000), ")".repeat(5000));
    refused(&client, &crd("parens", "Paren", schema(&deep, true)), 422, "").await;
    let wide = vec!["self.all(a, a > 0)"; 6000].join(" && ");
    refused(
        &client,
        &crd("wides", "Wide", schema(&wide, true)),
        422,
        "exceeds limit",
    )
    .await;
    client.get("/readyz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crd_goes_while_its_objects_are_written_and_watched() {
    let (_plane, client) = plane().await;
    let crd = crd(
        "mayflies",
        "Mayfly",
        json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}),
    );
    client.post(CRDS, &crd).await.expect(201);
    let path = objects("mayflies");
    client
        .post(&path, &object("Mayfly", "first", json!({})))
        .await
        .expect(201);
    let mut watch = client.watch(&format!("{path}?watch=1")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = |id: usize| {
        let (client, path, stop) = (client.clone(), path.clone(), stop.clone());
        tokio::spawn(async move {
            let mut codes = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let answer = client
                    .post(&path, &object("Mayfly", &format!("w{id}-{n}"), json!({"n": n})))
                    .await;
                codes.push(answer.status);
                let patch = json!({"spec": {"patched": n}});
                let answer = client
                    .patch(&format!("{path}/first"), "merge-patch+json", &patch)
                    .await;
                codes.push(answer.status);
            }
            codes
        })
    };
    let writers = [writer(0), writer(1)];
    // They are under way.
    for _ in 0..10 {
        watch.next().await.expect("an event");
    }
    let name = format!("{CRDS}/mayflies.bounds.example.com");
    client.delete(&name).await.expect(200);
    eventually("the CRD is gone", || async {
        (client.get(&name).await.status == 404).then_some(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let codes = writer.await.expect("no panic");
        let odd: Vec<_> = codes
            .iter()
            .filter(|code| !matches!(code, 200 | 201 | 403 | 404 | 409))
            .collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
    // Every delivered object is reported as deleted, and then the watch ends.
    let mut there = std::collections::BTreeSet::from(["first".to_string()]);
    let mut deleted = 0;
    while let Some(event) = watch.next().await {
        let name = event["object"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_string();
        match event["type"].as_str() {
            Some("ADDED") => drop(there.insert(name)),
            Some("DELETED") => {
                deleted += 1;
                there.remove(&name);
            }
            _ => {}
        }
    }
    assert!(deleted > 0);
    client.get(&path).await.expect(404);
    client.post(CRDS, &crd).await.expect(201);
    let list = client.get(&path).await.expect(200);
    assert_eq!(list["items"], json!([]), "nothing of the old one is left");
    assert!(there.iter().all(|name| name.starts_with('w')), "{there:?}");
}
