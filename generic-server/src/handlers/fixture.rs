//! A resource over a store in memory, for the tests of handlers.

use std::sync::Arc;

use http::request::Parts;
use http_body_util::BodyExt;
use machinery::{GroupKind, GroupResource, GroupVersionKind, GroupVersionResource, limits};
use serde_json::{Value, json};
use storage::MvccStore;

use crate::registry::cache::JsonCodec;
use crate::registry::config::StoreConfig;
use crate::registry::store::Written;
use crate::registry::strategy::{SelectableField, Strategy};
use crate::registry::{Budget, ObjectStore};
use crate::request::{Authorized, RequestContext, RequestInfo, Response, User};
use crate::resource::{ALL_VERBS, Backend, Column, Decoding, Names, Scope, ServedResource, TableConvertor};

#[derive(Debug)]
struct Plain;

impl Strategy for Plain {}

#[derive(Debug)]
struct Columns(Vec<Column>);

impl TableConvertor for Columns {
    fn columns(&self) -> &[Column] {
        &self.0
    }

    fn cells(&self, object: &Value, ages: &machinery::table::Ages) -> Vec<Value> {
        let mut cells = vec![machinery::meta::name(object).into()];
        if self.0.len() > 1 {
            cells.push(machinery::table::age_cell(object, ages));
        }
        cells
    }
}

pub(crate) struct Fixture {
    pub(crate) engine: Arc<MvccStore>,
    pub(crate) resource: Arc<ServedResource>,
}

/// Pods, or widgets of a custom group.
pub(crate) fn fixture(custom: bool) -> Fixture {
    fixture_with(custom, limits::FORM_BYTES)
}

/// The same with a budget for encoded forms.
pub(crate) fn fixture_with(custom: bool, forms: usize) -> Fixture {
    let engine = MvccStore::memory();
    let (group, kind, plural) = if custom {
        ("example.com", "Widget", "widgets")
    } else {
        ("", "Pod", "pods")
    };
    let config = StoreConfig {
        resource: GroupResource::new(group, plural),
        kind: GroupKind::new(group, kind),
        prefix: format!("/registry/{plural}"),
        namespaced: true,
        fields: if custom {
            Vec::new()
        } else {
            vec![SelectableField::path("spec.nodeName")]
        },
        ttl: None,
    };
    let column = Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: "d".into(),
        priority: 0,
    };
    let gvk = GroupVersionKind::new(group, "v1", kind);
    let resource = Arc::new(ServedResource {
        gvr: GroupVersionResource {
            group: group.into(),
            version: "v1".into(),
            resource: plural.into(),
        },
        names: Names {
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            singular: kind.to_lowercase().into(),
            short: vec![],
            categories: vec![],
        },
        gvk,
        scope: Scope::Namespaced,
        decoding: Decoding::Unstructured,
        strategy: Arc::new(Plain),
        backend: Backend::Stored(ObjectStore::with_rules(
            engine.clone(),
            config,
            Arc::new(JsonCodec),
            false,
            Budget::with_forms(limits::PAST_BYTES, forms),
            None,
        )),
        converter: None,
        subresources: vec![],
        table: Arc::new(Columns(vec![column])),
        verbs: ALL_VERBS,
        deprecation_warning: None,
        storage_version_hash: String::new(),
        custom,
    });
    Fixture { engine, resource }
}

impl Fixture {
    /// Adds a column with the age.
    pub(crate) fn show_ages(&mut self) {
        let column = |name: &str| Column {
            name: name.into(),
            kind: "string".into(),
            format: String::new(),
            description: "d".into(),
            priority: 0,
        };
        let resource = Arc::get_mut(&mut self.resource).expect("nobody else has it");
        resource.table = Arc::new(Columns(vec![column("Name"), column("Age")]));
    }

    pub(crate) fn store(&self) -> &Arc<ObjectStore> {
        self.resource.store().expect("it is stored")
    }

    /// Creates or replaces; answers the resourceVersion.
    pub(crate) async fn put(&self, namespace: &str, name: &str, label: &str, node: &str) -> String {
        let object = json!({
            "apiVersion": self.resource.gvk.api_version(), "kind": &*self.resource.gvk.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {"l": label}, "uid": "u"},
            "spec": {"nodeName": node},
        });
        let store = self.store();
        let written = match store.as_system().find(namespace, name).await.expect("reads") {
            Some(previous) => store.as_system().replace(&previous, &object, None).await,
            None => store.as_system().insert(&object, None).await,
        };
        match written.expect("writes") {
            Written::Stored(entry) => entry.revision.to_string(),
            Written::Lost(_) => panic!("nobody else writes"),
        }
    }

    pub(crate) async fn remove(&self, namespace: &str, name: &str) {
        let entry = self
            .store()
            .as_system()
            .get(namespace, name)
            .await
            .expect("it is there");
        assert!(matches!(
            self.store().as_system().remove(&entry).await,
            Ok(Written::Stored(_))
        ));
    }
}

/// A request's proof and head. `what` is `namespace` or `namespace/name`.
pub(crate) fn request(what: &str, query: &str, headers: &[(&str, &str)]) -> (Authorized, Parts) {
    let (namespace, name) = what.split_once('/').unwrap_or((what, ""));
    let info = RequestInfo {
        namespace: namespace.into(),
        name: name.into(),
        ..RequestInfo::default()
    };
    let context = RequestContext::new(info, User::default(), String::new());
    let mut head = http::Request::builder().uri(format!("/x?{query}"));
    for (key, value) in headers {
        head = head.header(*key, *value);
    }
    (
        Authorized::new(Arc::new(context)),
        head.body(()).expect("a request").into_parts().0,
    )
}

/// A body, parsed.
pub(crate) async fn json_of(response: Response) -> Value {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}
