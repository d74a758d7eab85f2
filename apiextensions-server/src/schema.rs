//! Schemas of custom resources: compiled, and objects judged by them.

use std::sync::Arc;

use machinery::custom::growth_by_defaults;
use machinery::schema::validate;
use machinery::schema::{KindSchema, NodeId, Pattern, Schema, crd, patterns_weight};
use machinery::{FieldError, FieldPath, limits};
use serde_json::{Value, json};

/// A compiled schema.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) whole: KindSchema,
    /// The schema of `status`, when it has one of its own.
    status: Option<KindSchema>,
    /// Whether it fills in anything.
    pub(crate) has_defaults: bool,
    /// Whether its patterns are large: the first value that is held against one waits until it is compiled.
    pub(crate) has_heavy_patterns: bool,
}

/// Compiles an `openAPIV3Schema`.
pub(crate) fn compile(raw: &Value) -> Result<Compiled, Vec<FieldError>> {
    Ok(compiled(crd::compile(raw)?))
}

/// The same, as upstream judges defaults by it.
pub(crate) fn compile_for_defaults(raw: &Value) -> Result<Compiled, Vec<FieldError>> {
    Ok(compiled(crd::compile_for_defaults(raw)?))
}

fn compiled(mut schema: Schema) -> Compiled {
    let root = schema.root.unwrap_or(NodeId(0));
    let has_defaults = schema.nodes.iter().any(|node| {
        node.fields.iter().any(|f| f.default.is_some())
            || node.rules.as_ref().is_some_and(|r| r.default.is_some())
    });
    if has_defaults {
        schema.defaults = growth_by_defaults(schema.at(root));
    }
    let arena = Arc::new(schema);
    let whole = KindSchema::new(arena.clone(), root);
    let status = whole.root().field("status").map(|(field, _)| field.node);
    let patterns = arena
        .nodes
        .iter()
        .filter_map(|node| node.rules.as_ref()?.pattern.as_ref());
    let has_heavy_patterns = patterns_weight(patterns.map(Pattern::text)) > limits::HEAVY_PATTERN_WEIGHT;
    Compiled {
        has_heavy_patterns,
        status: status.map(|id| KindSchema::new(arena, id)),
        whole,
        has_defaults,
    }
}

impl Compiled {
    /// Faults of a new object.
    pub(crate) fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::validate(self.whole.root(), object, &FieldPath::ROOT)
    }

    /// Errors of a changed object; unchanged parts pass.
    pub(crate) fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate::validate_update(self.whole.root(), object, old, &FieldPath::ROOT)
    }

    /// Faults of a changed status.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let (Some(schema), Some(status)) = (&self.status, object.get("status")) else {
            return Vec::new();
        };
        let path = FieldPath::new("status");
        match old.get("status") {
            Some(old) => validate::validate_update(schema.root(), status, old, &path),
            None => validate::validate_update(schema.root(), status, &json!(null), &path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_patterns_are_known() {
        #[track_caller]
        fn check(patterns: &[&str], expected: bool) {
            let properties: serde_json::Map<String, Value> = patterns
                .iter()
                .enumerate()
                .map(|(index, pattern)| (format!("p{index}"), json!({"type": "string", "pattern": pattern})))
                .collect();
            let schema = compile(&json!({"type": "object", "properties": properties})).expect("a schema");
            assert_eq!(schema.has_heavy_patterns, expected, "{patterns:?}");
        }
        // A class of letters counts for a thousand states.
        assert_eq!(limits::HEAVY_PATTERN_WEIGHT, 20_000);
        check(&[], false);
        check(&["^[a-z]+$", "^[0-9]{1,3}$"], false);
        check(&[r"\pL{20}"], false);
        check(&[r"\pL{20}a"], true);
        check(&[r"\pL{10}", r"a\pL{10}"], true);
    }
}
