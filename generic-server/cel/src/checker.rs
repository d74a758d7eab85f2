//! Type checking: every node gets a type, every call the overloads it can mean.
//!
//! Mirrors cel-go's `checker`; messages are its messages. Mixed aggregates
//! have dynamic elements here; `validate` refuses them.

mod unify;

use std::collections::HashMap;

use crate::{
    ast::{Call, Entry, Expr, Fold, Kind, Literal, Select, Struct, op},
    decls::{self, Library, Overload},
    error::CompileErrors,
    parser::Parsed,
    types::{ObjectType, Type},
};
use std::sync::Arc;

use unify::{Bindings, most_general};

/// A declared variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: Box<str>,
    pub(crate) ty: Type,
}

/// A checked tree: types by node, and what names and calls refer to.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) root: Expr,
    pub(crate) positions: Vec<u32>,
    pub(crate) types: Vec<Type>,
    pub(crate) references: HashMap<u32, Reference>,
}

#[derive(Debug, Clone)]
pub(crate) enum Reference {
    /// A declared variable, by its place in the environment.
    Variable(usize),
    /// A comprehension's variable, by name.
    Local(Box<str>),
    /// A type used as a value.
    Type(Type),
    /// The overloads a call can mean; `target` says whether the receiver is an argument rather than part of the name.
    Call {
        function: &'static str,
        overloads: Vec<&'static Overload>,
        target: bool,
    },
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        &self.types[expr.id as usize]
    }
}

/// The declarations that names resolve to while checking.
pub(crate) struct Scope<'e> {
    pub(crate) variables: &'e [Variable],
    pub(crate) structs: &'e [Arc<ObjectType>],
    pub(crate) libraries: &'e [Library],
}

/// Checks a tree against an environment.
pub(crate) fn check(source: &str, parsed: Parsed, scope: &Scope<'_>) -> Result<Checked, CompileErrors> {
    let Parsed { root, positions } = parsed;
    let mut checker = Checker {
        scope,
        types: vec![Type::Error; positions.len()],
        positions: &positions,
        references: HashMap::new(),
        errors: CompileErrors::new(source),
        bindings: Bindings::default(),
        locals: Vec::new(),
    };
    checker.check(&root);
    let Checker {
        mut types,
        references,
        errors,
        bindings,
        ..
    } = checker;
    for ty in &mut types {
        *ty = bindings.substitute(ty, true);
    }
    errors.into_result(Checked {
        root,
        positions,
        types,
        references,
    })
}

struct Checker<'e> {
    scope: &'e Scope<'e>,
    types: Vec<Type>,
    positions: &'e [u32],
    references: HashMap<u32, Reference>,
    errors: CompileErrors,
    bindings: Bindings,
    /// Variables of the comprehensions around, innermost last.
    locals: Vec<(Box<str>, Type)>,
}

impl Checker<'_> {
    fn set(&mut self, expr: &Expr, ty: Type) {
        self.types[expr.id as usize] = ty;
    }

    fn get(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone()
    }

    fn report(&mut self, id: u32, message: String) {
        self.errors.report(Some(self.positions[id as usize]), message);
    }

    fn mismatch(&mut self, id: u32, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, id: u32, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn check(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::Literal(literal) => self.set(expr, literal_type(literal)),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select(select) => self.select(expr, select),
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let mut joined = None;
                for element in elements {
                    self.check(&element.value);
                    let ty = self.unwrapped(&element.value, element.optional);
                    joined = Some(self.join(joined, ty));
                }
                let elem = joined.unwrap_or_else(|| self.bindings.fresh());
                self.set(expr, Type::list(elem));
            }
            Kind::Map(entries) => self.map(expr, entries),
            Kind::Struct(literal) => self.struct_literal(expr, literal),
            Kind::Fold(fold) => self.fold(expr, fold),
            Kind::Fault => {}
        }
    }

    /// The declaration of a name: a comprehension's variable, a declared variable or a type.
    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        let bare = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, ty)) = self.locals.iter().rev().find(|(local, _)| &**local == bare) {
            return Some((ty.clone(), Reference::Local(name.clone())));
        }
        if let Some(index) = self
            .scope
            .variables
            .iter()
            .position(|variable| &*variable.name == bare)
        {
            return Some((self.scope.variables[index].ty.clone(), Reference::Variable(index)));
        }
        if let Some(object) = self.scope.structs.iter().find(|object| &*object.name == bare) {
            let ty = Type::Object(object.clone());
            return Some((Type::type_of(ty.clone()), Reference::Type(ty)));
        }
        let ty = match self.scope.libraries.contains(&Library::Objects) && is_open(bare) {
            true => Type::Open(bare.into()),
            false => decls::type_named(bare)?,
        };
        Some((Type::type_of(ty.clone()), Reference::Type(ty)))
    }

    fn ident(&mut self, expr: &Expr, name: &str) {
        match self.lookup(name) {
            Some((ty, reference)) => {
                self.set(expr, ty);
                self.references.insert(expr.id, reference);
            }
            None => self.undeclared(expr.id, name),
        }
    }

    fn select(&mut self, expr: &Expr, select: &Select) {
        // A dotted name is one name if it is declared as one.
        if !select.test
            && let Some(name) = expr.qualified_name()
            && let Some((ty, reference)) = self.lookup(&name)
        {
            self.set(expr, ty);
            self.references.insert(expr.id, reference);
            return;
        }
        let mut ty = self.field(expr, &select.operand, &select.field, false);
        if select.test {
            ty = Type::Bool;
        }
        let ty = self.bindings.substitute(&ty, false);
        self.set(expr, ty);
    }

    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.bindings.substitute(&self.get(operand), false);
        let (target, was_optional) = match &operand_type {
            Type::Optional(of) => (of.as_ref(), true),
            other => (other, false),
        };
        let found = match target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(field) => field.decl.cel_type().clone(),
                None => {
                    self.report(expr.id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Open(_) => Type::Dyn,
            Type::Struct(name) => {
                self.report(expr.id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.bindings.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(
                    expr.id,
                    format!("type '{other}' does not support field selection"),
                );
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(found)
        } else {
            found
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) {
        if &*call.function == op::OPT_SELECT {
            return self.optional_select(expr, call);
        }
        for arg in &call.args {
            self.check(arg);
        }
        let Some(target) = &call.target else {
            let name = call.function.strip_prefix('.').unwrap_or(&call.function);
            match decls::overloads(name, self.scope.libraries) {
                Some((name, overloads)) => self.resolve(expr, name, overloads, None, &call.args),
                None => self.undeclared(expr.id, &call.function),
            }
            return;
        };
        // `a.b.c()` is a function of that whole name if there is one, else a method of `a.b`.
        if let Some(prefix) = target.qualified_name() {
            let name = format!(
                "{}.{}",
                prefix.strip_prefix('.').unwrap_or(&prefix),
                call.function
            );
            if let Some((name, overloads)) = decls::overloads(&name, self.scope.libraries) {
                return self.resolve(expr, name, overloads, None, &call.args);
            }
        }
        self.check(target);
        match decls::overloads(&call.function, self.scope.libraries) {
            Some((name, overloads)) => self.resolve(expr, name, overloads, Some(target), &call.args),
            None => self.undeclared(expr.id, &call.function),
        }
    }

    fn optional_select(&mut self, expr: &Expr, call: &Call) {
        let [operand, field] = &call.args[..] else { return };
        let Kind::Literal(Literal::String(name)) = &field.kind else {
            return;
        };
        self.set(field, Type::String);
        let ty = self.field(expr, operand, name, true);
        let ty = self.bindings.substitute(&ty, false);
        self.set(expr, ty);
        if let Some((function, overloads)) = decls::overloads(op::OPT_SELECT, &[]) {
            let overloads = overloads.iter().collect();
            self.references.insert(
                expr.id,
                Reference::Call {
                    function,
                    overloads,
                    target: false,
                },
            );
        }
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        name: &'static str,
        overloads: &'static [Overload],
        target: Option<&Expr>,
        args: &[Expr],
    ) {
        if name == op::AND || name == op::OR {
            return self.resolve_logical(expr, name, overloads, args);
        }
        let types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.get(arg)).collect();
        let mut matching = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads
            .iter()
            .filter(|overload| overload.member == target.is_some())
        {
            let mut signature = overload.args.clone();
            signature.push(overload.result.clone());
            self.bindings.instantiate(overload.params, &mut signature);
            let Some((returned, wanted)) = signature.split_last() else {
                continue;
            };
            if !self.bindings.all_assignable(&types, wanted) {
                continue;
            }
            matching.push(overload);
            let returned = self.bindings.substitute(returned, false);
            result = Some(match result {
                None => returned,
                Some(known) if known.is_dyn() || known.same(&returned) => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(ty) => {
                self.set(expr, ty);
                let reference = Reference::Call {
                    function: name,
                    overloads: matching,
                    target: target.is_some(),
                };
                self.references.insert(expr.id, reference);
            }
            None => self.no_overload(expr, name, types, target.is_some()),
        }
    }

    fn no_overload(&mut self, expr: &Expr, name: &str, types: Vec<Type>, member: bool) {
        let types: Vec<String> = types
            .iter()
            .map(|ty| self.bindings.substitute(ty, true).to_string())
            .collect();
        let (receiver, args) = match types.split_first() {
            Some((receiver, args)) if member => (format!("{receiver}."), args),
            _ => (String::new(), &types[..]),
        };
        let signature = format!("{receiver}({})", args.join(", "));
        self.report(
            expr.id,
            format!("found no matching overload for '{name}' applied to '{signature}'"),
        );
    }

    fn resolve_logical(
        &mut self,
        expr: &Expr,
        name: &'static str,
        overloads: &'static [Overload],
        args: &[Expr],
    ) {
        let mut sound = true;
        for arg in args {
            let ty = self.get(arg);
            if !self.bindings.assignable(&ty, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, &ty);
                sound = false;
            }
        }
        if sound {
            self.set(expr, Type::Bool);
            let reference = Reference::Call {
                function: name,
                overloads: overloads.iter().collect(),
                target: false,
            };
            self.references.insert(expr.id, reference);
        }
    }

    /// The type of an element, with the optional around it taken off where the syntax says so.
    fn unwrapped(&mut self, value: &Expr, optional: bool) -> Type {
        let ty = self.get(value);
        if !optional {
            return ty;
        }
        match ty {
            Type::Optional(of) => of.as_ref().clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.mismatch(value.id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.bindings.assignable(&previous, &current) {
            return most_general(&previous, &current);
        }
        Type::Dyn
    }

    fn map(&mut self, expr: &Expr, entries: &[Entry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let key = self.get(&entry.key);
            keys = Some(self.join(keys, key));
            self.check(&entry.value);
            let value = self.unwrapped(&entry.value, entry.optional);
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.bindings.fresh());
        let value = values.unwrap_or_else(|| self.bindings.fresh());
        self.set(expr, Type::map(key, value));
    }

    fn struct_literal(&mut self, expr: &Expr, literal: &Struct) {
        let Some((_, Reference::Type(ty))) = self.lookup(&literal.name) else {
            if self.lookup(&literal.name).is_some() {
                self.report(expr.id, format!("'{}' is not a type", literal.name));
            } else {
                self.undeclared(expr.id, &literal.name);
            }
            return;
        };
        if !matches!(ty, Type::Object(_) | Type::Open(_)) {
            self.report(expr.id, format!("'{}' is not a message type", ty.name()));
            return;
        }
        self.set(expr, ty.clone());
        for field in &literal.fields {
            self.check(&field.value);
            let found = self.unwrapped(&field.value, field.optional);
            let Type::Object(object) = &ty else { continue };
            let Some(declared) = object.field(&field.name) else {
                self.report(field.id, format!("undefined field '{}'", field.name));
                continue;
            };
            let wanted = declared.decl.cel_type();
            if !self.bindings.assignable(wanted, &found) {
                let name = &field.name;
                let message =
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{found}'");
                self.report(field.id, message);
            }
        }
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) {
        self.check(&fold.range);
        self.check(&fold.init);
        let range = self.bindings.substitute(&self.get(&fold.range), false);
        let accu = self.get(&fold.init);
        self.locals.push((fold.accu.clone(), accu.clone()));
        let (first, second) = match &range {
            Type::List(elem) if fold.var2.is_some() => (Type::Int, elem.as_ref().clone()),
            Type::List(elem) => (elem.as_ref().clone(), Type::Dyn),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.locals.len();
        self.locals.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.locals.push((var2.clone(), second));
        }
        self.check(&fold.condition);
        self.expect_type(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.expect_type(&fold.step, &accu);
        self.locals.truncate(depth);
        self.check(&fold.result);
        self.locals.truncate(depth - 1);
        let ty = self.bindings.substitute(&self.get(&fold.result), false);
        self.set(expr, ty);
    }

    fn expect_type(&mut self, expr: &Expr, wanted: &Type) {
        let found = self.get(expr);
        if !self.bindings.assignable(wanted, &found) {
            self.mismatch(expr.id, wanted, &found);
        }
    }
}

/// `Object` and what is below it.
fn is_open(name: &str) -> bool {
    name == "Object" || name.strip_prefix("Object.").is_some_and(|rest| !rest.is_empty())
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
