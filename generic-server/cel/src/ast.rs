//! The syntax tree, as the parser builds it with macros already expanded.
//!
//! Nodes are numbered; positions and checked types sit in tables beside the tree. The tree is dropped once a program is planned.

/// A node. `id` indexes the position and type tables.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) id: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(Box<str>),
    Select(Select),
    Call(Call),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Struct(Struct),
    Fold(Box<Fold>),
    /// Stands in for an expression that failed to parse; never reaches the checker.
    Fault,
}

#[derive(Debug, Clone)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Box<Expr>,
    pub(crate) field: Box<str>,
    /// `has(operand.field)`.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) function: Box<str>,
    pub(crate) args: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: Box<str>,
    pub(crate) fields: Vec<StructField>,
}

#[derive(Debug)]
pub(crate) struct StructField {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A comprehension: fold `step` over `range`, starting from `init`, while `condition` holds.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) var: Box<str>,
    pub(crate) var2: Option<Box<str>>,
    pub(crate) accu: Box<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Fold {
    /// A local variable in the form of a comprehension over nothing.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List(elements) if elements.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
            && &*self.accu != LEGACY_ACCUMULATOR
    }
}

/// The accumulator's name; no source text can spell it.
pub(crate) const ACCUMULATOR: &str = "@result";
/// Reserved from the time when the accumulator could be spelled.
pub(crate) const LEGACY_ACCUMULATOR: &str = "__result__";

/// Operator names as functions, as messages print them.
pub(crate) mod op {
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const COND: &str = "_?_:_";
    pub(crate) const EQ: &str = "_==_";
    pub(crate) const NE: &str = "_!=_";
    pub(crate) const LT: &str = "_<_";
    pub(crate) const LE: &str = "_<=_";
    pub(crate) const GT: &str = "_>_";
    pub(crate) const GE: &str = "_>=_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUB: &str = "_-_";
    pub(crate) const MUL: &str = "_*_";
    pub(crate) const DIV: &str = "_/_";
    pub(crate) const MOD: &str = "_%_";
    pub(crate) const NEG: &str = "-_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
    pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";
}

impl Kind {
    /// Visits the nodes directly below.
    pub(crate) fn each_child<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match self {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Fault => {}
            Kind::Select(select) => visit(&select.operand),
            Kind::Call(call) => call
                .target
                .as_deref()
                .into_iter()
                .chain(&call.args)
                .for_each(visit),
            Kind::List(elements) => elements.iter().for_each(|element| visit(&element.value)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            Kind::Struct(literal) => literal.fields.iter().for_each(|field| visit(&field.value)),
            Kind::Fold(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                    .into_iter()
                    .for_each(visit);
            }
        }
    }
}

impl Expr {
    /// `a.b.c` as one dotted name, if it is one.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select(select) if !select.test => {
                let mut name = select.operand.qualified_name()?;
                name.push('.');
                name.push_str(&select.field);
                Some(name)
            }
            _ => None,
        }
    }
}
