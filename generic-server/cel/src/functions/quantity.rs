//! Resource quantities (`1.5Gi`) and, because the functions share names, dispatch to semantic versions.

use std::cmp::Ordering;

use super::{Function, Ret, no_overload, semver};
use crate::opaque::quantity::{Quantity, parse};
use crate::opaque::{Opaque, Semver};
use crate::{error::EvalError, value::Val};

enum Pair {
    Quantities(Quantity, Quantity),
    Versions(Ordering),
}

fn quantity_of(val: &Val<'_>) -> Option<Quantity> {
    match val {
        Val::Opaque(value) => match &**value {
            Opaque::Quantity(quantity) => Some(*quantity),
            _ => None,
        },
        _ => None,
    }
}

fn version_of<'v>(val: &'v Val<'_>) -> Option<&'v Semver> {
    match val {
        Val::Opaque(value) => match &**value {
            Opaque::Semver(version) => Some(version),
            _ => None,
        },
        _ => None,
    }
}

fn pair(args: &[Val<'_>]) -> Option<Pair> {
    let [a, b] = args else { return None };
    if let (Some(a), Some(b)) = (version_of(a), version_of(b)) {
        return Some(Pair::Versions(a.order(b)));
    }
    Some(Pair::Quantities(quantity_of(a)?, quantity_of(b)?))
}

fn compare(args: &[Val<'_>]) -> Option<Ordering> {
    Some(match pair(args)? {
        Pair::Versions(order) => order,
        Pair::Quantities(a, b) => a.nanos.cmp(&b.nanos),
    })
}

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |args| match args {
            [Val::String(text)] => parse(text)
                .map(|quantity| Val::opaque(Opaque::Quantity(quantity)))
                .map_err(EvalError::fixed),
            _ => no_overload("quantity", args),
        },
        "isQuantity" => |args| match args {
            [Val::String(text)] => Ok(Val::Bool(parse(text).is_ok())),
            _ => no_overload("isQuantity", args),
        },
        "isGreaterThan" => |args| ordered("isGreaterThan", args, |order| Val::Bool(order.is_gt())),
        "isLessThan" => |args| ordered("isLessThan", args, |order| Val::Bool(order.is_lt())),
        "compareTo" => |args| ordered("compareTo", args, |order| Val::Int(order as i64)),
        "sign" => |args| {
            get("sign", args, |quantity| {
                Ok(Val::Int(quantity.nanos.signum() as i64))
            })
        },
        "asApproximateFloat" => |args| {
            get("asApproximateFloat", args, |quantity| {
                Ok(Val::Double(quantity.float()))
            })
        },
        "isInteger" => |args| {
            get("isInteger", args, |quantity| {
                Ok(Val::Bool(quantity.integer().is_some()))
            })
        },
        "asInteger" => |args| {
            get("asInteger", args, |quantity| {
                quantity
                    .integer()
                    .map(Val::Int)
                    .ok_or(EvalError::fixed("cannot convert value to integer"))
            })
        },
        "add" => |args| sum("add", args, 1),
        "sub" => |args| sum("sub", args, -1),
        "semver" | "isSemver" | "major" | "minor" | "patch" => return semver::implementation(name),
        _ => return None,
    })
}

fn ordered<'a>(name: &str, args: &[Val<'a>], of: fn(Ordering) -> Val<'static>) -> Ret<'a> {
    match compare(args) {
        Some(order) => Ok(of(order)),
        None => no_overload(name, args),
    }
}

fn get<'a>(name: &str, args: &[Val<'a>], of: fn(&Quantity) -> Ret<'static>) -> Ret<'a> {
    match args.first().and_then(quantity_of) {
        Some(quantity) => of(&quantity),
        None => no_overload(name, args),
    }
}

fn sum<'a>(name: &str, args: &[Val<'a>], sign: i64) -> Ret<'a> {
    let operands = match args {
        [a, Val::Int(b)] => quantity_of(a).map(|a| (a, Quantity::of(*b))),
        [a, b] => quantity_of(a).zip(quantity_of(b)),
        _ => None,
    };
    match operands {
        Some((a, b)) => Ok(Val::opaque(Opaque::Quantity(a.plus(&b, sign)))),
        None => no_overload(name, args),
    }
}
