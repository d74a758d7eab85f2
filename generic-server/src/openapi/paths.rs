//! Paths: the operations of each resource, with parameters, bodies and answers, in either dialect.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::GroupVersionKind;
use machinery::openapi::{Dialect, META, capital, type_name};
use serde_json::{Map, Value, json};

use super::parameters::{self, Parameters};
use crate::resource::{Backend, Scope, ServedResource, Subresource};

/// Every form that objects are answered in.
pub(super) const PRODUCES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

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
    dialect: Dialect,
    group: &str,
    version: &str,
    resources: &[Arc<ServedResource>],
) -> (Map<String, Value>, Models) {
    let mut writer = Writer::new(dialect, group, version);
    for resource in resources {
        writer.resource(resource);
    }
    (writer.paths, writer.models)
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

fn is_custom(resource: &ServedResource) -> bool {
    let gvk = &resource.gvk;
    type_name(&gvk.group, &gvk.version, &gvk.kind).is_none()
}

struct Writer<'a> {
    dialect: Dialect,
    group: &'a str,
    version: &'a str,
    tag: String,
    camel: String,
    paths: Map<String, Value>,
    models: Models,
}

/// One operation before it is written out.
struct Operation<'o> {
    id: String,
    action: &'o str,
    description: String,
    parameters: Parameters,
    body: Option<(Option<&'o str>, bool)>,
    answers: &'o [&'o str],
    returns: Option<&'o str>,
    kind: &'o GroupVersionKind,
}

impl<'a> Writer<'a> {
    fn new(dialect: Dialect, group: &'a str, version: &'a str) -> Self {
        let (tag, camel) = labels(group, version);
        Writer {
            dialect,
            group,
            version,
            tag,
            camel,
            paths: Map::new(),
            models: Models::default(),
        }
    }

    fn schema(&mut self, model: Option<&str>) -> Value {
        match model {
            None => json!({"type": "string"}),
            Some(name) => {
                if name.starts_with("io.k8s.") {
                    self.models.names.insert(name.to_string());
                }
                self.dialect.reference(name)
            }
        }
    }

    fn parameter(&self, name: &str, kind: &str) -> Value {
        let place = if matches!(name, "name" | "namespace") {
            "path"
        } else {
            "query"
        };
        let mut one = match self.dialect {
            Dialect::V2 => json!({"name": name, "in": place, "type": kind, "uniqueItems": true}),
            Dialect::V3 => json!({"name": name, "in": place, "schema": {"type": kind, "uniqueItems": true}}),
        };
        if place == "path" {
            one["required"] = true.into();
        }
        one
    }

    fn parameters(&self, list: &[(&str, &str)]) -> Value {
        list.iter()
            .map(|(name, kind)| self.parameter(name, kind))
            .collect()
    }

    fn content(&self, types: &[&str], schema: &Value) -> Value {
        let one = |media: &&str| ((*media).to_string(), json!({"schema": schema}));
        Value::Object(types.iter().map(one).collect())
    }

    fn operation(&mut self, o: &Operation<'_>) -> Value {
        let schema = self.schema(o.returns);
        let mut produces: Vec<&str> = PRODUCES.to_vec();
        if o.returns.is_none() {
            produces.push("text/plain");
        }
        let mut responses = Map::new();
        for code in o.answers {
            let description = match *code {
                "201" => "Created",
                "202" => "Accepted",
                _ => "OK",
            };
            let answer = match self.dialect {
                Dialect::V2 => json!({"description": description, "schema": schema}),
                Dialect::V3 => {
                    json!({"description": description, "content": self.content(&produces, &schema)})
                }
            };
            responses.insert((*code).into(), answer);
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        let gvk = o.kind;
        let mut out = json!({
            "description": o.description,
            "operationId": o.id,
            "responses": responses,
            "tags": [self.tag],
            "x-kubernetes-action": o.action,
            "x-kubernetes-group-version-kind": {"group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind},
        });
        let mut parameters = self.parameters(o.parameters);
        let patch = o.action == "patch";
        let consumes: &[&str] = if patch { &PATCHES } else { &["*/*"] };
        if let Some((model, required)) = o.body {
            let schema = self.schema(model);
            match self.dialect {
                Dialect::V2 => {
                    let mut body = json!({"name": "body", "in": "body", "schema": schema});
                    if required {
                        body["required"] = true.into();
                    }
                    if let Some(all) = parameters.as_array_mut() {
                        all.insert(0, body);
                    }
                }
                Dialect::V3 => {
                    out["requestBody"] = json!({"content": self.content(consumes, &schema)});
                    if required {
                        out["requestBody"]["required"] = true.into();
                    }
                }
            }
        }
        if parameters.as_array().is_some_and(|all| !all.is_empty()) {
            out["parameters"] = parameters;
        }
        if self.dialect == Dialect::V2 {
            out["consumes"] = consumes.into();
            out["produces"] = produces.into();
            out["schemes"] = json!(["https"]);
        }
        out
    }

    fn resource(&mut self, resource: &ServedResource) {
        let gvk = &resource.gvk;
        let (kind, list_kind) = (&*resource.names.kind, &*resource.names.list_kind);
        let custom = is_custom(resource);
        let named = |kind: &str| -> String {
            type_name(&gvk.group, &gvk.version, kind).unwrap_or_else(|| {
                let mut parts: Vec<&str> = gvk.group.split('.').rev().collect();
                parts.extend([&*gvk.version, kind]);
                parts.join(".")
            })
        };
        let (model, list_model) = (named(kind), named(list_kind));
        if custom {
            self.models.custom.push(Custom {
                kind: kind.into(),
                list_kind: list_kind.into(),
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
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        let plural = &resource.gvr.resource;
        let namespaced = resource.scope == Scope::Namespaced;
        let (collection, scope) = if namespaced {
            (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced")
        } else {
            (format!("{root}/{plural}"), "")
        };
        let camel = self.camel.clone();
        let id = |verb: &str| format!("{verb}{camel}{scope}{kind}");
        let status = format!("{META}.Status");
        let options = format!("{META}.DeleteOptions");
        let mut shared: Vec<(&str, &str)> = Vec::new();
        if namespaced {
            shared.push(("namespace", "string"));
        }
        shared.push(("pretty", "string"));

        let list = |id: String, parameters| Operation {
            id,
            action: "list",
            description: format!("list or watch objects of kind {kind}"),
            parameters,
            body: None,
            answers: &["200"],
            returns: Some(&list_model),
            kind: gvk,
        };
        if namespaced && has("list") {
            let mut everywhere: Vec<(&str, &str)> = parameters::LIST.to_vec();
            everywhere.push(("pretty", "string"));
            everywhere.sort_unstable();
            let get = self.operation(&list(format!("list{camel}{kind}ForAllNamespaces"), &[]));
            let path = json!({"get": get, "parameters": self.parameters(&everywhere)});
            self.paths.insert(format!("{root}/{plural}"), path);
        }
        let mut path = Map::new();
        if has("list") {
            path.insert("get".into(), self.operation(&list(id("list"), parameters::LIST)));
        }
        if has("create") {
            let post = self.operation(&Operation {
                id: id("create"),
                action: "post",
                description: format!("create {} {kind}", article(kind)),
                parameters: parameters::WRITE,
                body: Some((Some(&model), true)),
                answers: &["200", "201", "202"],
                returns: Some(&model),
                kind: gvk,
            });
            path.insert("post".into(), post);
        }
        if has("deletecollection") {
            let delete = self.operation(&Operation {
                id: id("deleteCollection").replacen(
                    &format!("deleteCollection{camel}"),
                    &format!("delete{camel}Collection"),
                    1,
                ),
                action: "deletecollection",
                description: format!("delete collection of {kind}"),
                parameters: parameters::LIST,
                body: Some((Some(&options), false)),
                answers: &["200"],
                returns: Some(&status),
                kind: gvk,
            });
            path.insert("delete".into(), delete);
        }
        if !path.is_empty() {
            path.insert("parameters".into(), self.parameters(&shared));
            self.paths.insert(collection.clone(), Value::Object(path));
        }
        shared.insert(0, ("name", "string"));
        let mut path = self.view(&id, "", &model, gvk, verbs);
        if has("delete") {
            let returns = if resource.strategy.returns_deleted_object() {
                &model
            } else {
                &status
            };
            let delete = self.operation(&Operation {
                id: id("delete"),
                action: "delete",
                description: format!("delete {} {kind}", article(kind)),
                parameters: parameters::DELETE,
                body: Some((Some(&options), false)),
                answers: &["200", "202"],
                returns: Some(returns),
                kind: gvk,
            });
            path.insert("delete".into(), delete);
        }
        if !path.is_empty() {
            path.insert("parameters".into(), self.parameters(&shared));
            self.paths
                .insert(format!("{collection}/{{name}}"), Value::Object(path));
        }
        let published = |(_, subresource): &&(String, Subresource)| subresource.is_published();
        for (name, subresource) in resource.subresources.iter().filter(published) {
            let own = |verb: &str| format!("{}{}", id(verb), capital(name));
            let view = ["get", "update", "patch"];
            let mut path = match subresource {
                Subresource::View(_) => self.view(&own, name, &model, gvk, &view),
                Subresource::Scale(_) => {
                    let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
                    self.view(&own, name, "io.k8s.api.autoscaling.v1.Scale", &scale, &view)
                }
                Subresource::Create(handler) => {
                    let kind = handler.kind();
                    let model = type_name(&kind.group, &kind.version, &kind.kind);
                    self.connect(&own, name, model.as_deref(), &kind, &["create"])
                }
                Subresource::Connect(handler) => {
                    let kind = handler.kind();
                    let model = type_name(&kind.group, &kind.version, &kind.kind);
                    self.connect(&own, name, model.as_deref(), &kind, handler.verbs())
                }
            };
            let mut parameters = shared.clone();
            if path.contains_key("post") && matches!(subresource, Subresource::Create(_)) {
                parameters.extend(parameters::WRITE);
                parameters.sort_unstable();
            }
            path.insert("parameters".into(), self.parameters(&parameters));
            self.paths
                .insert(format!("{collection}/{{name}}/{name}"), Value::Object(path));
        }
    }

    /// Reading, replacing and patching one object, or a view of it.
    fn view(
        &mut self,
        id: &dyn Fn(&str) -> String,
        subresource: &str,
        model: &str,
        gvk: &GroupVersionKind,
        verbs: &[&str],
    ) -> Map<String, Value> {
        let kind = &gvk.kind;
        let of = match subresource {
            "" => String::new(),
            name => format!(" {name} of"),
        };
        let patch = format!("{META}.Patch");
        let mut path = Map::new();
        for (verb, method, name, words, parameters, body, answers) in [
            ("get", "get", "read", "read", &[][..], None, &["200"][..]),
            (
                "update",
                "put",
                "replace",
                "replace",
                parameters::WRITE,
                Some(model),
                &["200", "201"][..],
            ),
            (
                "patch",
                "patch",
                "patch",
                "partially update",
                parameters::PATCH,
                Some(&*patch),
                &["200", "201"][..],
            ),
        ] {
            if verbs.contains(&verb) {
                let operation = self.operation(&Operation {
                    id: id(name),
                    action: method,
                    description: format!("{words}{of} the specified {kind}"),
                    parameters,
                    body: body.map(|model| (Some(model), true)),
                    answers,
                    returns: Some(model),
                    kind: gvk,
                });
                path.insert(method.into(), operation);
            }
        }
        path
    }

    /// A subresource that is more than a view.
    fn connect(
        &mut self,
        id: &dyn Fn(&str) -> String,
        subresource: &str,
        model: Option<&str>,
        gvk: &GroupVersionKind,
        verbs: &[&str],
    ) -> Map<String, Value> {
        let stream = matches!(subresource, "exec" | "attach" | "portforward" | "proxy");
        let plain = stream || subresource == "log";
        let mut path = Map::new();
        for (verb, method, name, body) in [
            ("get", "get", "read", false),
            ("create", "post", "create", true),
            ("update", "put", "replace", true),
        ] {
            if !verbs.contains(&verb) {
                continue;
            }
            let operation = self.operation(&Operation {
                id: id(if stream { "connect" } else { name }) + if stream { method } else { "" },
                action: if stream { "connect" } else { method },
                description: format!("{name} {subresource} of the specified {}", gvk.kind),
                parameters: &[],
                body: (body && !stream).then_some((model, true)),
                answers: if body && !stream {
                    &["200", "201", "202"]
                } else {
                    &["200"]
                },
                returns: if plain { None } else { model },
                kind: gvk,
            });
            path.insert(method.into(), operation);
        }
        path
    }
}

fn article(kind: &str) -> &'static str {
    if kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
        "an"
    } else {
        "a"
    }
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
