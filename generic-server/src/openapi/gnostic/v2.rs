//! `openapi.v2`: field numbers of gnostic's `OpenAPIv2.proto`.

use serde_json::Value;

use super::Kind::{Any, Anys, Choice, Choices, Double, Flag, Int, Many, One, Text, Texts, Wrapped};
use super::shared::{BOUNDS, CONTACT, DOCS, LICENSE, REQUIREMENT, TAG, XML};
use super::{Kind, Message};

pub(super) static DOCUMENT: Message = Message::known(
    &[(
        1,
        &[
            ("swagger", Text),
            ("info", One(&INFO)),
            ("host", Text),
            ("basePath", Text),
            ("schemes", Texts),
            ("consumes", Texts),
            ("produces", Texts),
            ("paths", One(&PATHS)),
            ("definitions", One(&DEFINITIONS)),
            ("parameters", One(&PARAMETERS)),
            ("responses", One(&RESPONSE_DEFINITIONS)),
            ("security", Many(&REQUIREMENT)),
            ("securityDefinitions", One(&SECURITY)),
            ("tags", Many(&TAG)),
            ("externalDocs", One(&DOCS)),
        ],
    )],
    16,
);
static INFO: Message = Message::known(
    &[(
        1,
        &[
            ("title", Text),
            ("version", Text),
            ("description", Text),
            ("termsOfService", Text),
            ("contact", One(&CONTACT)),
            ("license", One(&LICENSE)),
        ],
    )],
    7,
);
static PATHS: Message = Message {
    fields: &[],
    extensions: 1,
    others: Some((2, One(&PATH_ITEM))),
};
pub(super) static PATH_ITEM: Message = Message::known(
    &[(
        1,
        &[
            ("$ref", Text),
            ("get", One(&OPERATION)),
            ("put", One(&OPERATION)),
            ("post", One(&OPERATION)),
            ("delete", One(&OPERATION)),
            ("options", One(&OPERATION)),
            ("head", One(&OPERATION)),
            ("patch", One(&OPERATION)),
            ("parameters", Choices(parameters_item)),
        ],
    )],
    10,
);
static OPERATION: Message = Message::known(
    &[(
        1,
        &[
            ("tags", Texts),
            ("summary", Text),
            ("description", Text),
            ("externalDocs", One(&DOCS)),
            ("operationId", Text),
            ("produces", Texts),
            ("consumes", Texts),
            ("parameters", Choices(parameters_item)),
            ("responses", One(&RESPONSES)),
            ("schemes", Texts),
            ("deprecated", Flag),
            ("security", Many(&REQUIREMENT)),
        ],
    )],
    13,
);
static RESPONSES: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, Choice(response_value))),
};
static RESPONSE: Message = Message::known(
    &[(
        1,
        &[
            ("description", Text),
            ("schema", Choice(schema_item)),
            ("headers", One(&HEADERS)),
            ("examples", One(&EXAMPLES)),
        ],
    )],
    5,
);
static HEADERS: Message = Message::map(One(&HEADER));
static EXAMPLES: Message = Message::map(Any);
static HEADER: Message = Message::known(
    &[
        (1, &TYPED),
        (6, &BOUNDS),
        (
            16,
            &[("enum", Anys), ("multipleOf", Double), ("description", Text)],
        ),
    ],
    19,
);
/// The type of a simple value.
static TYPED: [(&str, Kind); 5] = [
    ("type", Text),
    ("format", Text),
    ("items", One(&PRIMITIVES)),
    ("collectionFormat", Text),
    ("default", Any),
];
static PRIMITIVES: Message = Message::known(
    &[
        (1, &TYPED),
        (6, &BOUNDS),
        (16, &[("enum", Anys), ("multipleOf", Double)]),
    ],
    18,
);
static BODY: Message = Message::known(
    &[(
        1,
        &[
            ("description", Text),
            ("name", Text),
            ("in", Text),
            ("required", Flag),
            ("schema", One(&SCHEMA)),
        ],
    )],
    6,
);
/// Header and path parameters.
static PLAIN_PARAMETER: Message = Message::known(
    &[
        (
            1,
            &[
                ("required", Flag),
                ("in", Text),
                ("description", Text),
                ("name", Text),
            ],
        ),
        (5, &TYPED),
        (10, &BOUNDS),
        (20, &[("enum", Anys), ("multipleOf", Double)]),
    ],
    22,
);
/// Query and form parameters.
static OPTIONAL_PARAMETER: Message = Message::known(
    &[
        (
            1,
            &[
                ("required", Flag),
                ("in", Text),
                ("description", Text),
                ("name", Text),
                ("allowEmptyValue", Flag),
            ],
        ),
        (6, &TYPED),
        (11, &BOUNDS),
        (21, &[("enum", Anys), ("multipleOf", Double)]),
    ],
    23,
);
static REFERENCE: Message = Message::known(&[(1, &[("$ref", Text), ("description", Text)])], 0);
static DEFINITIONS: Message = Message::map(One(&SCHEMA));
static PARAMETERS: Message = Message::map(Choice(parameter));
static RESPONSE_DEFINITIONS: Message = Message::map(One(&RESPONSE));
static SECURITY: Message = Message::map(Choice(security));
pub(super) static SCHEMA: Message = Message::known(
    &[
        (
            1,
            &[
                ("$ref", Text),
                ("format", Text),
                ("title", Text),
                ("description", Text),
                ("default", Any),
                ("multipleOf", Double),
            ],
        ),
        (7, &BOUNDS),
        (
            17,
            &[
                ("maxProperties", Int),
                ("minProperties", Int),
                ("required", Texts),
                ("enum", Anys),
                ("additionalProperties", Choice(additional)),
                ("type", Wrapped(&Texts)),
                ("items", Wrapped(&Many(&SCHEMA))),
                ("allOf", Many(&SCHEMA)),
                ("properties", One(&PROPERTIES)),
                ("discriminator", Text),
                ("readOnly", Flag),
                ("xml", One(&XML)),
                ("externalDocs", One(&DOCS)),
                ("example", Any),
            ],
        ),
    ],
    31,
);
static FILE: Message = Message::known(
    &[(
        1,
        &[
            ("format", Text),
            ("title", Text),
            ("description", Text),
            ("default", Any),
            ("required", Texts),
            ("type", Text),
            ("readOnly", Flag),
            ("externalDocs", One(&DOCS)),
            ("example", Any),
        ],
    )],
    10,
);
static PROPERTIES: Message = Message::map(One(&SCHEMA));
static BASIC: Message = Message::known(&[(1, &[("type", Text), ("description", Text)])], 3);
static API_KEY: Message = Message::known(
    &[(
        1,
        &[
            ("type", Text),
            ("name", Text),
            ("in", Text),
            ("description", Text),
        ],
    )],
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
