//! Optional values.

use super::{Function, Ret, no_overload};
use crate::{error::EvalError, value::Val};

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "optional.of" => |args| Ok(Val::some(args[0].clone())),
        "optional.ofNonZeroValue" => |args| {
            Ok(if args[0].is_zero() {
                Val::none()
            } else {
                Val::some(args[0].clone())
            })
        },
        "optional.none" => |_| Ok(Val::none()),
        "value" => value,
        "hasValue" => |args| match &args[0] {
            Val::Optional(inner) => Ok(Val::Bool(inner.is_some())),
            _ => no_overload("hasValue", args),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return None,
    })
}

fn value<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Optional(Some(inner)) => Ok(inner.as_ref().clone()),
        Val::Optional(None) => Err(EvalError::fixed("optional.none() dereference")),
        _ => no_overload("value", args),
    }
}

fn unwrap<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let Val::List(list) = &args[0] else {
        return no_overload("optional.unwrap", args);
    };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Val::Optional(inner) => items.extend(inner.map(|inner| inner.as_ref().clone())),
            other => return Err(EvalError::new(format!("value {other} is not optional"))),
        }
    }
    Ok(Val::list(items))
}
