//! Environments and programs: the crate's front door.
//!
//! An `Env` says which variables and struct types an expression can use; the functions are always those of Kubernetes 1.36. It
//! compiles source to a `Program`: checked, planned, priced, without the source or the tree. Programs are immutable and shared.

use std::sync::Arc;

use crate::{
    ast::{Expr, Kind, Literal, op},
    checker::{self, Reference, Scope, Variable},
    cost::{self, CostEstimate},
    decls::Library,
    error::{CompileErrors, EvalError},
    eval::Machine,
    parser,
    plan::{self, Plan},
    types::{DeclType, ObjectType, Type},
    validate,
    value::Val,
};

/// The most one evaluation may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The most all rules of one custom resource, or of one policy binding, may cost together.
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// The same for the match conditions of one webhook or policy.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// The highest estimate a rule of a CRD may have.
pub const RULE_ESTIMATE_LIMIT: u64 = 10_000_000;
/// The highest estimate all rules of a CRD may have together.
pub const SCHEMA_ESTIMATE_LIMIT: u64 = 100_000_000;

/// The variables, functions and types that expressions can refer to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Env(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    variables: Vec<Variable>,
    structs: Vec<Arc<ObjectType>>,
    libraries: Vec<Library>,
    /// Where size estimates start.
    root: Option<DeclType>,
}

/// Collects an environment.
#[derive(Debug, Default)]
pub struct EnvBuilder {
    variables: Vec<Variable>,
    structs: Vec<Arc<ObjectType>>,
    libraries: Vec<Library>,
    root: Option<DeclType>,
}

impl EnvBuilder {
    /// A variable of declared data. The first one is also what sizes are estimated from.
    pub fn variable(mut self, name: &str, decl: &DeclType) -> EnvBuilder {
        if self.root.is_none() {
            self.root = Some(decl.clone());
        }
        self.typed(name, decl.cel_type().clone())
    }

    /// A variable that is an optional of declared data, such as `oldSelf` under `optionalOldSelf`.
    pub fn optional_variable(self, name: &str, decl: &DeclType) -> EnvBuilder {
        self.typed(name, Type::optional(decl.cel_type().clone()))
    }

    /// A variable of any type, without size bounds. Names may be dotted (`authorizer.requestResource`).
    pub fn typed(mut self, name: &str, ty: Type) -> EnvBuilder {
        self.variables.push(Variable {
            name: name.into(),
            ty,
        });
        self
    }

    /// An object type that expressions can build (`Object{..}`, `JSONPatch{..}`); other declarations are ignored.
    pub fn structure(mut self, decl: &DeclType) -> EnvBuilder {
        if let Type::Object(object) = decl.cel_type() {
            self.structs.push(object.clone());
        }
        self
    }

    /// Functions beyond the base environment.
    pub fn library(mut self, library: Library) -> EnvBuilder {
        self.libraries.push(library);
        self
    }

    pub fn build(self) -> Env {
        let EnvBuilder {
            variables,
            structs,
            libraries,
            root,
        } = self;
        Env(Arc::new(Inner {
            variables,
            structs,
            libraries,
            root,
        }))
    }
}

impl Env {
    pub fn builder() -> EnvBuilder {
        EnvBuilder::default()
    }

    /// Parses, checks and plans an expression, and estimates what it can cost. The errors' `detail` is what upstream
    /// prints.
    pub fn compile(&self, source: &str) -> Result<Program, CompileErrors> {
        let inner = &self.0;
        let parsed = parser::parse(source, inner.libraries.contains(&Library::Bindings))?;
        let scope = Scope {
            variables: &inner.variables,
            structs: &inner.structs,
            libraries: &inner.libraries,
        };
        let checked = checker::check(source, parsed, &scope)?;
        validate::validate(source, &checked)?;
        let estimate = cost::estimate(&checked, inner.root.as_ref());
        let Plan { root, locals } =
            plan::plan(&checked).map_err(|error| CompileErrors::instantiation(source, error.to_string()))?;
        let mut used: Vec<bool> = vec![false; inner.variables.len()];
        for reference in checked.references.values() {
            if let Reference::Variable(index) = reference {
                used[*index] = true;
            }
        }
        let names = inner
            .variables
            .iter()
            .map(|variable| variable.name.clone())
            .collect();
        let output = checked.type_of(&checked.root).clone();
        let mut selected = Vec::new();
        collect_selections(&checked.root, &mut selected);
        selected.sort_unstable();
        selected.dedup();
        Ok(Program {
            root,
            locals,
            names,
            used: used.into(),
            selected: selected.into(),
            output,
            estimate,
        })
    }
}

/// The fields that are selected of identifiers.
fn collect_selections(expr: &Expr, found: &mut Vec<(Box<str>, Box<str>)>) {
    let selection = match &expr.kind {
        Kind::Select(select) => Some((&*select.operand, &select.field)),
        Kind::Call(call) if &*call.function == op::OPT_SELECT => match &call.args[..] {
            [
                operand,
                Expr {
                    kind: Kind::Literal(Literal::String(field)),
                    ..
                },
            ] => Some((operand, field)),
            _ => None,
        },
        _ => None,
    };
    if let Some((
        Expr {
            kind: Kind::Ident(name),
            ..
        },
        field,
    )) = selection
    {
        found.push((name.clone(), field.clone()));
    }
    expr.kind
        .each_child(&mut |child| collect_selections(child, found));
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    root: plan::Node,
    locals: u32,
    names: Box<[Box<str>]>,
    used: Box<[bool]>,
    /// Identifiers with the fields that are selected of them.
    selected: Box<[(Box<str>, Box<str>)]>,
    output: Type,
    estimate: CostEstimate,
}

impl Program {
    /// The type of the result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// The least and the most an evaluation can cost, given the sizes the environment's data can have.
    pub fn estimate_cost(&self) -> CostEstimate {
        self.estimate
    }

    /// Whether the expression refers to a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.names
            .iter()
            .zip(&self.used)
            .any(|(name, used)| *used && &**name == variable)
    }

    /// Whether the expression selects this field of an identifier, in the form `variable.field`, `variable.?field` or
    /// `has(variable.field)`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.selected
            .iter()
            .any(|(of, name)| (&**of, &**name) == (variable, field))
    }

    /// Evaluates. Its cost is taken from the budget; when that does not suffice, the budget is emptied and the error
    /// is `EvalError::Budget`, whatever the result. One evaluation never costs much more than [`PER_CALL_LIMIT`].
    pub fn eval<'a>(&self, bindings: &Bindings<'a>, budget: &mut u64) -> Result<Val<'a>, EvalError> {
        let (result, cost) = self.eval_counted(bindings);
        match budget.checked_sub(cost) {
            Some(left) => {
                *budget = left;
                result
            }
            None => {
                *budget = 0;
                Err(EvalError::Budget)
            }
        }
    }

    /// Evaluates and returns the cost.
    pub fn eval_counted<'a>(&self, bindings: &Bindings<'a>) -> (Result<Val<'a>, EvalError>, u64) {
        let vars: Vec<Option<Val<'a>>> = self
            .names
            .iter()
            .zip(&self.used)
            .map(|(name, used)| bindings.get(name).filter(|_| *used).cloned())
            .collect();
        let name = |index: u32| {
            self.names
                .get(index as usize)
                .map_or(String::new(), |name| name.to_string())
        };
        let mut machine = Machine::new(&vars, &name, self.locals, PER_CALL_LIMIT);
        let result = machine.eval(&self.root);
        (result, machine.cost)
    }
}

/// Variables' values for an evaluation.
#[derive(Debug, Clone, Default)]
pub struct Bindings<'a> {
    vals: Vec<(&'a str, Val<'a>)>,
}

impl<'a> Bindings<'a> {
    pub fn new() -> Bindings<'a> {
        Bindings::default()
    }

    /// Binds a variable, replacing an earlier value.
    pub fn set(&mut self, name: &'a str, val: Val<'a>) -> &mut Bindings<'a> {
        match self.vals.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = val,
            None => self.vals.push((name, val)),
        }
        self
    }

    /// Binds a variable, by value.
    pub fn with(mut self, name: &'a str, val: Val<'a>) -> Bindings<'a> {
        self.set(name, val);
        self
    }

    fn get(&self, name: &str) -> Option<&Val<'a>> {
        self.vals
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, val)| val)
    }
}
