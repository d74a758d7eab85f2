//! CEL declarations of a schema. Mirrors `k8s.io/apiserver/pkg/cel/common/schemas.go`.

use std::collections::HashSet;

use kube_cel::{DeclType, FieldDecl, ListType};
use serde_json::Value;

use crate::props::Props;

/// The declaration of a node's data; `None` when rules cannot see it. `root` says that it is a whole object, of which `kind`,
/// `apiVersion` and the names in `metadata` are always visible.
pub(super) fn declare(s: Props<'_>, root: bool) -> Option<DeclType> {
    Some(shape(s, root)?.nullable(s.flag("nullable")))
}

fn limit(s: Props<'_>, key: &str) -> Option<u64> {
    s.get(key).and_then(Value::as_i64).map(|n| n.max(0) as u64)
}

fn shape(s: Props<'_>, root: bool) -> Option<DeclType> {
    let max_length = limit(s, "maxLength");
    if s.int_or_string() {
        let any = DeclType::int_or_string();
        return Some(max_length.map_or(any.clone(), |max| any.with_max_length(max)));
    }
    Some(match s.ty() {
        "array" => {
            let items = s.item()?;
            let of = declare(items, items.embedded())?;
            DeclType::list(of, limit(s, "maxItems"), list_type(s))
        }
        "object" => return object(s, root),
        "string" => string(s, max_length),
        "boolean" => DeclType::bool(),
        "number" => DeclType::double(),
        "integer" => DeclType::int(),
        _ => return None,
    })
}

fn list_type(s: Props<'_>) -> ListType {
    match s.list_type() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(s.strings("x-kubernetes-list-map-keys").map(Into::into).collect()),
        _ => ListType::Atomic,
    }
}

fn string(s: Props<'_>, max_length: Option<u64>) -> DeclType {
    match s.text("format") {
        "byte" => {
            let bytes = DeclType::bytes();
            return max_length.map_or(bytes.clone(), |max| bytes.with_max_elements(max));
        }
        "duration" => return DeclType::duration(),
        "date" => return DeclType::date(),
        "date-time" => return DeclType::date_time(),
        _ => {}
    }
    let text = DeclType::string();
    let longest = s.strings("enum").map(str::len).max();
    match (max_length, longest) {
        (Some(max), _) => text.with_max_length(max),
        (None, _) if s.list("enum").is_empty() => text,
        (None, longest) => text.with_max_elements(longest.unwrap_or_default() as u64),
    }
}

fn object(s: Props<'_>, root: bool) -> Option<DeclType> {
    if !root && let Some(values) = s.additional_schema() {
        let of = declare(values, values.embedded())?;
        return Some(DeclType::map(of, limit(s, "maxProperties")));
    }
    let required: HashSet<&str> = s.strings("required").collect();
    let mut fields = Vec::new();
    for (name, property) in s.schemas("properties") {
        if root && matches!(name, "kind" | "apiVersion" | "metadata") {
            continue;
        }
        let Some(decl) = declare(property, property.embedded()) else {
            continue;
        };
        let has_default = property.get("default").is_some();
        fields.push(FieldDecl::new(name, decl).required(required.contains(name), has_default));
    }
    if root {
        let names = ["name", "generateName"].map(|n| FieldDecl::new(n, DeclType::string()));
        let metadata = DeclType::object("object", names);
        for (name, decl) in [
            ("kind", DeclType::string()),
            ("apiVersion", DeclType::string()),
            ("metadata", metadata),
        ] {
            fields.push(FieldDecl::new(name, decl).required(required.contains(name), false));
        }
    }
    Some(DeclType::object("object", fields))
}
