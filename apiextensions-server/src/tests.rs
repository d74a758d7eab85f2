//! The server as a whole, over a store in memory: a CRD is usable when its create returns, and goes with its instances.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use generic_server::admission::AdmissionChain;
use generic_server::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use generic_server::directory::Directory;
use generic_server::discovery::DiscoverySource;
use generic_server::handlers::{self, ServeEnv};
use generic_server::openapi::OpenApiSource;
use generic_server::registry::StorageFactory;
use generic_server::request::{Authorized, User};
use generic_server::resource::ServedResource;
use generic_server::spawn::Tasks;
use generic_server::write::{self, DeleteOptions, UpdateRules, WriteCall};
use machinery::{ApiError, GroupResource, meta};
use serde_json::{Value, json};

use crate::crd::status;
use crate::{ApiExtensions, Deps, Limits};

#[derive(Debug)]
struct Anyone;

#[async_trait::async_trait]
impl Authorizer for Anyone {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::Allow(String::new())
    }

    async fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

struct World {
    server: Arc<ApiExtensions>,
    directory: Arc<Directory>,
    tasks: Tasks,
    system: Authorized,
    admission: AdmissionChain,
}

impl World {
    async fn new() -> World {
        let directory = Arc::new(Directory::default());
        let server = ApiExtensions::new(Deps {
            storage: StorageFactory::new(storage::memory()),
            prefix: "/registry".into(),
            directory: directory.clone(),
            services: generic_server::webhook::Services::new(
                directory.clone(),
                generic_server::client::egress::EgressSelector::default(),
            ),
            env: ServeEnv {
                admission: AdmissionChain::default(),
                authorizer: Arc::new(Anyone),
                max_body: 3 << 20,
                min_request_timeout: handlers::MIN_REQUEST_TIMEOUT,
            },
            limits: Limits::default(),
            rule_times: Arc::default(),
        });
        let tasks = Tasks::new();
        server.start(&tasks).await.expect("an empty store starts");
        World {
            server,
            directory,
            tasks,
            system: Authorized::system(),
            admission: AdmissionChain::default(),
        }
    }

    fn call<'a>(&'a self, resource: &'a ServedResource, namespace: &'a str) -> WriteCall<'a> {
        WriteCall::internal(resource, &self.system, &self.admission, namespace)
    }

    async fn define(&self, crd: Value) -> Result<(), ApiError> {
        let mut crd = crd;
        self.server.crds.strategy.default(&mut crd);
        write::create(&self.call(&self.server.crds, ""), crd)
            .await
            .map(|_| ())
    }

    async fn change(&self, name: &str, change: impl Fn(&mut Value) + Send + Sync) -> Result<(), ApiError> {
        let mut transform = |live: Option<&Value>| {
            let mut crd = live.cloned().unwrap_or_default();
            change(&mut crd);
            Ok(crd)
        };
        let call = self.call(&self.server.crds, "");
        write::update(&call, name, &UpdateRules::default(), &mut transform)
            .await
            .map(|_| ())
    }

    fn served(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ServedResource>> {
        let index = self.server.index();
        let definition = index.find(group, plural).filter(|d| d.established)?;
        // Outside of requests nothing is cut into slices.
        let compiled = self.server.resource_of(definition, version).now_or_never();
        compiled.expect("it is compiled at once")?.ok()
    }

    async fn until_marked(&self, resource: &ServedResource, namespace: &str, name: &str) {
        let store = resource.store().expect("stored");
        let wait = async {
            loop {
                let entry = store.as_system().find(namespace, name).await.expect("readable");
                if entry.is_some_and(|e| meta::deletion_timestamp(&e.value()).is_some()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("in time");
    }

    /// Waits until the CRD is as asked; `None` is gone.
    async fn until(&self, name: &str, holds: impl Fn(Option<&Value>) -> bool) {
        let store = self.server.crd_store().expect("CRDs are stored");
        let wait = async {
            loop {
                let crd = store
                    .as_system()
                    .find("", name)
                    .await
                    .expect("readable")
                    .map(|e| e.value());
                if holds(crd.as_ref()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("in time");
    }
}

fn crd(plural: &str, kind: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": plural.trim_end_matches('s')},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1},
        "tier": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'", "message": "not bad"}]},
    }}}})
}

fn foo(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn usable_when_the_create_returns() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let foos = world.served("example.com", "v1", "foos").expect("served at once");
    let call = world.call(&foos, "default");
    let refused = |error: ApiError| error.message().to_string();
    let create = |spec| write::create(&call, foo("a", spec));
    assert_eq!(
        create(json!({"size": 0})).await.map(|_| ()).map_err(refused),
        Err("Foo.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1".into())
    );
    assert_eq!(
        create(json!({"tier": "bad"})).await.map(|_| ()).map_err(refused),
        Err("Foo.example.com \"a\" is invalid: spec.tier: Invalid value: \"bad\": not bad".into())
    );
    create(json!({"size": 1, "tier": "good"})).await.expect("valid");

    let groups = DiscoverySource::groups(&*world.server);
    assert!(groups.iter().any(|g| &*g.group == "example.com"));
    let document = world.server.openapi_v3("example.com", "v1").expect("published");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    assert!(document["components"]["schemas"]["com.example.v1.FooList"].is_object());
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"].is_object());

    world
        .until("foos.example.com", |crd| {
            crd.is_some_and(|c| status::is_true(c, "Established"))
        })
        .await;
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_empty_resource_is_read_without_its_schema() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let definition = || {
        let index = world.server.index();
        index.find("example.com", "foos").cloned().expect("defined")
    };
    let serving = async |verb: &'static str| {
        let info = generic_server::RequestInfo {
            verb: verb.into(),
            group: "example.com".into(),
            version: "v1".into(),
            resource: "foos".into(),
            is_resource: true,
            ..generic_server::RequestInfo::default()
        };
        world
            .server
            .serving(&definition(), &info)
            .await
            .expect("served")
            .expect("sound")
    };
    let compiled = || {
        definition()
            .serving
            .slots
            .iter()
            .any(|slot| slot.peek().is_some())
    };
    for verb in ["list", "watch", "get"] {
        let resource = serving(verb).await;
        assert!(resource.schema().is_none() && !resource.table.columns().is_empty());
    }
    assert!(!compiled());
    let foos = serving("create").await;
    assert!(foos.schema().is_some() && compiled());
    write::create(&world.call(&foos, "n"), foo("a", json!({"size": 1})))
        .await
        .expect("valid");
    assert!(serving("list").await.schema().is_some());
    // It is unused: the second sweep drops it.
    for _ in 0..2 {
        crate::controllers::drop_idle(&world.server);
    }
    assert!(!compiled());
    assert!(serving("list").await.schema().is_some(), "there are objects now");
}

#[tokio::test]
async fn openapi_is_made_of_pieces() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let mut bars = crd("bars", "Bar", schema());
    bars["spec"]["scope"] = "Cluster".into();
    bars["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
    world.define(bars).await.expect("valid");
    let documents = |server: &ApiExtensions| -> Vec<(String, String)> {
        let all = OpenApiSource::swagger_parts(server).into_iter();
        all.map(|part| (part.path, part.hash))
            .filter(|(path, _)| path.contains("example"))
            .collect()
    };
    let before = documents(&world.server);
    let paths: Vec<&str> = before.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["apis/example.com/v1#bars", "apis/example.com/v1#foos"]);

    let texts = machinery::openapi::Descriptions::unpack();
    let part = OpenApiSource::swagger(&*world.server, "apis/example.com/v1#bars", &texts).expect("published");
    let text = format!("{part:?}");
    assert!(
        text.contains("/apis/example.com/v1/bars/{name}/scale") && text.contains("com.example.v1.BarList")
    );

    let document = world.server.openapi_v3("example.com", "v1").expect("published");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["com.example.v1.Foo"]["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "kind": "Foo", "version": "v1"}])
    );
    assert!(schemas["io.k8s.api.autoscaling.v1.Scale"].is_object());
    let options = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    let versions = options["x-kubernetes-group-version-kind"]
        .as_array()
        .map(Vec::len);
    assert_eq!(versions, Some(machinery::openapi::client_versions().len()));
    let owner = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"];
    assert_eq!(owner["required"], json!(["apiVersion", "kind", "name", "uid"]));
    let get = &document["paths"]["/apis/example.com/v1/bars/{name}"]["get"];
    assert_eq!(get["operationId"], "readExampleComV1Bar");
    assert_eq!(get["tags"], json!(["exampleCom_v1"]));

    // A status says nothing of it; a spec does, of its own part alone.
    world
        .until("foos.example.com", |crd| {
            crd.is_some_and(|c| status::is_true(c, "Established"))
        })
        .await;
    assert_eq!(documents(&world.server), before);
    let wider = |crd: &mut Value| crd["spec"]["names"]["categories"] = json!(["all"]);
    world.change("foos.example.com", wider).await.expect("valid");
    let after = documents(&world.server);
    assert_eq!(after[0], before[0]);
    assert_ne!(after[1], before[1]);
}

#[tokio::test]
async fn a_change_is_validated_against_the_stored_object() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let foos = world.served("example.com", "v1", "foos").expect("served");
    let call = world.call(&foos, "n");
    for (name, size) in [("small", 1), ("large", 9)] {
        let spec = json!({"size": size, "tier": "x"});
        write::create(&call, foo(name, spec)).await.expect("valid");
    }
    let mut narrower = schema();
    let properties = &mut narrower["properties"]["spec"]["properties"];
    properties["size"]["minimum"] = 5.into();
    properties["color"] = json!({"type": "string", "default": "red"});
    if let Some(properties) = properties.as_object_mut() {
        properties.remove("tier");
    }
    let index = world.server.index();
    let definition = index.find("example.com", "foos").expect("defined");
    let objects = world
        .server
        .store_of(definition)
        .as_system()
        .fresh()
        .await
        .unwrap();
    let report = crate::impact::impact_on(&objects, definition, &crd("foos", "Foo", narrower))
        .await
        .expect("judged");
    assert_eq!(report["objects"], 2);
    assert_eq!(report["refused"]["count"], 1);
    assert_eq!(report["refused"]["examples"][0]["name"], "small");
    assert_eq!(report["pruned"]["count"], 2);
    assert_eq!(report["pruned"]["examples"][0]["fields"], json!(["spec.tier"]));
    assert_eq!(
        report["defaulted"]["examples"][0]["fields"],
        json!(["spec.color"])
    );
    let stored = foos
        .store()
        .expect("stored")
        .as_system()
        .find("n", "small")
        .await
        .expect("readable");
    assert_eq!(
        stored.expect("there").value()["spec"]["tier"],
        "x",
        "nothing is touched"
    );
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn names_are_given_once_and_freed() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    world.define(crd("foes", "Foo", schema())).await.expect("valid");
    assert!(
        world.served("example.com", "v1", "foes").is_none(),
        "its kind is taken"
    );
    let has_reason = |crd: Option<&Value>, reason: &str| {
        crd.and_then(|c| status::find(c, "NamesAccepted"))
            .is_some_and(|c| c["reason"] == reason)
    };
    world
        .until("foes.example.com", |c| has_reason(c, "ListKindConflict"))
        .await;
    let call = world.call(&world.server.crds, "");
    write::delete(&call, "foos.example.com", &DeleteOptions::default())
        .await
        .expect("marked");
    world.until("foos.example.com", |c| c.is_none()).await;
    world
        .until("foes.example.com", |c| has_reason(c, "NoConflicts"))
        .await;
    assert!(world.served("example.com", "v1", "foes").is_some());
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn instances_go_with_their_definition() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let foos = world.served("example.com", "v1", "foos").expect("served");
    let call = world.call(&foos, "default");
    write::create(&call, foo("free", json!({}))).await.expect("valid");
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    write::create(&call, held).await.expect("valid");

    let crds = world.call(&world.server.crds, "");
    let marked = write::delete(&crds, "foos.example.com", &DeleteOptions::default()).await;
    let marked = marked.expect("marked").object;
    assert!(status::is_true(&marked, "Terminating"));
    assert_eq!(meta::generation(&marked), 1);
    // As every request does first.
    world.server.index();
    let late = write::create(&call, foo("late", json!({}))).await;
    assert_eq!(
        late.map(|_| ()).map_err(|e| (e.code(), e.message().to_string())),
        Err((
            403,
            "foos.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating".into()
        ))
    );
    world
        .until("foos.example.com", |crd| {
            crd.and_then(|c| status::find(c, "Terminating"))
                .is_some_and(|c| c["reason"] == "InstanceDeletionInProgress")
        })
        .await;
    // The finalizer's owner lets go once the object is marked.
    world.until_marked(&foos, "default", "held").await;
    let mut release = |live: Option<&Value>| {
        let mut object = live.cloned().unwrap_or_default();
        meta::set(&mut object, "finalizers", Value::Null);
        Ok(object)
    };
    let rules = UpdateRules::default();
    write::update(&call, "held", &rules, &mut release)
        .await
        .expect("released");
    world.until("foos.example.com", |crd| crd.is_none()).await;
    world.server.index();
    let gone = world.directory.get(&GroupResource::new("example.com", "foos"));
    assert!(gone.is_none());
    assert!(world.served("example.com", "v1", "foos").is_none());
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_changed_schema_defaults_stored_objects() {
    let world = World::new().await;
    world.define(crd("foos", "Foo", schema())).await.expect("valid");
    let foos = world.served("example.com", "v1", "foos").expect("served");
    write::create(&world.call(&foos, "n"), foo("old", json!({})))
        .await
        .expect("valid");
    world
        .until("foos.example.com", |crd| {
            crd.is_some_and(|c| status::is_true(c, "Established"))
        })
        .await;
    world
        .change("foos.example.com", |crd| {
            let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            if let Some(properties) = crd.pointer_mut(properties) {
                properties["color"] = json!({"type": "string", "default": "red"});
            }
        })
        .await
        .expect("valid");
    let foos = world.served("example.com", "v1", "foos").expect("served");
    let entry = foos
        .store()
        .expect("stored")
        .as_system()
        .find("n", "old")
        .await
        .expect("readable");
    let entry = entry.expect("there");
    assert!(
        foos.strategy
            .decorated_since()
            .is_some_and(|since| entry.revision < since)
    );
    let read = write::served(&foos, &entry).await.expect("readable");
    assert_eq!(read["spec"]["color"], "red");
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn defaults_on_read_are_those_of_the_stored_version() {
    let world = World::new().await;
    let with = |properties: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let text = |default: &str| json!({"type": "string", "default": default});
    let mut definition = crd(
        "foos",
        "Foo",
        with(json!({"a": text("stored"), "b": text("stored")})),
    );
    definition["spec"]["versions"]
        .as_array_mut()
        .expect("a list")
        .push(json!({
            "name": "v2", "served": true, "storage": false,
            "schema": {"openAPIV3Schema": with(json!({"a": {"type": "string"}, "c": text("served")}))},
        }));
    world.define(definition).await.expect("valid");
    let second = world.served("example.com", "v2", "foos").expect("served");
    let mut object = foo("one", json!({}));
    object["apiVersion"] = "example.com/v2".into();
    write::create(&world.call(&second, "n"), object)
        .await
        .expect("valid");
    for (version, expected) in [
        ("v1", json!({"a": "stored", "b": "stored"})),
        // The default of `c` is of another version than the stored one, and `b` is not known here.
        ("v2", json!({"a": "stored"})),
    ] {
        let foos = world.served("example.com", version, "foos").expect("served");
        let entry = foos.store().expect("stored").as_system().find("n", "one").await;
        let entry = entry.expect("readable").expect("there");
        let read = write::served(&foos, &entry).await.expect("readable");
        assert_eq!(read["spec"], expected, "{version}");
    }
    world.tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn rules_and_defaults_of_a_definition_are_judged_as_upstream_does() {
    let world = World::new().await;
    let spec = |properties: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let defined = |plural: &'static str, properties: Value| {
        let definition = crd(plural, plural, spec(properties));
        world.define(definition)
    };
    // The keys of an atomic map have old values, too.
    let transition = json!([{"rule": "self == oldSelf"}]);
    let atomic = json!({"type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {"a": {"type": "integer", "x-kubernetes-validations": transition}}});
    defined("atomics", json!({"m": atomic})).await.expect("valid");
    // A default of an int-or-string is of any type, as long as its other rules take it.
    let either =
        |default: Value| json!({"x-kubernetes-int-or-string": true, "maximum": 2, "default": default});
    defined(
        "eithers",
        json!({"a": either(json!(1.5)), "b": either(json!(true))}),
    )
    .await
    .expect("valid");
    let dear = defined("dears", json!({"a": either(json!(2.5))})).await;
    let dear = dear.expect_err("more than the maximum");
    assert!(dear.message().contains("less than or equal to 2"), "{dear:?}");
    // A whole double is judged as one, and stored as a whole number.
    let halves = json!({"type": "number", "multipleOf": 0.5, "default": 1000.0});
    defined("halves", json!({"a": halves})).await.expect("valid");
    let stored = world.server.crds.store().expect("stored").as_system();
    let stored = stored.find("", "halves.example.com").await.expect("readable");
    let default = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/default";
    let stored = stored.expect("there").value();
    assert_eq!(stored.pointer(default), Some(&json!(1000)));
    // Objects embedded in others have a kind.
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": [{"rule": "self.kind != '' && self.metadata.name != ''"}]});
    defined("embeds", json!({"e": embedded})).await.expect("valid");
    // Unknown fields of a default are a fault besides others.
    let wrong = defined("wrongs", json!({"a": {"type": "integer", "default": {"x": 1}}})).await;
    let wrong = wrong.expect_err("an object is no integer");
    for part in ["must not have unknown fields", "must be of type integer"] {
        assert!(wrong.message().contains(part), "{wrong:?}");
    }
    world.tasks.stop(Duration::from_secs(5)).await;
}
