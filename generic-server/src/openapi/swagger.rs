//! The document of everything (v2): parts, one per group version, joined.
//!
//! A part is kept as text, member by member, until its hash changes: a new CRD makes its own part again and the join is a
//! concatenation. After a join the parts' texts are slices of the joined one, so that there is one copy.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};

use super::gnostic::{self, Section};
use super::parameters::share;

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
const GVK: &str = "x-kubernetes-group-version-kind";

type Members = BTreeMap<String, Bytes>;

/// A part of the v2 document: paths, and what they refer to.
#[derive(Debug, Clone, Default)]
pub struct SwaggerPart {
    paths: Members,
    definitions: Members,
    parameters: Members,
    /// Of another process: its names may mean something else here.
    foreign: bool,
}

fn members(map: Map<String, Value>) -> Members {
    map.into_iter()
        .map(|(name, value)| (name, text(&value)))
        .collect()
}

/// A value as it is written; maps of text keys always can be.
fn text(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

impl SwaggerPart {
    /// Paths and definitions of this process. Parameters that paths have in common are taken out of them.
    pub fn new(mut paths: Map<String, Value>, definitions: Map<String, Value>) -> Self {
        SwaggerPart {
            parameters: members(share(&mut paths)),
            paths: members(paths),
            definitions: members(definitions),
            ..SwaggerPart::default()
        }
    }

    /// The same, as JSON that was made already. Parameters that it refers to are in another part of this process.
    pub fn of_texts(
        paths: impl IntoIterator<Item = (String, Bytes)>,
        definitions: impl IntoIterator<Item = (String, Bytes)>,
    ) -> Self {
        SwaggerPart {
            paths: paths.into_iter().collect(),
            definitions: definitions.into_iter().collect(),
            ..SwaggerPart::default()
        }
    }

    /// Parameters alone, by the names that other parts refer to.
    pub fn of_parameters(parameters: Map<String, Value>) -> Self {
        SwaggerPart {
            parameters: members(parameters),
            ..SwaggerPart::default()
        }
    }

    /// The paths of another server's v2 document that `wanted` chooses, with all definitions that they refer to. `None` when
    /// it is no v2 document.
    pub fn of_document(mut document: Value, wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let document = document.as_object_mut()?;
        document.get("swagger").filter(|v| *v == "2.0")?;
        let mut section = |name: &str| match document.remove(name) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut paths = section("paths");
        let (definitions, parameters) = (section("definitions"), section("parameters"));
        paths.retain(|path, _| wanted(path));
        let mut part = SwaggerPart {
            foreign: true,
            ..SwaggerPart::default()
        };
        let mut todo = BTreeSet::new();
        for item in paths.values() {
            references(item, &mut todo);
        }
        while let Some(reference) = todo.pop_first() {
            let (known, all, name) = if let Some(name) = reference.strip_prefix(DEFINITIONS) {
                (&mut part.definitions, &definitions, name)
            } else if let Some(name) = reference.strip_prefix(PARAMETERS) {
                (&mut part.parameters, &parameters, name)
            } else {
                continue;
            };
            if let Some(value) = all.get(name).filter(|_| !known.contains_key(name)) {
                known.insert(name.into(), value.to_string().into());
                references(value, &mut todo);
            }
        }
        part.paths = members(paths);
        Some(part)
    }

    fn sections(&self) -> [(Section, &Members); 3] {
        [
            (Section::Definitions, &self.definitions),
            (Section::Parameters, &self.parameters),
            (Section::Paths, &self.paths),
        ]
    }

    /// Gives names that mean something else in `known` new ones (`NAME_v2`), as upstream does.
    fn renamed(&self, known: &[BTreeMap<&str, &Bytes>; 3]) -> SwaggerPart {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for (at, (section, own)) in self.sections().into_iter().enumerate() {
            let prefix = match section {
                Section::Definitions => DEFINITIONS,
                Section::Parameters => PARAMETERS,
                Section::Paths => continue,
            };
            for (name, value) in own {
                let taken = |name: &str| known[at].get(name).is_some_and(|there| !same(there, value));
                if !taken(name) {
                    continue;
                }
                let free = (2..).map(|n| format!("{name}_v{n}")).find(|name| !taken(name));
                if let Some(free) = free {
                    names.insert(format!("{prefix}{name}"), format!("{prefix}{free}"));
                }
            }
        }
        if names.is_empty() {
            return self.clone();
        }
        let rewrite = |prefix: &str, own: &Members| -> Members {
            own.iter()
                .map(|(name, value)| {
                    let mut value: Value = serde_json::from_slice(value).unwrap_or_default();
                    point(&mut value, &names);
                    let name = names
                        .get(&format!("{prefix}{name}"))
                        .and_then(|new| new.strip_prefix(prefix))
                        .unwrap_or(name);
                    (name.to_string(), value.to_string().into())
                })
                .collect()
        };
        SwaggerPart {
            paths: rewrite("", &self.paths),
            definitions: rewrite(DEFINITIONS, &self.definitions),
            parameters: rewrite(PARAMETERS, &self.parameters),
            foreign: true,
        }
    }
}

/// Whether two definitions are equal except for the kinds they are listed under.
fn same(a: &Bytes, b: &Bytes) -> bool {
    if a == b {
        return true;
    }
    let parse = |bytes: &Bytes| {
        let mut value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.remove(GVK);
        }
        value
    };
    parse(a) == parse(b)
}

/// Every `$ref` below a value.
fn references(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                out.insert(reference.clone());
            }
            map.values().for_each(|value| references(value, out));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Points references elsewhere.
fn point(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(new) = names.get(reference)
            {
                reference.clone_from(new);
            }
            map.values_mut().for_each(|value| point(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| point(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The joined document.
#[derive(Debug, Clone)]
pub(super) struct Swagger {
    pub(super) json: Bytes,
    sections: [Members; 3],
    /// Everything but the sections.
    frame: Value,
}

/// Joins parts into one document with the members of `frame` around them. The parts' texts become slices of the result.
pub(super) fn join(frame: Value, parts: &mut [SwaggerPart]) -> Swagger {
    // This process's own names come first: others give way.
    let mut renamed = Vec::new();
    let mut known: [BTreeMap<&str, &Bytes>; 3] = Default::default();
    for part in parts.iter().filter(|part| !part.foreign) {
        add(&mut known, part);
    }
    for part in parts.iter().filter(|part| part.foreign) {
        renamed.push(part.renamed(&known));
    }
    for part in &renamed {
        add(&mut known, part);
    }
    let members = known.iter().flatten();
    let size: usize = members.map(|(name, value)| name.len() + value.len() + 8).sum();
    let mut out = BytesMut::with_capacity(size + 4096);
    let mut ranges: [BTreeMap<String, std::ops::Range<usize>>; 3] = Default::default();
    out.put_u8(b'{');
    for (at, name) in ["definitions", "parameters", "paths"].into_iter().enumerate() {
        out.put_slice(format!("\"{name}\":{{").as_bytes());
        for (index, (name, value)) in known[at].iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            out.put_slice(Value::from(*name).to_string().as_bytes());
            out.put_u8(b':');
            let start = out.len();
            out.put_slice(value);
            ranges[at].insert((*name).to_string(), start..out.len());
        }
        out.put_slice(b"},");
    }
    let around = frame.to_string();
    out.put_slice(around.strip_prefix('{').unwrap_or("}").as_bytes());
    let json = out.freeze();
    let sections = ranges.map(|ranges| -> Members {
        ranges
            .into_iter()
            .map(|(name, range)| (name, json.slice(range)))
            .collect()
    });
    for part in parts.iter_mut().filter(|part| !part.foreign) {
        let own = [&mut part.definitions, &mut part.parameters, &mut part.paths];
        for (own, joined) in own.into_iter().zip(&sections) {
            for (name, text) in own.iter_mut() {
                if let Some(joined) = joined.get(name).filter(|joined| *joined == text) {
                    *text = joined.clone();
                }
            }
        }
    }
    Swagger {
        json,
        sections,
        frame,
    }
}

/// The first definition of a name stays.
fn add<'a>(known: &mut [BTreeMap<&'a str, &'a Bytes>; 3], part: &'a SwaggerPart) {
    for (known, (_, own)) in known.iter_mut().zip(part.sections()) {
        for (name, value) in own {
            known.entry(name).or_insert(value);
        }
    }
}

impl Swagger {
    /// The document as a message; one member at a time is decoded for it.
    pub(super) fn protobuf(&self) -> Bytes {
        let mut out = gnostic::v2(&self.frame);
        let sections = [Section::Definitions, Section::Parameters, Section::Paths];
        for (section, members) in sections.into_iter().zip(&self.sections) {
            let encoded: Vec<Vec<u8>> = members
                .iter()
                .map(|(name, text)| {
                    let value = serde_json::from_slice(text).unwrap_or_default();
                    gnostic::v2_member(section, name, &value)
                })
                .collect();
            if !encoded.is_empty() {
                gnostic::v2_section(&mut out, section, &encoded);
            }
        }
        out.into()
    }
}

/// The paths of a v3 document as v2 says them. `consumes` are the media types that operations without a body are said to take.
pub fn paths_from_v3(paths: &Map<String, Value>, consumes: &[&str]) -> Map<String, Value> {
    let item = |item: &Value| -> Value {
        let members = item.as_object().into_iter().flatten();
        members
            .map(|(key, value)| {
                let value = match key.as_str() {
                    "parameters" => list(value).map(parameter).collect(),
                    "get" | "put" | "post" | "delete" | "options" | "head" | "patch" => {
                        operation(value, consumes)
                    }
                    _ => value.clone(),
                };
                (key.clone(), value)
            })
            .collect()
    };
    paths
        .iter()
        .map(|(path, value)| {
            let mut value = item(value);
            local_references(&mut value);
            (path.clone(), value)
        })
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn parameter(value: &Value) -> Value {
    let Some(map) = value.as_object() else {
        return value.clone();
    };
    let mut out = map.clone();
    if let Some(Value::Object(schema)) = out.remove("schema") {
        out.extend(schema);
    }
    Value::Object(out)
}

/// The order in which upstream lists media types; a v3 document has them sorted.
const MEDIA: [&str; 10] = [
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

fn media(content: &Value) -> Option<(Vec<&String>, &Value)> {
    let content = content.as_object()?;
    let schema = content.values().next()?.get("schema")?;
    let mut types: Vec<&String> = content.keys().collect();
    types.sort_by_key(|name| MEDIA.iter().position(|known| known == name));
    Some((types, schema))
}

fn operation(value: &Value, consumes: &[&str]) -> Value {
    let Some(map) = value.as_object() else {
        return value.clone();
    };
    let mut out = map.clone();
    let mut parameters: Vec<Value> = map
        .get("parameters")
        .map(|all| list(all).map(parameter).collect())
        .unwrap_or_default();
    out.insert("schemes".into(), serde_json::json!(["https"]));
    if !consumes.is_empty() {
        out.insert("consumes".into(), consumes.into());
    }
    if let Some(body) = out.remove("requestBody")
        && let Some((types, schema)) = body.get("content").and_then(media)
    {
        out.insert("consumes".into(), serde_json::json!(types));
        let mut parameter = serde_json::json!({"in": "body", "name": "body", "schema": schema});
        if body.get("required") == Some(&Value::Bool(true)) {
            parameter["required"] = true.into();
        }
        parameters.insert(0, parameter);
    }
    if !parameters.is_empty() {
        out.insert("parameters".into(), parameters.into());
    }
    let responses = map.get("responses").and_then(Value::as_object);
    let mut answers = Map::new();
    for (code, answer) in responses.into_iter().flatten() {
        let mut one = Map::new();
        if let Some(text) = answer.get("description") {
            one.insert("description".into(), text.clone());
        }
        if let Some((types, schema)) = answer.get("content").and_then(media) {
            one.insert("schema".into(), schema.clone());
            out.entry("produces").or_insert_with(|| serde_json::json!(types));
        }
        answers.insert(code.clone(), Value::Object(one));
    }
    out.insert("responses".into(), Value::Object(answers));
    Value::Object(out)
}

fn local_references(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(name) = reference.strip_prefix("#/components/schemas/")
            {
                *reference = format!("{DEFINITIONS}{name}");
            }
            map.values_mut().for_each(local_references);
        }
        Value::Array(items) => items.iter_mut().for_each(local_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn own() -> SwaggerPart {
        SwaggerPart::new(
            map(json!({"/apis/a/v1/": {}})),
            map(json!({"Meta": {"description": "ours"}, "Same": {"type": "string", GVK: [1]}})),
        )
    }

    #[test]
    fn foreign_names_give_way() {
        let foreign = json!({
            "swagger": "2.0",
            "paths": {"/apis/b/v1/x": {"get": {"$ref": "#/definitions/X"}}, "/apis/other/v1/y": {"$ref": "#/definitions/Y"}},
            "definitions": {
                "X": {"properties": {"m": {"$ref": "#/definitions/Meta"}, "s": {"$ref": "#/definitions/Same"}}},
                "Meta": {"description": "theirs"}, "Same": {"type": "string"}, "Y": {}, "Unused": {},
            },
        });
        let foreign =
            SwaggerPart::of_document(foreign, |path| path.starts_with("/apis/b/")).expect("a v2 document");
        let mut parts = [foreign, own()];
        let joined = join(json!({"swagger": "2.0"}), &mut parts);
        let document: Value = serde_json::from_slice(&joined.json).expect("it is JSON");
        let expected = json!({
            "swagger": "2.0", "parameters": {},
            "paths": {"/apis/a/v1/": {}, "/apis/b/v1/x": {"get": {"$ref": "#/definitions/X"}}},
            "definitions": {
                "Meta": {"description": "ours"}, "Same": {"type": "string", GVK: [1]},
                "Meta_v2": {"description": "theirs"},
                "X": {"properties": {"m": {"$ref": "#/definitions/Meta_v2"}, "s": {"$ref": "#/definitions/Same"}}},
            },
        });
        assert_eq!(document, expected);
        // The second time the result is the same, made of slices of the first.
        assert_eq!(join(json!({"swagger": "2.0"}), &mut parts).json, joined.json);
        // The parts stay in their places.
        assert!(parts[0].foreign && !parts[1].foreign);
    }

    #[test]
    fn garbage_is_no_document() {
        for bad in [json!(null), json!([]), json!({}), json!({"swagger": "3"})] {
            assert!(SwaggerPart::of_document(bad.clone(), |_| true).is_none(), "{bad}");
        }
    }

    #[test]
    fn operations_of_v3() {
        let content = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
        let paths = map(json!({"/x": {
            "parameters": [{"in": "path", "name": "n", "required": true, "schema": {"type": "string"}}],
            "post": {
                "operationId": "o", "x-kubernetes-action": "post",
                "requestBody": {"required": true, "content": content("X")},
                "responses": {"200": {"description": "OK", "content": content("Y")}, "401": {"description": "No"}},
            },
        }}));
        let expected = json!({"/x": {
            "parameters": [{"in": "path", "name": "n", "required": true, "type": "string"}],
            "post": {
                "operationId": "o", "x-kubernetes-action": "post",
                "consumes": ["application/json"], "produces": ["application/json"], "schemes": ["https"],
                "parameters": [{"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/X"}}],
                "responses": {
                    "200": {"description": "OK", "schema": {"$ref": "#/definitions/Y"}}, "401": {"description": "No"}},
            },
        }});
        assert_eq!(Value::Object(paths_from_v3(&paths, &["*/*"])), expected);
    }
}
