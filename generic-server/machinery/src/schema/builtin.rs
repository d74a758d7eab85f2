//! The schemas of the built-in kinds, read once from the table of facts that `cargo xtask codegen` makes.
//!
//! The table is text without prose. A line at the margin opens a type: its full name, then words (`kind:group/version/Kind`
//! for each kind it is, `map-atomic`). An indented line is a field: JSON name, type, protobuf number, presence, attributes.
//!
//! - Types: `s` string, `b` boolean, `i` int32, `l` int64, `d` double, `B` bytes, `t` Time, `u` MicroTime, `q` Quantity,
//!   `n` IntOrString, `R` RawExtension, `V` FieldsV1, `J` any JSON, `W` strings that protobuf wraps, `X` `Y` `Z`
//!   JSONSchemaPropsOr{Bool,Array,StringArray}, `[x` list of x, `{x` map to x, `&name` a type (`&.Name`: of the same package).
//! - Numbers: `3`; `2.1` is field 1 of the message in field 2, which JSON inlines; `-` is not in protobuf.
//! - Presence: `p` pointer, left out when nil; `P` pointer, null when nil; `o` zero value left out; `a` always there;
//!   `z` a struct left out when zero. A `!` behind it: `required` in the OpenAPI document.
//! - Attributes: `atomic`, `set`, `map:key,key` (list type), `map-atomic`, `map-granular`, `merge`, `retainKeys`, `replace`,
//!   `key:name` (strategic merge), `default:json`.
//!
//! A line that does not follow this is a bug of the generator; the tests of this module read the whole table.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{
    DefaultsGrowth, FieldDef, Format, KindSchema, ListType, Node, NodeId, PatchMeta, Schema, SchemaRef, Type,
};

const TABLE: &str = include_str!("../facts/builtin.facts");

/// All built-in types in one arena.
#[derive(Debug)]
pub struct BuiltinSchemas {
    arena: Arc<Schema>,
    types: HashMap<&'static str, NodeId>,
    /// Sorted by group, version, kind.
    kinds: Vec<(Kind, NodeId)>,
}

type Kind = (&'static str, &'static str, &'static str);

/// The built-in schemas; the first call parses the table.
pub fn builtin() -> &'static BuiltinSchemas {
    static BUILTIN: LazyLock<BuiltinSchemas> = LazyLock::new(|| parse(TABLE));
    &BUILTIN
}

impl BuiltinSchemas {
    /// The schema of a kind of a served version. The core group is `""`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<KindSchema> {
        let index = self
            .kinds
            .binary_search_by(|(known, _)| known.cmp(&(group, version, kind)))
            .ok()?;
        Some(KindSchema::new(self.arena.clone(), self.kinds[index].1))
    }

    /// The schema of a type by its full name, such as `io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions`.
    pub fn by_type_name(&self, name: &str) -> Option<KindSchema> {
        let id = *self.types.get(name)?;
        Some(KindSchema::new(self.arena.clone(), id))
    }

    /// All kinds as (group, version, kind) with their schemas, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str, SchemaRef<'_>)> {
        self.kinds
            .iter()
            .map(|((group, version, kind), id)| (*group, *version, *kind, self.arena.at(*id)))
    }

    /// All types with a name of their own, in no order.
    pub fn types(&self) -> impl Iterator<Item = (&'static str, SchemaRef<'_>)> {
        self.types.iter().map(|(name, id)| (*name, self.arena.at(*id)))
    }

    /// The arena that all of them share.
    pub fn arena(&self) -> &Arc<Schema> {
        &self.arena
    }
}

#[derive(Default)]
struct Loader {
    nodes: Vec<Node>,
    types: HashMap<&'static str, NodeId>,
    /// Nodes without a name that fields share, by type code, package (for `&.`) and the attributes that shape them.
    shared: HashMap<(&'static str, &'static str, &'static str), NodeId>,
    names: HashMap<&'static str, Arc<str>>,
    kinds: Vec<(Kind, NodeId)>,
    /// Copies and their originals; they get their fields last.
    copies: Vec<(NodeId, NodeId)>,
}

fn parse(table: &'static str) -> BuiltinSchemas {
    let mut loader = Loader::default();
    loader.open_types(table);
    let mut current: Option<(NodeId, &'static str)> = None;
    let mut fields: Vec<FieldDef> = Vec::new();
    for line in table.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            if let Some((_, package)) = current {
                fields.extend(loader.field(field, package));
            }
        } else if !line.starts_with('#') {
            loader.close(current, &mut fields);
            let name = line.split(' ').next().unwrap_or_default();
            current = loader
                .types
                .get(name)
                .map(|id| (*id, name.rsplit_once('.').map_or("", |(package, _)| package)));
        }
    }
    loader.close(current, &mut fields);
    loader.fill_schema_unions();
    loader.fill_copies();
    loader.mark_written_lists();
    loader.kinds.sort_unstable();
    BuiltinSchemas {
        arena: Arc::new(Schema {
            nodes: loader.nodes,
            root: None,
            defaults: DefaultsGrowth::default(),
        }),
        types: loader.types,
        kinds: loader.kinds,
    }
}

impl Loader {
    fn add(&mut self, node: Node) -> NodeId {
        // The arena is far smaller than 2^32 nodes.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    /// Finds the nodes whose values can hold a list that is always written, from those lists outwards.
    fn mark_written_lists(&mut self) {
        let index = |id: NodeId| id.0 as usize;
        let mut holders: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut found = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if node.format == Some(Format::Raw) {
                continue;
            }
            let may_be_list = |node: &Node| {
                matches!(node.ty, Type::Array | Type::Any)
                    || matches!(node.format, Some(Format::SchemaOrArray | Format::SchemaOrStrings))
            };
            let has_list = node.fields.iter().any(|field| {
                let inner = &self.nodes[index(field.node)];
                may_be_list(inner) && field.is_written_list(inner)
            });
            if has_list {
                found.push(at);
            }
            let inner = node.fields.iter().map(|field| field.node);
            for held in inner.chain(node.additional).chain(node.items) {
                holders[index(held)].push(at);
            }
        }
        while let Some(at) = found.pop() {
            if !std::mem::replace(&mut self.nodes[at].written_lists, true) {
                found.append(&mut holders[at]);
            }
        }
    }

    fn name(&mut self, name: &'static str) -> Arc<str> {
        self.names.entry(name).or_insert_with(|| Arc::from(name)).clone()
    }

    fn open_types(&mut self, table: &'static str) {
        for line in table.lines() {
            if line.starts_with([' ', '#']) {
                continue;
            }
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            let mut node = Node {
                ty: Type::Object,
                type_name: Some(Arc::from(name)),
                ..Node::default()
            };
            let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
            for word in words {
                if let Some(kind) = word.strip_prefix("kind:") {
                    let mut parts = kind.split('/');
                    if let (Some(group), Some(version), Some(kind)) =
                        (parts.next(), parts.next(), parts.next())
                    {
                        self.kinds.push(((group, version, kind), id));
                    }
                } else if word == "map-atomic" {
                    node.atomic = true;
                }
            }
            self.add(node);
            self.types.insert(name, id);
        }
        for (name, ty, format) in SPECIAL {
            let raw = *format == Some(Format::Raw);
            let id = self.add(Node {
                ty: *ty,
                preserve_unknown: raw,
                atomic: raw,
                format: format.clone(),
                type_name: Some(Arc::from(*name)),
                ..Node::default()
            });
            self.types.insert(name, id);
        }
    }

    fn close(&mut self, current: Option<(NodeId, &'static str)>, fields: &mut Vec<FieldDef>) {
        if let Some((id, _)) = current {
            fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            let mut wire: Vec<u16> = (0..fields.len())
                .filter(|index| fields[*index].number.is_some())
                .filter_map(|index| u16::try_from(index).ok())
                .collect();
            wire.sort_by(|a, b| {
                fields[usize::from(*a)]
                    .wire_path()
                    .cmp(fields[usize::from(*b)].wire_path())
            });
            let node = &mut self.nodes[id.0 as usize];
            node.wire = wire.into();
            node.fields = std::mem::take(fields).into();
        }
    }

    /// A node that takes a schema or something else has a schema's fields, so that walks by field name go through it.
    fn fill_schema_unions(&mut self) {
        let schema = self.types[EXTENSION_SCHEMA];
        let Node { fields, wire, .. } = self.nodes[schema.0 as usize].clone();
        for name in UNIONS {
            let id = self.types[name];
            let node = &mut self.nodes[id.0 as usize];
            (node.fields, node.wire) = (fields.clone(), wire.clone());
            node.items = Some(schema);
        }
    }

    fn fill_copies(&mut self) {
        for (copy, original) in std::mem::take(&mut self.copies) {
            let Node { fields, wire, .. } = self.nodes[original.0 as usize].clone();
            let node = &mut self.nodes[copy.0 as usize];
            (node.fields, node.wire) = (fields, wire);
        }
    }

    fn field(&mut self, line: &'static str, package: &'static str) -> Option<FieldDef> {
        let mut words = line.splitn(5, ' ');
        let name = words.next()?;
        let code = words.next()?;
        let number = words.next()?;
        let presence = words.next()?;
        let attributes = words.next().unwrap_or_default();

        let mut path = number.split('.').filter_map(|n| n.parse::<u32>().ok());
        let mut numbers = [0_u32; 3];
        let mut count = 0;
        for slot in &mut numbers {
            if let Some(n) = path.next() {
                *slot = n;
                count += 1;
            }
        }
        let outer = |index: usize| {
            if index + 1 < count {
                u8::try_from(numbers[index]).unwrap_or_default()
            } else {
                0
            }
        };

        let mut default = None;
        let mut patch = PatchMeta::default();
        for word in attributes.split(' ') {
            if let Some(value) = word.strip_prefix("default:") {
                default = serde_json::from_str::<Value>(value).ok().map(Box::new);
            } else if let Some(key) = word.strip_prefix("key:") {
                patch.merge_key = Some(self.name(key));
            } else if word == "merge" {
                patch.merge = true;
            } else if word == "retainKeys" {
                patch.retain_keys = true;
            } else if word == "replace" {
                patch.replace = true;
            }
        }
        let node = self.node(code, package, attributes);
        Some(FieldDef {
            name: self.name(name),
            node,
            required: presence.ends_with('!'),
            omit_empty: presence.starts_with(['p', 'o', 'z']),
            pointer: presence.starts_with(['p', 'P']),
            default,
            patch: (patch != PatchMeta::default()).then(|| Box::new(patch)),
            number: count.checked_sub(1).map(|last| numbers[last]),
            via: [outer(0), outer(1)],
        })
    }

    /// The node for a type code. `attributes` shape only the outermost node.
    fn node(&mut self, code: &'static str, package: &'static str, attributes: &'static str) -> NodeId {
        let granular = attributes.contains("map-granular");
        let atomic = attributes.contains("map-atomic");
        if let Some(target) = code.strip_prefix('&') {
            let id = match target.strip_prefix('.') {
                Some(short) => self.types[format!("{package}.{short}").as_str()],
                None => self.types[target],
            };
            if !granular && !atomic {
                return id;
            }
            return self.override_atomic(id, code, package, atomic);
        }
        let scope = if code.contains("&.") { package } else { "" };
        let shape = match code.as_bytes()[0] {
            b'[' | b'{' | b'B' => attributes,
            _ => "",
        };
        if let Some(id) = self.shared.get(&(code, scope, shape)) {
            return *id;
        }
        let mut node = Node::default();
        match code.as_bytes()[0] {
            b's' => node.ty = Type::String,
            b'b' => node.ty = Type::Boolean,
            b'i' => (node.ty, node.format) = (Type::Integer, Some(Format::Int32)),
            b'l' => (node.ty, node.format) = (Type::Integer, Some(Format::Int64)),
            b'd' => (node.ty, node.format) = (Type::Number, Some(Format::Double)),
            b'B' => {
                (node.ty, node.format) = (Type::String, Some(Format::Byte));
                node.explicit = attributes.split(' ').any(|word| word == "atomic");
            }
            b'W' => {
                node.ty = Type::Array;
                node.format = Some(Format::WrappedStrings);
                node.items = Some(self.node("s", "", ""));
            }
            b'[' => {
                node.ty = Type::Array;
                node.items = Some(self.node(&code[1..], package, ""));
                node.list_type = self.list_type(attributes);
                node.explicit = attributes.split(' ').any(|word| word == "atomic");
            }
            b'{' => {
                node.ty = Type::Object;
                node.additional = Some(self.node(&code[1..], package, ""));
                node.atomic = atomic;
                node.explicit = granular;
            }
            letter => {
                let index = LETTERS.iter().position(|l| *l == letter).unwrap_or(0);
                return self.types[SPECIAL[index].0];
            }
        }
        let id = self.add(node);
        self.shared.insert((code, scope, shape), id);
        id
    }

    fn list_type(&mut self, attributes: &'static str) -> ListType {
        for word in attributes.split(' ') {
            if word == "set" {
                return ListType::Set;
            }
            if let Some(keys) = word.strip_prefix("map:") {
                return ListType::Map(keys.split(',').map(|key| self.name(key)).collect());
            }
        }
        ListType::Atomic
    }

    /// A copy of a type that differs in whether server-side apply takes it as one value.
    fn override_atomic(
        &mut self,
        id: NodeId,
        code: &'static str,
        package: &'static str,
        atomic: bool,
    ) -> NodeId {
        let key = (code, package, if atomic { "map-atomic" } else { "map-granular" });
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let mut node = self.nodes[id.0 as usize].clone();
        node.atomic = atomic;
        node.explicit = true;
        let copy = self.add(node);
        self.shared.insert(key, copy);
        self.copies.push((copy, id));
        copy
    }
}

const EXTENSION_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
const UNIONS: [&str; 3] = [
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// The types behind a letter of their own, in the order of [`LETTERS`].
const SPECIAL: &[(&str, Type, Option<Format>)] = &[
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Type::String,
        Some(Format::DateTime),
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Type::String,
        Some(Format::MicroTime),
    ),
    (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Type::String,
        Some(Format::Quantity),
    ),
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Type::IntOrString,
        None,
    ),
    (
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Type::Any,
        Some(Format::Raw),
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        Type::Any,
        Some(Format::Raw),
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        Type::Any,
        Some(Format::Raw),
    ),
    (UNIONS[0], Type::Any, Some(Format::SchemaOrBool)),
    (UNIONS[1], Type::Any, Some(Format::SchemaOrArray)),
    (UNIONS[2], Type::Any, Some(Format::SchemaOrStrings)),
];
const LETTERS: &[u8] = b"tuqnRVJXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, kind: &str) -> KindSchema {
        builtin().kind(group, version, kind).unwrap()
    }

    fn field<'a>(kind: &'a KindSchema, path: &str) -> (&'a FieldDef, SchemaRef<'a>) {
        let mut at = kind.root();
        let mut found = None;
        for name in path.split('.') {
            let (def, next) = at.field(name).unwrap_or_else(|| panic!("no {name} in {path}"));
            found = Some((def, next));
            at = next.items().unwrap_or(next);
        }
        found.unwrap()
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let schemas = builtin();
        let fields = TABLE.lines().filter(|l| l.starts_with(' ')).count();
        let types = TABLE.lines().filter(|l| !l.starts_with([' ', '#'])).count();
        let named: Vec<_> = schemas
            .types()
            .filter(|(name, _)| !SPECIAL.iter().any(|s| s.0 == *name))
            .collect();
        assert_eq!(named.len(), types);
        assert_eq!(
            named.iter().map(|(_, s)| s.node().fields.len()).sum::<usize>(),
            fields
        );
        assert!(schemas.kinds().count() > 150);
    }

    #[test]
    fn facts_are_where_the_passes_look() {
        let pod = kind("", "v1", "Pod");
        let (containers, list) = field(&pod, "spec.containers");
        assert!(containers.required && !containers.omit_empty);
        assert_eq!(containers.number, Some(2));
        assert_eq!(list.node().list_type, ListType::Map(["name".into()].into()));
        let patch = containers.patch.as_ref().unwrap();
        assert_eq!((patch.merge, patch.merge_key.as_deref()), (true, Some("name")));

        let (config_map, _) = field(&pod, "spec.volumes.configMap");
        assert_eq!((config_map.number, config_map.via), (Some(19), [2, 0]));
        let policy = kind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
        let (rules, _) = field(&policy, "spec.matchConstraints.resourceRules.apiGroups");
        assert_eq!((rules.number, rules.via), (Some(1), [2, 2]));

        let deployment = kind("apps", "v1", "Deployment");
        let (replicas, schema) = field(&deployment, "spec.replicas");
        assert!(replicas.pointer && replicas.omit_empty);
        assert_eq!(schema.node().format, Some(Format::Int32));
    }

    #[test]
    fn a_copy_differs_in_atomicity_alone() {
        let volume = kind("", "v1", "PersistentVolume");
        let (_, claim) = field(&volume, "spec.claimRef");
        assert!(!claim.node().atomic && claim.field("name").is_some());
        assert!(
            builtin()
                .by_type_name("io.k8s.api.core.v1.ObjectReference")
                .unwrap()
                .root()
                .node()
                .atomic
        );
    }
}
