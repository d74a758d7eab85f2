//! Bringing an object that was stored under another schema to one that is read now.

use machinery::custom;
use machinery::schema::KindSchema;
use serde_json::Value;

/// Takes out of an object what a schema does not know: fields, nulls that are not allowed, malformed metadata of embedded objects.
pub(crate) fn coerce(schema: &KindSchema, prunes: bool, object: &mut Value) {
    let root = schema.root();
    if prunes {
        custom::prune(root, object, true);
        custom::prune_nulls(root, object);
    }
    // Malformed metadata of embedded objects is dropped, nothing is refused here.
    let _ = custom::coerce_metadata(root, object, true, true);
}

/// Brings an object stored under another schema to this one: unknown fields are pruned, defaults are applied.
pub(crate) fn read_back(schema: &KindSchema, prunes: bool, object: &mut Value) {
    coerce(schema, prunes, object);
    custom::default(schema.root(), object);
}
