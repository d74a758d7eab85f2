//! From a CRD's version to a served resource.

use std::sync::Arc;

use generic_server::cpu;
use generic_server::registry::ObjectStore;
use generic_server::registry::config::StoreConfig;
use generic_server::registry::strategy::{FieldValue, SelectableField};
use generic_server::resource::{
    ALL_VERBS, Backend, Column, Conversion as Convert, Decoding, Scope, ServedResource, Subresource,
    TableConvertor,
};
use machinery::schema::KindSchema;
use machinery::{
    ApiError, GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, meta,
};
use serde_json::Value;

use crate::convert::{ByName, ByWebhook, WebhookClient};
use crate::crd::internal::Spec;
use crate::crd::validation::compile_patterns;
use crate::custom::{CustomStatusStrategy, CustomStrategy, ReadDefaults, Shape};
use crate::definition::{Conversion, Definition, HEAVY, VersionInfo};
use crate::deps::Deps;
use crate::schema;
use crate::siblings::Siblings;
use crate::table::PrinterColumns;

/// A selectable field by its path, without the leading dot.
fn selectable(path: &str) -> SelectableField {
    SelectableField {
        name: path.to_string().into(),
        value: FieldValue::Path(path.split('.').map(|key| key.to_string().into()).collect()),
    }
}

/// The store of a CRD's objects. Nothing is read before it is used.
pub(crate) fn open_store(definition: &Definition, deps: &Deps) -> Arc<ObjectStore> {
    let facts = &definition.facts;
    deps.storage.open(StoreConfig {
        resource: GroupResource::new(&definition.group, &definition.plural),
        kind: GroupKind::new(&definition.group, &facts.names.kind),
        prefix: format!("{}/{}/{}", deps.prefix, definition.group, definition.plural),
        namespaced: facts.scope == Scope::Namespaced,
        fields: facts.indexed_fields().into_iter().map(selectable).collect(),
        ttl: None,
    })
}

/// Between a version and the stored one; `None` when no object can be stored at any other version than this.
fn converter(
    definition: &Definition,
    version: &str,
    spec: &Spec<'_>,
    siblings: Option<&Arc<Siblings>>,
    deps: &Deps,
) -> Result<Option<Convert>, ApiError> {
    let facts = &definition.facts;
    let Some(stored) = definition.storage_version() else {
        return Ok(None);
    };
    let only = facts.stored_versions.iter().all(|v| v == version);
    if only && *stored.name == *version {
        return Ok(None);
    }
    // With one schema for all there is nothing that the stored version would not know.
    let raw = spec.schema_of(&stored.name).filter(|_| spec.validation.is_none());
    let raw = raw
        .and_then(|s| s.get("openAPIV3Schema"))
        .filter(|s| !s.is_null());
    let prune = match raw.filter(|_| !spec.preserve_unknown_fields) {
        Some(raw) => schema::compile(raw).ok().map(|compiled| compiled.whole),
        None => None,
    };
    let at = |version: &str| GroupVersion::new(&definition.group, version);
    let (served, stored) = (at(version), at(&stored.name));
    Ok(Some(match &facts.conversion {
        Conversion::None => Convert::Rule(Arc::new(ByName {
            served: served.to_string(),
            stored: stored.to_string(),
            prune,
            siblings: siblings.cloned(),
        })),
        Conversion::Webhook(conversion) => Convert::Remote(Arc::new(by_webhook(
            definition, conversion, served, stored, prune, deps,
        ))),
    }))
}

fn by_webhook(
    definition: &Definition,
    conversion: &Value,
    served: GroupVersion,
    stored: GroupVersion,
    prune: Option<KindSchema>,
    deps: &Deps,
) -> ByWebhook {
    let new = || WebhookClient::new(conversion, deps.services.clone(), deps.limits.conversion);
    let client = definition.serving.webhook.get_or_init(|| Arc::new(new()));
    ByWebhook {
        served,
        stored,
        client: client.clone(),
        answers: definition.serving.answers.clone(),
        prune,
        usage: definition.usage.clone(),
    }
}

/// An object of one version in another.
pub(crate) async fn convert(
    definition: &Definition,
    mut object: Value,
    from: &GroupVersion,
    to: &GroupVersion,
    deps: &Deps,
) -> Result<Value, ApiError> {
    if from == to {
        return Ok(object);
    }
    match &definition.facts.conversion {
        Conversion::None => {
            object["apiVersion"] = to.to_string().into();
            Ok(object)
        }
        Conversion::Webhook(conversion) => {
            let converter = by_webhook(definition, conversion, to.clone(), from.clone(), None, deps);
            let converted = converter.convert(vec![object], to).await?.pop();
            converted.ok_or_else(|| ApiError::internal("conversion webhook failed, no objects returned"))
        }
    }
}

/// The common parts of all resources of a CRD, with nothing compiled.
fn skeleton(definition: &Definition, version: &str, store: Arc<ObjectStore>) -> ServedResource {
    let facts = &definition.facts;
    let gvk = GroupVersionKind::new(&definition.group, version, &facts.names.kind);
    ServedResource {
        gvr: GroupVersionResource::new(&definition.group, version, &definition.plural),
        names: facts.names.clone(),
        scope: facts.scope,
        decoding: Decoding::Unstructured,
        strategy: Arc::new(CustomStrategy::new(
            Shape::bare(
                &gvk,
                store.config().resource.clone(),
                store.config().fields.clone(),
                definition.serving.terminating.clone(),
            ),
            None,
            false,
            ReadDefaults::Served,
        )),
        backend: Backend::Stored(store),
        converter: None,
        gvk,
        subresources: Vec::new(),
        table: Arc::new(NameColumn),
        verbs: ALL_VERBS,
        deprecation_warning: None,
        storage_version_hash: definition.storage_version_hash(),
        custom: true,
    }
}

/// The resource at its stored version without schema, as deleting objects needs it. Made for every CRD, so it is small.
pub(crate) fn bare(definition: &Definition, store: Arc<ObjectStore>) -> ServedResource {
    let version = definition.storage_version().map(|v| v.name.clone());
    skeleton(definition, version.as_deref().unwrap_or_default(), store)
}

/// The columns of a version: its own, or those of all.
fn columns<'a>(spec: &Spec<'a>, version: &str) -> PrinterColumns {
    let own = spec
        .versions
        .iter()
        .find(|v| v.name == version)
        .map(|v| v.columns);
    PrinterColumns::new(own.filter(|c: &&[Value]| !c.is_empty()).unwrap_or(spec.columns))
}

/// The resource of a CRD with one version, without its schema, for reads that began while there were no objects. Those
/// that come later are stored as this version has them.
pub(crate) fn reader(
    definition: &Definition,
    version: &VersionInfo,
    store: Arc<ObjectStore>,
) -> ServedResource {
    let crd = definition.entry.value_without(&HEAVY);
    ServedResource {
        table: Arc::new(columns(&Spec::of(&crd), &version.name)),
        deprecation_warning: version.warning.clone(),
        ..skeleton(definition, &version.name, store)
    }
}

fn status_versions(definition: &Definition) -> Vec<String> {
    let versions = definition.facts.versions.iter().filter(|v| v.has_status);
    versions
        .map(|v| GroupVersion::new(&definition.group, &v.name).to_string())
        .collect()
}

/// The resource at a version, with everything compiled: beside the threads that serve connections and in slices, as at the admission of its
/// definition. The only place where schemas of custom resources are.
pub(crate) async fn compile(
    definition: &Definition,
    version: &VersionInfo,
    store: Arc<ObjectStore>,
    deps: &Deps,
) -> Result<ServedResource, ApiError> {
    cpu::pause(cpu::Lane::Bodies).await;
    let crd = definition.entry.value();
    compile_patterns(&crd).await;
    let spec = Spec::of(&crd);
    let raw = spec
        .schema_of(&version.name)
        .and_then(|s| s.get("openAPIV3Schema"));
    let mut resource = skeleton(definition, &version.name, store);
    // Fields that a write through another version has defaulted have the values that this version would give, if they
    // share one schema.
    let one_schema = spec.versions.len() == 1 || spec.validation.is_some();
    let siblings = (!one_schema).then(|| Siblings::of(&definition.entry));
    resource.converter = converter(definition, &version.name, &spec, siblings.as_ref(), deps)?;
    let shape = Shape::compile(
        &resource.gvk,
        resource.gvr.group_resource(),
        raw.filter(|s| !s.is_null()),
        version,
        version.selectable.iter().map(|path| selectable(path)).collect(),
        definition.serving.terminating.clone(),
        (definition.usage.clone(), &deps.rule_times),
    )
    .await?
    .with_siblings(siblings.clone())
    .with_status_versions(status_versions(definition));
    resource.decoding = match &shape.schema {
        Some(schema) if !spec.preserve_unknown_fields => Decoding::Custom(schema.whole.clone()),
        _ => Decoding::Unstructured,
    };
    let shape = Arc::new(shape);
    if let Some(paths) = &version.scale {
        let scale = Subresource::Scale(paths.clone());
        resource.subresources.push(("scale".into(), scale));
    }
    if version.has_status {
        let status = Subresource::View(Arc::new(CustomStatusStrategy::new(shape.clone())));
        resource.subresources.push(("status".into(), status));
    }
    let since = one_schema.then_some(definition.serving.since);
    let prunes = !spec.preserve_unknown_fields;
    let defaults = match &resource.converter {
        Some(Convert::Rule(_)) if siblings.is_some() => ReadDefaults::Stored,
        _ => ReadDefaults::Served,
    };
    resource.strategy = Arc::new(CustomStrategy::new(shape, since, prunes, defaults));
    resource.table = Arc::new(columns(&spec, &version.name));
    resource.deprecation_warning = version.warning.clone();
    Ok(resource)
}

/// Only the name: for resources without table output.
#[derive(Debug)]
struct NameColumn;

impl TableConvertor for NameColumn {
    fn columns(&self) -> &[Column] {
        &[]
    }

    fn cells(&self, object: &Value, _ages: &machinery::table::Ages) -> Vec<Value> {
        vec![meta::name(object).into()]
    }
}
