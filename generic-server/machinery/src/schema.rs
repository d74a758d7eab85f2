//! The schema of a kind: one compact arena for all its types, built-in or custom, and a cursor to walk it.
//!
//! A [`Schema`] holds nodes; a [`SchemaRef`] is a node in its arena and has all the questions that the passes ask. Built-in
//! kinds share one arena (made from the facts table), every version of a custom resource has its own. Nodes may refer to
//! each other freely (`JSONSchemaProps` refers to itself): passes recurse along the *object*, whose depth the decoder bounds.

mod builtin;
pub mod crd;
mod formats;
mod pattern;
pub mod validate;

pub use builtin::{BuiltinSchemas, builtin};
pub use pattern::{Pattern, check as check_pattern, excessive_repetition, patterns_weight};

use std::sync::Arc;

use serde_json::Value;

/// A node's index in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// The JSON type that a node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// Anything (no type given).
    #[default]
    Any,
    /// An object with properties, or a map when [`SchemaRef::additional`] is there.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A whole number or a string (`x-kubernetes-int-or-string`).
    IntOrString,
}

/// How the items of a list are identified (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are scalars, each there once.
    Set,
    /// Items are objects identified by these fields.
    Map(Box<[Arc<str>]>),
}

/// How strategic merge patch treats a field (`patchStrategy` and `patchMergeKey`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchMeta {
    /// `patchStrategy` holds `merge`.
    pub merge: bool,
    /// `patchStrategy` holds `retainKeys`.
    pub retain_keys: bool,
    /// `patchStrategy` holds `replace`: an object in a patch takes the place of the one that is there.
    pub replace: bool,
    /// `patchMergeKey`.
    pub merge_key: Option<Arc<str>>,
}

/// A string's or number's format that the server acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// `int32`.
    Int32,
    /// `int64`.
    Int64,
    /// `float` and `double`.
    Double,
    /// `byte`: base64.
    Byte,
    /// `date-time`, RFC 3339 with seconds (`metav1.Time`).
    DateTime,
    /// `metav1.MicroTime`: RFC 3339 with six fraction digits.
    MicroTime,
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Duration`.
    Duration,
    /// Any JSON, kept as bytes in protobuf (`runtime.RawExtension`, `metav1.FieldsV1`, `apiextensions.JSON`).
    Raw,
    /// A schema or a boolean (`JSONSchemaPropsOrBool`). The node has the fields of a schema.
    SchemaOrBool,
    /// A schema or a list of them (`JSONSchemaPropsOrArray`).
    SchemaOrArray,
    /// A schema or a list of strings (`JSONSchemaPropsOrStringArray`).
    SchemaOrStrings,
    /// A list of strings that protobuf wraps in a message of its own (`ExtraValue`, `Verbs`).
    WrappedStrings,
    /// Any other, by name. All string formats of custom resources are here: they are checked and change nothing.
    Other(Arc<str>),
    /// One of a custom resource's string that nothing is known of: nothing is checked, but field ownership takes any scalar, as upstream's
    /// does.
    Unknown,
}

/// Rules that only some nodes carry.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// `description`, when kept.
    pub description: Option<Arc<str>>,
    /// `enum`.
    pub enumeration: Option<Box<[Value]>>,
    /// Where the texts of a long `enum` are in it, in their order: a list is not to be held against it item by item.
    pub enumerated_texts: Box<[u32]>,
    /// `pattern`.
    pub pattern: Option<Pattern>,
    /// `minLength` and `maxLength`, in characters.
    pub length: (Option<u64>, Option<u64>),
    /// `minItems` and `maxItems`.
    pub items: (Option<u64>, Option<u64>),
    /// `minProperties` and `maxProperties`.
    pub properties: (Option<u64>, Option<u64>),
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(serde_json::Number, bool)>,
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(serde_json::Number, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<serde_json::Number>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `allOf`.
    pub all_of: Vec<NodeId>,
    /// `anyOf`.
    pub any_of: Vec<NodeId>,
    /// `oneOf`.
    pub one_of: Vec<NodeId>,
    /// `not`.
    pub not: Option<NodeId>,
    /// `additionalProperties: false` inside the junctors.
    pub deny_additional: bool,
    /// `x-kubernetes-validations`, in order, as written: compiled by the owner of the CEL environment.
    pub validations: Vec<Value>,
    /// `required`, in order; those that are properties have it in their [`FieldDef`] as well.
    pub required: Vec<Arc<str>>,
    /// `default` of a list's items or a map's values; a property's default is in its [`FieldDef`].
    pub default: Option<Value>,
}

/// One type in the arena. Built by the compilers of this module's children; read through [`SchemaRef`].
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The type asked for.
    pub ty: Type,
    /// Null is a value of its own.
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-map-type: atomic` (or structType).
    pub atomic: bool,
    /// Whether the list type or map type is written down, for those of built-in types that are the usual ones.
    pub explicit: bool,
    /// Properties, sorted by name.
    pub fields: Box<[FieldDef]>,
    /// Indexes into `fields` in the order of protobuf numbers; fields without a number are not there.
    pub wire: Box<[u16]>,
    /// Whether a list that is written even when it is empty can be in a value: for built-in types.
    pub written_lists: bool,
    /// The schema of a map's values.
    pub additional: Option<NodeId>,
    /// The schema of a list's items.
    pub items: Option<NodeId>,
    /// How list items are identified.
    pub list_type: ListType,
    /// The format.
    pub format: Option<Format>,
    /// Default, validations and texts, where there are any.
    pub rules: Option<Box<Rules>>,
    /// The name of the type for `$ref` (`io.k8s.api.apps.v1.Deployment`), where it is a definition of its own.
    pub type_name: Option<Arc<str>>,
}

/// A property of an object node.
#[derive(Debug, Clone)]
pub struct FieldDef {
    /// The JSON name.
    pub name: Arc<str>,
    /// The schema of its value.
    pub node: NodeId,
    /// Listed in `required`.
    pub required: bool,
    /// Whether a zero value is left out when upstream encodes it (`omitempty`, `omitzero` or a pointer).
    pub omit_empty: bool,
    /// Whether upstream distinguishes an explicit zero from an absent value (a Go pointer). Always true for custom resources.
    pub pointer: bool,
    /// `default`.
    pub default: Option<Box<Value>>,
    /// Strategic merge directives.
    pub patch: Option<Box<PatchMeta>>,
    /// The protobuf field number, for built-in kinds.
    pub number: Option<u32>,
    /// The numbers of the messages around the field that JSON inlines, outermost first; zero where there are none.
    pub via: [u8; 2],
}

impl FieldDef {
    /// Whether a list in the field, which `node` is the schema of, is written even when it is empty.
    pub(crate) fn is_written_list(&self, node: &Node) -> bool {
        // Strings in a message of their own are there or not, like a pointer.
        !self.omit_empty && !self.pointer && node.format != Some(Format::WrappedStrings)
    }

    /// The field numbers that lead to this field in protobuf: those of inlined messages, then its own.
    pub fn wire_path(&self) -> impl Iterator<Item = u32> {
        self.via
            .into_iter()
            .filter(|outer| *outer != 0)
            .map(u32::from)
            .chain(self.number)
    }
}

/// How far defaults make an object larger than it was sent, in bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefaultsGrowth {
    /// Once for an object.
    pub once: usize,
    /// For each item of the list or map whose items have the largest.
    pub each: usize,
}

impl DefaultsGrowth {
    /// The smallest item of a list, with the comma before it: `,{}`.
    const ITEM_BYTES: usize = 3;
    /// Defaults of an item that take less than this are as much as decoding makes of small objects anyway.
    const LARGE: usize = 512;

    /// The most that can be added to an object that is sent in so many bytes.
    pub fn of_body(self, bytes: usize) -> usize {
        let items = match self.each {
            0..Self::LARGE => 0,
            _ => bytes / Self::ITEM_BYTES,
        };
        let added = self.once.saturating_add(items.saturating_mul(self.each));
        added.min(crate::limits::DEFAULTED_BYTES)
    }
}

/// An arena of nodes. Immutable once made; shared by `Arc`.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The node of the whole object (a custom resource's version); for the built-in arena kinds are found by name.
    pub root: Option<NodeId>,
    /// What the defaults of a custom resource's version may add to its objects.
    pub defaults: DefaultsGrowth,
}

/// A node in its arena. Copy it freely.
#[derive(Debug, Clone, Copy)]
pub struct SchemaRef<'a> {
    schema: &'a Schema,
    node: &'a Node,
}

/// A kind's schema, held: the arena and the node of the kind.
#[derive(Debug, Clone)]
pub struct KindSchema {
    arena: Arc<Schema>,
    root: NodeId,
}

impl KindSchema {
    /// The kind at `root` in `arena`.
    pub fn new(arena: Arc<Schema>, root: NodeId) -> Self {
        KindSchema { arena, root }
    }

    /// What defaults may add to objects.
    pub fn defaults(&self) -> DefaultsGrowth {
        self.arena.defaults
    }

    /// Where to start walking.
    pub fn root(&self) -> SchemaRef<'_> {
        self.arena.at(self.root)
    }
}

impl Schema {
    /// The cursor at a node of this arena.
    ///
    /// # Panics
    /// When `id` is of another arena.
    pub fn at(&self, id: NodeId) -> SchemaRef<'_> {
        SchemaRef {
            schema: self,
            node: &self.nodes[id.0 as usize],
        }
    }
}

impl Schema {
    /// About how many bytes it takes in memory, patterns aside.
    pub fn weight(&self) -> usize {
        let value = |v: &Value| size_of::<Value>() + v.as_str().map_or(0, str::len);
        let rules = |r: &Rules| {
            let enumeration = r.enumeration.iter().flatten().map(value).sum::<usize>();
            let validations: usize = r.validations.iter().map(|v| v.to_string().len()).sum();
            size_of::<Rules>() + enumeration + validations + r.description.as_ref().map_or(0, |d| d.len())
        };
        let field =
            |f: &FieldDef| size_of::<FieldDef>() + f.name.len() + f.default.as_ref().map_or(0, |d| value(d));
        let node = |n: &Node| {
            let fields: usize = n.fields.iter().map(field).sum();
            size_of::<Node>() + fields + 2 * n.wire.len() + n.rules.as_ref().map_or(0, |r| rules(r))
        };
        self.nodes.iter().map(node).sum()
    }
}

impl<'a> SchemaRef<'a> {
    /// The node itself.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// Its arena.
    pub fn arena(self) -> &'a Schema {
        self.schema
    }

    /// Another node of the same arena.
    pub fn at(self, id: NodeId) -> SchemaRef<'a> {
        self.schema.at(id)
    }

    /// A declared property.
    pub fn field(self, name: &str) -> Option<(&'a FieldDef, SchemaRef<'a>)> {
        let index = self.node.fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        let field = &self.node.fields[index];
        Some((field, self.schema.at(field.node)))
    }

    /// The schema of the value under `name`: the property's, else the map's value schema.
    pub fn value_of(self, name: &str) -> Option<SchemaRef<'a>> {
        self.field(name)
            .map(|(_, schema)| schema)
            .or_else(|| self.additional())
    }

    /// The schema of a map's values.
    pub fn additional(self) -> Option<SchemaRef<'a>> {
        self.node.additional.map(|id| self.schema.at(id))
    }

    /// The schema of a list's items.
    pub fn items(self) -> Option<SchemaRef<'a>> {
        self.node.items.map(|id| self.schema.at(id))
    }
}
