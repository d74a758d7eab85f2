//! The evaluator: walks a plan over borrowed data, counting cost as it goes and stopping when the limit is passed.
//!
//! Errors are results, except that `&&`, `||` and comprehensions over them absorb an error when the other side decides. Running
//! out of budget is never absorbed.

use std::{collections::HashMap, sync::Arc};

use regex::Regex;

use crate::{
    error::EvalError,
    functions,
    plan::{Access, CallNode, FoldNode, Node, Qual, QualKey, Root},
    price,
    value::{Entries, Key, List, Map, Val, compare},
};

type Eval<T> = Result<T, EvalError>;

/// The state of one evaluation.
pub(crate) struct Machine<'p, 'a> {
    vars: &'p [Option<Val<'a>>],
    names: &'p dyn Fn(u32) -> String,
    locals: Vec<Local<'p, 'a>>,
    /// Patterns compiled in this evaluation.
    patterns: HashMap<Box<str>, Regex>,
    pub(crate) cost: u64,
    limit: u64,
}

const MAX_PATTERNS: usize = 100;

enum Local<'p, 'a> {
    Unset,
    Val(Val<'a>),
    /// Computed when first used.
    Lazy(&'p Node),
    Failed(EvalError),
}

impl<'p, 'a> Machine<'p, 'a> {
    pub(crate) fn new(
        vars: &'p [Option<Val<'a>>],
        names: &'p dyn Fn(u32) -> String,
        locals: u32,
        limit: u64,
    ) -> Machine<'p, 'a> {
        let locals = (0..locals).map(|_| Local::Unset).collect();
        Machine {
            vars,
            names,
            locals,
            patterns: HashMap::new(),
            cost: 0,
            limit,
        }
    }

    fn charge(&mut self, cost: u64) -> Eval<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(EvalError::CostLimit)
        } else {
            Ok(())
        }
    }

    pub(crate) fn eval(&mut self, node: &'p Node) -> Eval<Val<'a>> {
        match node {
            Node::Const(val) => Ok(val.clone()),
            Node::Access(access) => {
                let val = self.access(access);
                if !matches!(access.root, Root::Cond(_)) {
                    self.charge(price::SELECT)?;
                }
                val
            }
            Node::Has(access) => match self.access(access)? {
                Val::Optional(inner) => Ok(Val::Bool(inner.is_some())),
                val => Ok(val),
            },
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Call(call) => self.call(call),
            Node::Equal(pair) => self.equality(pair, false),
            Node::NotEqual(pair) => self.equality(pair, true),
            Node::InSet(node, set) => {
                let val = self.eval(node)?;
                let found = set
                    .iter()
                    .any(|member| compare::equal(member, &val).unwrap_or(false));
                Ok(Val::Bool(found))
            }
            Node::OptionalOr(pair, unwrap) => match self.eval(&pair[0])? {
                Val::Optional(Some(inner)) if *unwrap => Ok(inner.as_ref().clone()),
                Val::Optional(None) => self.eval(&pair[1]),
                other => Ok(other),
            },
            Node::List(elements) => {
                let list = self.list(elements);
                self.built(list, price::LIST)
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.built(map, price::MAP)
            }
            Node::Struct(name, fields) => {
                let object = self.object(name, fields);
                self.built(object, price::STRUCT)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Append(slot, node, constant) => self.append(*slot, node, *constant),
            Node::Insert(slot, nodes) => self.insert(*slot, nodes),
        }
    }

    /// Lists, maps and objects are priced whether or not they come about.
    fn built(&mut self, val: Eval<Val<'a>>, price: u64) -> Eval<Val<'a>> {
        if !matches!(val, Err(EvalError::CostLimit)) {
            self.charge(price)?;
        }
        val
    }

    /// `&&` ends at false, `||` at true; an error counts only if nothing ends it.
    fn logical(&mut self, terms: &'p [Node], decides: bool) -> Eval<Val<'a>> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::NO_OVERLOAD)),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Val::Bool(!decides)), Err)
    }

    fn equality(&mut self, pair: &'p [Node; 2], negated: bool) -> Eval<Val<'a>> {
        let left = self.eval(&pair[0]);
        let right = self.and_then_eval(&left, &pair[1])?;
        self.charge(price::equality(priced(&left), priced(&right), negated))?;
        let equal = compare::equal(&left?, &right?);
        match (equal, negated) {
            (equal, true) => Ok(Val::Bool(equal != Ok(true))),
            (equal, false) => equal.map(Val::Bool),
        }
    }

    fn call(&mut self, call: &'p CallNode) -> Eval<Val<'a>> {
        match &call.args[..] {
            [] => self.apply(call, &[]),
            [a] => {
                if call.name == crate::ast::op::NOT_STRICTLY_FALSE {
                    return self.not_strictly_false(a);
                }
                match self.eval(a) {
                    Ok(a) => self.apply(call, &[a]),
                    Err(error) => self.failed(call, error, &[Val::Null]),
                }
            }
            [a, b] if call.regex.is_none() => {
                let a = self.eval(a);
                let b = self.and_then_eval(&a, b)?;
                match (a, b) {
                    (Ok(a), Ok(b)) => self.apply(call, &[a, b]),
                    (Err(error), b) => self.failed(call, error, &[Val::Null, b.unwrap_or(Val::Null)]),
                    (Ok(a), Err(error)) => self.failed(call, error, &[a, Val::Null]),
                }
            }
            nodes => {
                let args = nodes
                    .iter()
                    .map(|node| self.eval(node))
                    .collect::<Eval<Vec<_>>>()?;
                self.apply(call, &args)
            }
        }
    }

    /// Evaluates the second of two operands, which happens even if the first failed, unless that was for want of budget.
    fn and_then_eval(&mut self, first: &Eval<Val<'a>>, second: &'p Node) -> Eval<Eval<Val<'a>>> {
        if let Err(EvalError::CostLimit) = first {
            return Err(EvalError::CostLimit);
        }
        match self.eval(second) {
            Err(EvalError::CostLimit) => Err(EvalError::CostLimit),
            val => Ok(val),
        }
    }

    /// A call with an argument that failed is priced as if it had been made.
    fn failed(&mut self, call: &CallNode, error: EvalError, args: &[Val<'a>]) -> Eval<Val<'a>> {
        if error != EvalError::CostLimit {
            self.charge(call.cost.price(args, None))?;
        }
        Err(error)
    }

    fn apply(&mut self, call: &'p CallNode, args: &[Val<'a>]) -> Eval<Val<'a>> {
        // A call priced by its arguments is paid for before it runs, and no result may be larger than the remaining budget.
        if !call.cost.needs_result() {
            self.charge(call.cost.price(args, None))?;
        }
        if functions::result_bound(call.name, args)
            .is_some_and(|size| size > self.limit.saturating_sub(self.cost))
        {
            return Err(EvalError::CostLimit);
        }
        let result = match (&call.regex, call.name) {
            (Some(regex), _) => functions::regexes::apply(call.name, regex, args),
            (None, "matches" | "find" | "findAll") => self.pattern(call.name, args),
            _ => (call.function)(args),
        };
        if call.cost.needs_result() {
            self.charge(call.cost.price(args, result.as_ref().ok()))?;
        }
        result
    }

    /// A match against a pattern that is not constant. Patterns are kept for the length of the evaluation; because compiling one
    /// can take far more than it is priced, their number is bounded.
    fn pattern(&mut self, name: &str, args: &[Val<'a>]) -> Eval<Val<'a>> {
        let Some(Val::String(pattern)) = args.get(1) else {
            return Err(EvalError::NO_OVERLOAD);
        };
        if let Some(regex) = self.patterns.get(&**pattern) {
            return functions::regexes::apply(name, regex, args);
        }
        if self.patterns.len() == MAX_PATTERNS {
            return Err(EvalError::CostLimit);
        }
        let regex = functions::regexes::compile(pattern)?;
        let result = functions::regexes::apply(name, &regex, args);
        self.patterns.insert((**pattern).into(), regex);
        result
    }

    fn not_strictly_false(&mut self, node: &'p Node) -> Eval<Val<'a>> {
        let val = match self.eval(node) {
            Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
            Ok(Val::Bool(value)) => value,
            _ => true,
        };
        self.charge(1)?;
        Ok(Val::Bool(val))
    }

    fn list(&mut self, elements: &'p [(Node, bool)]) -> Eval<Val<'a>> {
        let mut items = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            match self.eval(node)? {
                Val::Optional(inner) if *optional => items.extend(inner.map(|inner| inner.as_ref().clone())),
                val if *optional => {
                    let text =
                        format!("cannot initialize optional list element from non-optional value {val}");
                    return Err(EvalError::new(text));
                }
                val => items.push(val),
            }
        }
        Ok(Val::list(items))
    }

    fn map(&mut self, nodes: &'p [(Node, Node, bool)]) -> Eval<Val<'a>> {
        let mut entries = Entries::new();
        for (key, value, optional) in nodes {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            self.entry(&mut entries, key, value, *optional)?;
        }
        Ok(Val::Map(Map::Vals(Arc::new(entries))))
    }

    fn entry(&self, entries: &mut Entries<'a>, key: Val<'a>, value: Val<'a>, optional: bool) -> Eval<()> {
        let normal = Key::new(&key)?;
        match value {
            Val::Optional(Some(inner)) if optional => {
                entries.insert(normal, (key, inner.as_ref().clone()));
            }
            Val::Optional(None) if optional => {
                entries.remove(&normal);
            }
            val if optional => {
                let text = format!("cannot initialize optional entry '{key}' from non-optional value {val}");
                return Err(EvalError::new(text));
            }
            val => {
                entries.insert(normal, (key, val));
            }
        }
        Ok(())
    }

    fn object(&mut self, name: &Arc<str>, fields: &'p [(Box<str>, Node, bool)]) -> Eval<Val<'a>> {
        let mut entries = Entries::new();
        for (name, node, optional) in fields {
            let value = self.eval(node)?;
            self.entry(&mut entries, Val::string(&**name), value, *optional)?;
        }
        Ok(Val::Map(Map::Built {
            name: name.clone(),
            entries: Arc::new(entries),
        }))
    }

    fn access(&mut self, access: &'p Access) -> Eval<Val<'a>> {
        let val = match &access.root {
            Root::Var(index) => match self.vars.get(*index as usize) {
                Some(Some(val)) => val.clone(),
                _ => {
                    return Err(EvalError::new(format!(
                        "no such attribute(s): {}",
                        (self.names)(*index)
                    )));
                }
            },
            Root::Local(slot) => self.local(*slot)?,
            Root::Value(node) => self.eval(node)?,
            Root::Cond(cond) => {
                return match self.eval(&cond.0)? {
                    Val::Bool(true) => self.access(&cond.1),
                    Val::Bool(false) => self.access(&cond.2),
                    _ => Err(EvalError::NO_OVERLOAD),
                };
            }
        };
        if access.quals.is_empty() {
            Ok(val)
        } else {
            self.qualify(val, &access.quals)
        }
    }

    fn local(&mut self, slot: u32) -> Eval<Val<'a>> {
        match &self.locals[slot as usize] {
            Local::Val(val) => Ok(val.clone()),
            Local::Failed(error) => Err(error.clone()),
            Local::Unset => Err(EvalError::fixed("no such attribute")),
            Local::Lazy(node) => {
                let node = *node;
                let val = self.eval(node);
                self.locals[slot as usize] = match &val {
                    Ok(val) => Local::Val(val.clone()),
                    Err(error) => Local::Failed(error.clone()),
                };
                val
            }
        }
    }

    fn qualify(&mut self, val: Val<'a>, quals: &'p [Arc<Qual>]) -> Eval<Val<'a>> {
        let (mut val, mut optional) = match val {
            Val::Optional(None) => return Ok(Val::none()),
            Val::Optional(Some(inner)) => (inner.as_ref().clone(), true),
            val => (val, false),
        };
        for qual in quals {
            optional |= qual.optional;
            let found = self.lookup(&val, qual, optional || qual.test);
            if qual.test {
                // Asking is priced whether or not the answer is yes.
                self.charge(price::SELECT)?;
                let present = found?.is_some();
                return Ok(if optional && !present {
                    Val::none()
                } else {
                    Val::Bool(present)
                });
            }
            match found {
                Ok(Some(next)) => {
                    self.charge(price::SELECT)?;
                    val = next;
                }
                Ok(None) => return Ok(Val::none()),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(error) => {
                    if !optional {
                        self.charge(price::SELECT)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(if optional { Val::some(val) } else { val })
    }

    /// The value that a qualifier selects; absence is an error unless the caller only asks whether it exists.
    fn lookup(&mut self, val: &Val<'a>, qual: &'p Qual, asking: bool) -> Eval<Option<Val<'a>>> {
        let index;
        let key = match &qual.key {
            QualKey::Field(name) => {
                return match val {
                    Val::Map(map) => match map.field(name) {
                        Some(found) => found.map(Some),
                        None => missing(asking, "no such key", &Val::str(name)),
                    },
                    Val::List(_) => Err(EvalError::fixed("unsupported index type 'string' in list")),
                    _ => missing(asking, "no such key", &Val::str(name)),
                };
            }
            QualKey::Const(key) => key,
            QualKey::Access(access) => {
                index = self.access(access)?;
                &index
            }
            QualKey::Value(node) => {
                index = self.eval(node)?;
                &index
            }
        };
        match val {
            Val::Map(map) => match map.find(key) {
                Some(found) => found.map(Some),
                None => missing(asking, "no such key", key),
            },
            Val::List(list) => self.element(list, key, asking),
            _ => missing(asking, "no such key", key),
        }
    }

    fn element(&mut self, list: &List<'a>, key: &Val<'_>, asking: bool) -> Eval<Option<Val<'a>>> {
        let index = match key {
            Val::Int(index) => usize::try_from(*index).ok(),
            Val::Uint(index) => usize::try_from(*index).ok(),
            Val::Double(index) if index.fract() == 0.0 && *index >= 0.0 && *index < 1e15 => {
                Some(*index as usize)
            }
            Val::Double(_) => return Err(EvalError::new(format!("unsupported index value {key} in list"))),
            other => {
                let ty = other.type_of();
                return Err(EvalError::new(format!(
                    "unsupported index type '{}' in list",
                    ty.name()
                )));
            }
        };
        match index.filter(|index| *index < list.len()) {
            Some(index) => list.at(index).map(Some),
            None => missing(asking, "index out of bounds", key),
        }
    }

    fn fold(&mut self, fold: &'p FoldNode) -> Eval<Val<'a>> {
        let range = self.eval(&fold.range)?;
        if fold.bind {
            self.locals[fold.accu as usize] = Local::Lazy(&fold.init);
            return self.eval(&fold.result);
        }
        let init = self.eval(&fold.init)?;
        self.locals[fold.accu as usize] = Local::Val(init);
        match range {
            Val::List(list) => {
                for index in 0..list.len() {
                    let item = list.at(index);
                    let more = match fold.var2 {
                        Some(_) => self.step(fold, Ok(Val::Int(index as i64)), Some(item))?,
                        None => self.step(fold, item, None)?,
                    };
                    if !more {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for (key, value) in map.entries() {
                    let value = fold.var2.map(|_| value);
                    if !self.step(fold, Ok(key), value)? {
                        break;
                    }
                }
            }
            other => {
                let text = format!("got '{}', expected iterable type", other.type_of().name());
                return Err(EvalError::new(text));
            }
        }
        self.eval(&fold.result)
    }

    /// One round; false when the condition ended the fold.
    fn step(
        &mut self,
        fold: &'p FoldNode,
        first: Eval<Val<'a>>,
        second: Option<Eval<Val<'a>>>,
    ) -> Eval<bool> {
        self.locals[fold.var as usize] = local(first);
        if let (Some(slot), Some(second)) = (fold.var2, second) {
            self.locals[slot as usize] = local(second);
        }
        if matches!(self.eval(&fold.condition), Ok(Val::Bool(false))) {
            return Ok(false);
        }
        if self.cost > self.limit {
            return Err(EvalError::CostLimit);
        }
        let accu = match self.eval(&fold.step) {
            Ok(val) => Local::Val(val),
            Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
            Err(error) => Local::Failed(error),
        };
        self.locals[fold.accu as usize] = accu;
        Ok(true)
    }

    /// Takes the accumulator out of its slot, pushes, and gives it back as the step's value.
    fn append(&mut self, slot: u32, node: &'p Node, constant: bool) -> Eval<Val<'a>> {
        let item = self.eval(node);
        if matches!(item, Err(EvalError::CostLimit)) {
            return item;
        }
        let list_cost = if constant { 0 } else { price::LIST };
        self.charge(price::SELECT + list_cost + 1)?;
        match std::mem::replace(&mut self.locals[slot as usize], Local::Unset) {
            Local::Failed(error) => Err(error),
            Local::Val(Val::List(List::Vals { mut items, list_type })) => {
                Arc::make_mut(&mut items).push(item?);
                Ok(Val::List(List::Vals { items, list_type }))
            }
            _ => Err(EvalError::NO_OVERLOAD),
        }
    }
}

impl<'p, 'a> Machine<'p, 'a> {
    fn insert(&mut self, slot: u32, nodes: &'p [Node]) -> Eval<Val<'a>> {
        if let Local::Failed(error) = &self.locals[slot as usize] {
            let error = error.clone();
            self.charge(price::SELECT)?;
            return Err(error);
        }
        let args = nodes
            .iter()
            .map(|node| self.eval(node))
            .collect::<Eval<Vec<_>>>()?;
        self.charge(price::SELECT + 1)?;
        let Local::Val(Val::Map(Map::Vals(mut entries))) =
            std::mem::replace(&mut self.locals[slot as usize], Local::Unset)
        else {
            return Err(EvalError::NO_OVERLOAD);
        };
        let added = match &args[..] {
            [key, value] => vec![(key.clone(), Ok(value.clone()))],
            [Val::Map(map)] => map.entries(),
            _ => return Err(EvalError::NO_OVERLOAD),
        };
        for (key, value) in added {
            let normal = Key::new(&key)?;
            if entries.contains_key(&normal) {
                return Err(EvalError::new(format!("insert failed: key {key} already exists")));
            }
            Arc::make_mut(&mut entries).insert(normal, (key, value?));
        }
        Ok(Val::Map(Map::Vals(entries)))
    }
}

fn local<'p, 'a>(val: Eval<Val<'a>>) -> Local<'p, 'a> {
    match val {
        Ok(val) => Local::Val(val),
        Err(error) => Local::Failed(error),
    }
}

/// The value by which a failed argument is priced: null.
fn priced<'v, 'a>(val: &'v Eval<Val<'a>>) -> &'v Val<'a> {
    val.as_ref().unwrap_or(&Val::Null)
}

fn missing<'a>(asking: bool, what: &str, key: &Val<'_>) -> Eval<Option<Val<'a>>> {
    if asking {
        Ok(None)
    } else {
        Err(EvalError::new(format!("{what}: {key}")))
    }
}
