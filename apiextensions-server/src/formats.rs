//! Which `format`s mean something, by type. Mirrors `pkg/apiserver/validation/formats.go`.

/// Formats of strings, without their dashes as upstream compares them.
const STRINGS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether values of the type are checked against the format.
pub(crate) fn is_known(ty: &str, format: &str) -> bool {
    match ty {
        "" | "string" => STRINGS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}
