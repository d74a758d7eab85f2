//! The checked tree, made ready to run.
//!
//! Chains of field and index accesses are flattened into one access with qualifiers, constants are folded, constant patterns
//! compiled, local variables numbered, calls bound to their implementation and to the rule that prices them. This is where
//! run-time cost becomes cel-go's: an expression that cel-go's planner turns into an attribute, a constant or a set is one
//! here too, because those are priced differently from calls (`interpreter/planner.go`, `interpreter/runtimecost.go`).

use std::sync::Arc;

use regex::Regex;

use crate::{
    ast::{ACCUMULATOR, Call, Expr, Fold, Kind, Literal, op},
    checker::{Checked, Reference},
    error::EvalError,
    functions::{self, Function},
    price::CostRule,
    types::Type,
    value::{Key, Val},
};

/// An instruction.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Val<'static>),
    Access(Access),
    /// `has(..)`: an access whose last qualifier only asks.
    Has(Access),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Call(Box<CallNode>),
    Equal(Box<[Node; 2]>),
    NotEqual(Box<[Node; 2]>),
    /// `x in [constants]`.
    InSet(Box<Node>, Arc<[Val<'static>]>),
    /// `a.or(b)` and, with the flag, `a.orValue(b)`.
    OptionalOr(Box<[Node; 2]>, bool),
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    Struct(Arc<str>, Box<[(Box<str>, Node, bool)]>),
    Fold(Box<FoldNode>),
    /// `accumulator + [x]` in place. The flag says that the list is a constant, which costs nothing.
    Append(u32, Box<Node>, bool),
    /// `cel.@mapInsert(accumulator, ..)` in place: a key and a value, or a map.
    Insert(u32, Box<[Node]>),
}

/// A value and the fields and indices taken from it.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) root: Root,
    pub(crate) quals: Vec<Arc<Qual>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Root {
    /// A declared variable.
    Var(u32),
    /// A comprehension's variable or accumulator.
    Local(u32),
    Value(Arc<Node>),
    /// `c ? a : b`, whose branches carry the qualifiers.
    Cond(Arc<(Node, Access, Access)>),
}

#[derive(Debug)]
pub(crate) struct Qual {
    pub(crate) key: QualKey,
    pub(crate) optional: bool,
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum QualKey {
    Field(Box<str>),
    Const(Val<'static>),
    /// An index that is itself an access: taking it is not priced.
    Access(Access),
    Value(Node),
}

#[derive(Debug)]
pub(crate) struct CallNode {
    pub(crate) name: &'static str,
    pub(crate) function: Function,
    pub(crate) args: Box<[Node]>,
    pub(crate) cost: CostRule,
    /// The pattern argument, if it is constant.
    pub(crate) regex: Option<Regex>,
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub(crate) range: Node,
    pub(crate) var: u32,
    pub(crate) var2: Option<u32>,
    pub(crate) accu: u32,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
    /// A local variable, computed when first used.
    pub(crate) bind: bool,
}

/// A plan and the number of local slots it needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    pub(crate) locals: u32,
}

/// Plans a checked tree. Fails where a constant conversion or pattern does, as cel-go fails to make a program.
pub(crate) fn plan(checked: &Checked) -> Result<Plan, EvalError> {
    let mut planner = Planner {
        checked,
        names: Vec::new(),
        locals: 0,
    };
    let root = planner.node(&checked.root)?;
    Ok(Plan {
        root,
        locals: planner.locals,
    })
}

struct Planner<'c> {
    checked: &'c Checked,
    /// Local names in scope with their slots, innermost last. Slots are never reused.
    names: Vec<(Box<str>, u32)>,
    locals: u32,
}

type Planned<T> = Result<T, EvalError>;

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Planned<Node> {
        if let Some(reference) = self.checked.references.get(&expr.id)
            && let Some(node) = self.name(reference)
        {
            return Ok(node);
        }
        match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Select(select) => {
                let operand = self.node(&select.operand)?;
                let key = QualKey::Field(select.field.clone());
                let access = access(
                    operand,
                    Qual {
                        key,
                        optional: false,
                        test: select.test,
                    },
                );
                Ok(if select.test {
                    Node::Has(access)
                } else {
                    Node::Access(access)
                })
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let nodes = elements
                    .iter()
                    .map(|element| Ok((self.node(&element.value)?, element.optional)))
                    .collect::<Planned<Vec<_>>>()?;
                Ok(list(nodes))
            }
            Kind::Map(entries) => {
                let nodes = entries
                    .iter()
                    .map(|entry| Ok((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional)))
                    .collect::<Planned<Vec<_>>>()?;
                Ok(map(nodes))
            }
            Kind::Struct(literal) => {
                let fields = literal
                    .fields
                    .iter()
                    .map(|field| Ok((field.name.clone(), self.node(&field.value)?, field.optional)))
                    .collect::<Planned<Vec<_>>>()?;
                Ok(Node::Struct(
                    self.checked.type_of(expr).name().into(),
                    fields.into(),
                ))
            }
            Kind::Fold(fold) => self.fold(fold),
            Kind::Ident(_) | Kind::Fault => Err(EvalError::fixed("unresolved name")),
        }
    }

    fn name(&self, reference: &Reference) -> Option<Node> {
        let root = match reference {
            Reference::Variable(index) => Root::Var(*index as u32),
            Reference::Local(name) => Root::Local(self.slot(name)?),
            Reference::Type(ty) => return Some(Node::Const(Val::Type(ty.clone()))),
            Reference::Call { .. } => return None,
        };
        Some(Node::Access(Access {
            root,
            quals: Vec::new(),
        }))
    }

    fn slot(&self, name: &str) -> Option<u32> {
        self.names
            .iter()
            .rev()
            .find(|(known, _)| &**known == name)
            .map(|(_, slot)| *slot)
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Planned<Node> {
        let Some(Reference::Call {
            function: name,
            overloads,
            target,
        }) = self.checked.references.get(&expr.id)
        else {
            return Err(EvalError::new(format!("no such overload: {}", call.function)));
        };
        let (name, with_target) = (*name, *target);
        // A call that can mean several overloads has none to be priced by.
        let overload = match &overloads[..] {
            [only] => only.id,
            _ => "",
        };
        if let Some(node) = self.append(name, call)? {
            return Ok(node);
        }
        let receiver = call.target.as_deref().filter(|_| with_target);
        let mut args = receiver
            .into_iter()
            .chain(&call.args)
            .map(|arg| self.node(arg))
            .collect::<Planned<Vec<_>>>()?;
        match name {
            op::AND => return Ok(Node::And(args.into())),
            op::OR => return Ok(Node::Or(args.into())),
            op::COND => return ternary(args),
            op::EQ => return pair(args).map(Node::Equal),
            op::NE => return pair(args).map(Node::NotEqual),
            op::INDEX | op::OPT_INDEX | op::OPT_SELECT => return index(args, name != op::INDEX),
            "or" if matches!(overload, "optional_or_optional" | "") => {
                return pair(args).map(|pair| Node::OptionalOr(pair, false));
            }
            "orValue" if matches!(overload, "optional_orValue_value" | "") => {
                return pair(args).map(|pair| Node::OptionalOr(pair, true));
            }
            op::IN if overload == "in_list" => match constant_set(&args) {
                Some(set) if set.is_empty() => return Ok(Node::Const(Val::Bool(false))),
                Some(set) => return Ok(Node::InSet(Box::new(args.remove(0)), set)),
                None => {}
            },
            _ => {}
        }
        let Some(function) = functions::implementation(name, overload) else {
            return Err(EvalError::new(format!("no such overload: {name}")));
        };
        if CONVERSIONS.contains(&name)
            && let [Node::Const(arg)] = &args[..]
        {
            return function(std::slice::from_ref(arg)).map(Node::Const);
        }
        let regex = match (name, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Const(Val::String(pattern)))) => {
                Some(functions::regexes::compile(pattern)?)
            }
            _ => None,
        };
        let cost = CostRule::of(name, overload);
        Ok(Node::Call(Box::new(CallNode {
            name,
            function,
            args: args.into(),
            cost,
            regex,
        })))
    }

    /// `@result + [x]`, which macros make, pushes instead of copying.
    fn append(&mut self, name: &str, call: &Call) -> Planned<Option<Node>> {
        if name == op::MAP_INSERT
            && let Some((
                Expr {
                    kind: Kind::Ident(accu),
                    ..
                },
                rest,
            )) = call.args.split_first()
            && let Some(slot) = self.slot(accu)
        {
            let nodes = rest
                .iter()
                .map(|arg| self.node(arg))
                .collect::<Planned<Vec<_>>>()?;
            return Ok(Some(Node::Insert(slot, nodes.into())));
        }
        if name != op::ADD {
            return Ok(None);
        }
        let [
            Expr {
                kind: Kind::Ident(accu),
                ..
            },
            Expr {
                kind: Kind::List(elements),
                ..
            },
        ] = &call.args[..]
        else {
            return Ok(None);
        };
        let (Some(slot), [element], ACCUMULATOR) = (self.slot(accu), &elements[..], &**accu) else {
            return Ok(None);
        };
        let node = self.node(&element.value)?;
        let constant = matches!(node, Node::Const(_));
        Ok(Some(Node::Append(slot, Box::new(node), constant)))
    }

    fn fold(&mut self, fold: &Fold) -> Planned<Node> {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init)?;
        let depth = self.names.len();
        let accu = self.local(&fold.accu);
        let var = self.local(&fold.var);
        let var2 = fold.var2.as_ref().map(|name| self.local(name));
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        self.names.truncate(depth + 1);
        let result = self.node(&fold.result)?;
        self.names.truncate(depth);
        let bind = fold.is_bind();
        Ok(Node::Fold(Box::new(FoldNode {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
            bind,
        })))
    }

    fn local(&mut self, name: &str) -> u32 {
        let slot = self.locals;
        self.locals += 1;
        self.names.push((name.into(), slot));
        slot
    }
}

/// Conversions of constants are done once, at planning.
const CONVERSIONS: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(value) => Val::Int(*value),
        Literal::Uint(value) => Val::Uint(*value),
        Literal::Double(value) => Val::Double(*value),
        Literal::String(text) => Val::string(&**text),
        Literal::Bytes(bytes) => Val::Bytes(Arc::from(&**bytes)),
    }
}

/// Extends an access, or starts one at a value.
fn access(operand: Node, qual: Qual) -> Access {
    let mut access = match operand {
        Node::Access(access) | Node::Has(access) => access,
        node => Access {
            root: Root::Value(Arc::new(node)),
            quals: Vec::new(),
        },
    };
    access.push(&Arc::new(qual));
    access
}

impl Access {
    fn push(&mut self, qual: &Arc<Qual>) {
        match &mut self.root {
            // Nobody shares a branch yet: plans are built bottom up.
            Root::Cond(cond) => {
                if let Some((_, yes, no)) = Arc::get_mut(cond) {
                    yes.push(qual);
                    no.push(qual);
                }
            }
            _ => self.quals.push(qual.clone()),
        }
    }
}

fn pair(args: Vec<Node>) -> Planned<Box<[Node; 2]>> {
    args.try_into().map(Box::new).map_err(|_| EvalError::NO_OVERLOAD)
}

fn index(args: Vec<Node>, optional: bool) -> Planned<Node> {
    let [operand, index] = *pair(args)?;
    let key = match index {
        Node::Const(Val::String(name)) => QualKey::Field((*name).into()),
        Node::Const(val) => QualKey::Const(val),
        Node::Access(access) => QualKey::Access(access),
        node => QualKey::Value(node),
    };
    Ok(Node::Access(access(
        operand,
        Qual {
            key,
            optional,
            test: false,
        },
    )))
}

fn ternary(args: Vec<Node>) -> Planned<Node> {
    let [cond, yes, no]: [Node; 3] = args.try_into().map_err(|_| EvalError::NO_OVERLOAD)?;
    let branch = |node| match node {
        Node::Access(access) | Node::Has(access) => access,
        node => Access {
            root: Root::Value(Arc::new(node)),
            quals: Vec::new(),
        },
    };
    let root = Root::Cond(Arc::new((cond, branch(yes), branch(no))));
    Ok(Node::Access(Access {
        root,
        quals: Vec::new(),
    }))
}

fn list(nodes: Vec<(Node, bool)>) -> Node {
    let constants: Option<Vec<Val<'static>>> = nodes
        .iter()
        .map(|(node, optional)| match node {
            Node::Const(val) if !optional => Some(val.clone()),
            _ => None,
        })
        .collect();
    match constants {
        Some(items) => Node::Const(Val::list(items)),
        None => Node::List(nodes.into()),
    }
}

fn map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let constants: Option<Vec<(Key, (Val<'static>, Val<'static>))>> = nodes
        .iter()
        .map(|(key, value, optional)| match (key, value) {
            (Node::Const(key), Node::Const(value)) if !optional => {
                Some((Key::new(key).ok()?, (key.clone(), value.clone())))
            }
            _ => None,
        })
        .collect();
    match constants {
        Some(entries) => Node::Const(Val::Map(crate::value::Map::Vals(Arc::new(
            entries.into_iter().collect(),
        )))),
        None => Node::Map(nodes.into()),
    }
}

/// The elements of a constant list that can be a set.
fn constant_set(args: &[Node]) -> Option<Arc<[Val<'static>]>> {
    let Node::Const(Val::List(list)) = args.get(1)? else {
        return None;
    };
    let items: Vec<Val<'static>> = list.iter().collect::<Result<_, _>>().ok()?;
    let primitive = |val: &Val<'_>| {
        matches!(
            val.type_of(),
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::String
        )
    };
    items.iter().all(primitive).then(|| items.into())
}
