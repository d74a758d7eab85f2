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

/// The refusal of a message of the type `ty`.
#[track_caller]
fn refused(ty: &str, bytes: &[u8], expected: &str) {
    let schema = builtin().by_type_name(&format!("io.k8s.{ty}")).unwrap();
    let error = decode_message(schema.root(), bytes).map(drop).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn refusals_are_in_upstreams_words() {
    let map = "api.core.v1.ConfigMap";
    refused(
        map,
        &[1 << 3, 1],
        "proto: wrong wireType = 0 for field ObjectMeta",
    );
    refused(
        map,
        &[2 << 3 | 5, 1, 1, 1, 1],
        "proto: wrong wireType = 5 for field Data",
    );
    refused(
        map,
        &field(4, b"x"),
        "proto: wrong wireType = 2 for field Immutable",
    );
    refused(
        map,
        &field(1, &[5 << 3, 1]),
        "proto: wrong wireType = 0 for field UID",
    );
    refused(
        map,
        &[15 << 3 | 4],
        "proto: ConfigMap: wiretype end group for non-group",
    );
    refused(
        map,
        &field(1, &[15 << 3 | 4]),
        "proto: ObjectMeta: wiretype end group for non-group",
    );
    refused(map, &[0, 0], "proto: ConfigMap: illegal tag 0 (wire type 0)");
    refused(map, &[2, 0], "proto: ConfigMap: illegal tag 0 (wire type 2)");
    let negative = [0xf8, 0xff, 0xff, 0xff, 0xff, 1];
    refused(
        map,
        &negative,
        "proto: ConfigMap: illegal tag -1 (wire type 68719476728)",
    );
    refused(map, &[15 << 3 | 6], "proto: illegal wireType 6");
    refused(map, &[0xff; 11], "proto: integer overflow");
    refused(map, &[15 << 3, 0x80], "unexpected EOF");
    refused(map, &[15 << 3 | 1, 0], "unexpected EOF");
    refused(map, &[10, 5, 0], "unexpected EOF");
    let length = [&[15 << 3 | 2], [0xff; 9].as_slice(), &[1]].concat();
    refused(map, &length, "proto: negative length found during unmarshaling");
    let longest = [&[15 << 3 | 2], [0xff; 8].as_slice(), &[0x7f]].concat();
    refused(map, &longest, "proto: negative length found during unmarshaling");

    refused(
        "api.core.v1.Probe",
        &[1 << 3, 0],
        "proto: wrong wireType = 0 for field ProbeHandler",
    );
    refused(
        "api.core.v1.Probe",
        &field(1, &[2 << 3, 0]),
        "proto: wrong wireType = 0 for field HTTPGet",
    );
    refused(
        "api.admissionregistration.v1.NamedRuleWithOperations",
        &field(2, &field(2, &[1 << 3, 0])),
        "proto: wrong wireType = 0 for field APIGroups",
    );
    let context = "api.core.v1.PodSecurityContext";
    refused(
        context,
        &[4 << 3 | 5, 0, 0, 0, 0],
        "proto: wrong wireType = 5 for field SupplementalGroups",
    );
    let time = field(8, &field(1, b""));
    refused(
        "apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &time,
        "proto: wrong wireType = 2 for field Seconds",
    );
    let quantity = field(1, &field(2, &[1 << 3, 0]));
    refused(
        "api.core.v1.ResourceQuotaStatus",
        &quantity,
        "proto: wrong wireType = 0 for field String_",
    );
}

#[test]
fn unknown_groups_are_passed_over() {
    let schema = kind("v1", "ConfigMap");
    let name = field(1, &field(1, b"a"));
    let read = |bytes: &[u8]| decode_message(schema.root(), bytes);
    let group = [
        &[15 << 3 | 3],
        &*field(7, b"x"),
        &[9 << 3 | 3, 8, 1, 9 << 3 | 4, 15 << 3 | 4],
    ]
    .concat();
    let object = json!({"metadata": {"name": "a"}});
    assert_eq!(read(&[&*group, &name].concat()).unwrap(), object);
    assert_eq!(read(&[&*name, &group].concat()).unwrap(), object);
    // Groups take no stack.
    let deep = [vec![15 << 3 | 3; 1_000_000], vec![15 << 3 | 4; 1_000_000]].concat();
    assert_eq!(read(&[&*name, &deep].concat()).unwrap(), object);
    assert_eq!(
        read(&deep[1..]).unwrap_err().to_string(),
        "proto: ConfigMap: wiretype end group for non-group"
    );
    assert_eq!(
        read(&deep[..1_999_999]).unwrap_err().to_string(),
        "unexpected EOF"
    );
    // A known field is no group.
    refused(
        "api.core.v1.ConfigMap",
        &[1 << 3 | 3, 1 << 3 | 4],
        "proto: wrong wireType = 3 for field ObjectMeta",
    );
    // In the entry of a map there is nothing to end.
    refused(
        "api.core.v1.ConfigMap",
        &field(2, &[15 << 3 | 4]),
        "proto: unexpected end of group",
    );
}

/// A message followed by another is one, of which the fields of both are read.
#[track_caller]
fn merges(ty: &str, messages: &[&[u8]], expected: Value) {
    let schema = builtin().by_type_name(&format!("io.k8s.{ty}")).unwrap();
    assert_eq!(
        decode_message(schema.root(), &messages.concat()).unwrap(),
        expected
    );
}

#[test]
fn messages_that_come_again_are_merged() {
    let map = "api.core.v1.ConfigMap";
    let name = field(1, &field(1, b"a"));
    merges(map, &[&name, &field(1, b"")], json!({"metadata": {"name": "a"}}));
    merges(map, &[&field(1, b""), &name], json!({"metadata": {"name": "a"}}));
    let other = field(1, &[field(1, b"b"), field(3, b"ns")].concat());
    merges(
        map,
        &[&name, &other],
        json!({"metadata": {"name": "b", "namespace": "ns"}}),
    );
    merges(
        map,
        &[&other, &field(1, &field(3, b""))],
        json!({"metadata": {"name": "b"}}),
    );
    let label = |key: &[u8], value: &[u8]| field(1, &field(11, &[field(1, key), field(2, value)].concat()));
    merges(
        map,
        &[&label(b"a", b"1"), &label(b"b", b"2"), &label(b"a", b"3")],
        json!({"metadata": {"labels": {"a": "3", "b": "2"}}}),
    );
    let finalizer = |name: &[u8]| field(1, &field(14, name));
    merges(
        map,
        &[&finalizer(b"x"), &finalizer(b"y")],
        json!({"metadata": {"finalizers": ["x", "y"]}}),
    );
    // Items of lists and values of maps begin anew.
    let container = |number: u8, text: &[u8]| field(2, &field(number, text));
    merges(
        "api.core.v1.PodSpec",
        &[&container(1, b"c"), &container(2, b"i")],
        json!({"containers": [{"name": "c", "resources": {}}, {"name": "", "image": "i", "resources": {}}]}),
    );
    // Pointers, and messages that JSON inlines.
    let seconds = field(1, &field(2, &field(1, b"/")));
    let port = |value: &[u8]| field(1, &field(2, &field(2, value)));
    merges(
        "api.core.v1.Probe",
        &[&seconds, &port(&[1 << 3, 0, 2 << 3, 80]), &port(&[2 << 3, 81])],
        json!({"httpGet": {"path": "/", "port": 81}}),
    );
    let named = [&[1 << 3, 1], &*field(3, b"http")].concat();
    merges(
        "api.core.v1.Probe",
        &[&port(&named), &port(b"")],
        json!({"httpGet": {"port": "http"}}),
    );
    // A time is replaced, also by none.
    let time = |payload: &[u8]| field(1, &field(8, payload));
    merges(map, &[&time(&[1 << 3, 1]), &time(b"")], json!({"metadata": {}}));
    merges(
        map,
        &[&time(&[1 << 3, 1]), &time(&[1 << 3, 2])],
        json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:02Z"}}),
    );
    // A quantity stays when no other is given; so does raw JSON.
    let divisor = |payload: &[u8]| field(3, payload);
    merges(
        "api.core.v1.ResourceFieldSelector",
        &[&divisor(&field(1, b"1500m")), &divisor(b"")],
        json!({"resource": "", "divisor": "1500m"}),
    );
    let data = |payload: &[u8]| field(2, payload);
    merges(
        "api.apps.v1.ControllerRevision",
        &[&data(&field(1, b"{\"a\":1}")), &data(b"")],
        json!({"metadata": {}, "data": {"a": 1}, "revision": 0}),
    );
    // The envelope.
    let versions = [field(1, &field(1, b"v1")), field(1, &field(2, b"ConfigMap"))].concat();
    let body = [PREFIX, &*versions].concat();
    let envelope = open(&body).unwrap();
    assert_eq!((&*envelope.api_version, &*envelope.kind), ("v1", "ConfigMap"));
}

#[test]
fn merging_is_bounded() {
    // Each merge goes through what the object has.
    let schema = kind("v1", "ConfigMap");
    let metadata = field(1, &field(1, b"a"));
    assert!(decode_message(schema.root(), &metadata.repeat(10_000)).is_ok());
    let error = decode_message(schema.root(), &metadata.repeat(300_000))
        .map(drop)
        .unwrap_err();
    assert!(
        error.to_string().starts_with("decoded object is too large"),
        "{error}"
    );
}
