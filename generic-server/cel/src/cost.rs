//! The worst-case cost of an expression, estimated from the sizes its data can have.
//!
//! Mirrors cel-go's `checker/cost.go`, its extension estimators and Kubernetes' `library/cost.go`; a CRD is refused by these
//! numbers, so they are kept to the digit, oddities included. Prices of calls are in `cost::calls`.

mod calls;

use std::{collections::HashMap, ops::Add};

use crate::{
    ast::{ACCUMULATOR, Call, Expr, Fold, Kind, LEGACY_ACCUMULATOR, Literal, Select, op},
    checker::{Checked, Reference},
    types::{DeclKind, DeclType, Type},
};

/// The least and the most an evaluation can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostEstimate {
    pub min: u64,
    pub max: u64,
}

/// Sizes and costs share their arithmetic: ranges that saturate.
type Range = CostEstimate;

pub(crate) const UNKNOWN: Range = Range {
    min: 0,
    max: u64::MAX,
};

impl Add for CostEstimate {
    type Output = CostEstimate;

    fn add(self, other: CostEstimate) -> CostEstimate {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

impl CostEstimate {
    pub(crate) fn fixed(value: u64) -> Range {
        Range {
            min: value,
            max: value,
        }
    }

    fn times(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    fn scaled(self, factor: f64) -> Range {
        Range {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    fn union(self, other: Range) -> Range {
        Range {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

fn scale(value: u64, factor: f64) -> u64 {
    let exact = value as f64;
    if exact > 0.0 && factor > 0.0 && exact > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    // The cast saturates.
    (exact * factor).ceil() as u64
}

/// Estimates a checked expression; `root` is the data paths start at.
pub(crate) fn estimate(checked: &Checked, root: Option<&DeclType>) -> CostEstimate {
    let mut coster = Coster {
        checked,
        root,
        paths: HashMap::new(),
        locals: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(&checked.root)
}

/// Sizes of the elements of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

/// Where a value comes from: a variable and the steps from it, as far as declarations go.
type Path = Vec<Box<str>>;

struct Local {
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Coster<'c> {
    checked: &'c Checked,
    root: Option<&'c DeclType>,
    paths: HashMap<u32, Path>,
    locals: HashMap<Box<str>, Vec<Local>>,
    sizes: HashMap<u32, Range>,
    entries: HashMap<u32, Entries>,
}

/// An argument as price functions see it.
struct Arg<'e> {
    expr: &'e Expr,
    path: Path,
    ty: &'e Type,
    size: Option<Range>,
}

/// The cost of a call without its arguments, and the size of its result.
struct Price {
    cost: Range,
    result: Option<Range>,
}

impl<'c> Coster<'c> {
    fn cost(&mut self, expr: &'c Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) | Kind::Fault => Range::default(),
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                Range::fixed(1)
            }
            Kind::Select(select) => self.select(expr, select),
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let mut sum = Range::fixed(10);
                let mut value = Range {
                    min: if elements.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                for element in elements {
                    sum = sum + self.cost(&element.value);
                    value = value.union(self.size_or_unknown(&element.value));
                }
                self.entries.insert(
                    expr.id,
                    Entries {
                        list: true,
                        key: Range::fixed(1),
                        value,
                    },
                );
                sum
            }
            Kind::Map(entries) => {
                let mut sum = Range::fixed(30);
                let none = Range {
                    min: if entries.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    sum = sum + self.cost(&entry.key) + self.cost(&entry.value);
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(
                    expr.id,
                    Entries {
                        list: false,
                        key,
                        value,
                    },
                );
                sum
            }
            Kind::Struct(literal) => literal
                .fields
                .iter()
                .fold(Range::fixed(40), |sum, field| sum + self.cost(&field.value)),
            Kind::Fold(fold) if fold.is_bind() => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn select(&mut self, expr: &'c Expr, select: &'c Select) -> Range {
        // A dotted name that is one variable or type is an identifier.
        if let Some(Reference::Variable(_) | Reference::Type(_)) = self.checked.references.get(&expr.id) {
            if let Some(name) = expr.qualified_name() {
                self.paths.insert(expr.id, vec![name.into()]);
            }
            return Range::fixed(1);
        }
        let mut sum = self.cost(&select.operand);
        // Asking for presence is free.
        if select.test {
            return sum;
        }
        if matches!(
            self.checked.type_of(&select.operand),
            Type::Map(_) | Type::Object(_) | Type::Struct(_) | Type::Param(_)
        ) {
            sum = sum + Range::fixed(1);
        }
        let mut path = self.path(&select.operand);
        path.push(select.field.clone());
        self.paths.insert(expr.id, path);
        sum
    }

    fn call(&mut self, expr: &'c Expr, call: &'c Call) -> Range {
        if &*call.function == "dyn"
            && let [arg] = &call.args[..]
        {
            let cost = Range::fixed(1) + self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost;
        }
        let checked = self.checked;
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let args: Vec<Arg<'c>> = call.args.iter().map(|arg| self.arg(arg)).collect();
        let Some(Reference::Call {
            function,
            overloads,
            target: with_target,
        }) = checked.references.get(&expr.id)
        else {
            return Range::default();
        };
        let (mut sum, mut target) = (Range::default(), None);
        if let Some(receiver) = call.target.as_deref().filter(|_| *with_target) {
            sum = self.cost(receiver);
            target = Some(self.arg(receiver));
        }
        let mut own = Range {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let price = self.price(expr, function, overload.id, target.as_ref(), &args, &costs);
            own = own.union(price.cost);
            if let Some(size) = price.result {
                result = Some(result.map_or(size, |result| result.union(size)));
            }
            let step = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, call.args.first()) {
                result = self.entry_sizes(container).map(|entries| entries.value);
                let mut path = self.path(container);
                path.push(step.into());
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(size) = result {
            self.sizes.insert(expr.id, size);
        }
        sum + own
    }

    fn fold(&mut self, expr: &'c Expr, fold: &'c Fold) -> Range {
        let mut sum = self.cost(&fold.range) + self.cost(&fold.init);
        self.push_local(&fold.accu, &fold.init);
        let entries = self.entry_sizes(&fold.range);
        let list = match entries {
            Some(entries) => entries.list,
            None => matches!(self.checked.type_of(&fold.range), Type::List(_)),
        };
        let (key, value) = (
            entries.map(|entries| entries.key),
            entries.map(|entries| entries.value),
        );
        let key_step = if list { "@indices" } else { "@keys" };
        let value_step = if list { "@items" } else { "@values" };
        match &fold.var2 {
            Some(var2) => {
                self.push_step(&fold.var, &fold.range, key_step, key);
                self.push_step(var2, &fold.range, value_step, value);
            }
            None if list => self.push_step(&fold.var, &fold.range, value_step, value),
            None => self.push_step(&fold.var, &fold.range, key_step, key),
        }
        let round = self.cost(&fold.condition) + self.cost(&fold.step);
        self.pop(&fold.var);
        if let Some(var2) = &fold.var2 {
            self.pop(var2);
        }
        sum = sum + self.cost(&fold.result);
        self.pop(&fold.accu);
        let count = self.size_or_unknown(&fold.range);
        sum = sum + count.times(round);
        match &fold.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entry_sizes(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn bind(&mut self, expr: &'c Expr, fold: &'c Fold) -> Range {
        let mut sum = self.cost(&fold.range) + self.cost(&fold.init);
        self.push_local(&fold.accu, &fold.init);
        sum = sum + self.cost(&fold.result);
        self.pop(&fold.accu);
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn push_local(&mut self, name: &str, init: &'c Expr) {
        let local = Local {
            path: self.path(init),
            size: self.size(init),
            entries: self.entry_sizes(init),
        };
        self.locals.entry(name.into()).or_default().push(local);
    }

    fn push_step(&mut self, name: &str, range: &'c Expr, step: &str, size: Option<Range>) {
        let mut path = self.path(range);
        path.push(step.into());
        self.locals.entry(name.into()).or_default().push(Local {
            path,
            size,
            entries: None,
        });
    }

    fn pop(&mut self, name: &str) {
        if let Some(locals) = self.locals.get_mut(name) {
            locals.pop();
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.get(name)?.last()
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn arg(&mut self, expr: &'c Expr) -> Arg<'c> {
        let mut path = self.path(expr);
        if path
            .first()
            .is_some_and(|root| matches!(&**root, ACCUMULATOR | LEGACY_ACCUMULATOR))
        {
            path.clear();
        }
        Arg {
            path,
            ty: self.checked.type_of(expr),
            size: self.size(expr),
            expr,
        }
    }

    fn copy_sizes(&mut self, to: &'c Expr, from: &'c Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entry_sizes(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn size_or_unknown(&mut self, expr: &'c Expr) -> Range {
        self.size(expr).unwrap_or(UNKNOWN)
    }

    fn size(&mut self, expr: &'c Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::fixed(size));
        }
        if let Some(size) = self.declared_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr)) {
            return Some(Range::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    /// The size a declaration allows at a path. The path's first step is a variable, whichever it is.
    fn declared_size(&self, path: &[Box<str>]) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let mut decl = self.root?;
        for step in steps {
            decl = match (&**step, decl.kind()) {
                ("@items" | "@values", DeclKind::List { elem, .. }) => elem,
                ("@items" | "@values", DeclKind::Map { value }) => value,
                // Upstream's type of map keys has no size, and no step leads on from it.
                ("@keys", DeclKind::Map { .. }) => return Some(Range::default()),
                (name, DeclKind::Object(object)) => &object.fields.get(name)?.decl,
                _ => return None,
            };
        }
        Some(Range {
            min: 0,
            max: decl.max_elements(),
        })
    }
}

fn literal_size(expr: &Expr) -> Option<u64> {
    Some(match &expr.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count() as u64,
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        Kind::Literal(_) => 1,
        Kind::List(elements) => elements.len() as u64,
        Kind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}

/// Names the price functions treat apart.
fn is_logical(overload: &str) -> bool {
    matches!(overload, "logical_and" | "logical_or")
}

/// The operators whose price is that of the shorter side.
fn is_comparison(function: &str, overload: &str) -> bool {
    let sized = overload.ends_with("_string") || overload.ends_with("_bytes");
    matches!(function, op::EQ | op::NE) || (matches!(function, op::LT | op::LE | op::GT | op::GE) && sized)
}
