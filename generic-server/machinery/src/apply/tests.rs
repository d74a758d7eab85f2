use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{FieldDef, KindSchema, ListType, Node, NodeId, Schema, Type, builtin};

const NOW: &str = "2024-01-01T00:00:00Z";

/// A kind and one stored object of it, written to as the registry would.
struct Server {
    schema: KindSchema,
    kind: GroupVersionKind,
    filters: Vec<(&'static str, FieldFilter)>,
    live: Option<Value>,
}

impl Server {
    fn new(group: &str, version: &str, kind: &str) -> Self {
        let schema = builtin().kind(group, version, kind).unwrap();
        Server {
            schema,
            kind: GroupVersionKind::new(group, version, kind),
            filters: Vec::new(),
            live: None,
        }
    }

    fn config_map() -> Self {
        Self::new("", "v1", "ConfigMap")
    }

    fn deployment() -> Self {
        Self::new("apps", "v1", "Deployment")
    }

    fn run<T>(
        &self,
        manager: &str,
        subresource: &str,
        f: impl FnOnce(&dyn Versions, &Options<'_>) -> T,
    ) -> T {
        let api_version = self.kind.api_version();
        let api_versions = [api_version.as_str()];
        let versions = SameShape {
            api_versions: &api_versions,
            schema: self.schema.root(),
        };
        let (kind, now, filters) = (&self.kind, NOW, &*self.filters);
        f(
            &versions,
            &Options {
                manager,
                subresource,
                kind,
                now,
                filters,
            },
        )
    }

    fn complete(&self, mut object: Value) -> Value {
        object["apiVersion"] = self.kind.api_version().into();
        object["kind"] = (&*self.kind.kind).into();
        object
    }

    fn write(&mut self, manager: &str, object: Value) -> &mut Self {
        let mut object = self.complete(object);
        self.run(manager, "", |versions, options| {
            update(self.live.as_ref(), &mut object, versions, options)
        });
        meta::set(&mut object, "uid", "u");
        self.live = Some(object);
        self
    }

    fn merge(&mut self, manager: &str, patch: Value) -> &mut Self {
        let object = crate::patch::merge::apply(self.live.as_ref().unwrap(), &patch).unwrap();
        self.write(manager, object)
    }

    fn try_apply(&mut self, manager: &str, patch: Value, force: bool) -> Result<Applied, ApiError> {
        let patch = self.complete(patch);
        let mut applied = self.run(manager, "", |versions, options| {
            apply(self.live.as_ref(), &patch, versions, options, force)
        })?;
        meta::set(&mut applied.object, "uid", "u");
        self.live = Some(applied.object.clone());
        Ok(applied)
    }

    fn apply(&mut self, manager: &str, patch: Value) -> &mut Self {
        self.try_apply(manager, patch, false).unwrap();
        self
    }

    #[track_caller]
    fn refuses(&mut self, manager: &str, patch: Value, code: u16, message: &str) -> &mut Self {
        let error = self.try_apply(manager, patch, false).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message));
        self
    }

    fn entry(&self, manager: &str, operation: &str) -> Option<&Value> {
        let entries = managed_fields(self.live.as_ref()?)?.as_array()?;
        entries
            .iter()
            .find(|e| e["manager"] == manager && e["operation"] == operation)
    }

    #[track_caller]
    fn owns(&mut self, manager: &str, operation: &str, fields: Value) -> &mut Self {
        let found = self.entry(manager, operation).map(|e| e["fieldsV1"].clone());
        assert_eq!(found.unwrap_or(Value::Null), fields, "{:?}", self.live);
        self
    }
}

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
fn what_go_leaves_out_is_not_there() {
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
fn what_is_no_longer_applied_goes_unless_owned() {
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
fn kubectl_takes_over_what_its_annotation_set() {
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

/// A custom kind: `spec` with a map-like list, a set, an atomic map, and unknown fields below `free`.
fn custom() -> KindSchema {
    let mut schema = Schema::default();
    let mut add = |node: Node| {
        schema.nodes.push(node);
        NodeId(u32::try_from(schema.nodes.len() - 1).unwrap())
    };
    let object = |fields: &[(&str, NodeId)]| {
        let mut fields: Vec<FieldDef> = fields
            .iter()
            .map(|(name, node)| FieldDef {
                name: (*name).into(),
                node: *node,
                required: false,
                omit_empty: true,
                pointer: true,
                default: None,
                patch: None,
                number: None,
                via: [0; 2],
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Node {
            ty: Type::Object,
            fields: fields.into(),
            ..Node::default()
        }
    };
    let string = add(Node {
        ty: Type::String,
        ..Node::default()
    });
    let item = add(object(&[("k", string), ("v", string)]));
    let list = |items, list_type| Node {
        ty: Type::Array,
        items: Some(items),
        list_type,
        ..Node::default()
    };
    let m = add(list(item, ListType::Map(["k".into()].into())));
    let s = add(list(string, ListType::Set));
    let atom = add(Node {
        atomic: true,
        ..object(&[("p", string), ("q", string)])
    });
    let free = add(Node {
        ty: Type::Object,
        preserve_unknown: true,
        ..Node::default()
    });
    let spec = add(object(&[("m", m), ("s", s), ("atom", atom), ("free", free)]));
    let root = add(object(&[("spec", spec)]));
    schema.root = Some(root);
    KindSchema::new(schema.into(), root)
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

/// One write of a random history: who, by apply or update, with which data, with force.
#[derive(Debug, Clone)]
struct Write {
    manager: u8,
    apply: bool,
    force: bool,
    data: Vec<(u8, u8)>,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let data = proptest::collection::btree_map(0u8..5, 0u8..3, 0..5);
    let write =
        (0u8..3, any::<bool>(), any::<bool>(), data).prop_map(|(manager, apply, force, data)| Write {
            manager,
            apply,
            force,
            data: data.into_iter().collect(),
        });
    proptest::collection::vec(write, 1..12)
}

/// The rules said plainly: a value and a set of owners per key.
#[derive(Default)]
struct Model {
    keys: std::collections::BTreeMap<u8, (u8, Vec<(u8, bool)>)>,
}

impl Model {
    /// Tells whether the write is taken.
    fn write(&mut self, write: &Write) -> bool {
        let own = (write.manager, write.apply);
        let differs = |keys: &Model, key: u8, value: u8| keys.keys.get(&key).map(|(v, _)| *v) != Some(value);
        if !write.apply {
            self.keys
                .retain(|key, _| write.data.iter().any(|(k, _)| k == key));
            for (key, value) in &write.data {
                if differs(self, *key, *value) {
                    self.keys.insert(*key, (*value, vec![own]));
                }
            }
            return true;
        }
        let owned_by_others = |(_, owners): &(u8, Vec<(u8, bool)>)| owners.iter().any(|o| *o != own);
        let conflict = write.data.iter().any(|(key, value)| {
            differs(self, *key, *value) && self.keys.get(key).is_some_and(owned_by_others)
        });
        if conflict && !write.force {
            return false;
        }
        self.keys.retain(|key, (_, owners)| {
            let applied = write.data.iter().any(|(k, _)| k == key);
            if applied || !owners.contains(&own) {
                return true;
            }
            owners.retain(|o| *o != own);
            !owners.is_empty()
        });
        for (key, value) in &write.data {
            if differs(self, *key, *value) {
                self.keys.insert(*key, (*value, vec![own]));
            } else if let Some((_, owners)) = self.keys.get_mut(key)
                && !owners.contains(&own)
            {
                owners.push(own);
            }
        }
        true
    }
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

/// The naive model of a list that is a set: who owns each item. Nobody can be in conflict over it.
#[derive(Default)]
struct SetModel {
    items: std::collections::BTreeMap<u8, std::collections::BTreeSet<(u8, bool)>>,
}

impl SetModel {
    fn write(&mut self, write: &Write) {
        let id = (write.manager, write.apply);
        let sent = |item: &u8| write.data.iter().any(|(k, _)| k == item);
        if write.apply {
            // An item whose last owner gives it up is gone.
            self.items
                .retain(|item, owners| sent(item) || !owners.remove(&id) || !owners.is_empty());
            for (item, _) in &write.data {
                self.items.entry(*item).or_default().insert(id);
            }
        } else {
            self.items.retain(|item, _| sent(item));
            for (item, _) in &write.data {
                self.items.entry(*item).or_insert_with(|| [id].into());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any history of updates and applies leaves the data and the owners that the plain rules give.
    #[test]
    fn histories_agree_with_the_model(history in writes()) {
        let mut server = Server::config_map();
        let mut model = Model::default();
        let name = |manager: u8| format!("m{manager}");
        // Somebody always owns something: an object without owners is not tracked until it is applied to.
        server.write("root", json!({"metadata": {"name": "a", "labels": {"root": "1"}}}));
        for write in &history {
            let data: Map<String, Value> =
                write.data.iter().map(|(k, v)| (format!("k{k}"), v.to_string().into())).collect();
            let mut object = json!({"metadata": {"name": "a"}});
            if !data.is_empty() {
                object["data"] = Value::Object(data);
            }
            let taken = if write.apply {
                server.try_apply(&name(write.manager), object, write.force).is_ok()
            } else {
                object["metadata"] = server.live.as_ref().unwrap()["metadata"].clone();
                server.write(&name(write.manager), object);
                true
            };
            prop_assert_eq!(taken, model.write(write));
            let live = server.live.as_ref().unwrap();
            let found: Vec<(String, String)> = live
                .get("data")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
                .collect();
            let expected: Vec<(String, String)> =
                model.keys.iter().map(|(k, (v, _))| (format!("k{k}"), v.to_string())).collect();
            prop_assert_eq!(found, expected);
            for manager in 0..3 {
                for apply in [false, true] {
                    let entry = server.entry(&name(manager), if apply { "Apply" } else { "Update" });
                    for key in 0..5 {
                        let owns = model.keys.get(&key).is_some_and(|(_, o)| o.contains(&(manager, apply)));
                        let path = format!("f:k{key}");
                        let recorded = entry.is_some_and(|e| e["fieldsV1"]["f:data"].get(&path).is_some());
                        prop_assert_eq!(recorded, owns, "m{} {} {}: {:?}", manager, apply, key, server.live);
                    }
                }
            }
        }
    }
    /// The same of a set: finalizers.
    #[test]
    fn histories_of_sets_agree_with_the_model(history in writes()) {
        let mut server = Server::config_map();
        let mut model = SetModel::default();
        let name = |manager: u8| format!("m{manager}");
        server.write("root", json!({"metadata": {"name": "a", "labels": {"root": "1"}}}));
        for write in &history {
            let items: Vec<Value> = write.data.iter().map(|(k, _)| format!("e.com/k{k}").into()).collect();
            let mut object = json!({"metadata": {"name": "a"}});
            if write.apply {
                if !items.is_empty() {
                    object["metadata"]["finalizers"] = items.into();
                }
                prop_assert!(server.try_apply(&name(write.manager), object, write.force).is_ok());
            } else {
                object["metadata"] = server.live.as_ref().unwrap()["metadata"].clone();
                if items.is_empty() {
                    meta::set(&mut object, "finalizers", Value::Null);
                } else {
                    meta::set(&mut object, "finalizers", items);
                }
                server.write(&name(write.manager), object);
            }
            model.write(write);
            let live = server.live.as_ref().unwrap();
            let mut found: Vec<&str> = meta::finalizers(live).collect();
            found.sort_unstable();
            let expected: Vec<String> = model.items.keys().map(|k| format!("e.com/k{k}")).collect();
            prop_assert_eq!(&found, &expected);
            for manager in 0..3 {
                for apply in [false, true] {
                    let entry = server.entry(&name(manager), if apply { "Apply" } else { "Update" });
                    for item in 0..5 {
                        let owns = model.items.get(&item).is_some_and(|o| o.contains(&(manager, apply)));
                        let path = format!("v:\"e.com/k{item}\"");
                        let set = entry.and_then(|e| e["fieldsV1"]["f:metadata"]["f:finalizers"].get(&path));
                        prop_assert_eq!(set.is_some(), owns, "m{} {} {}: {:?}", manager, apply, item, server.live);
                    }
                }
            }
        }
    }
}

/// `managedFields` of so many managers that each applied one key of `data`.
fn one_key_each(managers: usize) -> Value {
    (0..managers)
        .map(|n| {
            json!({"manager": format!("m{n}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {format!("f:k{n}"): {}}}})
        })
        .collect()
}

/// A ConfigMap whose keys are each owned by another manager.
fn shared(keys: usize, value: &str) -> Value {
    let data: Map<String, Value> = (0..keys).map(|n| (format!("k{n}"), value.into())).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "a", "uid": "u", "managedFields": one_key_each(keys)}})
}

#[test]
fn work_grows_with_the_managers_and_what_they_own() {
    let server = Server::config_map();
    // All keys change, and all managers lose theirs.
    crate::steps::check_growth(100, |size| {
        let (live, mut new, server) = (shared(size, "old"), shared(size, "new"), &server);
        move || {
            server.run("writer", "", |versions, options| {
                update(Some(&live), &mut new, versions, options);
            });
            assert_eq!(
                managed_fields(&new).and_then(Value::as_array).map(Vec::len),
                Some(1)
            );
        }
    });
    // One manager applies all keys, then another set of them.
    crate::steps::check_growth(100, |size| {
        let (live, server) = (shared(size, "old"), &server);
        let patch = |value: &str| {
            let mut patch = shared(size, value);
            patch["metadata"].as_object_mut().unwrap().remove("managedFields");
            patch
        };
        let (first, mut second) = (patch("new"), patch("newer"));
        let second_data = second["data"].as_object_mut().unwrap();
        *second_data = std::mem::take(second_data).into_iter().step_by(2).collect();
        move || {
            server.run("m0", "", |versions, options| {
                let applied = apply(Some(&live), &first, versions, options, true).unwrap();
                let applied = apply(Some(&applied.object), &second, versions, options, true).unwrap();
                assert_eq!(applied.object["data"].as_object().map(Map::len), Some(size / 2));
            });
        }
    });
}

#[test]
fn conflicts_are_listed_up_to_a_figure() {
    let mut server = Server::config_map();
    let refusal = |server: &mut Server, keys: usize| {
        server.live = Some(shared(keys, "old"));
        let mut patch = shared(keys, "new");
        patch["metadata"] = json!({"name": "a"});
        server.try_apply("writer", patch, false).unwrap_err()
    };
    let causes = |error: &ApiError| error.details().map_or(0, |details| details.causes.len());
    let all = refusal(&mut server, limits::CAUSES);
    assert_eq!(causes(&all), limits::CAUSES);
    assert!(
        all.message()
            .starts_with("Apply failed with 100 conflicts: conflicts with \"m0\":\n- .data.k0\n")
    );
    assert!(all.message().ends_with("conflicts with \"m99\":\n- .data.k99"));
    let cut = refusal(&mut server, limits::CAUSES + 1);
    assert_eq!(causes(&cut), limits::CAUSES);
    assert!(cut.message().starts_with("Apply failed with 101 conflicts: "));
    assert!(cut.message().ends_with("\nand 1 more"), "{cut}");
}

#[test]
fn faults_of_a_configuration_are_listed_up_to_a_figure() {
    let faults = |count: usize| {
        let data: Map<String, Value> = (0..count).map(|n| (format!("k{n}"), json!([]))).collect();
        let error = Server::config_map()
            .try_apply("a", cm(data.into()), false)
            .unwrap_err();
        error.message().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(faults(limits::CAUSES).len(), 1 + limits::CAUSES);
    let cut = faults(limits::CAUSES + 5);
    assert_eq!(cut.len(), 2 + limits::CAUSES);
    assert_eq!(cut[limits::CAUSES + 1], "  and 5 more");
}

#[test]
fn paths_are_rendered_only_for_what_is_shown() {
    let server = Server::config_map();
    let config = |count: usize| {
        let long = "k".repeat(1 << 16);
        let inner: Map<String, Value> = (0..count).map(|n| (format!("k{n}"), json!([1]))).collect();
        server.complete(json!({"metadata": {"name": "a"}, "data": {long: inner}}))
    };
    for size in [1_000, 2_000] {
        let config = config(size);
        let steps = crate::steps::of(|| {
            assert!(fields::validate(Ty::root(server.schema.root()), &config).is_err());
            assert!(overlay(&json!({}), &config, server.schema.root()).is_err());
        });
        assert!(steps < 10 * limits::CAUSES, "{steps}");
    }
}

#[test]
fn a_deep_merge_copies_each_value_once() {
    let nested = |leaf: Value| (0..200).fold(leaf, |inner, _| json!({ "a": inner }));
    let many: Value = (0..1_000)
        .map(|n| (format!("k{n}"), json!(n)))
        .collect::<Map<_, _>>()
        .into();
    let (live, config) = (nested(many), nested(json!({"x": 1})));
    let steps = crate::steps::of(|| merge::merge(Ty::Deduced, &live, &config).unwrap());
    assert!(steps < 3_000, "{steps}");
}

#[test]
fn a_deep_comparison_looks_at_each_value_a_few_times() {
    let nested =
        |leaf: Value| (0..200).fold(leaf, |inner, _| json!({"a": {"n": 1}, "b": inner, "c": {"n": 1}}));
    let many = |last: &str| -> Value {
        let members = (0..1_000).map(|n| (format!("k{n}"), json!(n)));
        members
            .chain([("z".into(), last.into())])
            .collect::<Map<_, _>>()
            .into()
    };
    let (old, new) = (nested(many("old")), nested(many("new")));
    let (old, new) = (Side::Some(&old), Side::Some(&new));
    let steps = crate::steps::of(|| {
        let difference = compare(View::Merged, Ty::Deduced, old, new).unwrap();
        assert_eq!((difference.modified.len(), difference.added.len()), (1, 0));
    });
    assert!(steps < 4_000, "{steps}");
}
