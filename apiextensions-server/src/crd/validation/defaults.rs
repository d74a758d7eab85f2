//! Whether defaults in a schema are values of the schema. Mirrors `pkg/apiserver/schema/defaulting/{validation,prune}.go`.

use kube_cel::RUNTIME_BUDGET;
use machinery::custom;
use machinery::field::FieldErrorKind;
use machinery::go;
use machinery::schema::{SchemaRef, validate as values};
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::props::Props;
use crate::rules::{Compiler, RuleTree};
use crate::{embedded, schema};

/// Faults of the defaults in a structural schema at `path`. One that does not compile is reported elsewhere.
pub(super) fn validate(path: &FieldPath<'_>, raw: &Value, require_pruned: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let props = Props::new(raw);
    if !props.any(&mut |node| node.get("default").is_some()) {
        return errors;
    }
    let Ok(compiled) = schema::compile_for_defaults(raw) else {
        return errors;
    };
    let mut walk = Walk {
        require_pruned,
        budget: RUNTIME_BUDGET,
        compiler: Compiler::default(),
        errors: &mut errors,
    };
    let root = compiled.whole.root();
    walk.node(path, props, root, &Surrounding::Whole(root), false, true);
    errors
}

/// Whether a default holds fields that the schema does not know: stored CRDs may have it so.
pub(super) fn has_unpruned(raw: &Value) -> bool {
    let props = Props::new(raw);
    if !props.any(&mut |node| node.get("default").is_some()) {
        return false;
    }
    let Ok(compiled) = schema::compile(raw) else {
        return false;
    };
    any_unpruned(props, compiled.whole.root())
}

fn any_unpruned(props: Props<'_>, node: SchemaRef<'_>) -> bool {
    if props
        .get("default")
        .is_some_and(|default| !is_pruned(props, node, default))
    {
        return true;
    }
    let items = props.item().zip(node.items());
    let values = props.additional_schema().zip(node.additional());
    items.into_iter().chain(values).any(|(p, n)| any_unpruned(p, n))
        || props
            .schemas("properties")
            .any(|(name, p)| node.field(name).is_some_and(|(_, n)| any_unpruned(p, n)))
}

fn is_pruned(props: Props<'_>, node: SchemaRef<'_>, default: &Value) -> bool {
    let mut pruned = default.clone();
    custom::prune(node, &mut pruned, props.embedded());
    pruned == *default
}

/// The whole object around a node, in which a default inside its type or metadata is validated.
enum Surrounding<'a> {
    Whole(SchemaRef<'a>),
    Property(&'a Surrounding<'a>, &'a str),
    Item(&'a Surrounding<'a>),
}

impl<'a> Surrounding<'a> {
    /// The smallest object that has the value in this place.
    fn around(&self, value: Value) -> Value {
        match self {
            Surrounding::Whole(_) => {
                let mut object = value;
                if let Some(map) = object.as_object_mut() {
                    map.entry("kind").or_insert_with(|| "Validation".into());
                    map.entry("apiVersion").or_insert_with(|| "validation/v1".into());
                }
                object
            }
            Surrounding::Property(parent, name) => parent.around(json!({ *name: value })),
            Surrounding::Item(parent) => parent.around(json!([value])),
        }
    }

    fn schema(&self) -> SchemaRef<'a> {
        match self {
            Surrounding::Whole(schema) => *schema,
            Surrounding::Property(parent, _) | Surrounding::Item(parent) => parent.schema(),
        }
    }
}

struct Walk<'e, 's> {
    require_pruned: bool,
    budget: u64,
    /// Defaults may be nested: the rules of each node are compiled once.
    compiler: Compiler<'s>,
    errors: &'e mut Vec<FieldError>,
}

impl<'s> Walk<'_, 's> {
    fn node(
        &mut self,
        path: &FieldPath<'_>,
        props: Props<'s>,
        node: SchemaRef<'_>,
        around: &Surrounding<'_>,
        inside_meta: bool,
        root: bool,
    ) {
        let whole = root || props.embedded();
        let fresh = Surrounding::Whole(node);
        let (around, inside_meta) = if whole {
            (&fresh, false)
        } else {
            (around, inside_meta)
        };
        if let Some(default) = props.get("default") {
            let at = path.child("default");
            let found = if inside_meta {
                in_metadata(&at, default, around)
            } else {
                if self.require_pruned && !is_pruned(props, node, default) {
                    let why = "must not have unknown fields";
                    self.errors.push(FieldError::invalid(&at, default, why));
                }
                outside_metadata(&at, props, node, default)
            };
            let found = if found.is_empty() {
                let mut found = values::validate(node, default, &at);
                if found.is_empty() {
                    found = self.rules(&at, props, default, whole);
                }
                found
            } else {
                found
            };
            self.errors.extend(found);
        }
        // Below additionalProperties defaults of metadata are forbidden, others are followed when they are used.
        if let (Some(items), Some(below)) = (props.item(), node.items()) {
            let inner = Surrounding::Item(around);
            self.node(&path.child("items"), items, below, &inner, inside_meta, false);
        }
        let properties = path.child("properties");
        for (name, property) in props.schemas("properties") {
            let Some((_, below)) = node.field(name) else {
                continue;
            };
            let meta = inside_meta || (whole && matches!(name, "metadata" | "apiVersion" | "kind"));
            let inner = Surrounding::Property(around, name);
            self.node(&properties.key(name), property, below, &inner, meta, false);
        }
    }

    /// Rules hold of a default that has always been there, and of one that is new.
    fn rules(
        &mut self,
        at: &FieldPath<'_>,
        props: Props<'s>,
        default: &Value,
        whole: bool,
    ) -> Vec<FieldError> {
        let Some(tree) = RuleTree::for_value(props, whole, default, &mut self.compiler) else {
            return Vec::new();
        };
        let before = self.budget;
        let mut found = tree.spend(at, default, Some(default), &mut self.budget);
        if found.is_empty() {
            let mut budget = before;
            found = tree.spend(at, default, None, &mut budget);
            self.budget = self.budget.min(budget);
        }
        found
    }
}

/// A default elsewhere may have objects embedded in it, with metadata of their own.
fn outside_metadata(
    at: &FieldPath<'_>,
    props: Props<'_>,
    node: SchemaRef<'_>,
    default: &Value,
) -> Vec<FieldError> {
    let mut copy = default.clone();
    if let Err(error) = custom::coerce_metadata(node, &mut copy, props.embedded(), false) {
        return vec![below(at, error)];
    }
    embedded::validate_within(node, default, at)
}

/// An error of a part, with the path of the default.
fn below(at: &FieldPath<'_>, error: FieldError) -> FieldError {
    let field = match error.field.as_str() {
        "<nil>" => at.to_string(),
        inner => format!("{at}.{inner}"),
    };
    FieldError { field, ..error }
}

/// A default of a field of the type or metadata has to make valid metadata.
fn in_metadata(at: &FieldPath<'_>, default: &Value, around: &Surrounding<'_>) -> Vec<FieldError> {
    let mut object = around.around(default.clone());
    let schema = around.schema();
    let invalid = |why: String| FieldError {
        kind: FieldErrorKind::Invalid,
        field: at.to_string(),
        value: Some(machinery::field::show_value(default)),
        detail: format!("must result in valid metadata: {why}"),
    };
    if let Err(error) = custom::coerce_metadata(schema, &mut object, true, false) {
        return vec![invalid(error.to_string())];
    }
    let faults = embedded::validate_whole(schema, &object);
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    vec![invalid(go::aggregate(&texts).into_owned())]
}
