//! The schema as server-side apply uses it: for each place whether it is a map, a list or a scalar, and how it merges.
//!
//! Where the schema says nothing, types are deduced from values: objects merge, everything else is one value.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use super::path::PathElement;
use crate::schema::{FieldDef, Format, KindSchema, ListType, SchemaRef, Type, builtin};

/// The type of a place in an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ty<'a> {
    /// A whole object (or one embedded in another): undeclared fields of its `metadata` are known all the same.
    Root(SchemaRef<'a>),
    /// Described by a schema; the flag says that unknown fields are kept here and below.
    Node(SchemaRef<'a>, bool),
    /// Not described: objects merge, lists are one value.
    Deduced,
    /// Not described, and one value of any type.
    Untyped,
}

/// The scalar types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

/// An object's type.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapTy<'a> {
    pub(super) atomic: bool,
    /// A whole object, with `apiVersion`, `kind` and `metadata`.
    whole: bool,
    /// Where declared fields are looked up, and whether unknown ones are kept below.
    schema: Option<(SchemaRef<'a>, bool)>,
    /// The type of undeclared fields; `None` refuses it.
    element: Element<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Element<'a> {
    Refused,
    Deduced,
    Untyped,
    Node(SchemaRef<'a>, bool),
}

/// A list's type. `keys` is `None` when the list is one value, empty for sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListTy<'a> {
    pub(super) keys: Option<&'a [std::sync::Arc<str>]>,
    pub(super) items: Ty<'a>,
}

/// The type of a place, given the value there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    Map(MapTy<'a>),
    List(ListTy<'a>),
    Scalar(Scalar),
}

impl Shape<'_> {
    pub(super) fn same_kind(&self, other: &Shape<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// `metadata` of objects whose schema does not spell it out.
fn object_meta() -> Ty<'static> {
    static SCHEMA: LazyLock<Option<KindSchema>> = LazyLock::new(|| builtin().by_type_name(OBJECT_META));
    match &*SCHEMA {
        Some(schema) => Ty::Node(schema.root(), false),
        None => Ty::Deduced,
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const RAW_JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";

impl<'a> Ty<'a> {
    /// The type of a whole object.
    pub(super) fn root(schema: SchemaRef<'a>) -> Self {
        Ty::Root(schema)
    }

    fn of(schema: SchemaRef<'a>, preserve: bool) -> Self {
        let node = schema.node();
        if node.format == Some(Format::Raw) {
            // Upstream publishes `JSON` without a type, which is deduced, and RawExtension as one value.
            return if node.type_name.as_deref() == Some(RAW_JSON) {
                Ty::Deduced
            } else {
                Ty::Untyped
            };
        }
        if matches!(
            node.format,
            Some(Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings)
        ) {
            return Ty::Deduced;
        }
        // Named types stand for themselves: `preserve` of surrounding nodes does not apply to them.
        let preserve = node.preserve_unknown || (preserve && node.type_name.is_none());
        Ty::Node(schema, preserve)
    }

    /// The type of the place when it holds `value`. A value that fits none of its types gets the first.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape<'a> {
        let (schema, preserve) = match self {
            Ty::Root(schema) => {
                let map = map_ty(schema, schema.node().preserve_unknown);
                return Shape::Map(MapTy { whole: true, ..map });
            }
            Ty::Node(schema, preserve) => (schema, preserve),
            Ty::Deduced | Ty::Untyped => {
                let atomic = matches!(self, Ty::Untyped);
                return match value {
                    Some(Value::Array(_)) => Shape::List(ListTy {
                        keys: None,
                        items: Ty::Untyped,
                    }),
                    Some(Value::Number(_) | Value::String(_) | Value::Bool(_)) => Shape::Scalar(Scalar::Any),
                    _ => Shape::Map(MapTy {
                        atomic,
                        whole: false,
                        schema: None,
                        element: if atomic {
                            Element::Untyped
                        } else {
                            Element::Deduced
                        },
                    }),
                };
            }
        };
        match schema.node().ty {
            Type::Object => Shape::Map(map_ty(schema, preserve)),
            Type::Array => Shape::List(list_ty(schema, preserve)),
            Type::String => Shape::Scalar(match &schema.node().format {
                None | Some(Format::Byte) => Scalar::String,
                Some(Format::Other(name)) if &**name == "byte" => Scalar::String,
                Some(_) => Scalar::Any,
            }),
            Type::Integer | Type::Number => Shape::Scalar(Scalar::Numeric),
            Type::Boolean => Shape::Scalar(Scalar::Boolean),
            // The built-in type is published as a scalar, in a schema of a custom resource it has no type.
            Type::IntOrString if schema.node().type_name.is_some() => Shape::Scalar(Scalar::Any),
            Type::Any | Type::IntOrString => match value {
                Some(Value::Array(_)) => Shape::List(list_ty(schema, preserve)),
                Some(Value::Number(_) | Value::String(_) | Value::Bool(_)) => Shape::Scalar(Scalar::Any),
                _ => Shape::Map(map_ty(schema, preserve)),
            },
        }
    }
}

fn map_ty<'a>(schema: SchemaRef<'a>, preserve: bool) -> MapTy<'a> {
    let node = schema.node();
    let element = match schema.additional() {
        Some(values) => Element::Node(values, preserve),
        None if preserve || node.fields.is_empty() => Element::Deduced,
        None => Element::Refused,
    };
    MapTy {
        atomic: node.atomic,
        whole: node.embedded,
        schema: Some((schema, preserve)),
        element,
    }
}

fn list_ty<'a>(schema: SchemaRef<'a>, preserve: bool) -> ListTy<'a> {
    let keys = match &schema.node().list_type {
        ListType::Atomic => None,
        ListType::Set => Some(&[][..]),
        ListType::Map(keys) => Some(&keys[..]),
    };
    let items = schema
        .items()
        .map_or(Ty::Untyped, |items| Ty::of(items, preserve));
    ListTy { keys, items }
}

impl<'a> MapTy<'a> {
    /// A declared field.
    pub(super) fn field(&self, name: &str) -> Option<&'a FieldDef> {
        self.schema?.0.field(name).map(|(field, _)| field)
    }

    /// All declared fields.
    pub(super) fn fields(&self) -> &'a [FieldDef] {
        self.schema.map_or(&[], |(schema, _)| &schema.node().fields)
    }

    /// The type of a declared field.
    pub(super) fn field_type(&self, field: &FieldDef) -> Ty<'a> {
        match self.schema {
            Some((schema, preserve)) => Ty::of(schema.at(field.node), preserve),
            None => Ty::Deduced,
        }
    }

    /// The type of undeclared fields. `None` when that is refused.
    pub(super) fn element(&self) -> Option<Ty<'a>> {
        match self.element {
            Element::Refused => None,
            Element::Deduced => Some(Ty::Deduced),
            Element::Untyped => Some(Ty::Untyped),
            Element::Node(schema, preserve) => Some(Ty::of(schema, preserve)),
        }
    }

    /// The type of a member and its declaration.
    pub(super) fn member(&self, name: &str) -> (Option<Ty<'a>>, Option<&'a FieldDef>) {
        match self.field(name) {
            Some(field) if self.whole && name == "metadata" => {
                let declared = self.field_type(field);
                let known = matches!(declared, Ty::Node(schema, _) if schema.node().type_name.is_some());
                (Some(if known { declared } else { object_meta() }), Some(field))
            }
            Some(field) => (Some(self.field_type(field)), Some(field)),
            None if self.whole && name == "metadata" => (Some(object_meta()), None),
            None if self.whole && matches!(name, "apiVersion" | "kind") => (Some(Ty::Deduced), None),
            None => (self.element(), None),
        }
    }

    /// Whether this is the metadata of an object.
    pub(super) fn is_object_meta(&self) -> bool {
        self.schema
            .is_some_and(|(schema, _)| schema.node().type_name.as_deref() == Some(OBJECT_META))
    }

    /// Whether nothing is declared and all is deduced.
    pub(super) fn is_deduced(&self) -> bool {
        self.fields().is_empty() && matches!(self.element, Element::Deduced)
    }
}

/// The default of an absent key field. Where Go has a plain value, upstream's schema gives its zero as the default.
fn key_default<'a>(field: &'a FieldDef, schema: SchemaRef<'a>) -> Option<&'a Value> {
    static EMPTY: Value = Value::String(String::new());
    static FALSE: Value = Value::Bool(false);
    static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());
    if let Some(default) = &field.default {
        return Some(default);
    }
    if field.omit_empty || field.pointer {
        return None;
    }
    match schema.node().ty {
        Type::String => Some(&EMPTY),
        Type::Boolean => Some(&FALSE),
        Type::Integer | Type::Number => Some(&ZERO),
        Type::Any | Type::Object | Type::Array | Type::IntOrString => None,
    }
}

impl<'a> ListTy<'a> {
    /// The path element that identifies an item of a set or an associative list.
    ///
    /// # Errors
    /// When the item is not of the right type or has none of the keys, in upstream's words.
    pub(super) fn element_of(&self, item: &'a Value) -> Result<PathElement<'a>, String> {
        let keys = self.keys.ok_or("invalid indexing of non-associative list")?;
        if keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
            };
        }
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let default = |key: &str| match self.items {
            Ty::Node(schema, _) => schema
                .field(key)
                .and_then(|(field, schema)| key_default(field, schema)),
            _ => None,
        };
        let mut found: Vec<(Cow<'a, str>, Cow<'a, Value>)> = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = map.get(&**key).or_else(|| default(key)) {
                found.push((Cow::Borrowed(key), Cow::Borrowed(value)));
            }
        }
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|k| crate::go::quote(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(PathElement::Key(found))
    }
}
