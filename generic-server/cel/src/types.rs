//! The type language: types of the checker (`Type`) and descriptions of JSON data by callers (`DeclType`).
//!
//! A `Type` is what an expression has; a `DeclType` is what a schema says about a piece of JSON: its CEL type plus the facts
//! evaluation and cost estimation need (string formats, list types, size bounds, field names as CEL sees them). Adapters from CRD
//! and OpenAPI schemas build `DeclType`s; this module knows no schema language. Both are cheap to clone.
//! Mirrors `apiserver/pkg/cel/types.go` and `apiserver/pkg/cel/common/schemas.go`.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::parser::RESERVED;

/// The largest request body upstream accepts; every unbounded size is estimated from it.
pub const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// The type of a CEL expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Decided at run time.
    Dyn,
    /// The type of an expression that failed to check; assignable to everything so that one fault is reported once.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// An object without a schema that expressions can build, such as `Object.spec`: any field, of any type.
    Open(Arc<str>),
    /// A named type without visible fields, such as `kubernetes.URL`.
    Struct(&'static str),
    /// A named value type that is not an object, such as `net.IP`.
    Opaque(&'static str),
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type parameter, named in a declaration or numbered while checking.
    Param(u32),
}

impl Type {
    pub const URL: Type = Type::Struct("kubernetes.URL");
    pub const QUANTITY: Type = Type::Struct("kubernetes.Quantity");
    pub const SEMVER: Type = Type::Struct("kubernetes.Semver");
    pub const FORMAT: Type = Type::Struct("kubernetes.NamedFormat");
    pub const IP: Type = Type::Opaque("net.IP");
    pub const CIDR: Type = Type::Opaque("net.CIDR");
    pub const AUTHORIZER: Type = Type::Struct("kubernetes.authorization.Authorizer");
    pub const PATH_CHECK: Type = Type::Struct("kubernetes.authorization.PathCheck");
    pub const GROUP_CHECK: Type = Type::Struct("kubernetes.authorization.GroupCheck");
    pub const RESOURCE_CHECK: Type = Type::Struct("kubernetes.authorization.ResourceCheck");
    pub const DECISION: Type = Type::Struct("kubernetes.authorization.Decision");

    /// `list(elem)`.
    pub fn list(elem: Type) -> Type {
        Type::List(Arc::new(elem))
    }

    /// `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// `optional_type(of)`.
    pub fn optional(of: Type) -> Type {
        Type::Optional(Arc::new(of))
    }

    pub(crate) fn type_of(of: Type) -> Type {
        Type::Type(Some(Arc::new(of)))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The same type in every part, parameters included.
    pub(crate) fn same(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.same(b),
            (Type::Map(a), Type::Map(b)) => a.0.same(&b.0) && a.1.same(&b.1),
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.name == b.name,
            (Type::Open(a), Type::Open(b)) => a == b,
            (Type::Struct(a), Type::Struct(b)) | (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Type(a), Type::Type(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.same(b),
                _ => false,
            },
            (Type::Param(a), Type::Param(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b) && !a.has_parts(),
        }
    }

    fn has_parts(&self) -> bool {
        matches!(
            self,
            Type::List(_)
                | Type::Optional(_)
                | Type::Map(_)
                | Type::Object(_)
                | Type::Open(_)
                | Type::Struct(_)
                | Type::Opaque(_)
                | Type::Type(_)
                | Type::Param(_)
        )
    }

    /// The bare run-time name, without parameters, as `type(x)` prints it.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Error => "error",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Object(object) => &object.name,
            Type::Open(name) => name,
            Type::Struct(name) | Type::Opaque(name) => name,
            Type::Optional(_) => "optional_type",
            Type::Type(_) => "type",
            Type::Param(_) => "type_param",
        }
    }
}

/// The form checker messages use, e.g. `map(string, list(int))`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(elem) => write!(f, "list({elem})"),
            Type::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Type::Optional(of) => write!(f, "optional_type({of})"),
            Type::Type(Some(of)) => write!(f, "type({of})"),
            Type::Param(id) => write!(f, "_var{id}"),
            other => f.write_str(other.name()),
        }
    }
}

/// An object type: fields by the name CEL sees.
#[derive(Debug)]
pub struct ObjectType {
    /// Unique within an environment: two objects of one name are one type to the checker.
    pub name: Arc<str>,
    /// By escaped name.
    pub fields: BTreeMap<Box<str>, Field>,
    /// By the name in JSON, for equality and iteration.
    by_json: BTreeMap<Box<str>, Box<str>>,
}

/// One declared field.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key in JSON.
    pub json_name: Box<str>,
    pub decl: DeclType,
    pub required: bool,
}

impl ObjectType {
    /// The field under a name as CEL writes it; a reserved word needs no escape where it follows a dot.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        match self.fields.get(name) {
            None if RESERVED.contains(&name) => self.fields.get(&*format!("__{name}__")),
            found => found,
        }
    }

    /// The field stored under a JSON key.
    pub(crate) fn by_json(&self, key: &str) -> Option<(&str, &Field)> {
        let escaped = self.by_json.get(key)?;
        self.fields.get(escaped).map(|field| (&**escaped, field))
    }
}

/// `x-kubernetes-list-type`, which decides equality and `+` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// With the JSON names of the keys.
    Map(Vec<Box<str>>),
}

/// The type that a declaration gives a JSON value.
#[derive(Clone, Debug)]
pub enum DeclKind {
    /// Any JSON, taken as it is.
    Dyn,
    /// Any JSON as Go decodes it without a type: every number is a double. Members can be named escaped (`a__dot__b` for `a.b`).
    Untyped,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    Bool,
    Int,
    /// A number; integers in JSON are doubles in CEL.
    Double,
    String,
    /// Base64 in JSON.
    Bytes,
    /// `YYYY-MM-DD` in JSON.
    Date,
    /// RFC 3339 in JSON.
    DateTime,
    /// A Go or ISO-like duration string in JSON.
    Duration,
    /// Kept, comparable, otherwise invisible (`x-kubernetes-preserve-unknown-fields` without a type).
    Preserved,
    List {
        elem: DeclType,
        list_type: ListType,
    },
    Map {
        value: DeclType,
    },
    Object(Arc<ObjectType>),
}

/// A declaration of JSON data. Cheap to clone.
#[derive(Clone)]
pub struct DeclType(Arc<DeclInner>);

#[derive(Clone)]
struct DeclInner {
    kind: DeclKind,
    ty: Type,
    max_elements: u64,
    min_size: u64,
    nullable: bool,
}

impl fmt::Debug for DeclType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeclType({})", self.0.ty)
    }
}

const UNBOUNDED_STRING: u64 = MAX_REQUEST_BYTES - 2;

impl DeclType {
    fn new(kind: DeclKind, ty: Type, max_elements: u64, min_size: u64) -> DeclType {
        DeclType(Arc::new(DeclInner {
            kind,
            ty,
            max_elements,
            min_size,
            nullable: false,
        }))
    }

    /// Any JSON, untyped.
    pub fn dynamic() -> DeclType {
        DeclType::new(DeclKind::Dyn, Type::Dyn, UNBOUNDED_STRING, 1)
    }

    /// Any JSON as Go decodes it without a type, such as the claims of a token.
    pub fn untyped() -> DeclType {
        DeclType::new(DeclKind::Untyped, Type::Dyn, UNBOUNDED_STRING, 1)
    }

    /// An int or a string, checked at run time.
    pub fn int_or_string() -> DeclType {
        DeclType::new(DeclKind::IntOrString, Type::Dyn, UNBOUNDED_STRING, 1)
    }

    pub fn bool() -> DeclType {
        DeclType::new(DeclKind::Bool, Type::Bool, 0, 4)
    }

    pub fn int() -> DeclType {
        DeclType::new(DeclKind::Int, Type::Int, 0, 1)
    }

    pub fn double() -> DeclType {
        DeclType::new(DeclKind::Double, Type::Double, 0, 1)
    }

    /// A string; bound it with [`DeclType::with_max_length`] or [`DeclType::with_max_elements`].
    pub fn string() -> DeclType {
        DeclType::new(DeclKind::String, Type::String, UNBOUNDED_STRING, 2)
    }

    /// Base64 text seen as bytes.
    pub fn bytes() -> DeclType {
        DeclType::new(DeclKind::Bytes, Type::Bytes, UNBOUNDED_STRING, 2)
    }

    /// A `date` string seen as a timestamp.
    pub fn date() -> DeclType {
        DeclType::new(DeclKind::Date, Type::Timestamp, 12, 12)
    }

    /// A `date-time` string seen as a timestamp.
    pub fn date_time() -> DeclType {
        DeclType::new(DeclKind::DateTime, Type::Timestamp, 32, 21)
    }

    /// A `duration` string seen as a duration.
    pub fn duration() -> DeclType {
        DeclType::new(DeclKind::Duration, Type::Duration, 32, 3)
    }

    /// Data CEL cannot look into; only equality sees it.
    pub fn preserved() -> DeclType {
        DeclType::new(DeclKind::Preserved, Type::Dyn, 0, 1)
    }

    /// A quantity, as the checker and the estimator see it.
    pub fn quantity() -> DeclType {
        DeclType::new(DeclKind::Preserved, Type::QUANTITY, 0, 8)
    }

    /// A list; without a bound the number of elements is what fits into a request.
    pub fn list(elem: DeclType, max_items: Option<u64>, list_type: ListType) -> DeclType {
        let max = max_items.unwrap_or((MAX_REQUEST_BYTES - 2) / (elem.0.min_size + 1));
        let ty = Type::list(elem.0.ty.clone());
        DeclType::new(DeclKind::List { elem, list_type }, ty, max, 2)
    }

    /// A map with string keys; without a bound the number of entries is what fits into a request.
    pub fn map(value: DeclType, max_properties: Option<u64>) -> DeclType {
        let max = max_properties.unwrap_or((MAX_REQUEST_BYTES - 2) / (value.0.min_size + 6));
        let ty = Type::map(Type::String, value.0.ty.clone());
        DeclType::new(DeclKind::Map { value }, ty, max, 2)
    }

    /// An object. `name` must be unique among the objects of one environment (see [`DeclType::named`]); fields are given by
    /// their JSON name, those that CEL cannot name are dropped. `min_size` grows with the fields marked as required without a
    /// default, which upstream counts into the smallest serialised form.
    pub fn object(name: &str, fields: impl IntoIterator<Item = FieldDecl>) -> DeclType {
        let mut min_size = 2;
        let mut declared = BTreeMap::new();
        let mut by_json = BTreeMap::new();
        for field in fields {
            if field.required && !field.has_default {
                min_size += field.name.len() as u64 + field.decl.0.min_size + 4;
            }
            let Some(escaped) = escape_field(&field.name) else {
                continue;
            };
            let escaped: Box<str> = escaped.into();
            by_json.insert(field.name.clone(), escaped.clone());
            declared.insert(
                escaped,
                Field {
                    json_name: field.name,
                    decl: field.decl,
                    required: field.required,
                },
            );
        }
        let object = Arc::new(ObjectType {
            name: name.into(),
            fields: declared,
            by_json,
        });
        DeclType::new(
            DeclKind::Object(object.clone()),
            Type::Object(object),
            0,
            min_size,
        )
    }

    /// The same declaration with every object named after its path below `name` (`self.spec`, `self.items.@idx`), so that the
    /// checker distinguishes objects of different places.
    pub fn named(&self, name: &str) -> DeclType {
        let inner = &self.0;
        match &inner.kind {
            DeclKind::Object(object) => {
                let fields = object
                    .fields
                    .iter()
                    .map(|(escaped, field)| {
                        let decl = field.decl.named(&format!("{name}.{escaped}"));
                        (
                            escaped.clone(),
                            Field {
                                decl,
                                ..field.clone()
                            },
                        )
                    })
                    .collect();
                let object = Arc::new(ObjectType {
                    name: name.into(),
                    fields,
                    by_json: object.by_json.clone(),
                });
                self.rebuilt(DeclKind::Object(object.clone()), Type::Object(object))
            }
            DeclKind::List { elem, list_type } => {
                let elem = elem.named(&format!("{name}.@idx"));
                let ty = Type::list(elem.0.ty.clone());
                self.rebuilt(
                    DeclKind::List {
                        elem,
                        list_type: list_type.clone(),
                    },
                    ty,
                )
            }
            DeclKind::Map { value } => {
                let value = value.named(&format!("{name}.@elem"));
                let ty = Type::map(Type::String, value.0.ty.clone());
                self.rebuilt(DeclKind::Map { value }, ty)
            }
            _ => self.clone(),
        }
    }

    fn rebuilt(&self, kind: DeclKind, ty: Type) -> DeclType {
        DeclType(Arc::new(DeclInner {
            kind,
            ty,
            ..(*self.0).clone()
        }))
    }

    fn changed(&self, change: impl FnOnce(&mut DeclInner)) -> DeclType {
        let mut inner = (*self.0).clone();
        change(&mut inner);
        DeclType(Arc::new(inner))
    }

    /// Bounds the number of elements, entries or bytes.
    pub fn with_max_elements(&self, max: u64) -> DeclType {
        self.changed(|inner| inner.max_elements = max)
    }

    /// Bounds a string by `maxLength` characters, each of which can take four bytes.
    pub fn with_max_length(&self, max_length: u64) -> DeclType {
        self.with_max_elements(max_length.saturating_mul(4))
    }

    /// Sets the smallest serialised size.
    pub fn with_min_size(&self, min_size: u64) -> DeclType {
        self.changed(|inner| inner.min_size = min_size)
    }

    /// Whether null is a value of this declaration rather than a fault.
    pub fn nullable(&self, nullable: bool) -> DeclType {
        self.changed(|inner| inner.nullable = nullable)
    }

    /// The CEL type of the data.
    pub fn cel_type(&self) -> &Type {
        &self.0.ty
    }

    pub fn kind(&self) -> &DeclKind {
        &self.0.kind
    }

    pub fn is_nullable(&self) -> bool {
        self.0.nullable
    }

    /// Upper bound of elements, entries or bytes, 0 for scalars and objects.
    pub fn max_elements(&self) -> u64 {
        self.0.max_elements
    }

    /// Smallest size in JSON, which bounds how often the data can repeat in one request.
    pub fn min_size(&self) -> u64 {
        self.0.min_size
    }

    /// How often data of this declaration can at most occur in one request: upstream's cardinality of a rule below unbounded
    /// lists or maps.
    pub fn max_cardinality(&self) -> u64 {
        MAX_REQUEST_BYTES / (self.0.min_size + 1)
    }
}

/// A field as given to [`DeclType::object`].
#[derive(Debug)]
pub struct FieldDecl {
    name: Box<str>,
    decl: DeclType,
    required: bool,
    has_default: bool,
}

impl FieldDecl {
    /// An optional field under its JSON name.
    pub fn new(name: &str, decl: DeclType) -> FieldDecl {
        FieldDecl {
            name: name.into(),
            decl,
            required: false,
            has_default: false,
        }
    }

    /// Marks the field required, and whether the server fills it in by default.
    pub fn required(mut self, required: bool, has_default: bool) -> FieldDecl {
        self.required = required;
        self.has_default = has_default;
        self
    }
}

/// The name under which CEL sees a JSON field, if it can see it at all: reserved words are wrapped in `__`, and `.`, `-`, `/`
/// and `__` become `__dot__`, `__dash__`, `__slash__` and `__underscores__`.
pub fn escape_field(name: &str) -> Option<String> {
    let first = name.bytes().next()?;
    let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/');
    if first.is_ascii_digit() || !name.bytes().all(sound) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (piece, eaten) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            _ => (&rest[..1], 1),
        };
        out.push_str(piece);
        rest = &rest[eaten..];
    }
    Some(out)
}

/// The JSON name that an escaped one stands for, when it is one: `a.b` for `a__dot__b`. `None`: an escape is unknown.
pub(crate) fn unescape_field(escaped: &str) -> Option<String> {
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find("__") {
        let inside = &rest[at + 2..];
        let length = inside.find('_').unwrap_or(inside.len());
        if length == 0 || !inside[length..].starts_with("__") {
            // No escape begins here; one may begin at the next underscore.
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        out.push_str(&rest[..at]);
        match &inside[..length] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && length + 4 == escaped.len() => out.push_str(word),
            _ => return None,
        }
        rest = &inside[length + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_fields_are_read_back() {
        let check =
            |name: &str, want: Option<&str>| assert_eq!(unescape_field(name).as_deref(), want, "{name}");
        for name in ["a", "namespace", "a__b", "a.b-c/d", "__", "example.com/x_y"] {
            let escaped = escape_field(name).expect("it can be escaped");
            check(&escaped, Some(name));
        }
        check("a_b", Some("a_b"));
        check("a___dot__b", Some("a_.b"));
        check("a__other__b", None);
        check("a__if__", None);
        check("____", Some("____"));
    }

    #[test]
    fn fields_are_escaped_as_upstream_does() {
        let check =
            |name: &str, want: Option<&str>| assert_eq!(escape_field(name).as_deref(), want, "{name}");
        check("a", Some("a"));
        check("namespace", Some("__namespace__"));
        check("a__b", Some("a__underscores__b"));
        check("a.b-c/d", Some("a__dot__b__dash__c__slash__d"));
        check("$ref", None);
        check("1a", None);
        check("", None);
        check("int", Some("int"));
        check("a___b", Some("a__underscores___b"));
    }

    #[test]
    fn sizes_follow_the_smallest_serialised_form() {
        let object = DeclType::object(
            "o",
            [
                FieldDecl::new("name", DeclType::string()).required(true, false),
                FieldDecl::new("n", DeclType::int()),
            ],
        );
        assert_eq!(object.min_size(), 2 + 4 + 2 + 4);
        let list = DeclType::list(object, None, ListType::Atomic);
        assert_eq!(list.max_elements(), (MAX_REQUEST_BYTES - 2) / 13);
    }
}
