//! `variables` of a policy: expressions by name, evaluated when something asks for them.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kube_cel::{
    Bindings, DeclType, EvalError, FieldDecl, LazyObject, ListType, Map, Type, Val, escape_field,
};
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

/// All of a policy, in their order.
#[derive(Debug, Default)]
pub(super) struct Variables {
    list: Vec<Variable>,
    /// Where each is in the list, by the name that expressions have for it.
    by_name: HashMap<String, usize>,
}

impl Variables {
    /// Adds one. Of those with one name the first counts.
    pub(super) fn push(&mut self, variable: Variable) {
        if let Some(name) = escape_field(&variable.name) {
            self.by_name.entry(name).or_insert(self.list.len());
        }
        self.list.push(variable);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Variable> {
        self.list.iter()
    }

    /// The type of `variables`.
    pub(super) fn declared(&self) -> DeclType {
        declared(self.by_name.values().map(|index| &self.list[*index]))
    }

    /// The type of `variables` as far as an expression can use it: with those that one of its words names. Declaring all for each
    /// variable would cost the square of their number.
    pub(super) fn declared_for(&self, source: &str) -> DeclType {
        let words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<usize> = words.filter_map(|word| self.by_name.get(word).copied()).collect();
        declared(named.into_iter().map(|index| &self.list[index]))
    }

    fn position(&self, field: &str) -> Option<usize> {
        match self.by_name.get(field) {
            Some(index) => Some(*index),
            None => escape_field(field).and_then(|escaped| self.by_name.get(&escaped).copied()),
        }
    }
}

fn declared<'v>(variables: impl Iterator<Item = &'v Variable>) -> DeclType {
    let fields = variables.map(|variable| {
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

/// The value of a variable that was computed, with the cost of that.
#[derive(Debug)]
struct Known {
    value: Value,
    price: u64,
    /// The turn in whose cost the price is; 0 while it is in none.
    charged: AtomicU32,
}

/// The variables of one write.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    variables: &'a Variables,
    base: Bindings<'a>,
    /// Scalars that were computed; values that borrow from the object are cheap to look up again.
    known: Vec<OnceLock<Known>>,
    cost: AtomicU64,
    /// How often the cost was taken, and one.
    turn: AtomicU32,
    depth: AtomicU32,
}

impl<'a> Lazy<'a> {
    pub(super) fn new(variables: &'a Variables, base: Bindings<'a>) -> Self {
        Lazy {
            variables,
            base,
            known: variables.list.iter().map(|_| OnceLock::new()).collect(),
            cost: AtomicU64::new(0),
            turn: AtomicU32::new(1),
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
        let index = self.variables.position(field)?;
        if let Some(known) = self.known[index].get() {
            let turn = self.turn.load(Ordering::Relaxed);
            let unpaid = known
                .charged
                .compare_exchange(0, turn, Ordering::Relaxed, Ordering::Relaxed);
            if unpaid.is_ok() {
                self.cost.fetch_add(known.price, Ordering::Relaxed);
            }
            return Some(Ok(Val::dynamic(&known.value)));
        }
        let before = self.cost.load(Ordering::Relaxed);
        let result = self.evaluate(&self.variables.list[index]);
        if let Ok(value) = &result
            && matches!(value, Val::Null | Val::Bool(_) | Val::Int(_) | Val::String(_))
            && let Ok(json) = value.to_json()
        {
            // Another thread may have been first, with the same value.
            let _ = self.known[index].set(Known {
                value: json,
                price: self.cost.load(Ordering::Relaxed).saturating_sub(before),
                charged: AtomicU32::new(self.turn.load(Ordering::Relaxed)),
            });
        }
        Some(result)
    }

    fn len(&self) -> usize {
        self.variables.list.len()
    }
}

impl Metered for Lazy<'_> {
    fn take(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.cost.swap(0, Ordering::Relaxed)
    }

    fn forget(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        for known in self.known.iter().filter_map(OnceLock::get) {
            // A price that was charged in an earlier turn is not taken back.
            let _ = known
                .charged
                .compare_exchange(turn, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.cost.store(0, Ordering::Relaxed);
    }
}
