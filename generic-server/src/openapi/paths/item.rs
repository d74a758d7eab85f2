//! What stands at a path: its operations, written out.

use machinery::GroupVersionKind;
use machinery::openapi::Dialect;
use serde_json::{Map, Value, json};

use crate::openapi::parameters::{self, Parameters};

/// Every form that objects are answered in.
pub(in crate::openapi) const PRODUCES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// And those of lists, which may be watched.
const PRODUCES_LISTS: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// A text, and the errors of asking for it.
pub(super) const TEXT: [&str; 4] = [
    "text/plain",
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
/// Bodies in all forms.
pub(in crate::openapi) const ANY: [&str; 1] = ["*/*"];

/// How an operation answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Returns {
    /// 200.
    Object,
    /// 200, in the forms of watches, too.
    List,
    /// 200 or 201.
    Written,
    /// 200, 201 or 202.
    Created,
    /// 200 or 202.
    Accepted,
}

/// One operation before it is written out.
#[derive(Debug)]
pub(super) struct Operation {
    method: &'static str,
    id: String,
    action: &'static str,
    text: String,
    kind: GroupVersionKind,
    query: Parameters,
    /// The type, and whether it has to be there.
    body: Option<(String, bool)>,
    answers: Returns,
    /// The type of the answer; a text where there is none.
    answered: Option<String>,
    media: &'static [&'static str],
}

impl Operation {
    pub(super) fn new(
        method: &'static str,
        id: String,
        action: &'static str,
        text: String,
        kind: &GroupVersionKind,
    ) -> Self {
        Operation {
            method,
            id,
            action,
            text,
            kind: kind.clone(),
            query: &[],
            body: None,
            answers: Returns::Object,
            answered: None,
            media: &PRODUCES,
        }
    }

    pub(super) fn query(self, query: Parameters) -> Self {
        Operation { query, ..self }
    }

    pub(super) fn body(self, model: &str) -> Self {
        let body = Some((model.to_owned(), true));
        Operation { body, ..self }
    }

    pub(super) fn optional_body(self, model: &str) -> Self {
        let body = Some((model.to_owned(), false));
        Operation { body, ..self }
    }

    pub(super) fn returns(self, answers: Returns, model: &str) -> Self {
        Operation {
            answers,
            answered: Some(model.to_owned()),
            media: if answers == Returns::List {
                &PRODUCES_LISTS
            } else {
                &PRODUCES
            },
            ..self
        }
    }

    /// A text is answered, in these forms.
    pub(super) fn text(self, media: &'static [&'static str]) -> Self {
        Operation { media, ..self }
    }

    /// The types that it refers to.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        let body = self.body.as_ref().map(|(model, _)| model);
        body.into_iter().chain(&self.answered).map(String::as_str)
    }

    /// Without its parameters.
    fn written(&self, tag: &str) -> Value {
        let schema = match &self.answered {
            Some(model) => Dialect::V3.reference(model),
            None => json!({"type": "string"}),
        };
        let codes: &[&str] = match self.answers {
            Returns::Object | Returns::List => &["200"],
            Returns::Written => &["200", "201"],
            Returns::Created => &["200", "201", "202"],
            Returns::Accepted => &["200", "202"],
        };
        let mut responses = Map::new();
        for code in codes {
            let text = match *code {
                "201" => "Created",
                "202" => "Accepted",
                _ => "OK",
            };
            let answer = json!({"description": text, "content": content(self.media, &schema)});
            responses.insert((*code).into(), answer);
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        let gvk = &self.kind;
        let mut out = json!({
            "description": self.text,
            "operationId": self.id,
            "responses": responses,
            "tags": [tag],
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {"group": &*gvk.group, "version": &*gvk.version, "kind": &*gvk.kind},
        });
        if let Some((model, required)) = &self.body {
            let consumes: &[&str] = if self.action == "patch" { &PATCHES } else { &ANY };
            out["requestBody"] = json!({"content": content(consumes, &Dialect::V3.reference(model))});
            if *required {
                out["requestBody"]["required"] = true.into();
            }
        }
        out
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    let one = |media: &&str| ((*media).to_string(), json!({"schema": schema}));
    Value::Object(types.iter().map(one).collect())
}

/// The operation that answers a document of the server's own.
pub(in crate::openapi) fn document(
    id: String,
    tag: String,
    text: &str,
    media: &[&str],
    schema: Value,
) -> Value {
    json!({
        "description": text,
        "operationId": id,
        "tags": [tag],
        "responses": {
            "200": {"description": "OK", "content": content(media, &schema)},
            "401": {"description": "Unauthorized"},
        },
    })
}

/// Operations at one path. Parameters that all of them have are said once, beside those that are `shared`.
pub(super) fn item(tag: &str, mut shared: Vec<Value>, operations: Vec<Operation>) -> Value {
    let first = operations.first().map_or(&[][..], |first| first.query);
    let common: Vec<_> = first
        .iter()
        .copied()
        .filter(|one| operations.iter().all(|other| other.query.contains(one)))
        .collect();
    shared.extend(parameters::query(&common));
    let mut out = Map::from_iter([("parameters".to_owned(), parameters::sorted(shared))]);
    for operation in operations {
        let mut written = operation.written(tag);
        let own: Vec<_> = operation
            .query
            .iter()
            .copied()
            .filter(|one| !common.contains(one))
            .collect();
        if !own.is_empty() {
            written["parameters"] = parameters::query(&own).into();
        }
        out.insert(operation.method.into(), written);
    }
    Value::Object(out)
}
