//! The impact of a changed CRD on stored objects: `POST .../customresourcedefinitions/NAME/impact` with the
//! changed CRD as its body. Nothing is written.
//!
//! The answer counts, with examples, the objects that the new schema would refuse, those that would lose fields, and those
//! that would get defaults they do not have now. All are judged as the new storage version would see them.

use std::sync::{Arc, Weak};

use generic_server::registry::ObjectStore;
use generic_server::registry::cache::Snapshot;
use generic_server::resource::{Answer, CreateCall, NamedCreate};
use machinery::custom;
use machinery::{ApiError, FieldPath, GroupResource, GroupVersionKind, meta};
use serde_json::{Value, json};

use crate::crd::internal::Spec;
use crate::crd::strategy::set_defaults;
use crate::crd::validation;
use crate::definition::Definition;
use crate::deps::GROUP;
use crate::props::Props;
use crate::rules::RuleTree;
use crate::schema::{self, Compiled};

/// Examples given of each kind.
const EXAMPLES: usize = 10;
/// Objects looked at before other work gets its turn.
const BATCH: usize = 64;

/// One kind of consequence.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    examples: Vec<Value>,
}

impl Tally {
    fn add(&mut self, object: &Value, what: &str, found: Vec<String>) {
        if found.is_empty() {
            return;
        }
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            let mut example = json!({"name": meta::name(object), what: found});
            if !meta::namespace(object).is_empty() {
                example["namespace"] = meta::namespace(object).into();
            }
            self.examples.push(example);
        }
    }

    fn into_value(self) -> Value {
        json!({"count": self.count, "examples": self.examples})
    }
}

/// The schema to be, with its rules.
struct Future<'a> {
    schema: Option<Compiled>,
    rules: Option<RuleTree>,
    api_version: String,
    prunes: bool,
    spec: Spec<'a>,
}

impl<'a> Future<'a> {
    async fn of(crd: &'a Value) -> Result<Self, ApiError> {
        validation::compile_patterns(crd).await;
        let spec = Spec::of(crd);
        let stored = spec.versions.iter().find(|v| v.storage).map(|v| v.name);
        let stored = stored.unwrap_or_default();
        let raw = spec.schema_of(stored).and_then(|s| s.get("openAPIV3Schema"));
        let raw = raw.filter(|s| !s.is_null());
        let compile =
            |raw| schema::compile(raw).map_err(|_| ApiError::internal("the schema does not compile"));
        let schema = raw.map(compile).transpose()?;
        let rules = match raw {
            Some(raw) => RuleTree::compile(Props::new(raw)).await,
            None => None,
        };
        Ok(Future {
            schema,
            rules,
            api_version: format!("{}/{stored}", spec.group),
            prunes: !spec.preserve_unknown_fields,
            spec,
        })
    }
}

/// The definitions that are stored, and the objects of each.
pub(crate) trait Definitions: Send + Sync + std::fmt::Debug {
    /// A definition by its name.
    fn find(&self, name: &str) -> Option<Arc<Definition>>;

    /// Where its objects are.
    fn objects(&self, definition: &Definition) -> Arc<ObjectStore>;
}

/// `customresourcedefinitions/impact`.
#[derive(Debug)]
pub(crate) struct Impact(pub(crate) Weak<dyn Definitions>);

#[async_trait::async_trait]
impl NamedCreate for Impact {
    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(GROUP, "v1", "CustomResourceDefinition")
    }

    fn is_published(&self) -> bool {
        false
    }

    fn keeps_uid(&self) -> bool {
        true
    }

    fn default(&self, crd: &mut Value) {
        set_defaults(crd);
    }

    async fn create(&self, call: &CreateCall<'_>, mut crd: Value) -> Result<Answer, ApiError> {
        let Some(definitions) = self.0.upgrade() else {
            return Err(ApiError::unavailable("the server is shutting down"));
        };
        let Some(definition) = definitions.find(call.name) else {
            let resource = GroupResource::new(GROUP, "customresourcedefinitions");
            return Err(ApiError::not_found(&resource, call.name));
        };
        // The definition is compiled, and objects are checked by it.
        generic_server::cpu::pause(generic_server::cpu::Lane::Bodies).await;
        let old = definition.entry.value();
        if let (Some(map), Some(status)) = (crd.as_object_mut(), old.get("status")) {
            map.insert("status".into(), status.clone());
        }
        validation::prepare(&crd).await;
        let faults = validation::validate_update(&crd, &old);
        if !faults.is_empty() {
            return Err(ApiError::invalid(&self.kind().group_kind(), call.name, &faults));
        }
        let admitted = call.validate(&crd).await?;
        let store = definitions.objects(&definition);
        let snapshot = store.view(call.authorized).fresh().await?;
        let report = impact_on(&snapshot, &definition, &crd).await?;
        Ok(admitted.report(report))
    }
}

/// The impact of a definition on these objects.
pub(crate) async fn impact_on(
    snapshot: &Snapshot,
    definition: &Definition,
    crd: &Value,
) -> Result<Value, ApiError> {
    let future = Future::of(crd).await?;
    let (mut refused, mut pruned, mut defaulted) = (Tally::default(), Tally::default(), Tally::default());
    for (i, entry) in snapshot.objects.values().enumerate() {
        if i % BATCH == BATCH - 1 {
            tokio::task::yield_now().await;
        }
        let Some(compiled) = &future.schema else { continue };
        let root = compiled.whole.root();
        let mut object = entry.value();
        object["apiVersion"] = future.api_version.as_str().into();
        if future.prunes {
            let lost = custom::prune(root, &mut object, true);
            pruned.add(&object, "fields", lost);
            custom::prune_nulls(root, &mut object);
        }
        let before = object.clone();
        custom::default(root, &mut object);
        let mut filled = Vec::new();
        differences(&before, &object, "", &mut filled);
        defaulted.add(&object, "fields", filled);
        let mut faults = compiled.validate(&object);
        if faults.is_empty()
            && let Some(rules) = &future.rules
        {
            faults = rules.evaluate(&FieldPath::ROOT, &object, None, None).errors;
        }
        let faults = faults.iter().map(ToString::to_string).collect();
        refused.add(&object, "errors", faults);
    }
    Ok(json!({
        "kind": "CustomResourceDefinitionImpact",
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": &*definition.name, "resourceVersion": snapshot.revision.to_string()},
        "group": future.spec.group,
        "objects": snapshot.objects.len(),
        "refused": refused.into_value(),
        "pruned": pruned.into_value(),
        "defaulted": defaulted.into_value(),
    }))
}

/// Paths of added fields. As deep as the objects are, which the decoder bounds.
fn differences(before: &Value, after: &Value, path: &str, out: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                let at = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match old.get(key) {
                    Some(old) => differences(old, value, &at, out),
                    None => out.push(at),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                differences(old, new, &format!("{path}[{i}]"), out);
            }
        }
        _ if before != after => out.push(path.to_string()),
        _ => {}
    }
}
