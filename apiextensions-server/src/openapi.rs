//! The OpenAPI v3 document of a group version, from its CRDs. Mirrors `pkg/controller/openapi/builder`.
//!
//! A document is made when it is asked for and kept until a CRD of its group changes.

use bytes::Bytes;
use generic_server::resource::Scope;
use machinery::openapi::{CustomKind, Descriptions, Dialect, custom_definitions, definitions};
use serde_json::{Map, Value, json};

use crate::crd::internal::Spec;
use crate::crd::props::{Props, unsupported};
use crate::crd::validation::structural_errors;
use crate::definition::{Definition, VersionInfo};
use crate::index::Group;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Parameters of lists, with their types.
const LIST_PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const JSON_TYPES: &[&str] = &["application/json", "application/yaml"];
const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// The document of a version of a group; `None` when nothing of it is served.
pub(crate) fn document(group: &str, version: &str, crds: &Group) -> Option<Bytes> {
    let served: Vec<(&Definition, &VersionInfo)> = crds
        .crds
        .values()
        .filter(|d| d.established)
        .filter_map(|d| {
            let (info, _) = d.version(version)?;
            info.served.then_some((&**d, info))
        })
        .collect();
    if served.is_empty() {
        return None;
    }
    let texts = Descriptions::unpack();
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut with_scale = false;
    for (definition, info) in served {
        schemas.extend(kinds(definition, info, Dialect::V3, &texts));
        Routes::new(group, version, definition).write(info, &mut paths);
        with_scale |= info.scale.is_some();
    }
    let mut roots: Vec<String> = ["ObjectMeta", "ListMeta", "DeleteOptions", "Patch", "Status"]
        .iter()
        .map(|name| format!("{META}.{name}"))
        .collect();
    if with_scale {
        roots.push("io.k8s.api.autoscaling.v1.Scale".into());
    }
    let roots = roots.iter().map(String::as_str);
    schemas.extend(definitions(Dialect::V3, roots, &[(group, version)], &texts));
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    Some(document.to_string().into())
}

/// The definitions of a CRD's kind and its list at a version.
pub(crate) fn kinds(
    definition: &Definition,
    info: &VersionInfo,
    dialect: Dialect,
    texts: &Descriptions,
) -> Map<String, Value> {
    let crd = definition.entry.value();
    let spec = Spec::of(&crd);
    let raw = spec.schema_of(&info.name).and_then(|s| s.get("openAPIV3Schema"));
    let structural = raw.filter(|raw| {
        let props = Props::new(raw);
        unsupported(props).is_none() && structural_errors(&machinery::FieldPath::ROOT, props).is_empty()
    });
    let selectable: Vec<&str> = info.selectable.iter().map(String::as_str).collect();
    let names = &definition.facts.names;
    let custom = CustomKind {
        group: &definition.group,
        version: &info.name,
        kind: &names.kind,
        list_kind: &names.list_kind,
        plural: &definition.plural,
        schema: structural,
        preserve_unknown: spec.preserve_unknown_fields,
        selectable: &selectable,
    };
    custom_definitions(dialect, &custom, texts)
}

fn parameters(list: &[(&str, &str)]) -> Value {
    let one = |(name, ty): &(&str, &str)| json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}});
    list.iter().map(one).collect()
}

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

fn reference(name: &str) -> Value {
    Dialect::V3.reference(name)
}

fn content(types: &[&str], name: &str) -> Value {
    let of = |media: &&str| ((*media).to_string(), json!({"schema": reference(name)}));
    Value::Object(types.iter().map(of).collect())
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// The routes of one CRD at one version.
struct Routes<'a> {
    group: &'a str,
    version: &'a str,
    definition: &'a Definition,
    /// `ExampleComV1`, in operation ids.
    operation: String,
    tag: String,
    model: String,
    list_model: String,
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

impl<'a> Routes<'a> {
    fn new(group: &'a str, version: &'a str, definition: &'a Definition) -> Self {
        let parts: Vec<String> = group.split('.').map(capital).collect();
        let camel = parts.concat();
        let mut tag = camel.clone();
        if let Some(first) = tag.get_mut(0..1) {
            first.make_ascii_lowercase();
        }
        let mut model: Vec<&str> = group.split('.').rev().collect();
        model.push(version);
        let model = model.join(".");
        let names = &definition.facts.names;
        Routes {
            group,
            version,
            definition,
            operation: format!("{camel}{}", capital(version)),
            tag: format!("{tag}_{version}"),
            model: format!("{model}.{}", names.kind),
            list_model: format!("{model}.{}", names.list_kind),
        }
    }

    fn operation(&self, id: &str, o: &Operation<'_>) -> Value {
        let kind = &*self.definition.facts.names.kind;
        let mut responses = Map::new();
        for (code, description) in o.answers {
            let body = json!({"description": description, "content": content(JSON_TYPES, o.returns)});
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
            out["parameters"] = parameters(o.parameters);
        }
        if let Some((types, name, required)) = o.body {
            out["requestBody"] = json!({"content": content(types, name)});
            if required {
                out["requestBody"]["required"] = true.into();
            }
        }
        out
    }

    fn write(&self, info: &VersionInfo, paths: &mut Map<String, Value>) {
        let namespaced = self.definition.facts.scope == Scope::Namespaced;
        let kind = &*self.definition.facts.names.kind;
        let root = format!("/apis/{}/{}", self.group, self.version);
        let plural = &self.definition.plural;
        let (collection, scope) = match namespaced {
            true => (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced"),
            false => (format!("{root}/{plural}"), ""),
        };
        let pretty = || parameters(&[("pretty", "string")])[0].clone();
        let list = |parameters| Operation {
            verb: "list",
            action: "list",
            description: format!("list objects of kind {kind}"),
            parameters,
            body: None,
            answers: &[("200", "OK")],
            returns: &self.list_model,
        };
        if namespaced {
            let mut shared: Vec<(&str, &str)> = LIST_PARAMETERS.to_vec();
            shared.push(("pretty", "string"));
            shared.sort_unstable();
            let all = self.operation(&format!("{kind}ForAllNamespaces"), &list(&[]));
            let path = json!({"get": all, "parameters": parameters(&shared)});
            paths.insert(format!("{root}/{plural}"), path);
        }
        let mut shared = Vec::new();
        if namespaced {
            shared.push(path_parameter("namespace"));
        }
        shared.push(pretty());
        let id = format!("{scope}{kind}");
        let status = format!("{META}.Status");
        let post = Operation {
            verb: "create",
            action: "post",
            description: format!("create a {kind}"),
            parameters: WRITE_PARAMETERS,
            body: Some((JSON_TYPES, &self.model, true)),
            answers: &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            returns: &self.model,
        };
        let clear = Operation {
            verb: "delete",
            action: "deletecollection",
            description: format!("delete collection of {kind}"),
            parameters: LIST_PARAMETERS,
            body: None,
            answers: &[("200", "OK")],
            returns: &status,
        };
        let path = json!({
            "get": self.operation(&id, &list(LIST_PARAMETERS)),
            "post": self.operation(&id, &post),
            "delete": self.operation(&format!("Collection{id}"), &clear),
            "parameters": shared,
        });
        paths.insert(collection.clone(), path);

        shared.insert(0, path_parameter("name"));
        let options = format!("{META}.DeleteOptions");
        let delete = Operation {
            verb: "delete",
            action: "delete",
            description: format!("delete a {kind}"),
            parameters: DELETE_PARAMETERS,
            body: Some((JSON_TYPES, &options, false)),
            answers: &[("200", "OK"), ("202", "Accepted")],
            returns: &status,
        };
        let mut one = self.view(&id, "", &self.model, &shared);
        one["delete"] = self.operation(&id, &delete);
        paths.insert(format!("{collection}/{{name}}"), one);
        let scale = "io.k8s.api.autoscaling.v1.Scale";
        for (there, name, model) in [
            (info.has_status, "status", self.model.as_str()),
            (info.scale.is_some(), "scale", scale),
        ] {
            if there {
                let view = self.view(&format!("{id}{}", capital(name)), name, model, &shared);
                paths.insert(format!("{collection}/{{name}}/{name}"), view);
            }
        }
    }

    /// What can be done to one object, or to a view of it.
    fn view(&self, id: &str, subresource: &str, model: &str, shared: &[Value]) -> Value {
        let kind = &self.definition.facts.names.kind;
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
            parameters: WRITE_PARAMETERS,
            body: Some((JSON_TYPES, model, true)),
            answers: &[("200", "OK"), ("201", "Created")],
            returns: model,
        };
        let change = Operation {
            verb: "patch",
            action: "patch",
            description: format!("partially update{of} the specified {kind}"),
            parameters: PATCH_PARAMETERS,
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
