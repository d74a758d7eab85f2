//! Helpers of the tables of tests beside the kinds: a built-in kind over a store in memory, written through the
//! registry as a request would write it, from the defaults on.

use std::sync::Arc;
use std::time::Duration;

use generic_server::admission::AdmissionChain;
use generic_server::authn::{TokenAuthenticator, TokenVerdict};
use generic_server::authz::AlwaysAllow;
use generic_server::client::egress::Route;
use generic_server::directory::Directory;
use generic_server::registry::StorageFactory;
use generic_server::registry::cache::StoredForm;
use generic_server::resource::{Decoding, ServedResource, Subresource};
use generic_server::spawn::Tasks;
use generic_server::write::{self, UpdateRules, WriteCall};
use generic_server::{ApiError, Authorized};
use machinery::{codec, meta};
use serde_json::{Value, json};

use crate::deps::{Deps, IssuedToken, KindFeatures, TokenClaims, TokenIssuer};
use crate::errors::Errors;
use crate::json::Json;
use crate::nodes::{KubeletOptions, Nodes};

#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl TokenAuthenticator for Nobody {
    async fn authenticate_token(&self, _token: &str, _audiences: &[String]) -> TokenVerdict {
        TokenVerdict::NotMine
    }
}

#[async_trait::async_trait]
impl TokenIssuer for Nobody {
    fn default_audiences(&self) -> Vec<String> {
        Vec::new()
    }

    async fn issue(&self, _claims: &TokenClaims) -> Result<IssuedToken, ApiError> {
        Err(ApiError::internal("no key"))
    }
}

/// The dependencies of the built-in groups, in memory.
pub(crate) fn deps() -> Deps {
    Deps {
        storage: StorageFactory::new(storage::MvccStore::memory()),
        prefix: "/registry".into(),
        stored_form: StoredForm::Json,
        directory: Arc::new(Directory::default()),
        authorizer: Arc::new(AlwaysAllow),
        token_authenticator: Arc::new(Nobody),
        token_issuer: Arc::new(Nobody),
        service_cidrs: vec!["10.0.0.0/24".parse().unwrap()],
        node_ports: 30_000..=32_767,
        served: {
            let mut all = crate::ServedApis::default();
            all.set("api/all", true);
            all
        },
        storage_migration: true,
        lease_candidates: true,
        features: KindFeatures {
            workloads: true,
            trust_bundles: true,
            trust_bundle_projection: true,
            pod_certificates: true,
            granular_claim_status: true,
            device_taint_rules: true,
            pool_status: true,
            storage_versions: true,
        },
        event_ttl: Duration::from_secs(3_600),
        advertise: ([127, 0, 0, 1].into(), 443),
        nodes: Arc::new(Nodes::new(KubeletOptions::default(), Route::Direct, Tasks::new()).unwrap()),
    }
}

/// Every resource of every built-in group and version.
pub(crate) fn resources() -> Vec<Arc<ServedResource>> {
    let groups = super::groups(&deps());
    let versions = groups.into_iter().flat_map(|group| group.versions);
    versions.flat_map(|(_, resources)| resources).collect()
}

/// A kind under test.
pub(crate) struct Kind {
    resource: Arc<ServedResource>,
    /// The tasks of its cache live here.
    runtime: tokio::runtime::Runtime,
}

/// The kind of a resource, `deployments.apps`, at its first version. Its store is empty.
#[track_caller]
pub(crate) fn kind(resource: &str) -> Kind {
    let mut all = resources().into_iter();
    let found = all.find(|candidate| candidate.gvr.group_resource().to_string() == resource);
    Kind {
        resource: found.unwrap_or_else(|| panic!("no resource {resource}")),
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap(),
    }
}

/// Lays one object over another: objects are merged, everything else is replaced, null removes.
fn lay_over(base: &mut Value, over: &Value) {
    let Some(members) = over.as_object() else {
        *base = over.clone();
        return;
    };
    for (key, value) in members {
        match value {
            Value::Null => {
                base.take_key(key);
            }
            Value::Object(_) => lay_over(base.ensure(key), value),
            _ => base.put(key, value.clone()),
        }
    }
}

/// An object with some keys of its specification replaced.
pub(crate) fn with_spec(mut object: Value, spec: &Value) -> Value {
    for (key, value) in spec.as_object().into_iter().flatten() {
        object.ensure("spec").put(key, value.clone());
    }
    object
}

/// The template of a pod that is labelled `a=b`.
pub(crate) fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// A pod of one container, with these fields of its specification.
pub(crate) fn pod(spec: &Value) -> Value {
    with_spec(
        json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        spec,
    )
}

/// A pod whose one container has these fields.
pub(crate) fn pod_of(container: &Value) -> Value {
    let mut whole = json!({"name": "c", "image": "i"});
    lay_over(&mut whole, container);
    pod(&json!({"containers": [whole]}))
}

/// Checks the errors of a pod of one container, with these fields of its specification.
#[track_caller]
pub(crate) fn check_pod(spec: &Value, expected: &[&str]) {
    kind("pods").create(&pod(spec), expected);
}

/// Checks the errors of a pod whose one container has these fields.
#[track_caller]
pub(crate) fn check_container(container: &Value, expected: &[&str]) {
    kind("pods").create(&pod_of(container), expected);
}

/// Checks the errors that a shared part of validation finds.
#[track_caller]
pub(crate) fn check_errors(find: impl FnOnce(&mut Errors), expected: &[&str]) {
    let found: Vec<String> = Errors::collect(find).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

impl Kind {
    /// The object as a body is read: a field that the kind does not have is a mistake of the test.
    #[track_caller]
    fn read(&self, mut object: Value) -> Value {
        lay_over(
            &mut object,
            &json!({"apiVersion": self.resource.gvk.api_version(), "kind": &*self.resource.gvk.kind}),
        );
        let Decoding::Builtin(schema) = &self.resource.decoding else {
            panic!("{} has no schema", self.resource.gvk.kind);
        };
        let decoded = codec::typed::decode_builtin(schema.root(), object).unwrap();
        assert!(decoded.strict.is_empty(), "{:?}", decoded.strict);
        let mut object = decoded.value;
        self.resource.strategy.default(&mut object);
        object
    }

    fn namespace(&self) -> &'static str {
        match self.resource.scope {
            generic_server::resource::Scope::Namespaced => "ns",
            generic_server::resource::Scope::Cluster => "",
        }
    }

    /// Creates an object; gives it as it is then, with the warnings for the client, or the errors.
    #[track_caller]
    fn written(
        &self,
        object: Value,
        subresource: &str,
        dry_run: bool,
    ) -> Result<(Value, Vec<String>), Vec<String>> {
        let mut object = self.read(object);
        let (authorized, none) = (Authorized::system(), AdmissionChain::default());
        let mut call = WriteCall::internal(&self.resource, &authorized, &none, self.namespace());
        call.dry_run = dry_run;
        call.subresource = subresource;
        if let Some(Subresource::View(strategy)) = self.resource.subresource(subresource) {
            call.strategy = &**strategy;
        }
        let written = self.runtime.block_on(async {
            if meta::resource_version(&object).is_empty() {
                write::create(&call, object).await?.value(&self.resource).await
            } else {
                let name = meta::name(&object).to_string();
                let mut transform = |live: Option<&Value>| {
                    // The server's own metadata is not part of an update.
                    for key in ["uid", "creationTimestamp", "resourceVersion", "generation"] {
                        let own = live.map(|live| live.dig("metadata").dig(key).clone());
                        meta::set(&mut object, key, own.unwrap_or_default());
                    }
                    Ok(object.clone())
                };
                let (stored, _) =
                    write::update(&call, &name, &UpdateRules::default(), &mut transform).await?;
                stored.value(&self.resource).await
            }
        });
        let warnings = authorized.context().take_warnings();
        written
            .map(|object| (object, warnings))
            .map_err(|error| texts(&error))
    }

    /// An object of this kind: `over` laid over a name.
    fn named(over: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "one"}});
        lay_over(&mut object, over);
        object
    }

    /// A create of the object is refused with these errors; none: it is taken.
    #[track_caller]
    pub(crate) fn create(&self, object: &Value, expected: &[&str]) {
        let errors = self
            .written(Self::named(object), "", true)
            .err()
            .unwrap_or_default();
        assert_eq!(errors, expected, "{object}");
    }

    /// The errors of a create of the object, for those whose text is long.
    #[track_caller]
    pub(crate) fn errors(&self, object: &Value) -> Vec<String> {
        self.written(Self::named(object), "", true)
            .err()
            .unwrap_or_default()
    }

    /// The object as a create leaves it.
    #[track_caller]
    pub(crate) fn created(&self, object: &Value) -> Value {
        self.written(Self::named(object), "", true).unwrap().0
    }

    /// A create of the object leaves these fields.
    #[track_caller]
    pub(crate) fn defaults(&self, object: &Value, expected: &Value) {
        let (made, _) = self.written(Self::named(object), "", true).unwrap();
        let mut wanted = made.clone();
        lay_over(&mut wanted, expected);
        assert_eq!(made, wanted, "{object}");
    }

    /// A create of the object is warned with these texts.
    #[track_caller]
    pub(crate) fn warnings(&self, object: &Value, expected: &[&str]) {
        let (_, warnings) = self.written(Self::named(object), "", true).unwrap();
        assert_eq!(warnings, expected, "{object}");
    }

    /// With `change` laid over the object, an update of it is refused with these errors; none: it is taken.
    #[track_caller]
    pub(crate) fn update(&self, object: &Value, change: &Value, expected: &[&str]) {
        self.update_of("", object, change, expected);
    }

    /// The same through a subresource.
    #[track_caller]
    pub(crate) fn update_of(&self, subresource: &str, object: &Value, change: &Value, expected: &[&str]) {
        let errors = self
            .updated(subresource, object, change)
            .err()
            .unwrap_or_default();
        assert_eq!(errors, expected, "{object} {change}");
    }

    /// The object as an update through a subresource leaves it.
    #[track_caller]
    pub(crate) fn updated(
        &self,
        subresource: &str,
        object: &Value,
        change: &Value,
    ) -> Result<Value, Vec<String>> {
        // Each update has an object of its own.
        let fresh = kind(&self.resource.gvr.group_resource().to_string());
        let (mut made, _) = fresh.written(Self::named(object), "", false).unwrap();
        lay_over(&mut made, change);
        fresh.written(made, subresource, false).map(|(object, _)| object)
    }
}

/// The errors of fields, else code and message.
fn texts(error: &ApiError) -> Vec<String> {
    match error.details() {
        Some(details) if error.code() == 422 => details
            .causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect(),
        _ => vec![format!("{} {}", error.code(), error.message())],
    }
}
