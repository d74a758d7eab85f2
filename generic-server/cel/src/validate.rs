//! Checks of literals that run after type checking: durations, timestamps, patterns, format strings and mixed aggregates.
//! Mirrors cel-go's `cel/validator.go` and the format validator of `ext/formatting.go`.

use crate::{
    ast::{Call, Expr, Kind, Literal},
    checker::Checked,
    error::CompileErrors,
    functions::{
        convert,
        format::{self, Clause, Piece},
        regexes,
    },
    types::Type,
    value::Val,
};

/// Reports literals that would fail whenever they are used.
pub(crate) fn validate(source: &str, checked: &Checked) -> Result<(), CompileErrors> {
    let mut validator = Validator {
        checked,
        errors: CompileErrors::new(source),
    };
    validator.walk(&checked.root, false);
    validator.errors.into_result(())
}

struct Validator<'c> {
    checked: &'c Checked,
    errors: CompileErrors,
}

impl Validator<'_> {
    fn report(&mut self, expr: &Expr, message: String) {
        self.errors
            .report(Some(self.checked.positions[expr.id as usize]), message);
    }

    fn walk(&mut self, expr: &Expr, in_format: bool) {
        match &expr.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Fault => {}
            Kind::Select(select) => self.walk(&select.operand, in_format),
            Kind::Call(call) => {
                self.call(expr, call);
                let in_format = in_format || &*call.function == "format";
                for child in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(child, in_format);
                }
            }
            Kind::List(elements) => {
                if !in_format {
                    self.same_types(
                        elements.iter().map(|element| (&element.value, element.optional)),
                        true,
                    );
                }
                for element in elements {
                    self.walk(&element.value, in_format);
                }
            }
            Kind::Map(entries) => {
                if !in_format {
                    self.same_types(entries.iter().map(|entry| (&entry.key, false)), false);
                    self.same_types(entries.iter().map(|entry| (&entry.value, entry.optional)), false);
                }
                for entry in entries {
                    self.walk(&entry.key, in_format);
                    self.walk(&entry.value, in_format);
                }
            }
            Kind::Struct(literal) => {
                for field in &literal.fields {
                    self.walk(&field.value, in_format);
                }
            }
            Kind::Fold(fold) => {
                for child in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.walk(child, in_format);
                }
            }
        }
    }

    fn same_types<'e>(&mut self, elements: impl Iterator<Item = (&'e Expr, bool)>, first_only: bool) {
        let mut wanted: Option<Type> = None;
        for (element, optional) in elements {
            let found = match self.checked.type_of(element) {
                Type::Optional(of) if optional => of.as_ref().clone(),
                other => other.clone(),
            };
            match &wanted {
                None => wanted = Some(found),
                Some(wanted) if wanted.same(&found) => {}
                Some(wanted) => {
                    let message = format!("expected type '{wanted}' but found '{found}'");
                    self.report(element, message);
                    if first_only {
                        return;
                    }
                }
            }
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) {
        if &*call.function == "format" {
            return self.format(expr, call);
        }
        let Some(arg) = call.args.first() else { return };
        let Kind::Literal(literal) = &arg.kind else { return };
        let val = match literal {
            Literal::String(text) => Val::str(text),
            Literal::Int(value) => Val::Int(*value),
            _ => return,
        };
        let sound = match (&*call.function, &val) {
            ("duration", val) => convert::to_duration(std::slice::from_ref(val)).is_ok(),
            ("timestamp", val) => convert::to_timestamp(std::slice::from_ref(val)).is_ok(),
            ("matches", Val::String(pattern)) => regexes::compile(pattern).is_ok(),
            _ => true,
        };
        if !sound {
            let message = format!("invalid {} argument", call.function);
            self.report(arg, message);
        }
    }

    /// `'literal'.format([..])`: clauses and arguments must agree.
    fn format(&mut self, expr: &Expr, call: &Call) {
        let Some(Kind::Literal(Literal::String(text))) = call.target.as_ref().map(|target| &target.kind)
        else {
            return;
        };
        let [
            Expr {
                kind: Kind::List(args),
                ..
            },
        ] = &call.args[..]
        else {
            return;
        };
        let mut used = 0;
        for piece in format::pieces(text) {
            let clause = match piece {
                Ok(Piece::Text(_)) => continue,
                Ok(Piece::Clause(clause)) => Ok(clause),
                Err(message) => Err(message),
            };
            let Some(arg) = args.get(used) else {
                return self.report(expr, format!("index {used} out of range"));
            };
            let clause = match clause {
                Ok(clause) => clause,
                Err(message) => return self.report(expr, message),
            };
            let ty = self.checked.type_of(&arg.value).clone();
            if !fits(clause, &ty) {
                return self.report(&arg.value, clause.refusal(ty.name()));
            }
            used += 1;
        }
        if args.len() > used {
            let message = format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                args.len()
            );
            self.report(expr, message);
        }
    }
}

/// Whether a clause can print values of a type.
fn fits(clause: Clause, ty: &Type) -> bool {
    let integer = matches!(ty, Type::Int | Type::Uint);
    ty.is_dyn()
        || match clause {
            Clause::Decimal | Clause::Octal => integer,
            Clause::Binary => integer || matches!(ty, Type::Bool),
            Clause::Hex(_) => integer || matches!(ty, Type::String | Type::Bytes),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(ty, Type::Double | Type::String),
            Clause::String => matches!(
                ty,
                Type::List(_)
                    | Type::Map(_)
                    | Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::Bool
                    | Type::String
                    | Type::Timestamp
                    | Type::Bytes
                    | Type::Duration
                    | Type::Type(_)
                    | Type::Null
            ),
        }
}
