use serde_json::json;

use super::*;
use crate::codec::json::decode_typed;
use crate::limits;
use crate::schema::{KindSchema, builtin};

fn kind(api_version: &str, kind: &str) -> KindSchema {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin().kind(group, version, kind).unwrap()
}

/// A document goes through protobuf unchanged (in its normal form).
#[track_caller]
fn survives(object: Value) {
    let name = object["kind"].as_str().unwrap();
    let schema = kind(object["apiVersion"].as_str().unwrap(), name);
    let normal = decode_typed(object.to_string().as_bytes(), schema.root()).unwrap();
    assert_eq!(normal.strict, []);
    let bytes = encode(schema.root(), &normal.value);
    assert_eq!(decode(schema.root(), &bytes).unwrap(), normal.value, "{name}");
}

/// A varint, or a field with its payload.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(payload.len()).unwrap()];
    out.extend_from_slice(payload);
    out
}

#[test]
fn objects_survive_the_way_there_and_back() {
    survives(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}, "creationTimestamp": "2024-01-02T03:04:05Z", "generation": 3,
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}}}]},
        "spec": {"automountServiceAccountToken": false, "hostNetwork": true, "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 0}]}},
                {"name": "w", "projected": {"sources": [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "t"}}]}}, {"name": "e", "emptyDir": {}}],
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}, "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5}, "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}}]}],
            "ephemeralContainers": [{"name": "x", "targetContainerName": "c"}],
            "securityContext": {"supplementalGroups": [1, -2, 3]}, "tolerations": [{"operator": "Exists"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}));
    survives(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "/wAB", "empty": ""}, "immutable": false}),
    );
    survives(
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseTransitions": 0, "renewTime": "2001-02-03T04:05:06.789012Z"}}),
    );
    survives(
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"rules": [{"host": "h",
        "http": {"paths": [{"path": "/", "pathType": "Exact", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
    );
    survives(
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "spec": {"matchConstraints":
        {"resourceRules": [{"resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": ["g"], "apiVersions": ["v1"], "resources": ["r"], "scope": "*"}]}}}),
    );
    survives(
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"},
        "status": {"user": {"username": "u", "extra": {"k": ["a", "b"]}}}}),
    );
    survives(
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": {"a": [1, null]}}, "revision": 2}),
    );
    survives(
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"group": "g", "scope": "Cluster",
        "names": {"plural": "p", "kind": "K"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"a": {"additionalProperties": true}, "b": {"additionalProperties": {"type": "string", "default": "x"}}, "c": {"items": {"type": "integer", "maximum": 1.5}},
                "d": {"enum": [1, "x", null], "x-kubernetes-int-or-string": true}}}}}]}}),
    );
    survives(
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "5", "remainingItemCount": 3}, "items": [{"metadata": {"name": "a"}, "data": {"k": "v"}}]}),
    );
    survives(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": {"requests": [{"name": "r", "exactly":
        {"deviceClassName": "c", "allocationMode": "All", "count": 0}}], "config": [{"requests": ["r"], "opaque": {"driver": "d", "parameters": {"x": 1}}}]}}}),
    );
}

#[test]
fn every_kind_has_a_zero_that_survives() {
    for (group, version, name, schema) in builtin().kinds() {
        let zero = crate::codec::typed::zero_value(schema);
        let bytes = encode_message(schema, &zero);
        assert_eq!(
            decode_message(schema, &bytes).unwrap(),
            zero,
            "{group}/{version} {name}"
        );
    }
}

#[test]
fn bytes_are_those_of_upstreams_generated_code() {
    let schema = kind("v1", "ConfigMap");
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let mut meta = field(1, b"a");
    for number in 2..=6 {
        meta.extend(field(number, b""));
    }
    meta.extend([7 << 3, 0]);
    meta.extend(field(8, b""));
    let entry = [field(1, b"k"), field(2, b"v")].concat();
    let raw = [field(1, &meta), field(2, &entry)].concat();
    let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let expected = [
        PREFIX.to_vec(),
        field(1, &type_meta),
        field(2, &raw),
        field(3, b""),
        field(4, b""),
    ]
    .concat();
    assert_eq!(encode(schema.root(), &object), expected);

    let list = encode_list("v1", "ConfigMapList", &[], [raw.as_slice()]);
    let read = decode(kind("v1", "ConfigMapList").root(), &list).unwrap();
    assert_eq!(read["items"][0]["data"]["k"], "v");

    let frame = encode_watch_frame("ADDED", b"x");
    let raw = [field(1, b"ADDED"), field(2, &field(1, b"x"))].concat();
    assert_eq!(
        frame,
        [&[0, 0, 0, u8::try_from(raw.len()).unwrap()], raw.as_slice()].concat()
    );
}

#[test]
fn values_of_upstreams_clients_are_normalized() {
    // A Go client writes plain zero values, an old one sends unknown fields.
    let message = [
        field(1, &[field(1, b"a"), field(2, b"")].concat()),
        vec![4 << 3, 0],
        field(15, b"new"),
    ]
    .concat();
    let object = decode_message(kind("v1", "ConfigMap").root(), &message).unwrap();
    assert_eq!(object, json!({"metadata": {"name": "a"}, "immutable": false}));
    // Packed integers.
    let security = [5_u8 << 3 | 2, 2, 7, 8];
    let context = builtin()
        .by_type_name("io.k8s.api.core.v1.PodSecurityContext")
        .unwrap();
    let number = context
        .root()
        .field("supplementalGroups")
        .unwrap()
        .0
        .number
        .unwrap();
    let mut packed = security.to_vec();
    packed[0] = u8::try_from(number).unwrap() << 3 | 2;
    assert_eq!(
        decode_message(context.root(), &packed).unwrap()["supplementalGroups"],
        json!([7, 8])
    );
}

#[test]
fn malformed_bytes_are_errors() {
    let schema = kind("v1", "ConfigMap");
    for bytes in [
        b"".as_slice(),
        b"not protobuf",
        b"k8s\0",
        b"k8s\0\xff\xff\xff",
        b"k8s\0\x12\x03\x0a\x05\x01",
        b"k8s\0\x12\x02\x0a\x05",
        b"k8s\0\x12\x02\x08\x01",
        b"k8s\0\x12\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ] {
        assert!(decode(schema.root(), bytes).is_err(), "{bytes:?}");
    }
    let schema = builtin()
        .by_type_name("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .unwrap();
    let mut deep = Vec::new();
    for _ in 0..2000 {
        let mut outer = vec![0xe2, 0x01];
        encode::varint(&mut outer, deep.len() as u64);
        outer.extend_from_slice(&deep);
        deep = outer;
    }
    assert!(decode_message(schema.root(), &deep).is_err());
}

#[test]
fn empty_messages_count_as_their_decoded_form() {
    let schema = kind("v1", "Pod");
    // Field 2 of a pod is its spec, field 2 of that a container: two bytes make a struct with its zero members.
    let pod = |containers: usize| {
        let spec = field(2, b"").repeat(containers);
        let mut out = vec![0x12];
        encode::varint(&mut out, spec.len() as u64);
        out.extend_from_slice(&spec);
        out
    };
    assert!(decode_message(schema.root(), &pod(10_000)).is_ok());
    let error = decode_message(schema.root(), &pod(250_000))
        .map(drop)
        .unwrap_err();
    assert!(
        error.to_string().starts_with("decoded object is too large"),
        "{error}"
    );
}

#[test]
fn lists_and_raw_values_count_as_depth() {
    let schema = builtin()
        .by_type_name("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .unwrap();
    let props = schema.root();
    let number = props.field("allOf").and_then(|(field, _)| field.number).unwrap();
    let default = props
        .field("default")
        .and_then(|(field, _)| field.number)
        .unwrap();
    let message = |number: u32, payload: &[u8]| {
        let mut out = Vec::new();
        encode::varint(&mut out, u64::from(number << 3 | 2));
        encode::varint(&mut out, payload.len() as u64);
        out.extend_from_slice(payload);
        out
    };
    // Each schema is an object in a list; the default adds lists of its own.
    let nested = |schemas: usize, lists: usize| {
        let raw = format!("{}{}", "[".repeat(lists), "]".repeat(lists));
        let innermost = message(default, &message(1, raw.as_bytes()));
        (0..schemas).fold(innermost, |inner, _| message(number, &inner))
    };
    let fits = |schemas: usize, lists: usize| decode_message(props, &nested(schemas, lists)).is_ok();
    assert!(fits(0, limits::DEPTH - 1));
    assert!(!fits(0, limits::DEPTH));
    assert!(fits(100, limits::DEPTH - 201));
    assert!(!fits(100, limits::DEPTH - 200));
    assert!(!fits(limits::DEPTH / 2, 1));
}
