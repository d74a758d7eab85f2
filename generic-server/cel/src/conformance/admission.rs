//! Features that admission policies use besides: the authorizer, computed variables, and objects built by expressions.

use parking_lot::Mutex;
use serde_json::json;

use crate::{
    Authorizer, AuthzCheck, AuthzResource, AuthzTarget, Bindings, Decision, DeclType, Env, EvalError,
    FieldDecl, LazyObject, Library, Program, Type, Val,
};

#[derive(Debug, Default)]
struct Recorder {
    asked: Mutex<Vec<AuthzCheck>>,
}

impl Authorizer for Recorder {
    fn check(&self, check: &AuthzCheck) -> Result<Decision, EvalError> {
        self.asked.lock().push(check.clone());
        Ok(Decision {
            allowed: check.verb == "get",
            reason: "because".to_string(),
            error: None,
        })
    }
}

#[test]
fn the_authorizer_is_asked() {
    let env = Env::builder()
        .typed("authorizer", Type::AUTHORIZER)
        .typed("authorizer.requestResource", Type::RESOURCE_CHECK)
        .build();
    let recorder = Recorder::default();
    let resource = AuthzResource {
        resource: "pods".into(),
        namespace: "ns".into(),
        ..AuthzResource::default()
    };
    let bindings = Bindings::new()
        .with("authorizer", Val::authorizer(&recorder))
        .with(
            "authorizer.requestResource",
            Val::resource_check(&recorder, resource.clone()),
        );
    let holds = |source: &str| {
        let (result, cost) = env.compile(source).unwrap().eval_counted(&bindings);
        assert!(matches!(result, Ok(Val::Bool(true))), "{source}: {result:?}");
        cost
    };
    let cost = holds(
        "authorizer.group('apps').resource('deployments').namespace('a').name('b').check('get').allowed()",
    );
    assert_eq!(cost, 350_006);
    holds("!authorizer.requestResource.check('delete').allowed()");
    holds("authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').reason() == 'because'");
    let asked = recorder.asked.lock().clone();
    let AuthzTarget::Resource(first) = &asked[0].target else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (&*first.group, &*first.resource, &*first.namespace, &*first.name),
        ("apps", "deployments", "a", "b")
    );
    assert_eq!(asked[1].target, AuthzTarget::Resource(resource));
    assert_eq!(asked[2].target, AuthzTarget::Path("/healthz".to_string()));
    assert_eq!(
        asked[2].service_account,
        Some(("ns".to_string(), "sa".to_string()))
    );
    // Two checks are all an expression can pay for.
    let three = "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed() \
                 && authorizer.path('/c').check('get').allowed()";
    let (result, _) = env.compile(three).unwrap().eval_counted(&bindings);
    assert!(matches!(result, Err(EvalError::CostLimit)));
}

#[derive(Debug)]
struct Variables;

impl LazyObject for Variables {
    fn get(&self, field: &str) -> Option<Result<Val<'_>, EvalError>> {
        match field {
            "replicas" => Some(Ok(Val::Int(3))),
            "broken" => Some(Err(EvalError::new("no such key: spec"))),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        2
    }
}

#[test]
fn variables_are_computed_when_asked_for() {
    let decl = DeclType::object(
        "kubernetes.variables",
        [
            FieldDecl::new("replicas", DeclType::int()),
            FieldDecl::new("broken", DeclType::dynamic()),
        ],
    );
    let env = Env::builder().typed("variables", decl.cel_type().clone()).build();
    let bindings = Bindings::new().with("variables", Val::Map(crate::Map::Lazy(&Variables)));
    let eval = |source: &str| {
        env.compile(source)
            .unwrap()
            .eval_counted(&bindings)
            .0
            .map(|val| val.as_bool())
    };
    assert_eq!(eval("variables.replicas > 2"), Ok(Some(true)));
    assert_eq!(
        eval("variables.broken == 1"),
        Err(EvalError::new("no such key: spec"))
    );
    assert_eq!(eval("variables.broken == 1 || true"), Ok(Some(true)));
    assert!(env.compile("variables.other == 1").is_err());
}

#[test]
fn untyped_objects_are_taken_as_they_are() {
    let env = Env::builder().typed("object", Type::Dyn).build();
    let object = json!({"metadata": {"labels": {"a/b": "c"}, "name": null}, "spec": {"namespace": "n", "n": 5, "f": 1.5}});
    let bindings = Bindings::new().with("object", Val::dynamic(&object));
    for source in [
        "object.metadata.labels['a/b'] == 'c' && has(object.metadata.name) && object.metadata.name == null",
        "object.spec.namespace == 'n' && object.spec.n == 5 && object.spec.f == 1.5 && !has(object.spec.x)",
        "object.spec.?x.orValue('d') == 'd' && object.metadata.labels.size() == 1 && object == object",
        "object.spec.n > 4.5 && object.metadata.labels.all(k, v, k == 'a/b' && v == 'c')",
    ] {
        let result = env.compile(source).unwrap().eval_counted(&bindings).0;
        assert!(matches!(result, Ok(Val::Bool(true))), "{source}: {result:?}");
    }
}

#[test]
fn expressions_build_objects() {
    let patch = DeclType::object(
        "JSONPatch",
        [
            FieldDecl::new("op", DeclType::string()),
            FieldDecl::new("path", DeclType::string()),
            FieldDecl::new("from", DeclType::string()),
            FieldDecl::new("value", DeclType::dynamic()),
        ],
    );
    let env = Env::builder()
        .typed("object", Type::Dyn)
        .structure(&patch)
        .library(Library::JsonPatch)
        .library(Library::Objects)
        .build();
    let object = json!({"spec": {"replicas": 1}});
    let bindings = Bindings::new().with("object", Val::dynamic(&object));
    let eval = |source: &str| {
        let program = env.compile(source).unwrap_or_else(|errors| panic!("{errors}"));
        (
            program.eval_counted(&bindings).0.unwrap(),
            program.output_type().to_string(),
        )
    };
    let (val, ty) =
        eval("Object{spec: Object.spec{replicas: object.spec.replicas + 1, ?x: optional.none()}}");
    assert_eq!(
        (val.to_json().unwrap(), &*ty),
        (json!({"spec": {"replicas": 2}}), "Object")
    );
    assert!(val.misplaced_types().is_empty());
    let (val, _) = eval("Object{spec: Object.status{}}");
    assert_eq!(
        val.misplaced_types(),
        [
            r#"unexpected type name "Object.status", expected "Object.spec", which matches field name path from root Object type"#
        ]
    );
    let (val, ty) = eval(
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: {'k': [1, 2]}}]",
    );
    assert_eq!(ty, "list(JSONPatch)");
    assert_eq!(
        val.to_json().unwrap(),
        json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": {"k": [1, 2]}}])
    );
    assert!(
        env.compile("JSONPatch{op: 1}")
            .unwrap_err()
            .to_string()
            .contains("expected type of field 'op' is 'string' but provided type is 'int'")
    );
    assert!(Env::builder().build().compile("Object{}").is_err());
}

#[test]
fn programs_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
    shared::<Env>();
    shared::<DeclType>();
}
