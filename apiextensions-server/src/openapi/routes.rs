//! The operations on objects of a CRD, in OpenAPI v3.

use generic_server::openapi::parameters as query;
use machinery::openapi::{Dialect, META, capital};
use serde_json::{Map, Value, json};

use super::template::Slot;

pub(super) const JSON_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

fn reference(name: &str) -> Value {
    Dialect::V3.reference(name)
}

fn content(types: &[&str], name: &str) -> Value {
    let of = |media: &&str| ((*media).to_string(), json!({"schema": reference(name)}));
    Value::Object(types.iter().map(of).collect())
}

/// The facts that decide which routes there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) namespaced: bool,
    pub(super) status: bool,
    pub(super) scale: bool,
}

impl Shape {
    /// How many there are.
    pub(super) const COUNT: usize = 8;

    pub(super) fn number(self) -> usize {
        usize::from(self.namespaced) + 2 * usize::from(self.status) + 4 * usize::from(self.scale)
    }
}

/// The routes of one CRD at one version.
struct Routes {
    group: String,
    version: String,
    plural: String,
    kind: String,
    /// `ExampleComV1`, in operation ids.
    operation: String,
    tag: String,
    model: String,
    list_model: String,
}

/// The paths of a CRD of this shape, with what stands at them, as v3 says it; names are [`Slot`]s.
pub(super) fn paths(shape: Shape) -> Map<String, Value> {
    let model = Slot::Model.mark();
    let routes = Routes {
        group: Slot::Group.mark(),
        version: Slot::Version.mark(),
        plural: Slot::Plural.mark(),
        kind: Slot::Kind.mark(),
        operation: Slot::Operation.mark(),
        tag: Slot::Tag.mark(),
        list_model: format!("{model}.{}", Slot::ListKind.mark()),
        model: format!("{model}.{}", Slot::Kind.mark()),
    };
    let mut paths = Map::new();
    routes.write(shape, &mut paths);
    paths
}

/// One operation, before it is written out.
struct Operation<'o> {
    verb: &'o str,
    action: &'o str,
    description: String,
    parameters: &'o [(&'o str, &'o str)],
    body: Option<(&'o [&'o str], &'o str, bool)>,
    answers: &'o [(&'o str, &'o str)],
    returns: &'o str,
}

impl Routes {
    fn operation(&self, id: &str, o: &Operation<'_>) -> Value {
        let kind = &*self.kind;
        let mut responses = Map::new();
        for (code, description) in o.answers {
            let body = json!({"description": description, "content": content(&JSON_TYPES, o.returns)});
            responses.insert((*code).into(), body);
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        let mut out = json!({
            "tags": [self.tag],
            "description": o.description,
            "operationId": format!("{}{}{id}", o.verb, self.operation),
            "responses": responses,
            "x-kubernetes-action": o.action,
            "x-kubernetes-group-version-kind": {"group": self.group, "version": self.version, "kind": kind},
        });
        if !o.parameters.is_empty() {
            out["parameters"] = query::query(o.parameters).into();
        }
        if let Some((types, name, required)) = o.body {
            out["requestBody"] = json!({"content": content(types, name)});
            if required {
                out["requestBody"]["required"] = true.into();
            }
        }
        out
    }

    fn write(&self, shape: Shape, paths: &mut Map<String, Value>) {
        let kind = &*self.kind;
        let root = format!("/apis/{}/{}", self.group, self.version);
        let plural = &self.plural;
        let (collection, scope) = match shape.namespaced {
            true => (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced"),
            false => (format!("{root}/{plural}"), ""),
        };
        let pretty = || query::query(&[("pretty", "string")]).remove(0);
        let list = |parameters| Operation {
            verb: "list",
            action: "list",
            description: format!("list objects of kind {kind}"),
            parameters,
            body: None,
            answers: &[("200", "OK")],
            returns: &self.list_model,
        };
        if shape.namespaced {
            let mut shared = query::query(query::LIST);
            shared.push(pretty());
            let all = self.operation(&format!("{kind}ForAllNamespaces"), &list(&[]));
            let path = json!({"get": all, "parameters": query::sorted(shared)});
            paths.insert(format!("{root}/{plural}"), path);
        }
        let mut shared = Vec::new();
        if shape.namespaced {
            shared.push(query::in_path("namespace", kind));
        }
        shared.push(pretty());
        let id = format!("{scope}{kind}");
        let status = format!("{META}.Status");
        let post = Operation {
            verb: "create",
            action: "post",
            description: format!("create a {kind}"),
            parameters: query::WRITE,
            body: Some((&JSON_TYPES, &self.model, true)),
            answers: &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            returns: &self.model,
        };
        let clear = Operation {
            verb: "delete",
            action: "deletecollection",
            description: format!("delete collection of {kind}"),
            parameters: query::LIST,
            body: None,
            answers: &[("200", "OK")],
            returns: &status,
        };
        let path = json!({
            "get": self.operation(&id, &list(query::LIST)),
            "post": self.operation(&id, &post),
            "delete": self.operation(&format!("Collection{id}"), &clear),
            "parameters": shared,
        });
        paths.insert(collection.clone(), path);

        shared.insert(0, query::in_path("name", kind));
        let options = format!("{META}.DeleteOptions");
        let delete = Operation {
            verb: "delete",
            action: "delete",
            description: format!("delete a {kind}"),
            parameters: query::DELETE,
            body: Some((&JSON_TYPES, &options, false)),
            answers: &[("200", "OK"), ("202", "Accepted")],
            returns: &status,
        };
        let mut one = self.view(&id, "", &self.model, &shared);
        one["delete"] = self.operation(&id, &delete);
        paths.insert(format!("{collection}/{{name}}"), one);
        let scale = "io.k8s.api.autoscaling.v1.Scale";
        for (there, name, model) in [
            (shape.status, "status", self.model.as_str()),
            (shape.scale, "scale", scale),
        ] {
            if there {
                let view = self.view(&format!("{id}{}", capital(name)), name, model, &shared);
                paths.insert(format!("{collection}/{{name}}/{name}"), view);
            }
        }
    }

    /// The operations on one object, or on a view of it.
    fn view(&self, id: &str, subresource: &str, model: &str, shared: &[Value]) -> Value {
        let kind = &self.kind;
        let of = match subresource {
            "" => String::new(),
            name => format!(" {name} of"),
        };
        let patch = format!("{META}.Patch");
        let get = Operation {
            verb: "read",
            action: "get",
            description: format!("read{of} the specified {kind}"),
            parameters: &[("resourceVersion", "string")],
            body: None,
            answers: &[("200", "OK")],
            returns: model,
        };
        let put = Operation {
            verb: "replace",
            action: "put",
            description: format!("replace{of} the specified {kind}"),
            parameters: query::WRITE,
            body: Some((&JSON_TYPES, model, true)),
            answers: &[("200", "OK"), ("201", "Created")],
            returns: model,
        };
        let change = Operation {
            verb: "patch",
            action: "patch",
            description: format!("partially update{of} the specified {kind}"),
            parameters: query::PATCH,
            body: Some((PATCH_TYPES, &patch, true)),
            answers: &[("200", "OK")],
            returns: model,
        };
        json!({
            "get": self.operation(id, &get),
            "put": self.operation(id, &put),
            "patch": self.operation(id, &change),
            "parameters": shared,
        })
    }
}
