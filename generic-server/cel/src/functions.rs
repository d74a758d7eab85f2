//! The implementations of functions, by name. The checker has chosen overloads by type; at run time the arguments' own types
//! decide, so that dynamically typed data works the same way.

pub(crate) mod authz;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod formats;
pub(crate) mod lists;
pub(crate) mod net;
pub(crate) mod operators;
pub(crate) mod optionals;
pub(crate) mod quantity;
pub(crate) mod regexes;
pub(crate) mod semver;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::{
    ast::op,
    error::EvalError,
    value::{Val, compare},
};

/// The result of a function.
pub(crate) type Ret<'a> = Result<Val<'a>, EvalError>;
/// A function's implementation; receivers come first.
pub(crate) type Function = for<'a> fn(&[Val<'a>]) -> Ret<'a>;

/// The error of a function that has no overload for these arguments.
pub(crate) fn no_overload<'a>(name: &str, args: &[Val<'_>]) -> Ret<'a> {
    let types: Vec<String> = args.iter().map(|arg| arg.type_of().name().to_string()).collect();
    Err(EvalError::new(format!(
        "no such overload: {name}({})",
        types.join(", ")
    )))
}

/// The implementation of a function, of one overload where the checker found only one.
pub(crate) fn implementation(name: &str, overload: &str) -> Option<Function> {
    Some(match name {
        "sum" if let Some(sum) = lists::typed_sum(overload) => sum,
        op::ADD => operators::add,
        op::SUB => operators::subtract,
        op::MUL => operators::multiply,
        op::DIV => operators::divide,
        op::MOD => operators::modulo,
        op::NEG => operators::negate,
        op::NOT => operators::not,
        op::LT => |args| operators::relation(args, std::cmp::Ordering::is_lt),
        op::LE => |args| operators::relation(args, std::cmp::Ordering::is_le),
        op::GT => |args| operators::relation(args, std::cmp::Ordering::is_gt),
        op::GE => |args| operators::relation(args, std::cmp::Ordering::is_ge),
        op::IN => membership,
        op::NOT_STRICTLY_FALSE | "dyn" => identity,
        op::MAP_INSERT => |args| no_overload(op::MAP_INSERT, args),
        op::SORT_BY_KEYS => lists::sort_by_keys,
        "size" => size,
        "type" => |args| Ok(Val::Type(args[0].type_of())),
        "bool" => convert::to_bool,
        "bytes" => convert::to_bytes,
        "double" => convert::to_double,
        "duration" => convert::to_duration,
        "int" => convert::to_int,
        "string" => convert::to_string,
        "timestamp" => convert::to_timestamp,
        "uint" => convert::to_uint,
        _ => {
            return strings::implementation(name)
                .or_else(|| lists::implementation(name))
                .or_else(|| optionals::implementation(name))
                .or_else(|| time::implementation(name))
                .or_else(|| net::implementation(name))
                .or_else(|| url::implementation(name))
                .or_else(|| quantity::implementation(name))
                .or_else(|| formats::implementation(name))
                .or_else(|| authz::implementation(name));
        }
    })
}

/// An upper bound of the price of a result's size, for functions whose result can be much larger than their arguments.
pub(crate) fn result_bound(name: &str, args: &[Val<'_>]) -> Option<u64> {
    match (name, args) {
        ("lists.range", [Val::Int(count)]) => u64::try_from(*count).ok(),
        ("replace", [Val::String(text), Val::String(old), Val::String(new), ..]) => {
            let count = if old.is_empty() {
                text.len() + 1
            } else {
                text.len() / old.len()
            };
            Some((count.saturating_mul(new.len()).saturating_add(text.len()) / 10) as u64)
        }
        ("join", [Val::List(list), Val::String(separator)]) => {
            Some((list.len().saturating_mul(separator.len()) / 10) as u64)
        }
        _ => None,
    }
}

fn identity<'a>(args: &[Val<'a>]) -> Ret<'a> {
    Ok(args[0].clone())
}

fn membership<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[1] {
        Val::List(list) => compare::contains(list, &args[0]).map(Val::Bool),
        Val::Map(map) => compare::has_key(map, &args[0]).map(Val::Bool),
        _ => Err(EvalError::new(format!("no such overload: {}", op::IN))),
    }
}

fn size<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], args[0].size()) {
        (Val::Opaque(_), _) | (_, None) => Err(EvalError::fixed("no such overload: size")),
        (_, Some(size)) => Ok(Val::Int(size as i64)),
    }
}
