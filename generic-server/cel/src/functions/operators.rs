//! Arithmetic and relations, with overflow checked.

use std::{cmp::Ordering, sync::Arc};

use super::{Ret, time as times};
use crate::{
    ast::op,
    error::EvalError,
    value::{Val, compare},
};

const INT: EvalError = EvalError::Failed(std::borrow::Cow::Borrowed("integer overflow"));
const UINT: EvalError = EvalError::Failed(std::borrow::Cow::Borrowed("unsigned integer overflow"));
const DURATION: EvalError = EvalError::Failed(std::borrow::Cow::Borrowed("duration overflow"));

fn int<'a>(value: Option<i64>) -> Ret<'a> {
    value.map(Val::Int).ok_or(INT)
}

fn uint<'a>(value: Option<u64>) -> Ret<'a> {
    value.map(Val::Uint).ok_or(UINT)
}

fn duration<'a>(value: Option<i64>) -> Ret<'a> {
    value.map(Val::Duration).ok_or(DURATION)
}

/// No overload: named after the operator when the left side knows no such operator at all.
fn unknown<'a>(operator: &str, known: bool) -> Ret<'a> {
    Err(if known {
        EvalError::NO_OVERLOAD
    } else {
        EvalError::new(format!("no such overload: {operator}"))
    })
}

fn is_number(val: &Val<'_>) -> bool {
    matches!(val, Val::Int(_) | Val::Uint(_) | Val::Double(_))
}

pub(crate) fn add<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_add(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_add(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::String(a), Val::String(b)) => Ok(Val::string(format!("{}{}", &**a, &**b))),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes(Arc::from([&**a, &**b].concat()))),
        (Val::List(a), Val::List(b)) => compare::concat(a, b).map(Val::List),
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (Val::Timestamp(at), Val::Duration(by)) | (Val::Duration(by), Val::Timestamp(at)) => {
            times::shift(*at, *by)
        }
        (a, _) => {
            let known = is_number(a)
                || matches!(
                    a,
                    Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Duration(_) | Val::Timestamp(_)
                );
            unknown(op::ADD, known)
        }
    }
}

pub(crate) fn subtract<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_sub(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_sub(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (Val::Timestamp(at), Val::Duration(by)) => match by.checked_neg() {
            Some(by) => times::shift(*at, by),
            None => Err(DURATION),
        },
        (Val::Timestamp(a), Val::Timestamp(b)) => duration(i64::try_from((*a - *b).whole_nanoseconds()).ok()),
        (a, _) => unknown(
            op::SUB,
            is_number(a) || matches!(a, Val::Duration(_) | Val::Timestamp(_)),
        ),
    }
}

pub(crate) fn multiply<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_mul(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_mul(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        (a, _) => unknown(op::MUL, is_number(a)),
    }
}

pub(crate) fn divide<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => {
            Err(EvalError::fixed("division by zero"))
        }
        (Val::Int(a), Val::Int(b)) => int(a.checked_div(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_div(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        (a, _) => unknown(op::DIV, is_number(a)),
    }
}

pub(crate) fn modulo<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => Err(EvalError::fixed("modulus by zero")),
        (Val::Int(a), Val::Int(b)) => int(a.checked_rem(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_rem(*b)),
        (a, _) => unknown(op::MOD, matches!(a, Val::Int(_) | Val::Uint(_))),
    }
}

pub(crate) fn negate<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Int(value) => int(value.checked_neg()),
        Val::Double(value) => Ok(Val::Double(-value)),
        Val::Duration(value) => duration(value.checked_neg()),
        Val::Bool(_) => Err(EvalError::NO_OVERLOAD),
        _ => unknown(op::NEG, false),
    }
}

pub(crate) fn not<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Bool(value) => Ok(Val::Bool(!value)),
        _ => Err(EvalError::NO_OVERLOAD),
    }
}

pub(crate) fn relation<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Ret<'a> {
    compare::order(&args[0], &args[1]).map(|order| Val::Bool(holds(order)))
}
