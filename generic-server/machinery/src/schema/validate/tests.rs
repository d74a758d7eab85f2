use serde_json::json;

use super::*;
use crate::limits;
use crate::schema::crd::compile;

fn errors(props: &Value, object: &Value) -> Vec<String> {
    let schema = compile(props).unwrap();
    validate(schema.at(schema.root.unwrap()), object, &FieldPath::ROOT)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Judges `value` as `spec.x` with the schema `props`.
#[track_caller]
fn check(props: Value, value: Value, expected: &[&str]) {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": props}}}});
    assert_eq!(errors(&schema, &json!({"spec": {"x": value}})), expected);
}

#[test]
fn types() {
    let ty = |ty: &str| json!({ "type": ty });
    check(ty("string"), json!("a"), &[]);
    check(
        ty("string"),
        json!(1),
        &["spec.x: Invalid value: \"integer\": spec.x in body must be of type string: \"integer\""],
    );
    check(
        ty("string"),
        json!(null),
        &["spec.x: Invalid value: \"null\": spec.x in body must be of type string: \"null\""],
    );
    check(json!({"type": "string", "nullable": true}), json!(null), &[]);
    check(ty("integer"), json!(1.0), &[]);
    check(
        ty("integer"),
        json!(1.5),
        &[
            "spec.x: Invalid value: \"number\": spec.x in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.x",
        ],
    );
    check(ty("number"), json!(1), &[]);
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(2_147_483_648_i64),
        &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x"],
    );
    let either = json!({"x-kubernetes-int-or-string": true});
    check(either.clone(), json!(5), &[]);
    check(either.clone(), json!("5"), &[]);
    check(
        either,
        json!(true),
        &["spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\""],
    );
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        json!(["a", 1]),
        &["spec.x[1]: Invalid value: \"integer\": spec.x[1] in body must be of type string: \"integer\""],
    );
    check(
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!([1, {"a": null}]),
        &[],
    );
}

#[test]
fn numbers_and_strings() {
    let number = json!({"type": "integer", "minimum": 1, "maximum": 10, "multipleOf": 3});
    check(
        number,
        json!(11),
        &[
            "spec.x: Invalid value: 11: spec.x in body should be a multiple of 3",
            "spec.x: Invalid value: 11: spec.x in body should be less than or equal to 10",
        ],
    );
    check(
        json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}),
        json!(1),
        &["spec.x: Invalid value: 1: spec.x in body should be greater than 1"],
    );
    // A double is divided as one, also when it is whole; an integer by what is left of the divisor.
    check(json!({"type": "number", "multipleOf": 0.5}), json!(1000.0), &[]);
    check(
        json!({"type": "number", "multipleOf": 0.5}),
        json!(1000),
        &["spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0"],
    );
    check(json!({"type": "integer", "format": "int32"}), json!(2.0), &[]);
    check(
        json!({"type": "number", "minimum": 0.5, "multipleOf": 0.5}),
        json!(0.25),
        &[
            "spec.x: Invalid value: 0.25: spec.x in body should be a multiple of 0.5",
            "spec.x: Invalid value: 0.25: spec.x in body should be greater than or equal to 0.5",
        ],
    );
    check(
        json!({"type": "string", "minLength": 2}),
        json!("\u{e9}"),
        &["spec.x: Invalid value: \"\u{e9}\": spec.x in body should be at least 2 chars long"],
    );
    check(
        json!({"type": "string", "maxLength": 1}),
        json!("ab"),
        &["spec.x: Too long: may not be more than 1 byte"],
    );
    check(
        json!({"type": "string", "pattern": "^a$"}),
        json!("b"),
        &["spec.x: Invalid value: \"b\": spec.x in body should match '^a$'"],
    );
    check(
        json!({"type": "string", "format": "date"}),
        json!("2020-02-30"),
        &["spec.x: Invalid value: \"2020-02-30\": spec.x in body must be of type date: \"2020-02-30\""],
    );
    check(json!({"type": "string", "format": "nonsense"}), json!("x"), &[]);
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("c"),
        &["spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\""],
    );
    // Of a double only what is before the point is compared with whole numbers.
    let whole = json!({"type": "number", "enum": [1, 2]});
    check(whole.clone(), json!(1.5), &[]);
    check(
        whole,
        json!(3.5),
        &["spec.x: Unsupported value: 3.5: supported values: \"1\", \"2\""],
    );
}

#[test]
fn lists_and_objects() {
    check(
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
        json!([]),
        &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"],
    );
    check(
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1, "uniqueItems": true}),
        json!([1, 1]),
        &[
            "spec.x: Too many: 2: must have at most 1 item",
            "spec.x: Invalid value: \"\": spec.x in body shouldn't contain duplicates",
        ],
    );
    check(
        json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}),
        json!({"a": "b"}),
        &[
            "spec.x: Invalid value: 1: spec.x in body should have at least 2 properties",
            "spec.x.a: Invalid value: \"string\": spec.x.a in body must be of type integer: \"string\"",
        ],
    );
    check(
        json!({"type": "object", "required": ["b", "a"], "properties": {"a": {"type": "string"}}}),
        json!({}),
        &["spec.x.b: Required value", "spec.x.a: Required value"],
    );
    assert_eq!(
        errors(&json!({"type": "object", "required": ["spec"]}), &json!({})),
        ["spec: Required value"]
    );
}

#[test]
fn junctors_blame_the_best_branch() {
    check(
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
            "spec.x.a: Required value",
        ],
    );
    check(
        json!({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}),
        json!(3),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [{"properties": {"a": {"minimum": 5}}}, {"properties": {"a": {"maximum": 1}}}]}),
        json!({"a": 3}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
            "spec.x.a: Invalid value: 3: spec.x.a in body should be greater than or equal to 5",
        ],
    );
    check(
        json!({"type": "integer", "allOf": [{"minimum": 5}, {"multipleOf": 2}]}),
        json!(7),
        &[
            "spec.x: Invalid value: 7: spec.x in body should be a multiple of 2",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)",
        ],
    );
    check(
        json!({"type": "integer", "not": {"minimum": 5}}),
        json!(7),
        &["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"],
    );
}

#[test]
fn a_value_below_a_path_is_named_by_both() {
    let schema = compile(&json!({"type": "object", "properties": {"n": {"type": "integer"}}})).unwrap();
    let found = validate(
        schema.at(schema.root.unwrap()),
        &json!({"n": "x"}),
        &FieldPath::new("status"),
    );
    assert_eq!(
        found[0].to_string(),
        "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\""
    );
}

#[track_caller]
fn ratchets(props: Value, old: Value, new: Value, expected: &[&str]) {
    let schema = compile(&props).unwrap();
    let found = validate_update(schema.at(schema.root.unwrap()), &new, &old, &FieldPath::ROOT);
    let found: Vec<String> = found.iter().map(|error| error.field.clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn unchanged_faults_are_forgiven() {
    let small = json!({"type": "integer", "maximum": 1});
    let object = json!({"type": "object", "properties": {"a": small, "b": small}});
    ratchets(
        object.clone(),
        json!({"a": 5, "b": 1}),
        json!({"a": 5, "b": 7}),
        &["b"],
    );
    ratchets(object.clone(), json!({"a": 5}), json!({"a": 6}), &["a"]);
    ratchets(object.clone(), json!({}), json!({"a": 6}), &["a"]);
    // Items of atomic lists are not matched, those of map-like lists are.
    let list = |list_type: Value| {
        let mut props = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object",
            "properties": {"k": {"type": "string"}, "a": small}}}}});
        props["properties"]["l"]
            .as_object_mut()
            .unwrap()
            .extend(list_type.as_object().unwrap().clone());
        props
    };
    let old = json!({"l": [{"k": "x", "a": 5}, {"k": "y", "a": 0}]});
    let new = json!({"l": [{"k": "y", "a": 1}, {"k": "x", "a": 5}]});
    ratchets(list(json!({})), old.clone(), new.clone(), &["l[1].a"]);
    ratchets(list(json!({})), old.clone(), old.clone(), &[]);
    ratchets(
        list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
        old,
        new,
        &[],
    );
}

#[test]
fn faults_are_gathered_up_to_a_figure() {
    let schema = json!({"type": "object", "additionalProperties": {"type": "object",
        "additionalProperties": {"type": "string", "enum": ["a", "b"], "minLength": 1}}});
    let faults = |inner: usize, key: &str| {
        let inner: Map<String, Value> = (0..inner).map(|n| (format!("x{n}"), json!(""))).collect();
        let schema = compile(&schema).unwrap();
        validate(
            schema.at(schema.root.unwrap()),
            &json!({key: inner}),
            &FieldPath::ROOT,
        )
    };
    assert_eq!(faults(limits::FIELD_ERRORS / 2, "k").len(), limits::FIELD_ERRORS);
    assert_eq!(
        faults(limits::FIELD_ERRORS / 2 + 1, "k").len(),
        limits::FIELD_ERRORS
    );
    let long = faults(10, &"k".repeat(1 << 20));
    assert_eq!(long.len(), 2, "what differs behind the cut alone is said once");
    assert!(long[0].to_string().len() < 4 * limits::SHOWN_VALUE_BYTES);
}

#[test]
fn old_items_are_found_by_their_keys() {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
        "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
            "v": {"type": "string", "maxLength": 1}}}});
    let schema = compile(&schema).unwrap();
    let faults = |new: &Value, old: &Value| {
        let faults = validate_update(schema.at(schema.root.unwrap()), new, old, &FieldPath::ROOT);
        faults.iter().map(|fault| fault.field.clone()).collect::<Vec<_>>()
    };
    let item = |a: i64, b: &str, v: &str| json!({"a": a, "b": b, "v": v});
    let old = json!([item(1, "x", "long"), item(1, "y", "longer"), item(2, "x", "s")]);
    let moved = json!([
        item(1, "y", "longer"),
        item(2, "x", "grown"),
        item(1, "x", "long")
    ]);
    assert_eq!(faults(&moved, &old), ["[1].v"]);
    crate::steps::check_growth(100, |size| {
        let list: Value = (0..size)
            .map(|n| json!({"a": n, "b": "x", "v": "long"}))
            .collect();
        let schema = &schema;
        move || {
            assert_eq!(
                validate_update(schema.at(schema.root.unwrap()), &list, &list, &FieldPath::ROOT),
                []
            )
        }
    });
}

#[test]
fn repeated_items_are_found() {
    let list = json!({"type": "array", "uniqueItems": true});
    check(list.clone(), json!([1, "1", [1], {"a": 1}, {"a": 2}]), &[]);
    check(
        list,
        json!([{"a": 1}, 2, {"a": 1}]),
        &["spec.x: Invalid value: \"\": spec.x in body shouldn't contain duplicates"],
    );
}

#[test]
fn long_enumerations_match_short_ones() {
    let mut allowed: Vec<Value> = (0..100).rev().map(|n| json!(format!("v{n}"))).collect();
    allowed.extend([json!(7), json!("7")]);
    let faults = |value: Value| {
        let props = json!({"type": "object", "properties": {"x": {"enum": allowed}}});
        errors(&props, &json!({ "x": value })).len()
    };
    for value in [json!("v0"), json!("v99"), json!("7"), json!(7), json!(7.0)] {
        assert_eq!(faults(value.clone()), 0, "{value}");
    }
    for value in [json!("v100"), json!(""), json!(8), json!(true)] {
        assert_eq!(faults(value.clone()), 1, "{value}");
    }
}
