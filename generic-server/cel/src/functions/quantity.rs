//! Resource quantities (`1.5Gi`) and, because the functions share names, dispatch to semantic versions.

use std::cmp::Ordering;

use super::{
    Function, Ret, no_overload,
    opaque::Opaque,
    semver::{self, Semver},
};
use crate::{error::EvalError, value::Val};

/// An amount in billionths, the finest a quantity can be. Amounts beyond about 1.7e29 are capped.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    pub(crate) nanos: i128,
    /// Value and decimal scale, while upstream keeps the amount in 64 bits; only such amounts can be integers.
    small: Option<(i64, i32)>,
}

const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Powers of ten and two a suffix stands for.
fn suffix(text: &str) -> Option<(u32, i32)> {
    Some(match text {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
            (10, exponent)
        }
    })
}

fn pow10(exponent: u32) -> i128 {
    10i128.checked_pow(exponent).unwrap_or(i128::MAX)
}

/// Parses a quantity. The error is upstream's.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    let (negative, body) = match text.as_bytes().first() {
        None => return Err(MALFORMED),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
    let (whole, rest) = body.split_at(end);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let letters = rest
        .find(|c: char| !"eEinumkKMGTP".contains(c))
        .unwrap_or(rest.len());
    let tail = rest[letters..]
        .strip_prefix(['-', '+'])
        .unwrap_or(&rest[letters..]);
    if !tail.bytes().all(|b| b.is_ascii_digit()) {
        return Err(MALFORMED);
    }
    if whole.is_empty() && fraction.is_empty() && !rest.is_empty() && text.len() == rest.len() {
        // Letters alone: the number is missing.
        return if suffix(rest).is_some() {
            Err("unable to parse numeric part of quantity")
        } else {
            Err("unable to parse quantity's suffix")
        };
    }
    let (base, exponent) = suffix(rest).ok_or("unable to parse quantity's suffix")?;
    let whole = whole.trim_start_matches('0');
    amount(whole, fraction, base, exponent, negative)
}

fn amount(
    whole: &str,
    fraction: &str,
    base: u32,
    exponent: i32,
    negative: bool,
) -> Result<Quantity, &'static str> {
    let digits = format!("{whole}{fraction}");
    let signed = |value: i128| if negative { -value } else { value };
    let small = small(&digits, whole, fraction, base, exponent)
        .map(|(value, scale)| (if negative { -value } else { value }, scale));
    // Digits times 10^(9 - fraction digits), times the suffix.
    let mut power = 9 - fraction.len() as i32;
    let mut value: i128 = digits.bytes().fold(0i128, |value, digit| {
        value.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
    });
    if base == 2 {
        value = value.saturating_mul(1i128 << exponent);
    } else {
        power = power.saturating_add(exponent);
    }
    let nanos = if power >= 0 {
        value.saturating_mul(pow10(power.unsigned_abs()))
    } else {
        let divisor = pow10(power.unsigned_abs());
        // Amounts finer than a billionth round up.
        value / divisor + i128::from(value % divisor != 0)
    };
    Ok(Quantity {
        nanos: signed(nanos),
        small,
    })
}

/// The 64-bit form, under the conditions upstream keeps it.
fn small(digits: &str, whole: &str, fraction: &str, base: u32, exponent: i32) -> Option<(i64, i32)> {
    let length = (whole.len().max(1) + fraction.len()) as i32;
    let (mantissa, precision, scale) = match base {
        10 => (1i64, 18 - length, exponent),
        _ if fraction.is_empty() => (
            1i64.checked_shl(exponent.unsigned_abs())?,
            15 - whole.len().max(1) as i32 - exponent * 3 / 10 - 1,
            0,
        ),
        _ => return None,
    };
    let scale = scale - fraction.len() as i32;
    if precision < 0 || scale < -9 {
        return None;
    }
    let value: i64 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    Some((value.checked_mul(mantissa)?, scale))
}

impl Quantity {
    fn integer(&self) -> Option<i64> {
        let (value, scale) = self.small?;
        let factor = 10i64.checked_pow(u32::try_from(scale).ok()?)?;
        value.checked_mul(factor)
    }

    fn float(&self) -> f64 {
        match self.small {
            Some((value, scale)) => value as f64 * 10f64.powi(scale),
            None => self.nanos as f64 / 1e9,
        }
    }

    fn plus(&self, other: &Quantity, sign: i64) -> Quantity {
        let small = self
            .small
            .zip(other.small)
            .and_then(|((a, a_scale), (b, b_scale))| {
                let scale = a_scale.min(b_scale);
                let scaled = |value: i64, from: i32| {
                    value.checked_mul(10i64.checked_pow(u32::try_from(from - scale).ok()?)?)
                };
                let sum = scaled(a, a_scale)?.checked_add(scaled(b, b_scale)?.checked_mul(sign)?)?;
                Some((sum, scale))
            });
        let nanos = self.nanos.saturating_add(other.nanos.saturating_mul(sign.into()));
        Quantity { nanos, small }
    }

    fn of(value: i64) -> Quantity {
        Quantity {
            nanos: i128::from(value) * 1_000_000_000,
            small: Some((value, 0)),
        }
    }
}

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
