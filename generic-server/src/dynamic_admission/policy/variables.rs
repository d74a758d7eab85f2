//! `variables` of a policy: expressions by name, evaluated when something asks for them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kube_cel::{Bindings, DeclType, EvalError, FieldDecl, LazyObject, ListType, Map, Type, Val};
use serde_json::Value;

use crate::dynamic_admission::expression::{Expression, Metered};

/// How deep variables may ask for one another.
const MOST_NESTED: u32 = 64;

/// One of them. It sees those before it.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) expression: Expression,
}

/// The type of `variables`.
pub(super) fn declared(variables: &[Variable]) -> DeclType {
    let fields = variables.iter().map(|variable| {
        let output = variable
            .expression
            .program
            .as_ref()
            .map(|program| program.output_type());
        FieldDecl::new(
            &variable.name,
            output.map_or_else(|_| DeclType::dynamic(), decl_of),
        )
    });
    DeclType::object("kubernetes.variables", fields)
}

/// A declaration whose expressions have this type; untyped where there is none.
fn decl_of(ty: &Type) -> DeclType {
    match ty {
        Type::Bool => DeclType::bool(),
        Type::Int => DeclType::int(),
        Type::Double => DeclType::double(),
        Type::String => DeclType::string(),
        Type::Bytes => DeclType::bytes(),
        Type::Timestamp => DeclType::date_time(),
        Type::Duration => DeclType::duration(),
        Type::List(item) => DeclType::list(decl_of(item), None, ListType::Atomic),
        Type::Map(pair) if matches!(pair.0, Type::String) => DeclType::map(decl_of(&pair.1), None),
        _ => DeclType::dynamic(),
    }
}

/// The variables of one write.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    variables: &'a [Variable],
    base: Bindings<'a>,
    /// Scalars that were computed; what borrows from the object is cheap to look up again.
    known: Vec<OnceLock<Value>>,
    cost: AtomicU64,
    depth: AtomicU32,
}

impl<'a> Lazy<'a> {
    pub(super) fn new(variables: &'a [Variable], base: Bindings<'a>) -> Self {
        Lazy {
            variables,
            base,
            known: variables.iter().map(|_| OnceLock::new()).collect(),
            cost: AtomicU64::new(0),
            depth: AtomicU32::new(0),
        }
    }

    /// All that an expression sees.
    pub(super) fn bindings(&self) -> Bindings<'_> {
        let base: Bindings<'_> = self.base.clone();
        base.with("variables", Val::Map(Map::Lazy(self)))
    }

    fn evaluate(&self, variable: &Variable) -> Result<Val<'_>, EvalError> {
        let failed = |what: &str, why: String| {
            EvalError::new(format!(
                "composited variable \"{}\" fails to {what}: {why}",
                variable.name
            ))
        };
        let program = variable
            .expression
            .program
            .as_ref()
            .map_err(|why| failed("compile", why.clone()))?;
        if self.depth.fetch_add(1, Ordering::Relaxed) >= MOST_NESTED {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return Err(failed("evaluate", "variables are nested too deeply".into()));
        }
        let bindings = self.bindings();
        let (result, cost) = program.eval_counted(&bindings);
        self.cost.fetch_add(cost, Ordering::Relaxed);
        self.depth.fetch_sub(1, Ordering::Relaxed);
        result.map_err(|error| failed("evaluate", error.to_string()))
    }
}

impl LazyObject for Lazy<'_> {
    fn get(&self, field: &str) -> Option<Result<Val<'_>, EvalError>> {
        let index = self
            .variables
            .iter()
            .position(|variable| variable.name == field)?;
        if let Some(known) = self.known[index].get() {
            return Some(Ok(Val::dynamic(known)));
        }
        let result = self.evaluate(&self.variables[index]);
        if let Ok(value) = &result
            && matches!(value, Val::Null | Val::Bool(_) | Val::Int(_) | Val::String(_))
            && let Ok(json) = value.to_json()
        {
            // Somebody else may have been first, with the same.
            let _ = self.known[index].set(json);
        }
        Some(result)
    }

    fn len(&self) -> usize {
        self.variables.len()
    }
}

impl Metered for Lazy<'_> {
    fn take(&self) -> u64 {
        self.cost.swap(0, Ordering::Relaxed)
    }
}
