//! Definitions and policies whose patterns and expressions cost far more to compile than their bytes.

use serde_json::{Map, Value, json};

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const GROUP: &str = "patterns.adversary.example";
const REFUSED: Bound = Bound::codes(&[400, 413, 422]);
/// What is served in the end may take its memory and time, to its deadline, as long as nothing else waits for it.
const COSTLY: Bound = Bound::codes(&[201, 422, 429, 504])
    .answer(8 << 20)
    .memory(512.0)
    .seconds(120);
/// Properties of the definition that objects are held against: it has to be there, even where it is compiled slowly.
const HELD_AGAINST: usize = 60;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "CRD: patterns of nested repetitions",
            "held",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(nested(arena)),
        ),
        attack(
            "CRD: 250 patterns of 10,000 states",
            "held",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(created(arena, "excessive", 250)),
        ),
        attack(
            "CRD: 190 patterns of 10,000 states, refused with its other faults",
            "held",
            Place::Large,
            REFUSED.memory(512.0).seconds(120),
            |arena| Box::pin(faulty(arena)),
        ),
        attack(
            "CRDs: ten at once with 190 patterns of 10,000 states each",
            "held",
            Place::Large,
            COSTLY,
            |arena| Box::pin(many(arena)),
        ),
        attack(
            "Custom object held against 60 patterns of 10,000 states",
            "held",
            Place::Large,
            COSTLY,
            |arena| Box::pin(validated(arena)),
        ),
        attack(
            "16 custom objects of 4 KB at once, each with 1,000 items that have a default of 100 KB",
            "held",
            Place::Quick,
            REFUSED,
            |arena| Box::pin(defaulted(arena, "excess", 1_000)),
        ),
        attack(
            "16 custom objects of 1 KB at once, each with 120 items that have a default of 100 KB",
            "held",
            Place::Large,
            COSTLY.answer(16 << 20).memory(768.0),
            |arena| Box::pin(defaulted(arena, "much", 120)),
        ),
        attack(
            "Policy of 8,000 expressions, four at once",
            "held",
            Place::Large,
            COSTLY,
            |arena| Box::pin(expressions(arena)),
        ),
    ]
}

/// A property's name, and a pattern of about 10,000 states that no other attack has.
fn pattern(plural: &str, index: usize) -> (String, Value) {
    let pattern = format!("^(\\pL{{10}}|{plural}{index})$");
    (format!("p{index}"), json!({"type": "string", "pattern": pattern}))
}

fn properties(plural: &str, count: usize) -> Map<String, Value> {
    (0..count).map(|index| pattern(plural, index)).collect()
}

fn definition(plural: &str, properties: Map<String, Value>) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": format!("K{plural}")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

async fn nested(arena: &Arena) -> Result<Outcome, Error> {
    let patterns = [
        "((a{1000}){1000}){1000}",
        "(((a{1,100}){1,100}){1,100}){1,100}",
        "(\\pL{1000}){1000}",
        "((((((((((a{10}){10}){10}){10}){10}){10}){10}){10}){10}){10})",
        "(\\pL{100}){10}(\\pL{100}){10}(\\pL{100}){10}",
    ];
    let shots = patterns.iter().map(|pattern| {
        let properties = Map::from_iter([("p".to_string(), json!({"type": "string", "pattern": pattern}))]);
        Shot::post(DEFINITIONS, &definition("nested", properties))
    });
    arena.volley(shots.collect()).await
}

async fn created(arena: &Arena, plural: &str, count: usize) -> Result<Outcome, Error> {
    let definition = definition(plural, properties(plural, count));
    arena.shoot(Shot::post(DEFINITIONS, &definition)).await
}

/// Everything is compiled before the definition is refused.
async fn faulty(arena: &Arena) -> Result<Outcome, Error> {
    let mut definition = definition("faulty", properties("faulty", 190));
    definition["spec"]["names"]["kind"] = "not a kind".into();
    arena.volley(vec![Shot::post(DEFINITIONS, &definition); 4]).await
}

async fn many(arena: &Arena) -> Result<Outcome, Error> {
    let names: Vec<String> = (0..10).map(|index| format!("many{index}")).collect();
    let shots = names
        .iter()
        .map(|plural| Shot::post(DEFINITIONS, &definition(plural, properties(plural, 190))));
    let outcome = arena.volley(shots.collect()).await?;
    for plural in &names {
        arena.gone(&format!("{DEFINITIONS}/{plural}.{GROUP}")).await?;
    }
    Ok(outcome)
}

async fn validated(arena: &Arena) -> Result<Outcome, Error> {
    let plural = "validated";
    arena
        .made(DEFINITIONS, &definition(plural, properties(plural, HELD_AGAINST)))
        .await?;
    let path = arena.path_of(&format!("{GROUP}/v1"), plural);
    arena
        .until("the definition is served", Shot::get(path.as_str()), |answer| {
            answer.status == 200
        })
        .await?;
    let mut object: Map<String, Value> = (0..HELD_AGAINST)
        .map(|index| (format!("p{index}"), format!("{plural}{index}").into()))
        .collect();
    object.insert("apiVersion".into(), format!("{GROUP}/v1").into());
    object.insert("kind".into(), format!("K{plural}").into());
    object.insert("metadata".into(), json!({"generateName": "held-"}));
    let shot = Shot::post(path, &object.into());
    let outcome = arena.volley(vec![shot; 4]).await;
    arena.gone(&format!("{DEFINITIONS}/{plural}.{GROUP}")).await?;
    outcome
}

/// Nothing is stored: what defaults add would be too much for that.
async fn defaulted(arena: &Arena, plural: &str, items: usize) -> Result<Outcome, Error> {
    let text = json!({"type": "string", "default": "x".repeat(100_000)});
    let item = json!({"type": "object", "properties": {"text": text}});
    let list = Map::from_iter([("list".to_string(), json!({"type": "array", "items": item}))]);
    arena.made(DEFINITIONS, &definition(plural, list)).await?;
    let path = arena.path_of(&format!("{GROUP}/v1"), plural);
    arena
        .until("the definition is served", Shot::get(path.as_str()), |answer| {
            answer.status == 200
        })
        .await?;
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": format!("K{plural}"), "metadata": {"name": "defaulted"},
        "list": vec![json!({}); items],
    });
    let shot = Shot::post(format!("{path}?dryRun=All"), &object);
    let outcome = arena.volley(vec![shot; 16]).await;
    arena.gone(&format!("{DEFINITIONS}/{plural}.{GROUP}")).await?;
    outcome
}

async fn expressions(arena: &Arena) -> Result<Outcome, Error> {
    let validations: Vec<Value> = (0..8_000)
        .map(|index| {
            let expression = format!(
                "object.metadata.name.startsWith('a{index}') || [1, 2, 3].all(x, x < {index} && object.metadata.labels.exists(k, k == 'b'))"
            );
            json!({"expression": expression})
        })
        .collect();
    // It is about a resource that nobody has.
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"generateName": "expressions-"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["none.adversary.example"], "apiVersions": ["v1"], "resources": ["nothing"], "operations": ["CREATE"]},
            ]},
            "validations": validations,
        },
    });
    let shot = Shot::post(format!("{POLICIES}?dryRun=All"), &policy);
    arena.volley(vec![shot; 4]).await
}
