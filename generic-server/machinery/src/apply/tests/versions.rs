//! Kinds whose versions have schemas of their own: fields are owned in any of them.

use super::*;
use crate::schema::crd::compile;

fn kind_schema(spec: Value) -> KindSchema {
    let schema =
        compile(&json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}))
            .unwrap();
    let root = schema.root.unwrap();
    KindSchema::new(schema.into(), root)
}

/// `v2` knows one field less than `v1`.
fn versions() -> TwoVersions {
    let text = json!({"type": "string"});
    TwoVersions(
        kind_schema(json!({"type": "object", "properties": {"a": text, "b": text}})),
        kind_schema(json!({"type": "object", "properties": {"a": text}})),
    )
}

fn entry(version: &str, fields: Value) -> Value {
    json!({"apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": "one", "operation": "Update", "time": NOW})
}

fn object(spec: Value, entries: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "u", "managedFields": entries}, "spec": spec})
}

fn options<'a>(kind: &'a GroupVersionKind, filters: &'a [(&'a str, FieldFilter)]) -> Options<'a> {
    Options {
        manager: "two",
        subresource: "",
        kind,
        now: NOW,
        filters,
    }
}

#[test]
fn what_an_endpoint_resets_stays_owned_in_every_version() {
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    let owned = json!({"f:spec": {"f:a": {}}});
    let live = object(json!({"a": "x"}), json!([entry("example.com/v2", owned.clone())]));
    let after = |versions_reset: &[&'static str]| {
        let filter = FieldFilter::exclude(&[&["spec"]]);
        let filters: Vec<(&str, FieldFilter)> = versions_reset.iter().map(|v| (*v, filter.clone())).collect();
        let mut new = live.clone();
        new["spec"]["a"] = "y".into();
        new["status"] = json!({"s": 1});
        update(Some(&live), &mut new, &versions(), &options(&kind, &filters));
        new["metadata"]["managedFields"][0]["fieldsV1"].clone()
    };
    assert_eq!(after(&["example.com/v1", "example.com/v2"]), owned);
    assert_eq!(after(&[""]), owned, "all versions");
    assert_ne!(after(&["example.com/v1"]), owned);
    let patch = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "y"}});
    let all = [("", FieldFilter::exclude(&[&["spec"]]))];
    assert!(apply(Some(&live), &patch, &versions(), &options(&kind, &all), false).is_ok());
    let conflict = apply(Some(&live), &patch, &versions(), &options(&kind, &[]), false).unwrap_err();
    assert_eq!(conflict.code(), 409);
}

#[test]
fn an_object_that_an_owner_does_not_know_is_not_applied_to() {
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    let entries = json!([entry("example.com/v2", json!({"f:spec": {"f:a": {}}}))]);
    let live = object(json!({"a": "x", "b": "not in v2"}), entries);
    let patch = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x"}});
    let error = apply(Some(&live), &patch, &versions(), &options(&kind, &[]), true).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (500, ".spec.b: field not declared in schema")
    );
    // A write is taken, and its owners are forgotten.
    let mut new = live.clone();
    new["spec"]["a"] = "y".into();
    update(Some(&live), &mut new, &versions(), &options(&kind, &[]));
    assert_eq!(new["metadata"].get("managedFields"), None);
}

#[test]
fn scalars_of_custom_kinds_are_as_loose_as_upstream_publishes_them() {
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    let text = |format: &str| json!({"type": "string", "format": format});
    let schema = kind_schema(json!({"type": "object", "properties": {
        "either": {"x-kubernetes-int-or-string": true}, "bytes": text("byte"), "day": text("date"), "odd": text("odd"),
    }}));
    let versions = TwoVersions(schema.clone(), schema);
    let applied = |spec: Value| {
        let patch =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
        apply(None, &patch, &versions, &options(&kind, &[]), false)
            .map(|applied| applied.object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].clone())
    };
    assert_eq!(
        applied(json!({"either": {"x": 1}})).unwrap(),
        json!({"f:either": {"f:x": {}}})
    );
    assert_eq!(applied(json!({"either": [1]})).unwrap(), json!({"f:either": {}}));
    assert_eq!(
        applied(json!({"day": 1, "odd": 1})).unwrap(),
        json!({"f:day": {}, "f:odd": {}})
    );
    assert_eq!(
        applied(json!({"bytes": 1})).unwrap_err().message(),
        "failed to create typed patch object (/a; example.com/v1, Kind=Thing): .spec.bytes: expected string, got &value.valueUnstructured{Value:1}"
    );
}

#[test]
fn the_replicas_of_every_version_are_known_to_a_scale() {
    let replicas: &[&str] = &["spec", "replicas"];
    let size: &[&str] = &["spec", "size"];
    let paths: &ScalePaths<'_> = &[
        ("example.com/v1", Some(replicas)),
        ("example.com/v2", Some(size)),
        ("example.com/v3", None),
    ];
    let parent = json!([
        entry("example.com/v1", json!({"f:spec": {"f:replicas": {}}})),
        entry("example.com/v2", json!({"f:spec": {"f:size": {}, "f:x": {}}})),
        entry("example.com/v3", json!({"f:spec": {"f:replicas": {}}})),
        entry("example.com/v4", json!({"f:spec": {"f:replicas": {}}})),
    ]);
    let shown = scale_to_subresource(Some(&parent), paths).unwrap().unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
    let mut scaled = entry("autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}));
    scaled["manager"] = "scaler".into();
    let after = scale_to_parent(Some(&parent), Some(&json!([scaled])), "example.com/v2", paths);
    let after = after.unwrap().unwrap();
    let owned: Vec<(&Value, &Value)> = after
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["apiVersion"], &entry["fieldsV1"]))
        .collect();
    assert_eq!(
        owned,
        [
            (&json!("example.com/v2"), &json!({"f:spec": {"f:size": {}}})),
            (&json!("example.com/v2"), &json!({"f:spec": {"f:x": {}}})),
            (&json!("example.com/v3"), &json!({"f:spec": {"f:replicas": {}}})),
        ]
    );
}
