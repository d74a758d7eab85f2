//! Assignability and type variables: cel-go's `checker/types.go` with an undo log in place of copied maps.

use std::sync::Arc;

use crate::types::Type;

/// The types bound to type variables so far.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    bound: Vec<Option<Type>>,
    /// Earlier values, newest last, to return to when an attempt fails.
    undo: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    /// A signature's types with its parameters replaced by fresh variables.
    pub(super) fn instantiate(&mut self, params: u32, types: &mut [Type]) {
        if params == 0 {
            return;
        }
        let vars: Vec<Type> = (0..params).map(|_| self.fresh()).collect();
        for ty in types {
            *ty = replace(ty, &vars);
        }
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(id) => self.bound[*id as usize].as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, var: &Type, to: Type) {
        if let Type::Param(id) = var {
            let old = self.bound[*id as usize].replace(to);
            self.undo.push((*id, old));
        }
    }

    fn attempt(&mut self, run: impl FnOnce(&mut Bindings) -> bool) -> bool {
        let mark = self.undo.len();
        if run(self) {
            return true;
        }
        while self.undo.len() > mark {
            if let Some((id, old)) = self.undo.pop() {
                self.bound[id as usize] = old;
            }
        }
        false
    }

    /// Whether `from` can stand where `to` is wanted; learns variables if so.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|this| this.fits(from, to))
    }

    pub(super) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len()
            && self.attempt(|this| from.iter().zip(to).all(|(from, to)| this.fits(from, to)))
    }

    fn fits(&mut self, t1: &Type, t2: &Type) -> bool {
        if matches!(t2, Type::Param(_)) {
            let (valid, known) = self.stands_for(t1, t2);
            if valid || known {
                return valid;
            }
        }
        if matches!(t1, Type::Param(_)) {
            return self.stands_for(t2, t1).0;
        }
        if t1.is_dyn_or_error() || t2.is_dyn_or_error() {
            return true;
        }
        match (t1, t2) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a.same(b),
        }
    }

    /// Whether the variable `var` can be `ty`, and whether it was bound before.
    fn stands_for(&mut self, ty: &Type, var: &Type) -> (bool, bool) {
        if ty.same(var) {
            return (true, true);
        }
        if let Some(bound) = self.find(var).cloned() {
            if ty.same(&bound) {
                return (true, true);
            }
            if self.fits(ty, &bound) {
                let general = most_general(ty, &bound);
                if self.absent(var, &general) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent(var, ty) {
            self.bind(var, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether a variable does not occur within a type.
    fn absent(&self, var: &Type, within: &Type) -> bool {
        if var.same(within) {
            return false;
        }
        match within {
            Type::Param(_) => self.find(within).is_none_or(|bound| self.absent(var, bound)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.absent(var, of),
            Type::Map(pair) => self.absent(var, &pair.0) && self.absent(var, &pair.1),
            _ => true,
        }
    }

    /// The type with its variables replaced by what they stand for; free ones become `dyn` in the end.
    pub(super) fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        if let Some(bound) = self.find(ty) {
            return self.substitute(bound, free_to_dyn);
        }
        match ty {
            Type::Param(_) if free_to_dyn => Type::Dyn,
            Type::List(of) => Type::list(self.substitute(of, free_to_dyn)),
            Type::Optional(of) => Type::optional(self.substitute(of, free_to_dyn)),
            Type::Type(Some(of)) => Type::type_of(self.substitute(of, free_to_dyn)),
            Type::Map(pair) => Type::map(
                self.substitute(&pair.0, free_to_dyn),
                self.substitute(&pair.1, free_to_dyn),
            ),
            other => other.clone(),
        }
    }
}

fn replace(ty: &Type, vars: &[Type]) -> Type {
    match ty {
        Type::Param(id) => vars[*id as usize].clone(),
        Type::List(of) => Type::List(Arc::new(replace(of, vars))),
        Type::Optional(of) => Type::Optional(Arc::new(replace(of, vars))),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(replace(of, vars)))),
        Type::Map(pair) => Type::Map(Arc::new((replace(&pair.0, vars), replace(&pair.1, vars)))),
        other => other.clone(),
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Object(_)
            | Type::Open(_)
            | Type::Struct(_)
            | Type::Opaque(_)
            | Type::Optional(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// The wider of two types that fit each other.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if as_wide(a, b) { a.clone() } else { b.clone() }
}

fn as_wide(a: &Type, b: &Type) -> bool {
    if matches!(a, Type::Dyn | Type::Param(_)) {
        return true;
    }
    if matches!(b, Type::Dyn | Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => as_wide(a, b),
        (Type::Map(a), Type::Map(b)) => as_wide(&a.0, &b.0) && as_wide(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a.same(b),
    }
}
