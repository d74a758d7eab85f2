//! All rules of a schema, compiled, and their evaluation over an object in place.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::{Bindings, DeclType, EvalError, RUNTIME_BUDGET, Val};
use machinery::field::{FieldErrorKind, show_value};
use machinery::schema::validate::Correlated;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::compiler::{Compiler, NodeRules, Rule};
use crate::props::Props;

/// The longest text that a `messageExpression` may give, in bytes.
const MESSAGE_MAX: usize = 5 * 1024;
const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The rules of a node and of those below it.
#[derive(Debug)]
pub(crate) struct RuleTree {
    ty: String,
    /// Absent when there are none here.
    own: Option<Arc<NodeRules>>,
    items: Option<Box<RuleTree>>,
    values: Option<Box<RuleTree>>,
    properties: HashMap<String, RuleTree>,
    /// Keys that identify the items of the list.
    keys: Vec<String>,
}

/// The findings of rules.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) errors: Vec<FieldError>,
    /// Failures of values that have not changed.
    pub(crate) warnings: Vec<String>,
}

/// What a value is compared with to know whether its faults are forgiven.
#[derive(Debug, Clone, Copy, Default)]
struct Ratchet<'v> {
    /// The value with its old self.
    own: Option<Correlated<'v>>,
    /// The nearest value above that has an old self, for one that has none.
    nearest: Option<Correlated<'v>>,
}

impl<'v> Ratchet<'v> {
    /// That of the value under a name.
    fn key(self, name: &str) -> Self {
        match (self.own, self.nearest) {
            (None, _) => self,
            // At the root both are those of the request.
            (Some(_), None) if matches!(name, "apiVersion" | "kind") => Ratchet::default(),
            (Some(own), _) => Ratchet::below(own, own.key(name)),
        }
    }

    fn below(parent: Correlated<'v>, own: Option<Correlated<'v>>) -> Self {
        Ratchet {
            own,
            nearest: Some(parent),
        }
    }

    /// Whether the value is as it was.
    fn forgives(self) -> bool {
        self.own.or(self.nearest).is_some_and(Correlated::unchanged)
    }
}

/// No rule is looked at any more: the budget is spent.
struct Spent;

struct Run {
    budget: u64,
    outcome: Outcome,
}

impl RuleTree {
    /// Compiles all rules of a schema in slices; `None` when there are none.
    pub(crate) async fn compile(schema: Props<'_>) -> Option<RuleTree> {
        let mut compiler = Compiler::default();
        compiler.compile(schema, true).await;
        RuleTree::of(schema, true, &mut compiler)
    }

    /// The rules of a part of a schema; `whole` says that its values are whole objects.
    pub(crate) fn of<'s>(schema: Props<'s>, whole: bool, compiler: &mut Compiler<'s>) -> Option<RuleTree> {
        node(schema, whole, None, compiler)
    }

    /// The same, of the nodes alone that a value has.
    pub(crate) fn for_value<'s>(
        schema: Props<'s>,
        whole: bool,
        value: &Value,
        compiler: &mut Compiler<'s>,
    ) -> Option<RuleTree> {
        node(schema, whole, Some(value), compiler)
    }

    /// Evaluates the rules over a value, out of a budget shared with others.
    pub(crate) fn spend(
        &self,
        path: &FieldPath<'_>,
        value: &Value,
        old: Option<&Value>,
        budget: &mut u64,
    ) -> Vec<FieldError> {
        let mut run = Run {
            budget: *budget,
            outcome: Outcome::default(),
        };
        let _ = self.visit(path, value, old, Ratchet::default(), &mut run);
        *budget = run.budget;
        run.outcome.errors
    }

    /// Evaluates the rules over an object. `old` is the previous object; with `ratchet` failures of values that are as they were are warnings.
    pub(crate) fn evaluate(
        &self,
        path: &FieldPath<'_>,
        object: &Value,
        old: Option<&Value>,
        ratchet: Option<Correlated<'_>>,
    ) -> Outcome {
        let mut run = Run {
            budget: RUNTIME_BUDGET,
            outcome: Outcome::default(),
        };
        let ratchet = Ratchet {
            own: ratchet,
            nearest: None,
        };
        // A spent budget has left its error.
        let _ = self.visit(path, object, old, ratchet, &mut run);
        run.outcome
    }
}

/// Nodes in the order of [`super::compiler::sites`]. `value`: what the rules are for; without one, for any.
fn node<'s>(
    schema: Props<'s>,
    root: bool,
    value: Option<&Value>,
    compiler: &mut Compiler<'s>,
) -> Option<RuleTree> {
    let has = |name: &str| value.is_none_or(|value| value.get(name).is_some());
    // The values of a map or list have one schema: it is for any of them.
    let has_elements = match value {
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => false,
        None => true,
    };
    let mut below = |schema: Option<Props<'s>>| {
        let schema = schema.filter(|_| has_elements)?;
        node(schema, schema.embedded(), None, compiler).map(Box::new)
    };
    let (items, values) = (below(schema.item()), below(schema.additional_schema()));
    let properties = schema.schemas("properties").filter(|(name, _)| has(name));
    let properties: HashMap<String, RuleTree> = properties
        .filter_map(|(name, property)| {
            let value = value.and_then(|value| value.get(name));
            let tree = node(property, property.embedded(), value, compiler)?;
            Some((name.to_string(), tree))
        })
        .collect();
    let own = compiler.rules_of(schema, root);
    if own.is_none() && items.is_none() && values.is_none() && properties.is_empty() {
        return None;
    }
    let keys = match schema.list_type() {
        Some("map") => schema
            .strings("x-kubernetes-list-map-keys")
            .map(str::to_string)
            .collect(),
        _ => Vec::new(),
    };
    Some(RuleTree {
        ty: schema.ty().into(),
        own,
        items,
        values,
        properties,
        keys,
    })
}

impl RuleTree {
    fn visit(
        &self,
        path: &FieldPath<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        run: &mut Run,
    ) -> Result<(), Spent> {
        // Rules about whether something is null stand in the schema around it.
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|o| !o.is_null());
        self.here(path, value, old, ratchet, run)?;
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let old = old.and_then(|o| o.get(key));
                    if let Some(tree) = &self.values {
                        tree.visit(&path.key(key), value, old, ratchet.key(key), run)?;
                    }
                    if let Some(tree) = self.properties.get(key) {
                        tree.visit(&path.child(key), value, old, ratchet.key(key), run)?;
                    }
                }
            }
            Value::Array(items) => {
                let Some(tree) = &self.items else { return Ok(()) };
                let old = old.and_then(Value::as_array).map(|old| self.by_keys(old));
                let known = ratchet.own.and_then(Correlated::items);
                for (i, item) in items.iter().enumerate() {
                    let old = old
                        .as_ref()
                        .and_then(|old| old.get(&self.keys_of(item)?).copied());
                    let ratchet = match ratchet.own {
                        Some(list) => Ratchet::below(list, known.as_ref().and_then(|k| k.of(item))),
                        None => ratchet,
                    };
                    tree.visit(&path.index(i), item, old, ratchet, run)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The items of a list by their keys; of those with the same ones the first.
    fn by_keys<'o>(&self, list: &'o [Value]) -> HashMap<String, &'o Value> {
        let mut items = HashMap::new();
        for item in list {
            if let Some(keys) = self.keys_of(item) {
                items.entry(keys).or_insert(item);
            }
        }
        items
    }

    /// The keys of a list's item as one text, if it has them all.
    fn keys_of(&self, item: &Value) -> Option<String> {
        if self.keys.is_empty() || !item.is_object() {
            return None;
        }
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        let text = |key: &String| match item.get(key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            scalar => Some(scalar.to_string()),
        };
        Some(self.keys.iter().map(text).collect::<Option<Vec<_>>>()?.join(","))
    }

    fn here(
        &self,
        path: &FieldPath<'_>,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        run: &mut Run,
    ) -> Result<(), Spent> {
        let invalid = |detail: String| FieldError::invalid_str(path, &self.ty, detail);
        let Some(own) = &self.own else { return Ok(()) };
        let (decl, rules) = match &**own {
            Ok((decl, rules)) => (decl, rules),
            Err(why) => {
                let detail = format!("rule compiler initialization error: {why}");
                run.outcome.errors.push(invalid(detail));
                return Ok(());
            }
        };
        if run.budget == 0 {
            run.outcome.errors.push(invalid(NO_BUDGET.into()));
            return Err(Spent);
        }
        // Compared when the first rule fails.
        let mut forgives = None;
        for rule in rules {
            let program = match &rule.program {
                Ok(program) => program,
                Err(why) => {
                    run.outcome
                        .errors
                        .push(invalid(format!("rule compile error: {why}")));
                    continue;
                }
            };
            let transition = program.uses("oldSelf");
            if transition && old.is_none() && !rule.optional_old {
                continue;
            }
            // An old value of another type is no fault of a rule that does not look at it.
            let compared = old.filter(|_| transition);
            let bound = bind(decl, value, compared, rule.optional_old);
            let result = bound.and_then(|bindings| program.eval(&bindings, &mut run.budget));
            match result {
                Ok(verdict) if verdict.as_bool() == Some(true) => continue,
                Ok(_) => {}
                Err(EvalError::Budget) => {
                    run.outcome.errors.push(invalid(NO_BUDGET.into()));
                    return Err(Spent);
                }
                Err(error @ EvalError::CostLimit) => {
                    let label = &rule.label;
                    run.outcome.errors.push(invalid(format!(
                        "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {label}"
                    )));
                    return Err(Spent);
                }
                Err(error) => {
                    let (error, label) = (error.to_string(), &rule.label);
                    run.outcome.errors.push(invalid(if error.starts_with("no such overload") {
                        format!("'{error}': call arguments did not match a supported operator, function or macro signature for rule: {label}")
                    } else {
                        format!("{error} evaluating rule: {label}")
                    }));
                    continue;
                }
            }
            let at = match &rule.field {
                Some(field) => path.child(field),
                None => *path,
            };
            let unchanged = !transition && *forgives.get_or_insert_with(|| ratchet.forgives());
            let (error, spent) = self.failure(rule, decl, &at, value, old, &mut run.budget);
            if unchanged {
                run.outcome.warnings.push(error.to_string());
            } else {
                run.outcome.errors.push(error);
            }
            if spent {
                return Err(Spent);
            }
        }
        Ok(())
    }

    /// The error of a failed rule, and whether building its message has spent the budget.
    fn failure(
        &self,
        rule: &Rule,
        decl: &DeclType,
        at: &FieldPath<'_>,
        value: &Value,
        old: Option<&Value>,
        budget: &mut u64,
    ) -> (FieldError, bool) {
        let invalid = |detail: String| (FieldError::invalid_str(at, &self.ty, detail), true);
        let mut detail = match rule.has_message {
            true => rule.label.clone(),
            false => format!("failed rule: {}", rule.label),
        };
        if let Some(expression) = &rule.message_expression {
            let result = bind(decl, value, old, false).and_then(|b| expression.eval(&b, budget));
            match result {
                Err(EvalError::Budget) => {
                    return invalid("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".into());
                }
                Err(EvalError::CostLimit) => {
                    let source = machinery::go::quote(&rule.message_source);
                    return invalid(format!(
                        "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
                    ));
                }
                // If the message expression fails, the rule's own message is used.
                Err(_) => {}
                Ok(text) => {
                    let text = text.as_str().unwrap_or_default().trim();
                    if !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n') {
                        detail = text.to_string();
                    }
                }
            }
        }
        let shown = match self.ty.as_str() {
            "object" | "array" => None,
            _ => Some(show_value(value)),
        };
        let (kind, value) = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => (FieldErrorKind::Forbidden, None),
            Some("FieldValueRequired") => (FieldErrorKind::Required, None),
            Some("FieldValueDuplicate") => {
                detail.clear();
                (FieldErrorKind::Duplicate, shown)
            }
            _ => (FieldErrorKind::Invalid, shown),
        };
        let error = FieldError {
            kind,
            field: at.to_string(),
            value,
            detail,
        };
        (error, false)
    }
}

fn bind<'v>(
    decl: &'v DeclType,
    value: &'v Value,
    old: Option<&'v Value>,
    optional: bool,
) -> Result<Bindings<'v>, EvalError> {
    let mut bindings = Bindings::new().with("self", Val::json(value, decl)?);
    let old = old.map(|old| Val::json(old, decl)).transpose()?;
    match (old, optional) {
        (Some(old), true) => {
            bindings.set("oldSelf", Val::some(old));
        }
        (None, true) => {
            bindings.set("oldSelf", Val::Optional(None));
        }
        (Some(old), false) => {
            bindings.set("oldSelf", old);
        }
        (None, false) => {}
    }
    Ok(bindings)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    thread_local! {
        /// How often an item's keys were looked at.
        pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    fn tree() -> RuleTree {
        let item = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "n": {"type": "integer"}},
            "required": ["n"], "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "n shrinks"}]});
        let schema = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"]});
        RuleTree::of(Props::new(&schema), true, &mut Compiler::default()).expect("it has rules")
    }

    #[test]
    fn items_are_paired_by_all_their_keys() {
        #[track_caller]
        fn check(new: Value, old: Value, expected: &[&str]) {
            let outcome = tree().evaluate(&FieldPath::new("list"), &new, Some(&old), None);
            let found: Vec<&str> = outcome.errors.iter().map(|error| &*error.field).collect();
            assert_eq!(found, expected);
        }
        let item = |a: Value, b: Value, n: u32| json!({"a": a, "b": b, "n": n});
        let old = json!([item(json!("x"), json!(1), 5), item(json!("x"), json!(2), 1), {"a": "y", "n": 5}]);
        check(
            json!([item(json!("x"), json!(2), 1), item(json!("x"), json!(1), 4)]),
            old.clone(),
            &["list[1]"],
        );
        check(
            json!([item(json!("x"), json!(3), 0), item(json!("1"), json!("x"), 0)]),
            old.clone(),
            &[],
        );
        // An item that lacks one of the keys has no old value.
        check(json!([{"a": "y", "n": 4}, {"b": 1, "n": 0}]), old, &[]);
    }

    #[test]
    fn an_old_value_of_another_type_matters_to_rules_that_look_at_it() {
        let outcome = |rule: &str| {
            let schema = json!({"type": "boolean", "x-kubernetes-validations": [{"rule": rule}]});
            let tree =
                RuleTree::of(Props::new(&schema), false, &mut Compiler::default()).expect("it has rules");
            tree.evaluate(&FieldPath::new("b"), &json!(true), Some(&json!(3)), None)
                .errors
                .len()
        };
        assert_eq!(outcome("string(self) == 'true'"), 0);
        assert_eq!(outcome("self == oldSelf"), 1);
    }

    #[test]
    fn each_item_is_looked_at_once() {
        let tree = tree();
        let list = |count: usize| -> Value {
            (0..count)
                .map(|a| json!({"a": a.to_string(), "b": 1, "n": 1}))
                .collect()
        };
        for count in [100, 200] {
            let (new, old) = (list(count), list(count));
            LOOKED_AT.set(0);
            let outcome = tree.evaluate(&FieldPath::new("list"), &new, Some(&old), None);
            assert!(outcome.errors.is_empty());
            assert_eq!(LOOKED_AT.get(), 2 * count);
        }
    }
}
