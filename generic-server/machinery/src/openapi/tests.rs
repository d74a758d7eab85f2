use serde_json::json;

use super::*;

#[test]
fn built_in_types_read_as_upstreams() {
    let texts = Descriptions::default();
    let spec = definition(Dialect::V3, "io.k8s.api.apps.v1.DeploymentSpec", &[], &texts).unwrap();
    assert_eq!(spec["required"], json!(["selector", "template"]));
    assert_eq!(
        spec["properties"]["strategy"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}], "default": {}, "x-kubernetes-patch-strategy": "retainKeys"})
    );
    assert_eq!(
        spec["properties"]["replicas"],
        json!({"type": "integer", "format": "int32"})
    );
    let condition = definition(Dialect::V3, "io.k8s.api.core.v1.ContainerStatus", &[], &texts).unwrap();
    assert_eq!(
        condition["required"],
        json!(["name", "ready", "restartCount", "image", "imageID"])
    );
    let pod = definition(Dialect::V2, "io.k8s.api.core.v1.PodSpec", &[], &texts).unwrap();
    assert_eq!(
        pod["properties"]["containers"],
        json!({"type": "array", "items": {"$ref": "#/definitions/io.k8s.api.core.v1.Container"}, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"], "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"})
    );
    let deployment = definition(Dialect::V2, "io.k8s.api.apps.v1.Deployment", &[], &texts).unwrap();
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
    );
    let options = format!("{META}.DeleteOptions");
    let options = definition(Dialect::V3, &options, &[("", "v1"), ("apps", "v1")], &texts).unwrap();
    assert_eq!(options["x-kubernetes-group-version-kind"][1]["group"], "apps");
}

#[test]
fn every_reference_of_a_document_is_in_it() {
    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(name)) = map.get("$ref") {
                    out.push(name.trim_start_matches("#/components/schemas/").to_owned());
                }
                map.values().for_each(|v| references(v, out));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }
    let texts = Descriptions::default();
    for (group, version) in [("apps", "v1"), ("", "v1"), ("apiextensions.k8s.io", "v1")] {
        let of_group = builtin()
            .kinds()
            .filter(|(g, v, ..)| (*g, *v) == (group, version));
        let roots = of_group.filter_map(|(.., schema)| schema.node().type_name.as_deref());
        let components = definitions(Dialect::V3, roots, &[(group, version)], &texts);
        let mut found = Vec::new();
        components
            .values()
            .for_each(|schema| references(schema, &mut found));
        for name in found {
            assert!(components.contains_key(&name), "{name}");
        }
    }
}

#[test]
fn descriptions_are_packed_in() {
    let texts = Descriptions::unpack();
    assert!(
        texts
            .of_type("io.k8s.api.core.v1.Pod")
            .is_some_and(|t| t.starts_with("Pod is a collection"))
    );
    assert!(texts.of_field("io.k8s.api.core.v1.PodSpec", "nodeName").is_some());
    assert!(texts.of_field("io.k8s.api.core.v1.PodSpec", "nope").is_none());
}

#[test]
fn enumerations_are_of_fields_with_strings() {
    for (field, values) in descriptions::enumerations() {
        let (name, field) = field.rsplit_once('.').expect("a type and a field");
        let kind = builtin().by_type_name(&format!("io.k8s.{name}")).expect(name);
        let root = kind.root();
        let known = root.node().fields.iter().find(|known| &*known.name == field);
        let schema = root.at(known.unwrap_or_else(|| panic!("{name}.{field}")).node);
        let text = schema.items().or(schema.additional()).unwrap_or(schema);
        assert_eq!(text.node().ty, Type::String, "{name}.{field}");
        assert!(values.split('|').is_sorted(), "{values}");
    }
    let texts = Descriptions::unpack();
    let property = |name: &str, field: &str| {
        let all = definition(Dialect::V2, name, &[], &texts).unwrap();
        all["properties"][field].clone()
    };
    let policy = property("io.k8s.api.core.v1.Container", "imagePullPolicy");
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let modes = property("io.k8s.api.core.v1.PersistentVolumeSpec", "accessModes");
    assert_eq!(modes["items"]["enum"][0], "ReadOnlyMany");
    assert_eq!(modes.get("enum"), None);
}

#[test]
fn texts_that_are_not_packed_are_there() {
    let texts = Descriptions::unpack();
    let described = |name: &str, field: &str| {
        let all = definition(Dialect::V3, name, &[], &texts).unwrap();
        all["properties"][field].get("description").is_some()
    };
    assert!(described("io.k8s.api.core.v1.PodList", "items"));
    assert!(described(&format!("{META}.WatchEvent"), "object"));
    assert!(!described(
        "io.k8s.api.certificates.v1.CertificateSigningRequestList",
        "metadata"
    ));
    let service = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec";
    let service = definition(Dialect::V2, service, &[], &texts).unwrap();
    assert_eq!(
        service["properties"]["caBundle"]["x-kubernetes-list-type"],
        "atomic"
    );
}

#[test]
fn custom_resources_are_published_as_kubectl_can_read_them() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["n", "m"], "properties": {
        "n": {"type": "string", "nullable": true}, "m": {"type": "integer", "oneOf": [{}]}, "p": {"x-kubernetes-int-or-string": true},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "string"}}}}}}});
    let custom = CustomKind {
        group: "stable.example.com",
        version: "v1",
        kind: "Foo",
        list_kind: "FooList",
        plural: "foos",
        preserve_unknown: false,
        selectable: &[".spec.n"],
    };
    let v2 = custom_definitions(Dialect::V2, &custom, Some(schema.clone()));
    let spec = &v2["com.example.stable.v1.Foo"]["properties"]["spec"];
    assert_eq!(
        spec,
        &json!({"type": "object", "required": ["m"], "properties": {"n": {}, "m": {"type": "integer"}, "p": {"x-kubernetes-int-or-string": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true}}})
    );
    let v3 = custom_definitions(Dialect::V3, &custom, Some(schema));
    let foo = &v3["com.example.stable.v1.Foo"];
    assert_eq!(foo["properties"]["spec"]["properties"]["n"]["nullable"], true);
    assert_eq!(
        foo["properties"]["spec"]["properties"]["p"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert_eq!(
        foo["x-kubernetes-selectable-fields"],
        json!([{"fieldPath": "spec.n"}])
    );
    assert_eq!(
        v3["com.example.stable.v1.FooList"]["properties"]["items"]["items"]["$ref"],
        "#/components/schemas/com.example.stable.v1.Foo"
    );
}
