use machinery::schema::{KindSchema, builtin, crd};

use super::*;

/// A kind whose objects have this custom schema beside the usual fields.
fn custom(schema: &Value) -> CheckedKind {
    let schema = crd::compile(schema).expect("a schema");
    let root = schema.root.expect("a root");
    let schema = KindSchema::new(schema.into(), root);
    CheckedKind {
        gvk: GroupVersionKind::new("apps", "v1", "Deployment"),
        declared: Some(declared_custom(Some(schema.root()))),
    }
}

fn with_foo(ty: &str) -> CheckedKind {
    custom(&json!({"type": "object", "properties": {"foo": {"type": ty}}}))
}

fn of_builtin(group: &str, version: &str, kind: &str) -> CheckedKind {
    let schema = builtin().kind(group, version, kind).expect("a built-in kind");
    CheckedKind {
        gvk: GroupVersionKind::new(group, version, kind),
        declared: declared(schema.root()),
    }
}

fn validation(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

/// The warnings as pairs of a path and a text.
async fn found(spec: &Value, kinds: &[CheckedKind], params: Option<&CheckedKind>) -> Vec<(String, String)> {
    let warnings = check(&json!({"spec": spec}), kinds, params).await;
    let text = |warning: &Value, key: &str| warning[key].as_str().expect("a text").to_string();
    let pairs = warnings
        .iter()
        .map(|warning| (text(warning, "fieldRef"), text(warning, "warning")));
    pairs.collect()
}

#[tokio::test]
async fn expressions_are_checked_against_a_bounded_number_of_kinds() {
    let fits = || with_foo("string");
    let mut kinds: Vec<CheckedKind> = (0..limits::CHECKED_KINDS - 1).map(|_| fits()).collect();
    kinds.push(with_foo("integer"));
    let spec = validation("object.foo.startsWith('a')");
    assert_eq!(
        found(&spec, &kinds, None).await.len(),
        1,
        "the last one that counts"
    );
    kinds.insert(0, fits());
    assert_eq!(found(&spec, &kinds, None).await, [], "one too many");
}

#[tokio::test]
async fn expressions_are_checked_as_upstream_does() {
    // Upstream's own cases: what is expected is a place and a part of the text.
    let check = async |spec: Value,
                       kind: CheckedKind,
                       params: Option<CheckedKind>,
                       expected: Option<(&str, &str)>| {
        let found = found(&spec, &[kind], params.as_ref()).await;
        match expected {
            None => assert_eq!(found, [], "{spec}"),
            Some((place, part)) => {
                assert_eq!(found.len(), 1, "{spec}: {found:?}");
                assert!(
                    found[0].0 == place && found[0].1.contains(part),
                    "{spec}: {found:?}"
                );
            }
        }
    };
    let first = "spec.validations[0].expression";
    let foo = "object.foo == 'bar'";
    let bar = custom(&json!({"type": "object", "properties": {"bar": {"type": "string"}}}));
    check(validation(foo), with_foo("string"), None, None).await;
    check(validation(foo), bar, None, Some((first, "undefined field 'foo'"))).await;
    check(
        validation(foo),
        with_foo("integer"),
        None,
        Some((first, "found no matching overload")),
    )
    .await;
    let params = json!({"paramKind": {"apiVersion": "v1", "kind": "DoesNotMatter"},
        "validations": [{"expression": "object.foo == params.bar"}]});
    check(
        params.clone(),
        with_foo("string"),
        Some(with_foo("string")),
        Some((first, "undefined field 'bar'")),
    )
    .await;
    check(params, with_foo("string"), None, None).await;
    let two = json!({"validations": [{"expression": foo}, {"expression": "object.bar == 'foo'"}]});
    check(
        two,
        with_foo("string"),
        None,
        Some(("spec.validations[1].expression", "undefined field 'bar'")),
    )
    .await;
    let message = json!({"validations": [{"expression": foo, "messageExpression": "object.foo + 114514"}]});
    check(
        message,
        with_foo("string"),
        None,
        Some((
            "spec.validations[0].messageExpression",
            "found no matching overload",
        )),
    )
    .await;
    check(
        validation("authorizer.group('').resource('endpoints').check('create').allowed()"),
        with_foo("string"),
        None,
        None,
    )
    .await;
    check(
        validation("authorizer.allowed()"),
        with_foo("string"),
        None,
        Some((
            first,
            "found no matching overload for 'allowed' applied to 'kubernetes.authorization.Authorizer",
        )),
    )
    .await;
    let open = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"text": {"type": "string"}}},
        "status": {"type": "object", "properties": {"any": {"type": "object", "additionalProperties": true}}}}});
    check(validation("has(object.spec.text)"), custom(&open), None, None).await;
    let untyped = CheckedKind {
        declared: None,
        ..with_foo("string")
    };
    check(validation("true"), untyped, None, None).await;
    let variables = |variable: &str, expression: &str| json!({"variables": [{"name": "name", "expression": variable}], "validations": [{"expression": expression}]});
    check(
        variables("true", "variables.name"),
        with_foo("integer"),
        None,
        None,
    )
    .await;
    check(
        variables("true", "variables.other"),
        with_foo("integer"),
        None,
        Some((first, "undefined field 'other'")),
    )
    .await;
    check(
        variables("'something'", "variables.name == object.foo"),
        with_foo("integer"),
        None,
        Some((
            first,
            "found no matching overload for '_==_' applied to '(string, int)",
        )),
    )
    .await;
    // An error in a variable is its own, and is not reported where that is used.
    check(
        variables("object.foo == 'str'", "variables.name == object.foo"),
        with_foo("integer"),
        None,
        None,
    )
    .await;
}

#[tokio::test]
async fn every_kind_has_its_part_of_a_warning() {
    let kinds = [
        of_builtin("", "v1", "Pod"),
        of_builtin("apps", "v1", "Deployment"),
    ];
    let found = found(&validation("object.spec.replicas > '1'"), &kinds, None).await;
    let expected = "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > '1'\n | ...........^\n\n\
        apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n \
        | object.spec.replicas > '1'\n | .....................^\n";
    assert_eq!(
        found,
        [("spec.validations[0].expression".to_string(), expected.to_string())]
    );
}

#[tokio::test]
async fn built_in_types_are_those_of_the_published_schemas() {
    let check = async |expression: &str, expected: Option<&str>| {
        let kinds = [of_builtin("", "v1", "Pod")];
        let found = found(&validation(expression), &kinds, None).await;
        assert_eq!(
            found.len(),
            usize::from(expected.is_some()),
            "{expression}: {found:?}"
        );
        if let Some(part) = expected {
            assert!(found[0].1.contains(part), "{expression}: {found:?}");
        }
    };
    check(
        "object.metadata.labels['a'] == 'b' && object.metadata.generation > 0",
        None,
    )
    .await;
    check(
        "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
        None,
    )
    .await;
    check(
        "object.spec.containers.all(c, c.ports.all(p, p.containerPort > 0))",
        None,
    )
    .await;
    check("object.spec.containers[0].livenessProbe.httpGet.port == 80", None).await;
    // Quantities have no type in the published schema, and so maps of them are not seen.
    check(
        "has(object.spec.containers[0].resources.limits)",
        Some("undefined field 'limits'"),
    )
    .await;
    check(
        "object.spec.containers.all(c, c.nam == '')",
        Some("undefined field 'nam'"),
    )
    .await;
    check("oldObject.spec == 1", Some("applied to '(Pod.spec, int)'")).await;
    check(
        "object.metadata.managedFields[0].fieldsV1.x == 1",
        Some("undefined field 'x'"),
    )
    .await;
}

#[tokio::test]
async fn kinds_within_themselves_end() {
    let kind = of_builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let of = |tail: &str| validation(&format!("object.spec.versions[0].schema.openAPIV3Schema.{tail}"));
    assert_eq!(
        found(
            &of("type == 'object'"),
            &[of_builtin(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition"
            )],
            None
        )
        .await,
        []
    );
    let found = found(&of("properties['a'].type == 'object'"), &[kind], None).await;
    assert!(found[0].1.contains("undefined field 'type'"), "{found:?}");
}

#[tokio::test]
async fn warnings_are_bounded() {
    let wrong = "object.nothing ".repeat(60) + "== 1";
    let many: Vec<Value> = (0..5000).map(|_| json!({"expression": wrong})).collect();
    let found = found(&json!({"validations": many}), &[with_foo("string")], None).await;
    let bytes: usize = found.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes <= limits::EXPRESSION_WARNING_BYTES + 100, "{bytes}");
    assert_eq!(
        found[found.len() - 1].1,
        "there are more warnings than a status has room for"
    );
}
