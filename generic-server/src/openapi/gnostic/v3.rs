//! `openapi.v3`: field numbers of gnostic's `OpenAPIv3.proto`.

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
        ("openapi", 1, Text),
        ("info", 2, One(&INFO)),
        ("servers", 3, Many(&SERVER)),
        ("paths", 4, One(&PATHS)),
        ("components", 5, One(&COMPONENTS)),
        ("security", 6, Many(&REQUIREMENT)),
        ("tags", 7, Many(&TAG)),
        ("externalDocs", 8, One(&DOCS)),
    ],
    9,
);
static INFO: Message = known(
    &[
        ("title", 1, Text),
        ("description", 2, Text),
        ("termsOfService", 3, Text),
        ("contact", 4, One(&CONTACT)),
        ("license", 5, One(&LICENSE)),
        ("version", 6, Text),
        ("summary", 8, Text),
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
static SERVER: Message = known(
    &[
        ("url", 1, Text),
        ("description", 2, Text),
        ("variables", 3, One(&VARIABLES)),
    ],
    4,
);
static VARIABLES: Message = map(One(&VARIABLE));
static VARIABLE: Message = known(
    &[("enum", 1, Texts), ("default", 2, Text), ("description", 3, Text)],
    4,
);
static PATHS: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, One(&PATH_ITEM))),
};
static PATH_ITEM: Message = known(
    &[
        ("$ref", 1, Text),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("get", 4, One(&OPERATION)),
        ("put", 5, One(&OPERATION)),
        ("post", 6, One(&OPERATION)),
        ("delete", 7, One(&OPERATION)),
        ("options", 8, One(&OPERATION)),
        ("head", 9, One(&OPERATION)),
        ("patch", 10, One(&OPERATION)),
        ("trace", 11, One(&OPERATION)),
        ("servers", 12, Many(&SERVER)),
        ("parameters", 13, Choices(parameter)),
    ],
    14,
);
static OPERATION: Message = known(
    &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("externalDocs", 4, One(&DOCS)),
        ("operationId", 5, Text),
        ("parameters", 6, Choices(parameter)),
        ("requestBody", 7, Choice(request_body)),
        ("responses", 8, One(&RESPONSES)),
        ("deprecated", 10, Flag),
        ("security", 11, Many(&REQUIREMENT)),
        ("servers", 12, Many(&SERVER)),
    ],
    13,
);
static RESPONSES: Message = Message {
    fields: &[("default", 1, Choice(response))],
    extensions: 3,
    others: Some((2, Choice(response))),
};
static RESPONSE: Message = known(
    &[
        ("description", 1, Text),
        ("headers", 2, One(&HEADERS)),
        ("content", 3, One(&MEDIA_TYPES)),
    ],
    5,
);
static REQUEST_BODY: Message = known(
    &[
        ("description", 1, Text),
        ("content", 2, One(&MEDIA_TYPES)),
        ("required", 3, Flag),
    ],
    4,
);
static HEADERS: Message = map(Choice(header));
static HEADER: Message = known(
    &[
        ("description", 1, Text),
        ("required", 2, Flag),
        ("deprecated", 3, Flag),
        ("allowEmptyValue", 4, Flag),
        ("style", 5, Text),
        ("explode", 6, Flag),
        ("allowReserved", 7, Flag),
        ("schema", 8, Choice(schema)),
        ("example", 9, Any),
        ("content", 11, One(&MEDIA_TYPES)),
    ],
    12,
);
static MEDIA_TYPES: Message = map(One(&MEDIA_TYPE));
static MEDIA_TYPE: Message = known(&[("schema", 1, Choice(schema)), ("example", 2, Any)], 5);
static PARAMETER: Message = known(
    &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Flag),
        ("deprecated", 5, Flag),
        ("allowEmptyValue", 6, Flag),
        ("style", 7, Text),
        ("explode", 8, Flag),
        ("allowReserved", 9, Flag),
        ("schema", 10, Choice(schema)),
        ("example", 11, Any),
        ("content", 13, One(&MEDIA_TYPES)),
    ],
    14,
);
static REFERENCE: Message = known(
    &[("$ref", 1, Text), ("summary", 2, Text), ("description", 3, Text)],
    0,
);
static COMPONENTS: Message = known(
    &[
        ("schemas", 1, One(&SCHEMAS)),
        ("responses", 2, One(&COMPONENT_RESPONSES)),
        ("parameters", 3, One(&COMPONENT_PARAMETERS)),
        ("requestBodies", 5, One(&REQUEST_BODIES)),
        ("headers", 6, One(&HEADERS)),
        ("securitySchemes", 7, One(&SECURITY_SCHEMES)),
    ],
    10,
);
static SCHEMAS: Message = map(Choice(schema));
static COMPONENT_RESPONSES: Message = map(Choice(response));
static COMPONENT_PARAMETERS: Message = map(Choice(parameter));
static REQUEST_BODIES: Message = map(Choice(request_body));
static SECURITY_SCHEMES: Message = map(Choice(security_scheme));
static REQUIREMENT: Message = map(Wrapped(&Texts));
static SECURITY_SCHEME: Message = known(
    &[
        ("type", 1, Text),
        ("description", 2, Text),
        ("name", 3, Text),
        ("in", 4, Text),
        ("scheme", 5, Text),
        ("bearerFormat", 6, Text),
        ("openIdConnectUrl", 8, Text),
    ],
    9,
);
static SCHEMA: Message = known(
    &[
        ("nullable", 1, Flag),
        ("discriminator", 2, One(&DISCRIMINATOR)),
        ("readOnly", 3, Flag),
        ("writeOnly", 4, Flag),
        ("xml", 5, One(&XML)),
        ("externalDocs", 6, One(&DOCS)),
        ("example", 7, Any),
        ("deprecated", 8, Flag),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
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
        ("maxProperties", 21, Int),
        ("minProperties", 22, Int),
        ("required", 23, Texts),
        ("enum", 24, Anys),
        ("type", 25, Text),
        ("allOf", 26, Choices(schema)),
        ("oneOf", 27, Choices(schema)),
        ("anyOf", 28, Choices(schema)),
        ("not", 29, One(&SCHEMA)),
        ("items", 30, Wrapped(&Choices(schema))),
        ("properties", 31, One(&SCHEMAS)),
        ("additionalProperties", 32, Choice(additional)),
        ("default", 33, Choice(default)),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    36,
);
static DISCRIMINATOR: Message = known(&[("propertyName", 1, Text), ("mapping", 2, One(&STRINGS))], 3);
static STRINGS: Message = map(Text);
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

fn or_reference(value: &Value, own: Kind) -> Option<(u32, Kind)> {
    Some(if value.get("$ref").is_some() {
        (2, One(&REFERENCE))
    } else {
        (1, own)
    })
}

fn schema(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&SCHEMA))
}

fn parameter(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&PARAMETER))
}

fn request_body(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&REQUEST_BODY))
}

fn response(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&RESPONSE))
}

fn header(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&HEADER))
}

fn security_scheme(value: &Value) -> Option<(u32, Kind)> {
    or_reference(value, One(&SECURITY_SCHEME))
}

fn additional(value: &Value) -> Option<(u32, Kind)> {
    Some(if value.is_boolean() {
        (2, Flag)
    } else {
        (1, Choice(schema))
    })
}

/// Only plain values have a place.
fn default(value: &Value) -> Option<(u32, Kind)> {
    match value {
        Value::Number(_) => Some((1, Double)),
        Value::Bool(_) => Some((2, Flag)),
        Value::String(_) => Some((3, Text)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
