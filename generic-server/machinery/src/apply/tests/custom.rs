//! The schema of a custom kind.

use super::*;
use crate::schema::{FieldDef, ListType, Node, NodeId, Schema, Type};

/// A custom kind: `spec` with a map-like list, a set, an atomic map, and unknown fields below `free`.
pub(super) fn custom() -> KindSchema {
    let mut schema = Schema::default();
    let mut add = |node: Node| {
        schema.nodes.push(node);
        NodeId(u32::try_from(schema.nodes.len() - 1).unwrap())
    };
    let object = |fields: &[(&str, NodeId)]| {
        let mut fields: Vec<FieldDef> = fields
            .iter()
            .map(|(name, node)| FieldDef {
                name: (*name).into(),
                node: *node,
                required: false,
                omit_empty: true,
                pointer: true,
                default: None,
                patch: None,
                number: None,
                via: [0; 2],
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Node {
            ty: Type::Object,
            fields: fields.into(),
            ..Node::default()
        }
    };
    let string = add(Node {
        ty: Type::String,
        ..Node::default()
    });
    let item = add(object(&[("k", string), ("v", string)]));
    let list = |items, list_type| Node {
        ty: Type::Array,
        items: Some(items),
        list_type,
        ..Node::default()
    };
    let m = add(list(item, ListType::Map(["k".into()].into())));
    let s = add(list(string, ListType::Set));
    let atom = add(Node {
        atomic: true,
        ..object(&[("p", string), ("q", string)])
    });
    let free = add(Node {
        ty: Type::Object,
        preserve_unknown: true,
        ..Node::default()
    });
    let spec = add(object(&[("m", m), ("s", s), ("atom", atom), ("free", free)]));
    let root = add(object(&[("spec", spec)]));
    schema.root = Some(root);
    KindSchema::new(schema.into(), root)
}
