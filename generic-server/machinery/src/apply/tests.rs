mod custom;
mod growth;
mod histories;
mod server;
mod versions;

use serde_json::json;

use super::*;
use crate::schema::{KindSchema, builtin};
use custom::custom;
use server::{NOW, Server};

fn cm(data: Value) -> Value {
    json!({"metadata": {"name": "a"}, "data": data})
}

#[test]
fn creates_and_updates_are_tracked() {
    let created = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"a": "1", "b": "1"}});
    Server::config_map()
        .write("one", created)
        .owns(
            "one",
            "Update",
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}}),
        )
        .merge("two", json!({"data": {"b": "2", "c": "2", "a": null}}))
        .owns("two", "Update", json!({"f:data": {"f:b": {}, "f:c": {}}}))
        .owns("one", "Update", json!({"f:data": {}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}}))
        .merge("two", json!({"data": null, "metadata": {"labels": null}}))
        .owns("one", "Update", Value::Null)
        .owns("two", "Update", Value::Null);
}

#[test]
fn members_that_go_omits_are_absent() {
    let created = json!({"metadata": {"name": "a", "labels": {}}, "data": {}, "immutable": false});
    Server::config_map()
        .write("one", created)
        .owns("one", "Update", json!({"f:immutable": {}}))
        .merge("two", json!({"data": {"a": ""}}))
        .owns("two", "Update", json!({"f:data": {".": {}, "f:a": {}}}));
}

#[test]
fn structs_are_not_owned_themselves() {
    let spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "resources": {}}
        ]}},
    });
    Server::deployment().write("one", json!({"metadata": {"name": "d"}, "spec": spec, "status": {}})).owns(
        "one",
        "Update",
        json!({"f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {}, "f:env": {
                    ".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}}
            }}},
        }}),
    );
}

#[test]
fn managers_that_own_nothing_go() {
    // Whether or not the write changes anything else.
    let nothing =
        json!([{"manager": "none", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}]);
    let mut server = Server::config_map();
    server.write("one", cm(json!({"a": "1"})));
    server.merge("two", json!({"metadata": {"managedFields": nothing}}));
    assert_eq!(
        meta::metadata(server.live.as_ref().unwrap())
            .unwrap()
            .get("managedFields"),
        None
    );
    server.merge(
        "two",
        json!({"metadata": {"managedFields": nothing}, "data": {"a": "2"}}),
    );
    server
        .owns("none", "Update", Value::Null)
        .owns("two", "Update", json!({"f:data": {"f:a": {}}}));
}

fn custom_server() -> Server {
    Server {
        schema: custom(),
        kind: GroupVersionKind::new("example.com", "v1", "Thing"),
        filters: Vec::new(),
        live: None,
    }
}

#[test]
fn custom_objects_that_do_not_fit_are_not_tracked() {
    let mut server = custom_server();
    server
        .write("one", json!({"metadata": {"name": "a"}, "spec": {"s": ["x"]}}))
        .owns(
            "one",
            "Update",
            json!({"f:spec": {".": {}, "f:s": {".": {}, "v:\"x\"": {}}}}),
        )
        .merge("two", json!({"spec": {"atom": "no object"}}))
        .owns("one", "Update", Value::Null)
        .owns("two", "Update", Value::Null);
    let error = server
        .try_apply(
            "three",
            json!({"metadata": {"name": "a"}, "spec": {"s": ["y"]}}),
            true,
        )
        .unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(
        error
            .message()
            .starts_with("failed to create typed live object (/a; "),
        "{}",
        error.message()
    );
}

/// Two versions whose `spec` has different fields.
struct TwoVersions(KindSchema, KindSchema);

impl Versions for TwoVersions {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        match api_version {
            "example.com/v1" => Some(self.0.root()),
            "example.com/v2" => Some(self.1.root()),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut out = object.clone();
        out["apiVersion"] = api_version.into();
        Ok(out)
    }
}

#[test]
fn fields_of_other_versions_are_compared_by_their_schema() {
    let narrow = crate::schema::crd::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"other": {"type": "string"}}},
    }}))
    .unwrap();
    let root = narrow.root.unwrap();
    let versions = TwoVersions(custom(), KindSchema::new(narrow.into(), root));
    let entry = |version: &str| {
        json!({"apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
            "manager": "one", "operation": "Update", "time": NOW})
    };
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    let options = Options {
        manager: "two",
        subresource: "",
        kind: &kind,
        now: NOW,
        filters: &[],
    };
    let written = |version: &str| {
        let live = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "u",
            "labels": {"a": "b"}, "managedFields": [entry(version)]}, "spec": {"s": ["x"]}});
        let mut new = live.clone();
        new["spec"]["s"] = json!(["x", "y"]);
        update(Some(&live), &mut new, &versions, &options);
        new["metadata"]["managedFields"].clone()
    };
    assert_eq!(written("example.com/v1").as_array().map(Vec::len), Some(2));
    // The fields of `spec` are not in the schema of v2: nothing can be said about the fields that are owned there.
    assert_eq!(written("example.com/v2"), Value::Null);
    let mut unchanged = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "u",
        "managedFields": [entry("example.com/v2")]}, "spec": {"s": ["x"]}});
    let live = unchanged.clone();
    update(Some(&live), &mut unchanged, &versions, &options);
    assert_eq!(unchanged["metadata"].get("managedFields"), None);
}

#[test]
fn conflicts_and_force() {
    let mut server = Server::config_map();
    server.apply("one", cm(json!({"k": "1", "own": "1"}))).refuses(
        "two",
        cm(json!({"k": "2"})),
        409,
        "Apply failed with 1 conflict: conflict with \"one\": .data.k",
    );
    server.try_apply("two", cm(json!({"k": "2"})), true).unwrap();
    server
        .owns("one", "Apply", json!({"f:data": {"f:own": {}}}))
        .owns("two", "Apply", json!({"f:data": {"f:k": {}}}))
        .merge(
            "up",
            json!({"data": {"own": "3"}, "metadata": {"labels": {"l": "1"}}}),
        );
    let patch = json!({"metadata": {"name": "a", "labels": {"l": "9"}}, "data": {"k": "9", "own": "9"}});
    let error = server.try_apply("three", patch, false).unwrap_err();
    assert_eq!(
        error.message(),
        "Apply failed with 3 conflicts: conflicts with \"two\":\n- .data.k\nconflicts with \"up\" using v1:\n- .data.own\n- .metadata.labels.l"
    );
    let cause = &error.details().unwrap().causes[1];
    assert_eq!(
        (
            cause.reason.as_str(),
            cause.message.as_str(),
            cause.field.as_str()
        ),
        (
            "FieldManagerConflict",
            "conflict with \"up\" using v1",
            ".data.own"
        )
    );
}

#[test]
fn fields_no_longer_applied_are_removed_unless_owned() {
    let mut server = Server::config_map();
    server
        .apply("one", cm(json!({"s": "1", "o": "1"})))
        .apply("two", cm(json!({"s": "1", "t": "1"})))
        .apply("one", cm(json!({"x": "1"})));
    assert_eq!(
        server.live.as_ref().unwrap()["data"],
        json!({"s": "1", "t": "1", "x": "1"})
    );
    server
        .apply("two", cm(json!({"t": "1"})))
        .apply("one", json!({"metadata": {"name": "a"}}));
    assert_eq!(server.live.as_ref().unwrap()["data"], json!({"t": "1"}));
    server.owns("one", "Apply", Value::Null);
}

#[test]
fn a_repeated_apply_changes_nothing() {
    let mut server = Server::config_map();
    assert!(
        server
            .try_apply("one", cm(json!({"k": "1"})), false)
            .unwrap()
            .changed
    );
    let before = server.live.clone();
    assert!(
        !server
            .try_apply("one", cm(json!({"k": "1"})), false)
            .unwrap()
            .changed
    );
    assert_eq!(server.live, before);
    server.apply("two", cm(json!({"k": "1"})));
    assert_eq!(
        server.entry("two", "Apply").unwrap().get("time"),
        None,
        "upstream records no time either"
    );
}

#[test]
fn lists_merge_by_their_keys() {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let deployment = |containers: Value| json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": containers}}}});
    let names = |server: &Server| -> Vec<String> {
        let containers = &server.live.as_ref().unwrap()["spec"]["template"]["spec"]["containers"];
        containers
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut server = Server::deployment();
    server.apply("one", deployment(json!([container("a"), container("b")])));
    server.apply(
        "two",
        deployment(json!([container("x"), {"name": "a", "args": ["1"]}])),
    );
    assert_eq!(names(&server), ["x", "a", "b"]);
    server.apply("one", deployment(json!([container("b"), container("a")])));
    assert_eq!(names(&server), ["x", "b", "a"]);
    server.apply("two", deployment(json!([{"name": "a", "args": ["1"]}])));
    assert_eq!(names(&server), ["b", "a"]);
    server.refuses(
        "three",
        deployment(json!([{"name": "a", "args": ["2"]}])),
        409,
        "Apply failed with 1 conflict: conflict with \"two\": .spec.template.spec.containers[name=\"a\"].args",
    );
    let tolerations = |list: Value| json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"tolerations": list}}}});
    server.apply("one", tolerations(json!([{"key": "k"}]))).refuses(
        "three",
        tolerations(json!([])),
        409,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.template.spec.tolerations",
    );
    let mut service = Server::new("", "v1", "Service");
    let ports = |ports: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    service
        .apply("one", ports(json!([{"port": 53, "name": "a"}])))
        .apply("two", ports(json!([{"port": 53, "protocol": "UDP"}])))
        .owns("one", "Apply", json!({"f:spec": {"f:ports": {"k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}}))
        .refuses(
            "two",
            ports(json!([{"port": 80}, {"port": 80, "protocol": "TCP"}])),
            500,
            "failed to create typed patch object (/s; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
        );
}

#[test]
fn bad_configurations_are_refused() {
    let mut server = Server::deployment();
    let spec = |spec: Value| json!({"metadata": {"name": "d", "namespace": "n"}, "spec": spec});
    let prefix = "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): ";
    for (patch, expected) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (
            json!({"template": {"spec": {"containers": [{"name": "c", "zip": 1}]}}}),
            ".spec.template.spec.containers[name=\"c\"].zip: field not declared in schema",
        ),
        (
            json!({"replicas": "x"}),
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            json!({"paused": "x", "replicas": []}),
            "errors:\n  .spec.paused: expected boolean, got &{x}\n  .spec.replicas: expected numeric (int or float), got []interface {}",
        ),
        (
            json!({"template": {"spec": {"nodeName": 1, "containers": {"a": 1}}}}),
            "errors:\n  .spec.template.spec.containers: expected list, got &{map[a:1]}\n  .spec.template.spec.nodeName: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ] {
        server.refuses("m", spec(patch), 500, &format!("{prefix}{expected}"));
    }
    server.refuses(
        "m",
        json!({"metadata": {"name": "d", "managedFields": []}}),
        400,
        "metadata.managedFields must be nil",
    );
    let other = json!({"apiVersion": "v1", "kind": "Secret"});
    let error = server
        .run("m", "", |v, o| apply(None, &other, v, o, false))
        .unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (400, "invalid object type: /v1, Kind=Secret")
    );
}

#[test]
fn tracking_can_be_reset_and_restarts_with_an_apply() {
    let mut server = Server::config_map();
    server.write("one", cm(json!({"k": "1"})));
    for reset in [json!([]), json!([{}])] {
        let mut object = server.live.clone().unwrap();
        object["metadata"]["managedFields"] = reset;
        server.write("one", object);
        assert_eq!(managed_fields(server.live.as_ref().unwrap()), None);
        server.merge("two", json!({"data": {"j": "1"}}));
        assert_eq!(managed_fields(server.live.as_ref().unwrap()), None);
    }
    server
        .apply("three", cm(json!({"n": "1"})))
        .owns(
            "before-first-apply",
            "Update",
            json!({"f:data": {".": {}, "f:j": {}, "f:k": {}}}),
        )
        .owns("three", "Apply", json!({"f:data": {"f:n": {}}}))
        .refuses(
            "three",
            cm(json!({"k": "2"})),
            409,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k",
        );
}

#[test]
fn kubectl_takes_over_fields_of_its_annotation() {
    let last = r#"{"apiVersion":"v1","data":{"j":"1","k":"1"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"a"}}"#;
    let object =
        json!({"metadata": {"name": "a", "annotations": {LAST_APPLIED: last}}, "data": {"k": "1", "j": "1"}});
    let mut server = Server::config_map();
    server
        .write("kubectl-client-side-apply", object)
        .apply("kubectl", cm(json!({"k": "<2>", "j": "1"})));
    let annotation = server.live.as_ref().unwrap()["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .unwrap();
    assert_eq!(
        annotation,
        "{\"apiVersion\":\"v1\",\"data\":{\"j\":\"1\",\"k\":\"\\u003c2\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    server.refuses(
        "other",
        cm(json!({"k": "3"})),
        409,
        "Apply failed with 1 conflict: conflict with \"kubectl\": .data.k",
    );
}

#[test]
fn endpoints_reset_fields() {
    let mut server = Server::deployment();
    server.filters = vec![("apps/v1", FieldFilter::exclude(&[&["status"]]))];
    server
        .apply(
            "one",
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 3}}),
        )
        .owns("one", "Apply", json!({"f:spec": {"f:replicas": {}}}));
    let set = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:resources": {"f:limits": {}}}}}, "f:status": {"f:x": {}}});
    let include = FieldFilter::Include(vec![vec![
        Pattern::field("spec"),
        Pattern::field("containers"),
        Pattern::Any,
        Pattern::field("resources"),
    ]]);
    let kept = include.filter(&Set::from_value(&set).unwrap());
    assert_eq!(
        kept.to_value(),
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:resources": {"f:limits": {}}}}}})
    );
}

#[test]
fn custom_kinds() {
    let kind = GroupVersionKind::new("x.io", "v1", "Foo");
    let mut server = Server {
        schema: custom(),
        kind,
        filters: Vec::new(),
        live: None,
    };
    let spec = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    let full = json!({"m": [{"k": "a", "v": "1"}], "s": ["p", "q"], "atom": {"p": "1"}, "free": {"x": {"y": [1]}, "z": {}}});
    let owned = json!({"f:spec": {
        "f:m": {"k:{\"k\":\"a\"}": {".": {}, "f:k": {}, "f:v": {}}},
        "f:s": {"v:\"p\"": {}, "v:\"q\"": {}},
        "f:atom": {},
        "f:free": {"f:x": {".": {}, "f:y": {}}, "f:z": {}},
    }});
    server
        .apply("one", spec(full))
        .owns("one", "Apply", owned)
        .apply("two", spec(json!({"s": ["q", "r"], "free": {"x": {"w": 1}}})))
        .refuses("two", spec(json!({"atom": {"q": "2"}})), 409, "Apply failed with 1 conflict: conflict with \"one\": .spec.atom")
        .refuses("two", spec(json!({"nope": 1})), 500, "failed to create typed patch object (/x; x.io/v1, Kind=Foo): .spec.nope: field not declared in schema")
        .refuses("two", spec(json!({"s": ["a", "a"]})), 500, "failed to create typed patch object (/x; x.io/v1, Kind=Foo): .spec.s: duplicate entries for key [=\"a\"]")
        .apply("one", spec(json!({"m": []})));
    assert_eq!(
        server.live.as_ref().unwrap()["spec"],
        json!({"s": ["q", "r"], "free": {"x": {"w": 1}}})
    );
    let mut created = Server { live: None, ..server };
    created.write("up", spec(json!({"s": ["a"]}))).owns(
        "up",
        "Update",
        json!({"f:spec": {".": {}, "f:s": {".": {}, "v:\"a\"": {}}}}),
    );
}

#[test]
fn versions_that_are_gone_are_dropped() {
    let mut server = Server::config_map();
    let entry = |version: &str, field: &str| json!({"manager": "m", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}});
    server.live = Some(server.complete(json!({"metadata": {"name": "a", "uid": "u", "managedFields": [entry("v0", "f:a"), entry("v1", "f:b")]}, "data": {"a": "1", "b": "1"}})));
    server.merge("n", json!({"data": {"c": "1"}}));
    let entries = managed_fields(server.live.as_ref().unwrap())
        .unwrap()
        .as_array()
        .unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|e| e["apiVersion"] == "v1"));
}

#[test]
fn a_list_made_atomic_is_owned_whole() {
    let mut server = Server::deployment();
    let entry = json!({"manager": "m", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:selector": {"f:matchLabels": {".": {}, "f:app": {}}}}}});
    let live = json!({"metadata": {"name": "d", "uid": "u", "managedFields": [entry]}, "spec": {"selector": {"matchLabels": {"app": "d"}}}});
    server.live = Some(server.complete(live));
    server.merge("n", json!({"spec": {"replicas": 2}})).owns(
        "m",
        "Apply",
        json!({"f:spec": {"f:selector": {}}}),
    );
}

#[test]
fn scale_moves_the_replicas() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": NOW, "fieldsType": "FieldsV1", "fieldsV1": fields});
    let parent = json!([entry(
        "dev",
        "Apply",
        json!({"f:spec": {"f:paused": {}, "f:replicas": {}}})
    )]);
    let paths: &ScalePaths<'_> = &[("apps/v1", Some(&["spec", "replicas"]))];
    let shown = scale_to_subresource(Some(&parent), paths).unwrap().unwrap();
    assert_eq!(shown[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(shown[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(
        scale_to_parent(Some(&parent), Some(&shown), "apps/v1", paths)
            .unwrap()
            .unwrap(),
        parent
    );
    let mut written = shown[0].clone();
    written["manager"] = "scaler".into();
    written["operation"] = "Update".into();
    written["subresource"] = "scale".into();
    let after = scale_to_parent(Some(&parent), Some(&json!([written])), "apps/v1", paths)
        .unwrap()
        .unwrap();
    assert_eq!(after[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(after[1]["apiVersion"], "apps/v1");
    assert_eq!(after[1]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(after[1].get("time"), None);
}

#[test]
fn only_times_differ() {
    let a = json!({"metadata": {"managedFields": [{"manager": "m", "time": "1"}]}, "data": 1});
    let b = json!({"metadata": {"managedFields": [{"manager": "m", "time": "2"}]}, "data": 1});
    let c = json!({"metadata": {"managedFields": [{"manager": "n", "time": "2"}]}, "data": 1});
    assert!(same_but_times(&a, &b));
    assert!(!same_but_times(&a, &c));
}

#[test]
fn the_oldest_updates_are_put_together_and_of_one_second_the_first_by_name() {
    let mut server = Server::config_map();
    let mut data = Map::new();
    for index in 0..12 {
        data.insert(format!("k{index}"), "v".into());
        let mut object = json!({"metadata": {"name": "a"}, "data": data});
        if let Some(live) = &server.live {
            object["metadata"] = live["metadata"].clone();
        }
        server.write(&format!("m{index}"), object);
    }
    let entries = managed_fields(server.live.as_ref().unwrap())
        .unwrap()
        .as_array()
        .unwrap();
    let managers: Vec<&str> = entries.iter().map(|e| e["manager"].as_str().unwrap()).collect();
    let expected = [
        "ancient-changes",
        "m11",
        "m2",
        "m3",
        "m4",
        "m5",
        "m6",
        "m7",
        "m8",
        "m9",
    ];
    assert_eq!(managers, expected);
    assert_eq!(
        entries[0]["fieldsV1"]["f:data"],
        json!({".": {}, "f:k0": {}, "f:k1": {}, "f:k10": {}})
    );
}
