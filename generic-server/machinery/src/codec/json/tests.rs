use serde_json::json;

use super::*;
use crate::codec::strict_message;
use crate::schema::{KindSchema, builtin};

fn kind(api_version: &str, kind: &str) -> KindSchema {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin().kind(group, version, kind).unwrap()
}

#[track_caller]
fn typed(api_version: &str, name: &str, body: &str) -> Result<Decoded, String> {
    decode_typed(body.as_bytes(), kind(api_version, name).root()).map_err(|e| e.to_string())
}

#[track_caller]
fn syntax(body: &[u8], expected: &str) {
    assert_eq!(decode(body).unwrap_err().to_string(), expected, "{body:?}");
}

#[test]
fn syntax_errors_read_as_gos() {
    syntax(b"", "unexpected end of JSON input");
    syntax(b"{", "unexpected end of JSON input");
    syntax(b"[1", "unexpected end of JSON input");
    syntax(b"\"a", "unexpected end of JSON input");
    syntax(b"x", "invalid character 'x' looking for beginning of value");
    syntax(
        b"{a",
        "invalid character 'a' looking for beginning of object key string",
    );
    syntax(b"{\"a\" 1}", "invalid character '1' after object key");
    syntax(
        b"{\"a\":1 2}",
        "invalid character '2' after object key:value pair",
    );
    syntax(b"[1 2]", "invalid character '2' after array element");
    syntax(b"{} {}", "invalid character '{' after top-level value");
    syntax(b"00", "invalid character '0' after top-level value");
    syntax(b"+2", "invalid character '+' looking for beginning of value");
    syntax(
        b"1.x",
        "invalid character 'x' after decimal point in numeric literal",
    );
    syntax(b"1ex", "invalid character 'x' in exponent of numeric literal");
    syntax(b"-x", "invalid character 'x' in numeric literal");
    syntax(b"trux", "invalid character 'x' in literal true (expecting 'e')");
    syntax(b"\"\\x\"", "invalid character 'x' in string escape code");
    syntax(
        b"\"\\u12g4\"",
        "invalid character 'g' in \\u hexadecimal character escape",
    );
    syntax(b"\"a\nb\"", "invalid character '\\n' in string literal");
    syntax(&[b'['; 100_000], "exceeded max depth");
    let skipped = [b"{\"a\":".as_slice(), &[b'['; 100_000]].concat();
    assert!(decode_typed(&skipped, kind("v1", "ConfigMap").root()).is_err());
}

#[test]
fn strings_and_numbers_are_gos() {
    let body = b"[\"\\u00e9\\ud83d\\ude00\", \"\\ud83d\", \"\\u0000\", \"\xff\xfe\", 1.0, 1e2, 9007199254740993, 1.5, -0, -0.0]";
    assert_eq!(
        decode(body).unwrap().value,
        json!([
            "\u{e9}\u{1f600}",
            "\u{fffd}",
            "\0",
            "\u{fffd}\u{fffd}",
            1,
            100,
            9_007_199_254_740_993_i64,
            1.5,
            0,
            0
        ])
    );
}

#[test]
fn duplicates_and_unknown_fields_in_the_order_of_the_document() {
    let found = typed(
        "apps/v1",
        "Deployment",
        r#"{"metadata":{"name":"d","label":{}},"spec":{"template":{"spec":{"containers":[{"name":"c","imagePull":"x","image":"i","image":"j",
            "ports":[{"containerPort":80,"portName":"y"}]}]}},"replicas":1,"replica":2,"replicas":3},"extra":true}"#,
    )
    .unwrap();
    assert_eq!(
        strict_message(&found.strict),
        "strict decoding error: unknown field \"metadata.label\", unknown field \"spec.template.spec.containers[0].imagePull\", \
         duplicate field \"spec.template.spec.containers[0].image\", unknown field \"spec.template.spec.containers[0].ports[0].portName\", \
         unknown field \"spec.replica\", duplicate field \"spec.replicas\", unknown field \"extra\""
    );
    assert_eq!(found.value["spec"]["replicas"], 3);
    assert_eq!(
        found.value["spec"]["template"]["spec"]["containers"][0]["image"],
        "j"
    );

    let found = typed(
        "v1",
        "ConfigMap",
        r#"{"data":{"k":"1","k":"2"},"data":{"j":"3"}}"#,
    )
    .unwrap();
    assert_eq!(
        strict_message(&found.strict),
        "strict decoding error: duplicate field \"data.k\", duplicate field \"data\""
    );
    assert_eq!(found.value["data"], json!({"k": "2", "j": "3"}));
}

#[test]
fn values_come_out_in_upstreams_form() {
    let pod = typed(
        "v1",
        "Pod",
        r#"{"metadata":{"name":"p","creationTimestamp":null,"labels":{},"annotations":null},"spec":{"hostNetwork":false,"automountServiceAccountToken":false,
            "priority":null,"nodeName":"","containers":[{"name":"c","resources":{"limits":{"cpu":0.5,"memory":"1024Mi"}},"env":[]}]}}"#,
    )
    .unwrap();
    assert_eq!(
        pod.value,
        json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}, "status": {}})
    );
    let data = typed(
        "v1",
        "ConfigMap",
        r#"{"metadata":null,"data":{"k":null},"binaryData":null}"#,
    )
    .unwrap();
    assert_eq!(data.value, json!({"metadata": {}, "data": {"k": ""}}));
    assert_eq!(
        typed("v1", "ConfigMap", "null").unwrap().value,
        json!({"metadata": {}})
    );
    let secret = typed("v1", "Secret", r#"{"data":{"k":null}}"#).unwrap();
    assert_eq!(secret.value["data"], json!({"k": ""}));
    let lease = typed(
        "coordination.k8s.io/v1",
        "Lease",
        r#"{"spec":{"renewTime":"2001-02-03T04:05:06.789012Z"}}"#,
    )
    .unwrap();
    assert_eq!(lease.value["spec"]["renewTime"], "2001-02-03T04:05:06.789012Z");
    // An empty list that is always written is there until it is stored.
    let mut role = typed("rbac.authorization.k8s.io/v1", "ClusterRole", r#"{"rules":[]}"#).unwrap();
    assert_eq!(role.value, json!({"metadata": {}, "rules": []}));
    let schema = crate::schema::builtin().kind("rbac.authorization.k8s.io", "v1", "ClusterRole");
    typed::drop_empty_lists(schema.unwrap().root(), &mut role.value);
    assert_eq!(role.value, json!({"metadata": {}, "rules": null}));
    let service = typed(
        "v1",
        "Service",
        r#"{"spec":{"ports":[{"port":80},{"port":81,"targetPort":""}]}}"#,
    )
    .unwrap();
    assert_eq!(
        service.value["spec"]["ports"],
        json!([{"port": 80, "targetPort": 0}, {"port": 81, "targetPort": ""}])
    );
}

#[test]
fn a_schema_in_a_schema_is_typed_too() {
    let body = r#"{"spec":{"group":"g","names":{"plural":"p","kind":"K"},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","additionalProperties":false,"items":[{"typ":1}],"default":{"a":1.0},"maximum":5.0,
        "properties":{"a":{"additionalProperties":{"nope":1,"type":"string"}}}}}}]}}"#;
    let found = typed("apiextensions.k8s.io/v1", "CustomResourceDefinition", body).unwrap();
    let schema = &found.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(
        schema,
        &json!({"type": "object", "additionalProperties": false, "items": [{}], "default": {"a": 1.0}, "maximum": 5,
            "properties": {"a": {"additionalProperties": {"type": "string"}}}})
    );
    // In a union upstream does not look for unknown fields.
    assert_eq!(found.strict.len(), 1, "{:?}", found.strict);
}

#[track_caller]
fn wrong(api_version: &str, name: &str, body: &str, expected: &str) {
    assert_eq!(typed(api_version, name, body).unwrap_err(), expected);
    // The same document after a detour through a parsed value.
    if let Ok(parsed) = decode(body.as_bytes())
        && !body.contains(".0")
    {
        let error = super::typed::decode_builtin(kind(api_version, name).root(), parsed.value).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn type_errors_read_as_gos() {
    let deployment = |spec: &str| format!(r#"{{"spec":{spec}}}"#);
    for (value, shown) in [
        ("2.0", "number 2.0"),
        ("2.5", "number 2.5"),
        ("2147483648", "number 2147483648"),
        ("\"2\"", "string"),
        ("true", "bool"),
        ("[2]", "array"),
        ("{}", "object"),
    ] {
        wrong(
            "apps/v1",
            "Deployment",
            &deployment(&format!(r#"{{"replicas":{value}}}"#)),
            &format!(
                "json: cannot unmarshal {shown} into Go struct field DeploymentSpec.spec.replicas of type int32"
            ),
        );
    }
    wrong(
        "v1",
        "ConfigMap",
        r#"{"data":{"k":1}}"#,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    wrong(
        "v1",
        "ConfigMap",
        r#"{"data":["k"]}"#,
        "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
    );
    wrong(
        "apps/v1",
        "Deployment",
        r#"{"spec":[]}"#,
        "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
    );
    wrong(
        "v1",
        "ConfigMap",
        "[]",
        "json: cannot unmarshal array into Go value of type v1.ConfigMap",
    );
    wrong(
        "v1",
        "Secret",
        r#"{"data":{"k":"***"}}"#,
        "illegal base64 data at input byte 0",
    );
    wrong(
        "v1",
        "Service",
        r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
        "json: cannot unmarshal bool into Go value of type int32",
    );
    wrong(
        "v1",
        "Pod",
        r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
        "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
    );
}

#[test]
fn bytes_may_be_a_list_of_numbers() {
    for (list, expected) in [("[]", ""), ("[1,255]", "Af8=")] {
        let body = format!(r#"{{"data":{{"k":{list}}}}}"#);
        let secret = typed("v1", "Secret", &body).unwrap();
        assert_eq!(secret.value["data"]["k"], expected);
        let parsed = decode(body.as_bytes()).unwrap().value;
        let reread = super::typed::decode_builtin(kind("v1", "Secret").root(), parsed).unwrap();
        assert_eq!(reread.value["data"]["k"], expected);
    }
    let wrong = typed("v1", "Secret", r#"{"data":{"k":[256]}}"#).unwrap_err();
    assert_eq!(
        wrong,
        "json: cannot unmarshal number 256 into Go value of type uint8"
    );
}

#[test]
fn doubles_in_raw_json_stay_what_they_are() {
    let data = typed("apps/v1", "ControllerRevision", r#"{"data":{"a":[2.0,1e3,2]}}"#).unwrap();
    assert_eq!(data.value["data"]["a"], json!([2.0, 1000.0, 2]));
}

#[test]
fn a_parsed_value_becomes_the_same_as_its_bytes() {
    let body = r#"{"metadata":{"name":"p","bogus":1},"spec":{"containers":[{"name":"c","image":null}],"tolerations":[null]},"status":null}"#;
    let from_bytes = typed("v1", "Pod", body).unwrap();
    let parsed = decode(body.as_bytes()).unwrap().value;
    assert_eq!(
        super::typed::decode_builtin(kind("v1", "Pod").root(), parsed).unwrap(),
        from_bytes
    );
    assert_eq!(from_bytes.value["spec"]["tolerations"], json!([{}]));
}

#[test]
fn version_and_kind_are_read_alone() {
    assert_eq!(
        interpret(br#" {"spec":{"kind":"x"},"kind":"A","apiVersion":"b/v1"} "#).unwrap(),
        ("b/v1".into(), "A".into())
    );
    assert_eq!(interpret(b"null").unwrap(), Default::default());
    for (body, expected) in [
        ("", "unexpected end of JSON input"),
        (
            "{\"kind\":5}",
            "json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        ("{} x", "invalid character 'x' after top-level value"),
    ] {
        assert_eq!(
            interpret(body.as_bytes()).unwrap_err().to_string(),
            format!("couldn't get version/kind; json parse error: {expected}")
        );
    }
}

#[test]
fn memory_is_bounded() {
    // A small object takes a hundred times its bytes, an empty one no more than any value.
    let objects = |count: usize| format!("[{}]", vec!["{\"\":0}"; count].join(","));
    let each = crate::codec::weight(&json!({"": 0}));
    let most = (limits::DECODED_BYTES - size_of::<Value>()) / each;
    assert!(decode(objects(most).as_bytes()).is_ok());
    syntax(
        objects(most + 1).as_bytes(),
        "decoded object is too large: it would take more than 134217728 bytes of memory",
    );
    assert!(decode(format!("[{}]", vec!["{}"; 2 * most].join(",")).as_bytes()).is_ok());
    // Defaults from the schema count too, in every encoding.
    let set = |count: usize| {
        let claims = vec!["{}"; count].join(",");
        format!("{{\"spec\":{{\"volumeClaimTemplates\":[{claims}]}}}}")
    };
    let decoded = |count: usize| typed("apps/v1", "StatefulSet", &set(count)).map(drop);
    let one = typed("apps/v1", "StatefulSet", &set(1)).unwrap().value;
    let most = limits::DECODED_BYTES / crate::codec::weight(&one["spec"]["volumeClaimTemplates"][0]);
    assert_eq!(decoded(most / 2), Ok(()));
    let error = decoded(most + 1).unwrap_err();
    assert!(error.starts_with("decoded object is too large"), "{error}");
    let parsed = decode(set(most + 1).as_bytes()).unwrap().value;
    let outcome = super::typed::decode_builtin(kind("apps/v1", "StatefulSet").root(), parsed).map(drop);
    assert_eq!(outcome, Err(DecodeError::Syntax(error)));
}

#[test]
fn strict_errors_are_bounded_and_so_is_the_work_for_them() {
    let unknown = |count: usize| -> String {
        let fields: Vec<String> = (0..count).map(|n| format!("\"x{n}\":0")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let reported = |count: usize| typed("v1", "Pod", &unknown(count)).unwrap().strict.len();
    assert_eq!(reported(limits::STRICT_ERRORS), limits::STRICT_ERRORS);
    assert_eq!(reported(limits::STRICT_ERRORS + 1), limits::STRICT_ERRORS);
    // The same key again and again is one error; its path is not written for each.
    let repeated = |count: usize| {
        let key = "k".repeat(1 << 16);
        format!("{{\"{key}\":{{{}}}}}", vec!["\"a\":0"; count].join(","))
    };
    for count in [10_000, 20_000] {
        let body = repeated(count);
        let steps = crate::steps::of(|| {
            let strict = decode(body.as_bytes()).unwrap().strict;
            assert_eq!(strict.len(), 1);
            assert!(strict[0].to_string().len() < 2 * limits::SHOWN_VALUE_BYTES);
        });
        assert!(steps < 100, "{steps}");
    }
    // So are declared fields whose value is not kept.
    crate::steps::check_growth(1_000, |size| {
        let body = format!(
            "{{\"spec\":{{{}}}}}",
            vec!["\"hostIPC\":null,\"hostPID\":null"; size].join(",")
        );
        move || assert_eq!(typed("v1", "Pod", &body).unwrap().strict.len(), 2)
    });
}

#[test]
fn every_decoder_nests_as_deep() {
    let json = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    type Fits = fn(&[u8]) -> bool;
    let fits: [(&str, Fits, u8); 3] = [
        ("JSON", |bytes| decode(bytes).is_ok(), b'['),
        ("YAML", |bytes| crate::codec::yaml::decode(bytes).is_ok(), b'['),
        ("CBOR", |bytes| crate::codec::cbor::decode(bytes).is_ok(), 0x81),
    ];
    for (name, fits, open) in fits {
        // A list of one item each in CBOR, around an empty one.
        let document = |depth: usize| match open {
            b'[' => json(depth).into_bytes(),
            open => [vec![open; depth - 1], vec![0x80]].concat(),
        };
        assert!(fits(&document(limits::DEPTH)), "{name}");
        assert!(!fits(&document(limits::DEPTH + 1)), "{name}");
    }
}

#[test]
fn merged_integers_are_cut() {
    let schema = kind("apps/v1", "StatefulSet");
    let replicas = |number: i64| json!({"spec": {"replicas": number}});
    for (number, cut) in [(3, 3), (2_147_483_648, -2_147_483_648), (1 << 53, 0), (-1, -1)] {
        let decoded = typed::decode_merged(schema.root(), replicas(number)).unwrap();
        assert_eq!(decoded.value["spec"]["replicas"], cut, "{number}");
    }
    assert!(typed::decode_builtin(schema.root(), replicas(1 << 53)).is_err());
}

#[test]
fn strings_end_where_they_end() {
    for length in 0..40 {
        for (mark, text) in [
            ('"', "\\\""),
            ('\\', "\\\\"),
            ('\n', "\\n"),
            ('\u{7f}', "\u{7f}"),
            ('ä', "ä"),
            ('!', "!"),
        ] {
            let (before, after) = ("[".repeat(length), "]".repeat(40 - length));
            let decoded = decode(format!("\"{before}{text}{after}\"").as_bytes()).unwrap();
            assert_eq!(decoded.value, format!("{before}{mark}{after}"));
        }
        for bad in ["\n", "\0", "\u{1f}", "\t"] {
            let document = format!("\"{}{bad}\"", "a".repeat(length));
            assert!(decode(document.as_bytes()).is_err(), "{document:?}");
            assert!(decode(format!("\"\\u0041{}{bad}\"", "a".repeat(length)).as_bytes()).is_err());
        }
        let open = format!("\"{}", "a".repeat(length));
        assert!(decode(open.as_bytes()).is_err(), "{open}");
    }
}
