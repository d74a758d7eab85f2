//! `openapi.v2`: field numbers of gnostic's `OpenAPIv2.proto`.

use serde_json::Value;

use super::Kind::{Any, Anys, Choice, Choices, Double, Flag, Int, Many, One, Text, Texts, Wrapped};
use super::{Kind, Message};

/// A message of known keys and extensions.
const fn known(fields: &'static [(&'static str, u32, Kind)], extensions: u32) -> Message {
    Message {
        fields,
        extensions,
        others: None,
    }
}

/// A message of named values.
const fn map(kind: Kind) -> Message {
    Message {
        fields: &[],
        extensions: 0,
        others: Some((1, kind)),
    }
}

pub(super) static DOCUMENT: Message = known(
    &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("host", 3, Text),
        ("basePath", 4, Text),
        ("schemes", 5, Texts),
        ("consumes", 6, Texts),
        ("produces", 7, Texts),
        ("paths", 8, One(&PATHS)),
        ("definitions", 9, One(&DEFINITIONS)),
        ("parameters", 10, One(&PARAMETERS)),
        ("responses", 11, One(&RESPONSE_DEFINITIONS)),
        ("security", 12, Many(&REQUIREMENT)),
        ("securityDefinitions", 13, One(&SECURITY)),
        ("tags", 14, Many(&TAG)),
        ("externalDocs", 15, One(&DOCS)),
    ],
    16,
);
static INFO: Message = known(
    &[
        ("title", 1, Text),
        ("version", 2, Text),
        ("description", 3, Text),
        ("termsOfService", 4, Text),
        ("contact", 5, One(&CONTACT)),
        ("license", 6, One(&LICENSE)),
    ],
    7,
);
static CONTACT: Message = known(&[("name", 1, Text), ("url", 2, Text), ("email", 3, Text)], 4);
static LICENSE: Message = known(&[("name", 1, Text), ("url", 2, Text)], 3);
static DOCS: Message = known(&[("description", 1, Text), ("url", 2, Text)], 3);
static TAG: Message = known(
    &[
        ("name", 1, Text),
        ("description", 2, Text),
        ("externalDocs", 3, One(&DOCS)),
    ],
    4,
);
static PATHS: Message = Message {
    fields: &[],
    extensions: 1,
    others: Some((2, One(&PATH_ITEM))),
};
pub(super) static PATH_ITEM: Message = known(
    &[
        ("$ref", 1, Text),
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Choices(parameters_item)),
    ],
    10,
);
static OPERATION: Message = known(
    &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("externalDocs", 4, One(&DOCS)),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Choices(parameters_item)),
        ("responses", 9, One(&RESPONSES)),
        ("schemes", 10, Texts),
        ("deprecated", 11, Flag),
        ("security", 12, Many(&REQUIREMENT)),
    ],
    13,
);
static RESPONSES: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, Choice(response_value))),
};
static RESPONSE: Message = known(
    &[
        ("description", 1, Text),
        ("schema", 2, Choice(schema_item)),
        ("headers", 3, One(&HEADERS)),
        ("examples", 4, One(&EXAMPLES)),
    ],
    5,
);
static HEADERS: Message = map(One(&HEADER));
static EXAMPLES: Message = map(Any);
static HEADER: Message = known(
    &[
        ("type", 1, Text),
        ("format", 2, Text),
        ("items", 3, One(&PRIMITIVES)),
        ("collectionFormat", 4, Text),
        ("default", 5, Any),
        ("maximum", 6, Double),
        ("exclusiveMaximum", 7, Flag),
        ("minimum", 8, Double),
        ("exclusiveMinimum", 9, Flag),
        ("maxLength", 10, Int),
        ("minLength", 11, Int),
        ("pattern", 12, Text),
        ("maxItems", 13, Int),
        ("minItems", 14, Int),
        ("uniqueItems", 15, Flag),
        ("enum", 16, Anys),
        ("multipleOf", 17, Double),
        ("description", 18, Text),
    ],
    19,
);
static PRIMITIVES: Message = known(
    &[
        ("type", 1, Text),
        ("format", 2, Text),
        ("items", 3, One(&PRIMITIVES)),
        ("collectionFormat", 4, Text),
        ("default", 5, Any),
        ("maximum", 6, Double),
        ("exclusiveMaximum", 7, Flag),
        ("minimum", 8, Double),
        ("exclusiveMinimum", 9, Flag),
        ("maxLength", 10, Int),
        ("minLength", 11, Int),
        ("pattern", 12, Text),
        ("maxItems", 13, Int),
        ("minItems", 14, Int),
        ("uniqueItems", 15, Flag),
        ("enum", 16, Anys),
        ("multipleOf", 17, Double),
    ],
    18,
);
static BODY: Message = known(
    &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, One(&SCHEMA)),
    ],
    6,
);
/// Header and path parameters.
static PLAIN_PARAMETER: Message = known(
    &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("items", 7, One(&PRIMITIVES)),
        ("collectionFormat", 8, Text),
        ("default", 9, Any),
        ("maximum", 10, Double),
        ("exclusiveMaximum", 11, Flag),
        ("minimum", 12, Double),
        ("exclusiveMinimum", 13, Flag),
        ("maxLength", 14, Int),
        ("minLength", 15, Int),
        ("pattern", 16, Text),
        ("maxItems", 17, Int),
        ("minItems", 18, Int),
        ("uniqueItems", 19, Flag),
        ("enum", 20, Anys),
        ("multipleOf", 21, Double),
    ],
    22,
);
/// Query and form parameters.
static OPTIONAL_PARAMETER: Message = known(
    &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("allowEmptyValue", 5, Flag),
        ("type", 6, Text),
        ("format", 7, Text),
        ("items", 8, One(&PRIMITIVES)),
        ("collectionFormat", 9, Text),
        ("default", 10, Any),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Flag),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Flag),
        ("maxLength", 15, Int),
        ("minLength", 16, Int),
        ("pattern", 17, Text),
        ("maxItems", 18, Int),
        ("minItems", 19, Int),
        ("uniqueItems", 20, Flag),
        ("enum", 21, Anys),
        ("multipleOf", 22, Double),
    ],
    23,
);
static REFERENCE: Message = known(&[("$ref", 1, Text), ("description", 2, Text)], 0);
static DEFINITIONS: Message = map(One(&SCHEMA));
static PARAMETERS: Message = map(Choice(parameter));
static RESPONSE_DEFINITIONS: Message = map(One(&RESPONSE));
static REQUIREMENT: Message = map(Wrapped(&Texts));
static SECURITY: Message = map(Choice(security));
pub(super) static SCHEMA: Message = known(
    &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, Choice(additional)),
        ("type", 22, Wrapped(&Texts)),
        ("items", 23, Wrapped(&Many(&SCHEMA))),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, One(&PROPERTIES)),
        ("discriminator", 26, Text),
        ("readOnly", 27, Flag),
        ("xml", 28, One(&XML)),
        ("externalDocs", 29, One(&DOCS)),
        ("example", 30, Any),
    ],
    31,
);
static FILE: Message = known(
    &[
        ("format", 1, Text),
        ("title", 2, Text),
        ("description", 3, Text),
        ("default", 4, Any),
        ("required", 5, Texts),
        ("type", 6, Text),
        ("readOnly", 7, Flag),
        ("externalDocs", 8, One(&DOCS)),
        ("example", 9, Any),
    ],
    10,
);
static PROPERTIES: Message = map(One(&SCHEMA));
static XML: Message = known(
    &[
        ("name", 1, Text),
        ("namespace", 2, Text),
        ("prefix", 3, Text),
        ("attribute", 4, Flag),
        ("wrapped", 5, Flag),
    ],
    6,
);
static BASIC: Message = known(&[("type", 1, Text), ("description", 2, Text)], 3);
static API_KEY: Message = known(
    &[
        ("type", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("description", 4, Text),
    ],
    5,
);

fn is(value: &Value, key: &str, wanted: &str) -> bool {
    value.get(key).and_then(Value::as_str) == Some(wanted)
}

fn parameters_item(value: &Value) -> Option<(u32, Kind)> {
    Some(if value.get("$ref").is_some() {
        (2, One(&REFERENCE))
    } else {
        (1, Choice(parameter))
    })
}

pub(super) fn parameter(value: &Value) -> Option<(u32, Kind)> {
    Some(if is(value, "in", "body") {
        (1, One(&BODY))
    } else {
        (2, Choice(non_body_parameter))
    })
}

fn non_body_parameter(value: &Value) -> Option<(u32, Kind)> {
    match value.get("in")?.as_str()? {
        "header" => Some((1, One(&PLAIN_PARAMETER))),
        "formData" => Some((2, One(&OPTIONAL_PARAMETER))),
        "query" => Some((3, One(&OPTIONAL_PARAMETER))),
        "path" => Some((4, One(&PLAIN_PARAMETER))),
        _ => None,
    }
}

fn response_value(value: &Value) -> Option<(u32, Kind)> {
    Some(if value.get("$ref").is_some() {
        (2, One(&REFERENCE))
    } else {
        (1, One(&RESPONSE))
    })
}

fn schema_item(value: &Value) -> Option<(u32, Kind)> {
    Some(if is(value, "type", "file") {
        (2, One(&FILE))
    } else {
        (1, One(&SCHEMA))
    })
}

fn additional(value: &Value) -> Option<(u32, Kind)> {
    Some(if value.is_boolean() {
        (2, Flag)
    } else {
        (1, One(&SCHEMA))
    })
}

/// OAuth2 is left out: no Kubernetes server is described by it.
fn security(value: &Value) -> Option<(u32, Kind)> {
    match value.get("type")?.as_str()? {
        "basic" => Some((1, One(&BASIC))),
        "apiKey" => Some((2, One(&API_KEY))),
        _ => None,
    }
}
