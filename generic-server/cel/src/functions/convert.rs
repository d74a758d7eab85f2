//! Type conversions: `int(x)`, `string(x)` and the like.

use std::sync::Arc;

use super::{Ret, no_overload, time as times};
use crate::{
    error::EvalError,
    opaque::Opaque,
    scalar::time::{parse_duration, parse_timestamp},
    types::Type,
    value::{Str, Val},
};

/// The error of a failed conversion from a string.
fn failed<'a>(from: &Val<'_>, to: &Type) -> Ret<'a> {
    Err(EvalError::new(format!(
        "type conversion error from '{}' to '{}'",
        from.type_of().name(),
        to.name()
    )))
}

pub(crate) fn to_bool<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Bool(value) => Ok(Val::Bool(*value)),
        Val::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => failed(&args[0], &Type::Bool),
        },
        _ => no_overload("bool", args),
    }
}

pub(crate) fn to_bytes<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Bytes(bytes) => Ok(Val::Bytes(bytes.clone())),
        Val::String(text) => Ok(Val::Bytes(Arc::from(text.as_bytes()))),
        _ => no_overload("bytes", args),
    }
}

pub(crate) fn to_double<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Double(value) => Ok(Val::Double(*value)),
        Val::Int(value) => Ok(Val::Double(*value as f64)),
        Val::Uint(value) => Ok(Val::Double(*value as f64)),
        Val::String(text) => match text.parse() {
            Ok(value) => Ok(Val::Double(value)),
            Err(_) => failed(&args[0], &Type::Double),
        },
        _ => no_overload("double", args),
    }
}

pub(crate) fn to_duration<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Duration(nanos) | Val::Int(nanos) => Ok(Val::Duration(*nanos)),
        Val::String(text) => match parse_duration(text) {
            Some(nanos) => Ok(Val::Duration(nanos)),
            None => failed(&args[0], &Type::Duration),
        },
        _ => no_overload("duration", args),
    }
}

pub(crate) fn to_timestamp<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match &args[0] {
        Val::Timestamp(at) => Ok(Val::Timestamp(*at)),
        Val::Int(seconds) => times::from_unix(*seconds),
        Val::String(text) => match parse_timestamp(text) {
            Some(at) => Ok(Val::Timestamp(at)),
            None => failed(&args[0], &Type::Timestamp),
        },
        _ => no_overload("timestamp", args),
    }
}

pub(crate) fn to_int<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let overflow = EvalError::fixed("integer overflow");
    match &args[0] {
        Val::Int(value) | Val::Duration(value) => Ok(Val::Int(*value)),
        Val::Uint(value) => i64::try_from(*value).map(Val::Int).map_err(|_| overflow),
        // The bounds themselves round to values outside.
        Val::Double(value) if *value > i64::MIN as f64 && *value < i64::MAX as f64 => {
            Ok(Val::Int(*value as i64))
        }
        Val::Double(_) => Err(overflow),
        Val::Timestamp(at) => Ok(Val::Int(at.unix_timestamp())),
        Val::String(text) => match text.parse() {
            Ok(value) => Ok(Val::Int(value)),
            Err(_) => failed(&args[0], &Type::Int),
        },
        _ => no_overload("int", args),
    }
}

pub(crate) fn to_uint<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let overflow = EvalError::fixed("unsigned integer overflow");
    match &args[0] {
        Val::Uint(value) => Ok(Val::Uint(*value)),
        Val::Int(value) => u64::try_from(*value).map(Val::Uint).map_err(|_| overflow),
        Val::Double(value) if *value >= 0.0 && *value < u64::MAX as f64 => Ok(Val::Uint(*value as u64)),
        Val::Double(_) => Err(overflow),
        Val::String(text) => match text.strip_prefix('+').map_or(text.parse(), |_| "+".parse()) {
            Ok(value) => Ok(Val::Uint(value)),
            Err(_) => failed(&args[0], &Type::Uint),
        },
        _ => no_overload("uint", args),
    }
}

pub(crate) fn to_string<'a>(args: &[Val<'a>]) -> Ret<'a> {
    Ok(match &args[0] {
        Val::String(text) => Val::String(text.clone()),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::string(text),
            Err(_) => {
                return Err(EvalError::fixed(
                    "invalid UTF-8 in bytes, cannot convert to string",
                ));
            }
        },
        Val::Opaque(value) if matches!(**value, Opaque::Ip(_) | Opaque::Cidr(_)) => {
            Val::string(value.to_string())
        }
        val => match val.text() {
            Some(text) => Val::string(text),
            None => return no_overload("string", args),
        },
    })
}

/// A borrowed or shared string out of a value.
pub(crate) fn str_of<'v, 'a>(val: &'v Val<'a>) -> Option<&'v Str<'a>> {
    match val {
        Val::String(text) => Some(text),
        _ => None,
    }
}
