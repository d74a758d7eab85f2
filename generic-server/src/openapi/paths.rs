//! Paths: the operations of each resource, with parameters, bodies and answers, as OpenAPI v3 says them.

mod item;

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::GroupVersionKind;
use machinery::openapi::{Dialect, META, capital, type_name};
use serde_json::{Map, Value, json};

use super::parameters::{self, in_path};
use crate::resource::{Backend, Connect, Scope, ServedResource, Subresource};
pub(super) use item::{ANY, PRODUCES, document};
use item::{Operation, Returns};

/// A kind whose schema is its server's own.
#[derive(Debug)]
pub(super) struct Custom {
    pub(super) kind: String,
    pub(super) list_kind: String,
    pub(super) plural: String,
}

/// The references of the paths.
#[derive(Debug, Default)]
pub(super) struct Models {
    /// Built-in types.
    pub(super) names: BTreeSet<String>,
    /// Others.
    pub(super) custom: Vec<Custom>,
}

/// The paths of a group version.
pub(super) fn write(
    group: &str,
    version: &str,
    resources: &[Arc<ServedResource>],
) -> (Map<String, Value>, Models) {
    let mut writer = Writer::new(group, version);
    for resource in resources {
        writer.resource(resource);
    }
    (writer.paths, writer.models)
}

/// The path of a group version, and what is there: the list of its resources. It is apart from the other paths, since the v2
/// document says other media types of it.
pub(super) fn root(group: &str, version: &str) -> (String, Value) {
    let (tag, camel) = labels(group, version);
    let list = format!("{META}.APIResourceList");
    let get = item::document(
        format!("get{camel}APIResources"),
        tag,
        "get available resources",
        &PRODUCES,
        Dialect::V3.reference(&list),
    );
    (format!("{}/", root_path(group, version)), json!({ "get": get }))
}

fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

/// `apps_v1` and `AppsV1` of a group version.
fn labels(group: &str, version: &str) -> (String, String) {
    let group = if group.is_empty() {
        "core"
    } else {
        group.strip_suffix(".k8s.io").unwrap_or(group)
    };
    let mut parts = group.split('.');
    let first = parts.next().unwrap_or_default();
    let camel: String = std::iter::once(first.to_string())
        .chain(parts.map(capital))
        .collect();
    (
        format!("{camel}_{version}"),
        format!("{}{}", capital(&camel), capital(version)),
    )
}

/// What the operations of a resource have in common.
struct Names<'r> {
    gvk: &'r GroupVersionKind,
    kind: &'r str,
    plural: &'r str,
    /// The types of an object and of a list.
    model: String,
    list_model: String,
    root: String,
    /// The path of a list, and the parameters of it.
    collection: String,
    shared: Vec<Value>,
    /// `CoreV1`, and `Namespaced` or nothing.
    camel: String,
    scope: &'static str,
}

impl Names<'_> {
    fn id(&self, verb: &str) -> String {
        format!("{verb}{}{}{}", self.camel, self.scope, self.kind)
    }

    fn article(&self) -> &'static str {
        if self.kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
            "an"
        } else {
            "a"
        }
    }

    /// The parameters of one object's path. `kind` is that which a subresource is said to be of.
    fn of_one(&self, kind: &str) -> Vec<Value> {
        let mut all = self.shared.clone();
        all.push(in_path("name", kind));
        all
    }
}

struct Writer<'a> {
    group: &'a str,
    version: &'a str,
    tag: String,
    camel: String,
    paths: Map<String, Value>,
    models: Models,
}

impl<'a> Writer<'a> {
    fn new(group: &'a str, version: &'a str) -> Self {
        let (tag, camel) = labels(group, version);
        Writer {
            group,
            version,
            tag,
            camel,
            paths: Map::new(),
            models: Models::default(),
        }
    }

    /// Writes what stands at a path; nothing, where there are no operations.
    fn put(&mut self, path: String, shared: Vec<Value>, operations: Vec<Operation>) {
        if !operations.is_empty() {
            let types = operations.iter().flat_map(Operation::types);
            let built_in = types.filter(|name| name.starts_with("io.k8s."));
            self.models.names.extend(built_in.map(str::to_owned));
            self.paths.insert(path, item::item(&self.tag, shared, operations));
        }
    }

    fn names<'r>(&self, resource: &'r ServedResource) -> Names<'r> {
        let gvk = &resource.gvk;
        let named = |kind: &str| -> String {
            type_name(&gvk.group, &gvk.version, kind).unwrap_or_else(|| {
                let mut parts: Vec<&str> = gvk.group.split('.').rev().collect();
                parts.extend([&*gvk.version, kind]);
                parts.join(".")
            })
        };
        let (root, plural) = (root_path(self.group, self.version), &*resource.gvr.resource);
        let namespaced = resource.scope == Scope::Namespaced;
        let mut shared = parameters::query(parameters::PRETTY);
        if namespaced {
            shared.push(in_path("namespace", ""));
        }
        Names {
            gvk,
            kind: &resource.names.kind,
            plural,
            model: named(&resource.names.kind),
            list_model: named(&resource.names.list_kind),
            collection: match namespaced {
                true => format!("{root}/namespaces/{{namespace}}/{plural}"),
                false => format!("{root}/{plural}"),
            },
            root,
            shared,
            camel: self.camel.clone(),
            scope: if namespaced { "Namespaced" } else { "" },
        }
    }

    fn resource(&mut self, resource: &ServedResource) {
        let gvk = &resource.gvk;
        let names = self.names(resource);
        if type_name(&gvk.group, &gvk.version, &gvk.kind).is_none() {
            self.models.custom.push(Custom {
                kind: resource.names.kind.to_string(),
                list_kind: resource.names.list_kind.to_string(),
                plural: resource.gvr.resource.to_string(),
            });
            for name in ["ObjectMeta", "ListMeta", "DeleteOptions", "Patch", "Status"] {
                self.models.names.insert(format!("{META}.{name}"));
            }
        }
        let verbs: &[&str] = match &resource.backend {
            Backend::Stored(_) => resource.verbs,
            Backend::Virtual(backend) => backend.verbs(),
        };
        let has = |verb: &str| verbs.contains(&verb);
        let kind = names.kind;
        let namespaced = resource.scope == Scope::Namespaced;
        let everywhere = || parameters::query(parameters::PRETTY);
        let list = |id: String| {
            let or_watch = if has("watch") { " or watch" } else { "" };
            let text = format!("list{or_watch} objects of kind {kind}");
            Operation::new("get", id, "list", text, names.gvk)
                .query(parameters::LIST)
                .returns(Returns::List, &names.list_model)
        };
        if namespaced && has("list") {
            let id = format!("list{}{kind}ForAllNamespaces", names.camel);
            let path = format!("{}/{}", names.root, names.plural);
            self.put(path, everywhere(), vec![list(id)]);
        }
        let mut all = Vec::new();
        if has("list") {
            all.push(list(names.id("list")));
        }
        if has("create") {
            let text = format!("create {} {kind}", names.article());
            let post = Operation::new("post", names.id("create"), "post", text, names.gvk);
            all.push(
                post.query(parameters::WRITE)
                    .body(&names.model)
                    .returns(Returns::Created, &names.model),
            );
        }
        let (status, options) = (format!("{META}.Status"), format!("{META}.DeleteOptions"));
        if has("deletecollection") {
            let text = format!("delete collection of {kind}");
            let id = format!("delete{}Collection{}{kind}", names.camel, names.scope);
            let delete = Operation::new("delete", id, "deletecollection", text, names.gvk);
            all.push(
                delete
                    .query(parameters::DELETE_COLLECTION)
                    .optional_body(&options)
                    .returns(Returns::Object, &status),
            );
        }
        self.put(names.collection.clone(), names.shared.clone(), all);

        let mut all = view(&names.id(""), "", &names.model, names.gvk, verbs);
        if has("delete") {
            let returns = match resource.strategy.documents_deleted_object() {
                true => &names.model,
                false => &status,
            };
            let text = format!("delete {} {kind}", names.article());
            let delete = Operation::new("delete", names.id("delete"), "delete", text, names.gvk);
            all.push(
                delete
                    .query(parameters::DELETE)
                    .optional_body(&options)
                    .returns(Returns::Accepted, returns),
            );
        }
        self.put(format!("{}/{{name}}", names.collection), names.of_one(kind), all);
        if has("watch") {
            self.watches(&names, namespaced);
        }
        let published = |(_, subresource): &&(String, Subresource)| subresource.is_published();
        for (name, subresource) in resource.subresources.iter().filter(published) {
            self.subresource(&names, name, subresource);
        }
    }

    /// The paths of watches, which lists have replaced.
    fn watches(&mut self, names: &Names<'_>, namespaced: bool) {
        let kind = names.kind;
        let event = format!("{META}.WatchEvent");
        let watch = |id: String, action: &'static str, what: String| {
            let text = format!("watch {what}. deprecated: list with the parameter 'watch' instead.");
            Operation::new("get", id, action, text, names.gvk)
                .query(parameters::LIST)
                .returns(Returns::List, &event)
        };
        let list = |id: String| watch(id, "watchlist", format!("the changes of a list of {kind}"));
        let id = names.id("watch");
        if namespaced {
            let all = list(format!("watch{}{kind}ListForAllNamespaces", names.camel));
            let path = format!("{}/watch/{}", names.root, names.plural);
            self.put(path, parameters::query(parameters::PRETTY), vec![all]);
        }
        let below = names.collection.strip_prefix(&names.root).unwrap_or_default();
        let path = format!("{}/watch{below}", names.root);
        self.put(
            path.clone(),
            names.shared.clone(),
            vec![list(format!("{id}List"))],
        );
        let one = watch(id, "watch", format!("the changes of an object of kind {kind}"));
        self.put(format!("{path}/{{name}}"), names.of_one(kind), vec![one]);
    }

    fn subresource(&mut self, names: &Names<'_>, name: &str, subresource: &Subresource) {
        let id = format!("{}{}", names.id(""), capital(name));
        let path = format!("{}/{{name}}/{name}", names.collection);
        let (shared, all) = match subresource {
            Subresource::View(strategy) => {
                let all = view(&id, name, &names.model, names.gvk, strategy.view_verbs());
                (names.of_one(names.kind), all)
            }
            Subresource::Scale(_) => {
                let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
                let verbs = ["get", "update", "patch"];
                let all = view(&id, name, "io.k8s.api.autoscaling.v1.Scale", &scale, &verbs);
                (names.of_one(&scale.kind), all)
            }
            Subresource::Create(handler) => {
                let kind = handler.kind();
                let text = format!("create {name} of {} {}", names.article(), names.kind);
                let mut post = Operation::new("post", format!("create{id}"), "post", text, &kind);
                post = post.query(parameters::WRITE);
                if let Some(model) = type_name(&kind.group, &kind.version, &kind.kind) {
                    post = post.body(&model).returns(Returns::Created, &model);
                }
                (names.of_one(&kind.kind), vec![post])
            }
            Subresource::Connect(handler) => return self.stream(names, name, &**handler, &id),
        };
        self.put(path, shared, all);
    }

    /// A stream, by every method that it takes.
    fn stream(&mut self, names: &Names<'_>, name: &str, handler: &dyn Connect, id: &str) {
        let kind = handler.kind();
        let path = format!("{}/{{name}}/{name}", names.collection);
        let options = parameters::of_stream(name);
        if handler.is_read() {
            let text = format!("read {name} of the specified {}", names.kind);
            let get = Operation::new("get", format!("read{id}"), "get", text, &kind);
            let get = get.query(options).text(&item::TEXT);
            return self.put(path, names.of_one(&kind.kind), vec![get]);
        }
        let verbs = handler.verbs();
        let methods = [
            ("get", verbs.contains(&"get")),
            ("put", verbs.contains(&"update")),
            ("post", verbs.contains(&"create")),
            ("delete", verbs.contains(&"delete")),
            ("options", handler.passes_all_methods()),
            ("head", handler.passes_all_methods()),
            ("patch", verbs.contains(&"patch")),
        ];
        let all = |with_path: &str| -> Vec<Operation> {
            let offered = methods.iter().filter(|(_, offered)| *offered);
            let connect = |(method, _): &(&'static str, bool)| {
                let of = format!("{}{}{}{with_path}", names.scope, names.kind, capital(name));
                let id = format!("connect{}{}{of}", names.camel, capital(method));
                let text = format!(
                    "connect {} requests to {name} of {}",
                    method.to_uppercase(),
                    names.kind
                );
                Operation::new(method, id, "connect", text, &kind)
                    .query(options)
                    .text(&ANY)
            };
            offered.map(connect).collect()
        };
        let mut shared = names.of_one(&kind.kind);
        // Answers are the node's: they are not indented here.
        shared.retain(|one| one["name"] != "pretty");
        self.put(path.clone(), shared.clone(), all(""));
        if handler.passes_all_methods() {
            shared.push(in_path("path", ""));
            self.put(format!("{path}/{{path}}"), shared, all("WithPath"));
        }
    }
}

/// Reading, replacing and patching one object, or a view of it.
fn view(
    about: &str,
    subresource: &str,
    model: &str,
    gvk: &GroupVersionKind,
    verbs: &[&str],
) -> Vec<Operation> {
    let kind = &gvk.kind;
    let of = match subresource {
        "" => String::new(),
        name => format!(" {name} of"),
    };
    let operation = |method: &'static str, verb: &str, words: &str| {
        let text = format!("{words}{of} the specified {kind}");
        Operation::new(method, format!("{verb}{about}"), method, text, gvk)
    };
    let mut all = Vec::new();
    if verbs.contains(&"get") {
        all.push(operation("get", "read", "read").returns(Returns::Object, model));
    }
    if verbs.contains(&"update") {
        let put = operation("put", "replace", "replace").query(parameters::WRITE);
        all.push(put.body(model).returns(Returns::Written, model));
    }
    if verbs.contains(&"patch") {
        let patch = operation("patch", "patch", "partially update").query(parameters::PATCH);
        let of = format!("{META}.Patch");
        all.push(patch.body(&of).returns(Returns::Written, model));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_group_versions() {
        let check = |group: &str, version: &str, tag: &str, camel: &str| {
            assert_eq!(labels(group, version), (tag.to_string(), camel.to_string()));
        };
        check("", "v1", "core_v1", "CoreV1");
        check("apps", "v1", "apps_v1", "AppsV1");
        check(
            "rbac.authorization.k8s.io",
            "v1",
            "rbacAuthorization_v1",
            "RbacAuthorizationV1",
        );
        check(
            "sample.example.com",
            "v1beta1",
            "sampleExampleCom_v1beta1",
            "SampleExampleComV1beta1",
        );
    }
}
