//! The pieces of OpenAPI documents of one version of one CRD: its paths and its schemas, as JSON text.
//!
//! Everything but the CRD's own schema is the same for all CRDs of one shape and comes from templates, made once.

use std::sync::OnceLock;

use bytes::Bytes;
use generic_server::openapi::{SwaggerPart, parameters, paths_from_v3};
use generic_server::resource::Scope;
use machinery::openapi::{
    CustomKind, Descriptions, Dialect, META, capital, client_versions, custom_definitions, definitions,
};
use serde_json::Value;

use super::routes::{self, Shape};
use super::template::{Filling, Slot, Template};
use crate::crd::status;
use crate::crd::validation::structural_errors;
use crate::definition::{Definition, VersionInfo};
use crate::props::{Props, unsupported};

/// Members of an object: a name, and its value as JSON.
pub(super) type Members = Vec<(String, Bytes)>;

/// Paths by shape: where, and what stands there.
type Paths = [OnceLock<Vec<(Template, Template)>>; Shape::COUNT];

static PATHS_V2: Paths = [const { OnceLock::new() }; Shape::COUNT];
static PATHS_V3: Paths = [const { OnceLock::new() }; Shape::COUNT];

fn shape(definition: &Definition, info: &VersionInfo) -> Shape {
    Shape {
        namespaced: definition.facts.scope == Scope::Namespaced,
        status: info.has_status,
        scale: info.scale.is_some(),
    }
}

fn filling(definition: &Definition, version: &str) -> Filling {
    let group = &*definition.group;
    let camel: String = group.split('.').map(capital).collect();
    Filling::new(|slot| match slot {
        Slot::Group => group.to_string(),
        Slot::Version => version.to_string(),
        Slot::Plural => definition.plural.to_string(),
        Slot::Kind => definition.facts.names.kind.to_string(),
        Slot::ListKind => definition.facts.names.list_kind.to_string(),
        Slot::Operation => format!("{camel}{}", capital(version)),
        Slot::Tag => {
            let mut tag = camel.clone();
            if let Some(first) = tag.get_mut(0..1) {
                first.make_ascii_lowercase();
            }
            format!("{tag}_{version}")
        }
        Slot::Model => {
            let mut parts: Vec<&str> = group.split('.').rev().collect();
            parts.push(version);
            parts.join(".")
        }
    })
}

/// The parameters that the paths of all CRDs refer to in the v2 document.
pub(super) fn shared_parameters() -> SwaggerPart {
    let shape = Shape {
        namespaced: true,
        status: true,
        scale: true,
    };
    let mut paths = paths_from_v3(&routes::paths(shape), &routes::JSON_TYPES);
    SwaggerPart::of_parameters(parameters::share(&mut paths))
}

/// The paths of a CRD's version.
pub(super) fn paths(dialect: Dialect, definition: &Definition, info: &VersionInfo) -> Members {
    let shape = shape(definition, info);
    let all = match dialect {
        Dialect::V2 => &PATHS_V2,
        Dialect::V3 => &PATHS_V3,
    };
    let templates = all[shape.number()].get_or_init(|| {
        let mut paths = routes::paths(shape);
        if dialect == Dialect::V2 {
            paths = paths_from_v3(&paths, &routes::JSON_TYPES);
            parameters::share(&mut paths);
        }
        let template = |(path, what): (&String, &Value)| (Template::of_text(path), Template::of(what));
        paths.iter().map(template).collect()
    });
    let filling = filling(definition, &info.name);
    templates
        .iter()
        .map(|(path, what)| (path.fill(&filling), what.fill(&filling).into()))
        .collect()
}

/// The schemas of a CRD's kind and of its list at a version.
pub(super) fn schemas(dialect: Dialect, definition: &Definition, info: &VersionInfo) -> Members {
    let mut crd = definition.entry.value_without(&["managedFields"]);
    // A schema that the status complains of may be no schema at all; all others were judged when they came in.
    let doubtful = status::find(&crd, "NonStructuralSchema").is_some();
    let preserve_unknown = crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    let version = versions
        .into_iter()
        .flatten()
        .find(|version| version.get("name").and_then(Value::as_str) == Some(&*info.name));
    let schema = version
        .and_then(|version| version.pointer_mut("/schema/openAPIV3Schema"))
        .map(Value::take)
        .filter(|schema| !doubtful || is_structural(schema));
    let selectable: Vec<&str> = info.selectable.iter().map(String::as_str).collect();
    let names = &definition.facts.names;
    let custom = CustomKind {
        group: &definition.group,
        version: &info.name,
        kind: &names.kind,
        list_kind: &names.list_kind,
        plural: &definition.plural,
        preserve_unknown,
        selectable: &selectable,
    };
    custom_definitions(dialect, &custom, schema)
        .into_iter()
        .map(|(name, schema)| (name, serde_json::to_vec(&schema).unwrap_or_default().into()))
        .collect()
}

fn is_structural(schema: &Value) -> bool {
    let props = Props::new(schema);
    unsupported(props).is_none() && structural_errors(&machinery::FieldPath::ROOT, props).is_empty()
}

/// The built-in types that every v3 document of custom resources refers to, as members of an object.
pub(super) fn common_components(with_scale: bool) -> &'static str {
    static COMPONENTS: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
    COMPONENTS[usize::from(with_scale)].get_or_init(|| {
        let mut roots: Vec<String> = ["ObjectMeta", "ListMeta", "DeleteOptions", "Patch", "Status"]
            .iter()
            .map(|name| format!("{META}.{name}"))
            .collect();
        if with_scale {
            roots.push("io.k8s.api.autoscaling.v1.Scale".into());
        }
        let roots = roots.iter().map(String::as_str);
        let all = definitions(Dialect::V3, roots, &client_versions(), &Descriptions::unpack());
        let text = Value::Object(all).to_string();
        text[1..text.len() - 1].to_string()
    })
}
