//! The macros: calls that stand for comprehensions. Every node they make sits at the call's opening parenthesis.

use super::{Parse, Parser};
use crate::ast::{
    ACCUMULATOR, Call, Element, Entry, Expr, Fold, Kind, LEGACY_ACCUMULATOR, Literal, Select, Struct,
    StructField, op,
};

/// A macro's complaint about one of its arguments.
type Expanded = Result<Expr, (u32, String)>;

/// The iteration variables of a comprehension macro.
struct Vars {
    first: Box<str>,
    second: Option<Box<str>>,
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

impl Parser<'_> {
    /// A global call, or the macro of that name.
    pub(super) fn global(&mut self, open: u32, name: String, mut args: Vec<Expr>) -> Parse<Expr> {
        if name == "has" && args.len() == 1 {
            let arg = args.remove(0);
            let at = self.positions[arg.id as usize];
            return Ok(match arg.kind {
                Kind::Select(select) => self.node(open, Kind::Select(Select { test: true, ..select })),
                _ => self.fault(at, "invalid argument to has() macro".to_string()),
            });
        }
        Ok(self.call(open, &name, args))
    }

    /// A method call, or the macro of that name and number of arguments.
    pub(super) fn method(&mut self, open: u32, target: Expr, name: Box<str>, args: Vec<Expr>) -> Parse<Expr> {
        self.deeper()?;
        self.depth -= 1;
        let expanded = match (&*name, args.len()) {
            ("all", 2 | 3) => self.quantifier(open, Quantifier::All, target, args),
            ("exists", 2 | 3) => self.quantifier(open, Quantifier::Exists, target, args),
            ("exists_one" | "existsOne", 2 | 3) => self.quantifier(open, Quantifier::ExistsOne, target, args),
            ("map", 2 | 3) => self.map_macro(open, target, args),
            ("filter", 2) => self.filter(open, target, args),
            ("transformList", 3 | 4) => self.transform_list(open, target, args),
            ("transformMap", 3 | 4) => self.transform_map(open, target, args, true),
            ("transformMapEntry", 3 | 4) => self.transform_map(open, target, args, false),
            ("sortBy", 2) => self.sort_by(open, target, args),
            ("bind", 3) if self.bindings && matches!(&target.kind, Kind::Ident(name) if &**name == "cel") => {
                self.bind_macro(open, args)
            }
            ("optMap", 2) => self.opt_map(open, target, args, true),
            ("optFlatMap", 2) => self.opt_map(open, target, args, false),
            _ => return Ok(self.member_call(open, target, &name, args)),
        };
        Ok(expanded.unwrap_or_else(|(offset, message)| self.fault(offset, message)))
    }

    fn accu(&mut self, at: u32) -> Expr {
        self.node(at, Kind::Ident(ACCUMULATOR.into()))
    }

    fn literal_at(&mut self, at: u32, literal: Literal) -> Expr {
        self.node(at, Kind::Literal(literal))
    }

    fn list_of(&mut self, at: u32, value: Expr) -> Expr {
        self.node(
            at,
            Kind::List(vec![Element {
                value,
                optional: false,
            }]),
        )
    }

    fn fold(&mut self, at: u32, range: Expr, vars: Vars, [init, condition, step, result]: [Expr; 4]) -> Expr {
        let fold = Fold {
            range,
            var: vars.first,
            var2: vars.second,
            accu: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        };
        self.node(at, Kind::Fold(Box::new(fold)))
    }

    fn ident(&self, arg: &Expr, complaint: &str) -> Result<Box<str>, (u32, String)> {
        let at = self.positions[arg.id as usize];
        match &arg.kind {
            Kind::Ident(name) if &**name == LEGACY_ACCUMULATOR => Err((
                at,
                "iteration variable overwrites accumulator variable".to_string(),
            )),
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err((at, complaint.to_string())),
        }
    }

    fn two(&self, args: &[Expr]) -> Result<Vars, (u32, String)> {
        let first = self.ident(&args[0], "argument must be a simple name")?;
        let second = self.ident(&args[1], "argument must be a simple name")?;
        if first == second {
            return Err((
                self.positions[args[1].id as usize],
                format!("duplicate variable name: {first}"),
            ));
        }
        Ok(Vars {
            first,
            second: Some(second),
        })
    }

    fn quantifier(&mut self, at: u32, kind: Quantifier, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let vars = if args.len() == 3 {
            self.two(&args)?
        } else {
            Vars {
                first: self.ident(&args[0], "argument must be a simple name")?,
                second: None,
            }
        };
        let predicate = args.remove(args.len() - 1);
        let parts = match kind {
            Quantifier::All => {
                let init = self.literal_at(at, Literal::Bool(true));
                let accu = self.accu(at);
                let condition = self.call(at, op::NOT_STRICTLY_FALSE, vec![accu]);
                let accu = self.accu(at);
                let step = self.call(at, op::AND, vec![accu, predicate]);
                [init, condition, step, self.accu(at)]
            }
            Quantifier::Exists => {
                let init = self.literal_at(at, Literal::Bool(false));
                let accu = self.accu(at);
                let not = self.call(at, op::NOT, vec![accu]);
                let condition = self.call(at, op::NOT_STRICTLY_FALSE, vec![not]);
                let accu = self.accu(at);
                let step = self.call(at, op::OR, vec![accu, predicate]);
                [init, condition, step, self.accu(at)]
            }
            Quantifier::ExistsOne => {
                let init = self.literal_at(at, Literal::Int(0));
                let condition = self.literal_at(at, Literal::Bool(true));
                let (accu, one) = (self.accu(at), self.literal_at(at, Literal::Int(1)));
                let more = self.call(at, op::ADD, vec![accu, one]);
                let same = self.accu(at);
                let step = self.call(at, op::COND, vec![predicate, more, same]);
                let (accu, one) = (self.accu(at), self.literal_at(at, Literal::Int(1)));
                [init, condition, step, self.call(at, op::EQ, vec![accu, one])]
            }
        };
        Ok(self.fold(at, target, vars, parts))
    }

    /// A fold that collects into a list, of the elements a filter lets through.
    fn collect(&mut self, at: u32, range: Expr, vars: Vars, filter: Option<Expr>, element: Expr) -> Expr {
        let init = self.node(at, Kind::List(Vec::new()));
        let condition = self.literal_at(at, Literal::Bool(true));
        let accu = self.accu(at);
        let list = self.list_of(at, element);
        let mut step = self.call(at, op::ADD, vec![accu, list]);
        if let Some(filter) = filter {
            let same = self.accu(at);
            step = self.call(at, op::COND, vec![filter, step, same]);
        }
        let result = self.accu(at);
        self.fold(at, range, vars, [init, condition, step, result])
    }

    fn map_macro(&mut self, at: u32, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let vars = Vars {
            first: self.ident(&args[0], "argument is not an identifier")?,
            second: None,
        };
        let element = args.remove(args.len() - 1);
        let filter = (args.len() == 2).then(|| args.remove(1));
        Ok(self.collect(at, target, vars, filter, element))
    }

    fn filter(&mut self, at: u32, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let vars = Vars {
            first: self.ident(&args[0], "argument is not an identifier")?,
            second: None,
        };
        let filter = args.remove(1);
        let element = args.remove(0);
        Ok(self.collect(at, target, vars, Some(filter), element))
    }

    fn transform_list(&mut self, at: u32, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let vars = self.two(&args)?;
        let element = args.remove(args.len() - 1);
        let filter = (args.len() == 3).then(|| args.remove(2));
        Ok(self.collect(at, target, vars, filter, element))
    }

    fn transform_map(&mut self, at: u32, target: Expr, mut args: Vec<Expr>, keyed: bool) -> Expanded {
        let vars = self.two(&args)?;
        let transform = args.remove(args.len() - 1);
        let filter = (args.len() == 3).then(|| args.remove(2));
        let init = self.node(at, Kind::Map(Vec::new()));
        let condition = self.literal_at(at, Literal::Bool(true));
        let mut insert = vec![self.accu(at)];
        if keyed {
            insert.push(self.node(at, Kind::Ident(vars.first.clone())));
        }
        insert.push(transform);
        let mut step = self.call(at, op::MAP_INSERT, insert);
        if let Some(filter) = filter {
            let same = self.accu(at);
            step = self.call(at, op::COND, vec![filter, step, same]);
        }
        let result = self.accu(at);
        Ok(self.fold(at, target, vars, [init, condition, step, result]))
    }

    /// `let name = init in result`, as a comprehension over nothing.
    fn bind(&mut self, at: u32, name: &str, init: Expr, result: Expr) -> Expr {
        let range = self.node(at, Kind::List(Vec::new()));
        let condition = self.literal_at(at, Literal::Bool(false));
        let step = self.node(at, Kind::Ident(name.into()));
        let fold = Fold {
            range,
            var: "#unused".into(),
            var2: None,
            accu: name.into(),
            init,
            condition,
            step,
            result,
        };
        self.node(at, Kind::Fold(Box::new(fold)))
    }

    fn bind_macro(&mut self, at: u32, mut args: Vec<Expr>) -> Expanded {
        let result = args.remove(2);
        let init = args.remove(1);
        match &args[0].kind {
            Kind::Ident(name) => Ok(self.bind(at, name, init, result)),
            _ => {
                let place = self.positions[args[0].id as usize];
                Err((
                    place,
                    "cel.bind() variable names must be simple identifiers".to_string(),
                ))
            }
        }
    }

    fn sort_by(&mut self, at: u32, target: Expr, args: Vec<Expr>) -> Expanded {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct(_)) {
            let complaint =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((self.positions[target.id as usize], complaint.to_string()));
        }
        let range = self.node(at, Kind::Ident(INPUT.into()));
        let keys = self.map_macro(at, range, args)?;
        let input = self.node(at, Kind::Ident(INPUT.into()));
        let sorted = self.member_call(at, input, op::SORT_BY_KEYS, vec![keys]);
        Ok(self.bind(at, INPUT, target, sorted))
    }

    fn opt_map(&mut self, at: u32, target: Expr, mut args: Vec<Expr>, wrap: bool) -> Expanded {
        let body = args.remove(1);
        let Kind::Ident(name) = &args[0].kind else {
            let what = if wrap { "optMap" } else { "optFlatMap" };
            let place = self.positions[args[0].id as usize];
            return Err((
                place,
                format!("{what}() variable name must be a simple identifier"),
            ));
        };
        let copy = self.copy(&target);
        let has = self.member_call(at, target, "hasValue", Vec::new());
        let value = self.member_call(at, copy, "value", Vec::new());
        let mut bound = self.bind(at, name, value, body);
        if wrap {
            bound = self.call(at, "optional.of", vec![bound]);
        }
        let none = self.call(at, "optional.none", Vec::new());
        Ok(self.call(at, op::COND, vec![has, bound, none]))
    }

    /// A copy with node numbers of its own. Stops growing once the tree is too large; the parser then gives up at the next node.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let at = self.positions[expr.id as usize];
        if self.positions.len() > super::MAX_NODES {
            return self.node(at, Kind::Fault);
        }
        let kind = match &expr.kind {
            Kind::Literal(literal) => Kind::Literal(literal.clone()),
            Kind::Ident(name) => Kind::Ident(name.clone()),
            Kind::Select(select) => Kind::Select(Select {
                operand: Box::new(self.copy(&select.operand)),
                field: select.field.clone(),
                test: select.test,
            }),
            Kind::Call(call) => Kind::Call(Call {
                target: call.target.as_ref().map(|target| Box::new(self.copy(target))),
                function: call.function.clone(),
                args: call.args.iter().map(|arg| self.copy(arg)).collect(),
            }),
            Kind::List(elements) => Kind::List(
                elements
                    .iter()
                    .map(|e| Element {
                        value: self.copy(&e.value),
                        optional: e.optional,
                    })
                    .collect(),
            ),
            Kind::Map(entries) => Kind::Map(
                entries
                    .iter()
                    .map(|e| Entry {
                        key: self.copy(&e.key),
                        value: self.copy(&e.value),
                        optional: e.optional,
                    })
                    .collect(),
            ),
            Kind::Struct(literal) => Kind::Struct(Struct {
                name: literal.name.clone(),
                fields: literal
                    .fields
                    .iter()
                    .map(|field| self.copy_field(field))
                    .collect(),
            }),
            Kind::Fold(fold) => Kind::Fold(Box::new(Fold {
                range: self.copy(&fold.range),
                var: fold.var.clone(),
                var2: fold.var2.clone(),
                accu: fold.accu.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
            Kind::Fault => Kind::Fault,
        };
        self.node(at, kind)
    }

    fn copy_field(&mut self, field: &StructField) -> StructField {
        let at = self.positions[field.id as usize];
        let id = self.node(at, Kind::Fault).id;
        StructField {
            id,
            name: field.name.clone(),
            value: self.copy(&field.value),
            optional: field.optional,
        }
    }
}
