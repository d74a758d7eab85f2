//! `openapi.v3`: field numbers of gnostic's `OpenAPIv3.proto`.

use serde_json::Value;

use super::Kind::{Any, Anys, Choice, Choices, Double, Flag, Int, Many, One, Text, Texts, Wrapped};
use super::shared::{BOUNDS, CONTACT, DOCS, LICENSE, REQUIREMENT, TAG, XML};
use super::{Kind, Message};

pub(super) static DOCUMENT: Message = Message::known(
    &[(
        1,
        &[
            ("openapi", Text),
            ("info", One(&INFO)),
            ("servers", Many(&SERVER)),
            ("paths", One(&PATHS)),
            ("components", One(&COMPONENTS)),
            ("security", Many(&REQUIREMENT)),
            ("tags", Many(&TAG)),
            ("externalDocs", One(&DOCS)),
        ],
    )],
    9,
);
static INFO: Message = Message::known(
    &[
        (
            1,
            &[
                ("title", Text),
                ("description", Text),
                ("termsOfService", Text),
                ("contact", One(&CONTACT)),
                ("license", One(&LICENSE)),
                ("version", Text),
            ],
        ),
        (8, &[("summary", Text)]),
    ],
    7,
);
static SERVER: Message = Message::known(
    &[(
        1,
        &[
            ("url", Text),
            ("description", Text),
            ("variables", One(&VARIABLES)),
        ],
    )],
    4,
);
static VARIABLES: Message = Message::map(One(&VARIABLE));
static VARIABLE: Message = Message::known(
    &[(1, &[("enum", Texts), ("default", Text), ("description", Text)])],
    4,
);
static PATHS: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, One(&PATH_ITEM))),
};
static PATH_ITEM: Message = Message::known(
    &[(
        1,
        &[
            ("$ref", Text),
            ("summary", Text),
            ("description", Text),
            ("get", One(&OPERATION)),
            ("put", One(&OPERATION)),
            ("post", One(&OPERATION)),
            ("delete", One(&OPERATION)),
            ("options", One(&OPERATION)),
            ("head", One(&OPERATION)),
            ("patch", One(&OPERATION)),
            ("trace", One(&OPERATION)),
            ("servers", Many(&SERVER)),
            ("parameters", Choices(parameter)),
        ],
    )],
    14,
);
static OPERATION: Message = Message::known(
    &[
        (
            1,
            &[
                ("tags", Texts),
                ("summary", Text),
                ("description", Text),
                ("externalDocs", One(&DOCS)),
                ("operationId", Text),
                ("parameters", Choices(parameter)),
                ("requestBody", Choice(request_body)),
                ("responses", One(&RESPONSES)),
            ],
        ),
        (
            10,
            &[
                ("deprecated", Flag),
                ("security", Many(&REQUIREMENT)),
                ("servers", Many(&SERVER)),
            ],
        ),
    ],
    13,
);
static RESPONSES: Message = Message {
    fields: &[(1, &[("default", Choice(response))])],
    extensions: 3,
    others: Some((2, Choice(response))),
};
static RESPONSE: Message = Message::known(
    &[(
        1,
        &[
            ("description", Text),
            ("headers", One(&HEADERS)),
            ("content", One(&MEDIA_TYPES)),
        ],
    )],
    5,
);
static REQUEST_BODY: Message = Message::known(
    &[(
        1,
        &[
            ("description", Text),
            ("content", One(&MEDIA_TYPES)),
            ("required", Flag),
        ],
    )],
    4,
);
static HEADERS: Message = Message::map(Choice(header));
static HEADER: Message = Message::known(
    &[
        (
            1,
            &[
                ("description", Text),
                ("required", Flag),
                ("deprecated", Flag),
                ("allowEmptyValue", Flag),
                ("style", Text),
                ("explode", Flag),
                ("allowReserved", Flag),
                ("schema", Choice(schema)),
                ("example", Any),
            ],
        ),
        (11, &[("content", One(&MEDIA_TYPES))]),
    ],
    12,
);
static MEDIA_TYPES: Message = Message::map(One(&MEDIA_TYPE));
static MEDIA_TYPE: Message = Message::known(&[(1, &[("schema", Choice(schema)), ("example", Any)])], 5);
static PARAMETER: Message = Message::known(
    &[
        (
            1,
            &[
                ("name", Text),
                ("in", Text),
                ("description", Text),
                ("required", Flag),
                ("deprecated", Flag),
                ("allowEmptyValue", Flag),
                ("style", Text),
                ("explode", Flag),
                ("allowReserved", Flag),
                ("schema", Choice(schema)),
                ("example", Any),
            ],
        ),
        (13, &[("content", One(&MEDIA_TYPES))]),
    ],
    14,
);
static REFERENCE: Message = Message::known(
    &[(1, &[("$ref", Text), ("summary", Text), ("description", Text)])],
    0,
);
static COMPONENTS: Message = Message::known(
    &[
        (
            1,
            &[
                ("schemas", One(&SCHEMAS)),
                ("responses", One(&COMPONENT_RESPONSES)),
                ("parameters", One(&COMPONENT_PARAMETERS)),
            ],
        ),
        (
            5,
            &[
                ("requestBodies", One(&REQUEST_BODIES)),
                ("headers", One(&HEADERS)),
                ("securitySchemes", One(&SECURITY_SCHEMES)),
            ],
        ),
    ],
    10,
);
static SCHEMAS: Message = Message::map(Choice(schema));
static COMPONENT_RESPONSES: Message = Message::map(Choice(response));
static COMPONENT_PARAMETERS: Message = Message::map(Choice(parameter));
static REQUEST_BODIES: Message = Message::map(Choice(request_body));
static SECURITY_SCHEMES: Message = Message::map(Choice(security_scheme));
static SECURITY_SCHEME: Message = Message::known(
    &[
        (
            1,
            &[
                ("type", Text),
                ("description", Text),
                ("name", Text),
                ("in", Text),
                ("scheme", Text),
                ("bearerFormat", Text),
            ],
        ),
        (8, &[("openIdConnectUrl", Text)]),
    ],
    9,
);
static SCHEMA: Message = Message::known(
    &[
        (
            1,
            &[
                ("nullable", Flag),
                ("discriminator", One(&DISCRIMINATOR)),
                ("readOnly", Flag),
                ("writeOnly", Flag),
                ("xml", One(&XML)),
                ("externalDocs", One(&DOCS)),
                ("example", Any),
                ("deprecated", Flag),
                ("title", Text),
                ("multipleOf", Double),
            ],
        ),
        (11, &BOUNDS),
        (
            21,
            &[
                ("maxProperties", Int),
                ("minProperties", Int),
                ("required", Texts),
                ("enum", Anys),
                ("type", Text),
                ("allOf", Choices(schema)),
                ("oneOf", Choices(schema)),
                ("anyOf", Choices(schema)),
                ("not", One(&SCHEMA)),
                ("items", Wrapped(&Choices(schema))),
                ("properties", One(&SCHEMAS)),
                ("additionalProperties", Choice(additional)),
                ("default", Choice(default)),
                ("description", Text),
                ("format", Text),
            ],
        ),
    ],
    36,
);
static DISCRIMINATOR: Message =
    Message::known(&[(1, &[("propertyName", Text), ("mapping", One(&STRINGS))])], 3);
static STRINGS: Message = Message::map(Text);

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
