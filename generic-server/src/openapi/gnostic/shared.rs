//! Common parts of `openapi.v2` and `openapi.v3`.

use super::Kind::{Double, Flag, Int, One, Text, Texts, Wrapped};
use super::{Kind, Message};

/// The bounds of a value.
pub(super) static BOUNDS: [(&str, Kind); 10] = [
    ("maximum", Double),
    ("exclusiveMaximum", Flag),
    ("minimum", Double),
    ("exclusiveMinimum", Flag),
    ("maxLength", Int),
    ("minLength", Int),
    ("pattern", Text),
    ("maxItems", Int),
    ("minItems", Int),
    ("uniqueItems", Flag),
];
pub(super) static CONTACT: Message =
    Message::known(&[(1, &[("name", Text), ("url", Text), ("email", Text)])], 4);
pub(super) static LICENSE: Message = Message::known(&[(1, &[("name", Text), ("url", Text)])], 3);
pub(super) static DOCS: Message = Message::known(&[(1, &[("description", Text), ("url", Text)])], 3);
pub(super) static TAG: Message = Message::known(
    &[(
        1,
        &[
            ("name", Text),
            ("description", Text),
            ("externalDocs", One(&DOCS)),
        ],
    )],
    4,
);
pub(super) static REQUIREMENT: Message = Message::map(Wrapped(&Texts));
pub(super) static XML: Message = Message::known(
    &[(
        1,
        &[
            ("name", Text),
            ("namespace", Text),
            ("prefix", Text),
            ("attribute", Flag),
            ("wrapped", Flag),
        ],
    )],
    6,
);
