//! Makes [`ServedResource`]s: the shared settings of a group's resources, and the parts that a kind adds.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::registry::ObjectStore;
use generic_server::registry::cache::{BuiltinCodec, JsonCodec};
use generic_server::registry::config::StoreConfig;
use generic_server::registry::strategy::{Strategy, WriteHooks};
use generic_server::resource::{
    ALL_VERBS, Backend, Conversion, Converter, Decoding, NamedCreate, Names, ScalePaths, Scope,
    ServedResource, Subresource, VirtualResource,
};
use machinery::schema::builtin;
use machinery::{GroupResource, GroupVersionKind, GroupVersionResource};
use ring::digest::{SHA256, digest};
use tracing::error;

use crate::deps::Deps;
use crate::rules::{Kind, Rules, StatusOf};
use crate::table::{self, Printer, Table};

/// Makes the resources of one version of a group.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) deps: &'a Deps,
    group: &'static str,
    version: &'static str,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(deps: &'a Deps, group: &'static str, version: &'static str) -> Self {
        Builder { deps, group, version }
    }

    /// Begins a resource: namespaced, with every verb.
    pub(crate) fn kind(&self, resource: &'static str, kind: &'static str) -> KindBuilder<'_> {
        KindBuilder {
            builder: self,
            resource,
            kind,
            scope: Scope::Namespaced,
            short: &[],
            categories: Vec::new(),
            prefix: None,
            verbs: ALL_VERBS,
            subresources: Vec::new(),
            table: &table::NAME_AGE,
            ttl: None,
            stored_as: None,
            warning: None,
        }
    }
}

/// A resource in the making.
#[derive(Debug)]
pub(crate) struct KindBuilder<'a> {
    builder: &'a Builder<'a>,
    resource: &'static str,
    kind: &'static str,
    scope: Scope,
    short: &'static [&'static str],
    categories: Vec<String>,
    prefix: Option<&'static str>,
    verbs: &'static [&'static str],
    subresources: Vec<(String, Subresource)>,
    table: &'static Printer,
    ttl: Option<std::time::Duration>,
    stored_as: Option<StoredAs>,
    warning: Option<&'static str>,
}

/// A version whose objects another version's store holds.
#[derive(Debug)]
struct StoredAs {
    store: Arc<ObjectStore>,
    kind: GroupVersionKind,
    converter: Arc<dyn Converter>,
}

impl KindBuilder<'_> {
    pub(crate) fn cluster(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }

    pub(crate) fn short(mut self, short: &'static [&'static str]) -> Self {
        self.short = short;
        self
    }

    pub(crate) fn category(mut self, category: &str) -> Self {
        self.categories.push(category.into());
        self
    }

    /// Where its keys begin under the storage prefix, when that is not its name.
    pub(crate) fn prefix(mut self, prefix: &'static str) -> Self {
        self.prefix = Some(prefix);
        self
    }

    pub(crate) fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    pub(crate) fn sub(mut self, name: &str, subresource: Subresource) -> Self {
        self.subresources.push((name.into(), subresource));
        self
    }

    /// A subresource that is the whole object under another strategy.
    pub(crate) fn view(self, name: &str, strategy: impl Strategy + 'static) -> Self {
        self.sub(name, Subresource::View(Arc::new(strategy)))
    }

    /// A subresource to which an object of its own kind is posted.
    pub(crate) fn create(self, name: &str, subresource: impl NamedCreate + 'static) -> Self {
        self.sub(name, Subresource::Create(Arc::new(subresource)))
    }

    /// `scale` over the usual paths.
    pub(crate) fn scale(self) -> Self {
        let path = |a: &str, b: &str| vec![a.to_string(), b.to_string()];
        self.sub(
            "scale",
            Subresource::Scale(ScalePaths {
                spec_replicas: path("spec", "replicas"),
                status_replicas: path("status", "replicas"),
                selector: Some(path("spec", "selector")),
                others: Vec::new(),
            }),
        )
    }

    pub(crate) fn table(mut self, table: &'static Printer) -> Self {
        self.table = table;
        self
    }

    /// Every request is warned with this.
    pub(crate) fn deprecated(mut self, warning: &'static str) -> Self {
        self.warning = Some(warning);
        self
    }

    pub(crate) fn ttl(mut self, ttl: std::time::Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Shares the store of another version, through a converter.
    pub(crate) fn stored_as(mut self, other: &ServedResource, converter: impl Converter + 'static) -> Self {
        self.stored_as = other.store().map(|store| StoredAs {
            store: store.clone(),
            kind: other.gvk.clone(),
            converter: Arc::new(converter),
        });
        self
    }

    /// A stored resource by rules, with its `status` where the rules have one.
    pub(crate) fn rules(self, rules: &'static Rules) -> Arc<ServedResource> {
        let kind = Kind::with_features(rules, self.builder.deps.features);
        self.with_status(rules).stored(kind)
    }

    /// The same, with what its writes and those of its `status` do with other objects.
    pub(crate) fn rules_with(
        self,
        rules: &'static Rules,
        hooks: impl WriteHooks + 'static,
        status: Option<Arc<dyn WriteHooks>>,
    ) -> Arc<ServedResource> {
        let kind = Kind::with_features(rules, self.builder.deps.features).with_hooks(Arc::new(hooks));
        self.add_status(rules, status).stored(kind)
    }

    /// Adds the `status` subresource of rules that have one.
    pub(crate) fn with_status(self, rules: &'static Rules) -> Self {
        self.add_status(rules, None)
    }

    fn add_status(self, rules: &'static Rules, hooks: Option<Arc<dyn WriteHooks>>) -> Self {
        match rules.status {
            true => self.view("status", StatusOf { rules, hooks }),
            false => self,
        }
    }

    /// A stored resource.
    pub(crate) fn stored(self, strategy: impl Strategy + 'static) -> Arc<ServedResource> {
        let (group, version) = (self.builder.group, self.builder.version);
        let gvk = GroupVersionKind::new(group, version, self.kind);
        let strategy: Arc<dyn Strategy> = Arc::new(strategy);
        let (backend, stored_kind, converter, verbs) = match &self.stored_as {
            Some(other) => (
                Backend::Stored(other.store.clone()),
                other.kind.clone(),
                Some(Conversion::Rule(other.converter.clone())),
                self.verbs,
            ),
            None => {
                let location = self.prefix.unwrap_or(self.resource);
                let config = StoreConfig {
                    resource: GroupResource::new(group, self.resource),
                    kind: gvk.group_kind(),
                    prefix: format!("{}/{location}", self.builder.deps.prefix),
                    namespaced: self.scope == Scope::Namespaced,
                    fields: strategy.selectable_fields(),
                    ttl: self.ttl,
                };
                let storage = &self.builder.deps.storage;
                let store = match builtin().kind(group, version, self.kind) {
                    Some(schema) => {
                        let codec = BuiltinCodec {
                            schema,
                            api_version: gvk.api_version().into(),
                            form: self.builder.deps.stored_form,
                            defaults: strategy.clone(),
                        };
                        storage.open_builtin(config, Arc::new(codec))
                    }
                    None => storage.open_builtin(config, Arc::new(JsonCodec)),
                };
                (Backend::Stored(store), gvk.clone(), None, self.verbs)
            }
        };
        let hash = storage_version_hash(&stored_kind);
        self.served(strategy, backend, converter, verbs, hash)
    }

    /// A computed resource.
    pub(crate) fn computed(
        self,
        strategy: impl Strategy + 'static,
        resource: impl VirtualResource + 'static,
    ) -> Arc<ServedResource> {
        let resource = Arc::new(resource);
        let verbs = resource.verbs();
        let backend = Backend::Virtual(resource);
        self.served(Arc::new(strategy), backend, None, verbs, String::new())
    }

    fn served(
        self,
        strategy: Arc<dyn Strategy>,
        backend: Backend,
        converter: Option<Conversion>,
        verbs: &'static [&'static str],
        storage_version_hash: String,
    ) -> Arc<ServedResource> {
        let (group, version) = (self.builder.group, self.builder.version);
        let mut subresources = self.subresources;
        subresources.sort_by(|a, b| a.0.cmp(&b.0));
        Arc::new(ServedResource {
            gvr: GroupVersionResource::new(group, version, self.resource),
            gvk: GroupVersionKind::new(group, version, self.kind),
            names: Names {
                kind: self.kind.into(),
                list_kind: format!("{}List", self.kind).into(),
                singular: self.kind.to_lowercase().into(),
                short: self.short.iter().map(|s| s.to_string()).collect(),
                categories: self.categories,
            },
            scope: self.scope,
            decoding: decoding(group, version, self.kind),
            strategy,
            backend,
            converter,
            subresources,
            table: Table::of(self.table),
            verbs,
            deprecation_warning: self.warning.map(str::to_string),
            storage_version_hash,
            custom: false,
        })
    }
}

/// How bodies of a built-in kind are read. A kind without a schema is a gap in the facts table, which the test `every_kind_has_a_schema` finds.
fn decoding(group: &str, version: &str, kind: &str) -> Decoding {
    match builtin().kind(group, version, kind) {
        Some(schema) => Decoding::Builtin(schema),
        None => {
            error!(
                group,
                version, kind, "the kind has no schema: its objects are not checked"
            );
            Decoding::Unstructured
        }
    }
}

/// The hash in discovery by which clients notice a change of the stored version.
fn storage_version_hash(kind: &GroupVersionKind) -> String {
    let text = format!("{}/{}/{}", kind.group, kind.version, kind.kind);
    STANDARD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        let hash = |group, version, kind| storage_version_hash(&GroupVersionKind::new(group, version, kind));
        assert_eq!(hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_eq!(
            hash("autoscaling", "v2", "HorizontalPodAutoscaler"),
            "qwQve8ut294="
        );
    }
}
