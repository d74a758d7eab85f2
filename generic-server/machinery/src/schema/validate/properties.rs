//! The validator against the `jsonschema` crate: where both mean the same, both must say the same.

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Map, Value, json};

use super::{Correlated, validate};
use crate::FieldPath;
use crate::schema::crd::compile;

/// Keywords with the same meaning on both sides. Left out: nulls (upstream skips most checks), fractions as bounds
/// (upstream truncates them for whole numbers).
fn rules(ty: &'static str) -> BoxedStrategy<Map<String, Value>> {
    let bound = || prop::option::of(0_i64..6);
    let pick = move |names: [&'static str; 2], low: Option<i64>, high: Option<i64>| {
        let mut out = Map::new();
        for (name, value) in names.into_iter().zip([low, high]) {
            if let Some(value) = value {
                out.insert(name.to_owned(), value.into());
            }
        }
        out
    };
    match ty {
        "integer" | "number" => (bound(), bound(), prop::option::of(1_i64..4))
            .prop_map(move |(low, high, multiple)| {
                let mut out = pick(["minimum", "maximum"], low, high);
                if let Some(multiple) = multiple {
                    out.insert("multipleOf".into(), multiple.into());
                }
                out
            })
            .boxed(),
        "string" => (bound(), bound())
            .prop_map(move |(low, high)| pick(["minLength", "maxLength"], low, high))
            .boxed(),
        "array" => (bound(), bound(), any::<bool>())
            .prop_map(move |(low, high, unique)| {
                let mut out = pick(["minItems", "maxItems"], low, high);
                if unique {
                    out.insert("uniqueItems".into(), true.into());
                }
                out
            })
            .boxed(),
        _ => (bound(), bound(), prop::collection::btree_set(name(), 0..3))
            .prop_map(move |(low, high, required)| {
                let mut out = pick(["minProperties", "maxProperties"], low, high);
                if !required.is_empty() {
                    out.insert("required".into(), required.into_iter().collect());
                }
                out
            })
            .boxed(),
    }
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

fn schema() -> impl Strategy<Value = Value> {
    let types = vec!["integer", "number", "string", "boolean", "array", "object"];
    let leaf = prop::sample::select(types.clone()).prop_flat_map(|ty| {
        let rules = if ty == "boolean" {
            Just(Map::new()).boxed()
        } else {
            rules(ty)
        };
        (rules, prop::option::of(prop::collection::vec(scalar(), 1..4))).prop_map(
            move |(mut map, allowed)| {
                map.insert("type".into(), ty.into());
                if let Some(allowed) = allowed {
                    map.insert("enum".into(), allowed.into());
                }
                Value::Object(map)
            },
        )
    });
    leaf.prop_recursive(3, 24, 4, move |inner| {
        let object = (
            rules("object"),
            prop::collection::btree_map(name(), inner.clone(), 0..3),
            prop::option::of(prop_oneof![inner.clone(), any::<bool>().prop_map(Value::from)]),
        )
            .prop_map(|(mut map, properties, additional)| {
                map.insert("type".into(), "object".into());
                map.insert("properties".into(), properties.into_iter().collect());
                if let Some(additional) = additional {
                    map.insert("additionalProperties".into(), additional);
                }
                Value::Object(map)
            });
        let array = (rules("array"), inner.clone()).prop_map(|(mut map, items)| {
            map.insert("type".into(), "array".into());
            map.insert("items".into(), items);
            Value::Object(map)
        });
        let junctor = (
            prop::sample::select(vec!["allOf", "anyOf", "oneOf"]),
            prop::collection::vec(inner.clone(), 1..4),
        )
            .prop_map(|(key, branches)| json!({ key: branches }));
        let not = inner.prop_map(|schema| json!({ "not": schema }));
        prop_oneof![3 => object, 2 => array, 2 => junctor, 1 => not]
    })
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-2_i64..8).prop_map(Value::from),
        (-2_i32..8).prop_map(|n| Value::from(f64::from(n) + 0.5)),
        "[ab\u{e9}]{0,6}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ]
}

fn object() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

#[test]
fn both_validators_agree() {
    let config = Config {
        cases: 512,
        failure_persistence: None,
        ..Config::default()
    };
    proptest!(config, |(props in schema(), value in object())| {
        let compiled = compile(&props).unwrap();
        let faults = validate(compiled.at(compiled.root.unwrap()), &value, &FieldPath::ROOT);
        let oracle = jsonschema::draft202012::is_valid(&props, &value);
        prop_assert_eq!(faults.is_empty(), oracle, "{:?}", faults);
    });
}

#[test]
fn an_object_never_changed_has_no_faults() {
    let config = Config {
        cases: 128,
        failure_persistence: None,
        ..Config::default()
    };
    proptest!(config, |(props in schema(), value in object())| {
        let compiled = compile(&props).unwrap();
        let root = compiled.at(compiled.root.unwrap());
        // What the schema does not declare may have changed, as far as it knows.
        let changed = !Correlated::new(root, &value, &value).unchanged();
        prop_assert!(changed || super::validate_update(root, &value, &value, &FieldPath::ROOT).is_empty());
    });
}
