//! The meaning of plain scalars in upstream's YAML library.

use serde_json::Value;

use crate::codec::DecodeError;
use crate::codec::typed::free_double;

/// The meaning of a plain scalar.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    /// A date; kept as a string, but quoted on the way out.
    Timestamp,
    Text,
}

impl Meaning {
    pub(super) fn into_value(self, text: &str) -> Result<Value, DecodeError> {
        Ok(match self {
            Meaning::Null => Value::Null,
            Meaning::Bool(value) => Value::Bool(value),
            Meaning::Int(value) => value.into(),
            Meaning::Uint(value) => value.into(),
            // Upstream goes through JSON, where whole floats lose their fraction.
            Meaning::Float(value) if value.is_finite() => free_double(value),
            Meaning::Float(value) => {
                let name = match value {
                    v if v.is_nan() => "NaN",
                    v if v > 0.0 => "+Inf",
                    _ => "-Inf",
                };
                return Err(DecodeError::Syntax(format!("json: unsupported value: {name}")));
            }
            Meaning::Timestamp | Meaning::Text => Value::String(text.to_owned()),
        })
    }
}

pub(super) fn resolve(text: &str) -> Meaning {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Meaning::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Meaning::Bool(false);
        }
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        ".nan" | ".NaN" | ".NAN" => return Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Meaning::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => match text.as_bytes().get(1) {
            Some(b'0'..=b'9') => text.parse().map_or(Meaning::Text, Meaning::Float),
            _ => Meaning::Text,
        },
        b'0'..=b'9' | b'+' | b'-' => {
            if is_timestamp(text) {
                return Meaning::Timestamp;
            }
            number(&text.replace('_', ""))
        }
        _ => Meaning::Text,
    }
}

fn number(text: &str) -> Meaning {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, body) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !body.starts_with(['+', '-'])
        && let Ok(value) = i128::from_str_radix(body, radix)
    {
        let value = if negative { -value } else { value };
        if let Ok(value) = i64::try_from(value) {
            return Meaning::Int(value);
        }
        if let Ok(value) = u64::try_from(value)
            && !text.starts_with('+')
        {
            return Meaning::Uint(value);
        }
    }
    if is_float(digits) {
        return text.parse().map_or(Meaning::Text, Meaning::Float);
    }
    Meaning::Text
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !all_digits(digits) {
            return false;
        }
    }
    match mantissa.split_once('.') {
        None => all_digits(mantissa),
        Some(("", fraction)) => all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && (fraction.is_empty() || all_digits(fraction)),
    }
}

/// `2006-1-2`, alone or with a time behind `T`, `t` or a space.
fn is_timestamp(text: &str) -> bool {
    fn digits(text: &str, min: usize, max: usize) -> Option<&str> {
        let count = text.bytes().take_while(u8::is_ascii_digit).count();
        (min..=max).contains(&count).then(|| &text[count..])
    }
    fn date(text: &str) -> Option<&str> {
        let rest = digits(text, 4, 4)?.strip_prefix('-')?;
        let month: u32 = rest.split('-').next()?.parse().ok()?;
        let rest = digits(rest, 1, 2)?.strip_prefix('-')?;
        let day: u32 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        digits(rest, 1, 2)
    }
    fn clock(text: &str) -> Option<&str> {
        let rest = digits(text, 1, 2)?.strip_prefix(':')?;
        let rest = digits(rest, 1, 2)?.strip_prefix(':')?;
        let rest = digits(rest, 1, 2)?;
        Some(match rest.strip_prefix('.') {
            Some(fraction) => digits(fraction, 1, 9)?,
            None => rest,
        })
    }
    let Some(rest) = date(text) else { return false };
    if rest.is_empty() {
        return true;
    }
    let (zone, rest) = match rest.split_at_checked(1) {
        Some(("T" | "t", rest)) => (true, rest),
        Some((" ", rest)) => (false, rest),
        _ => return false,
    };
    match (zone, clock(rest)) {
        (false, Some("")) | (true, Some("Z")) => true,
        (true, Some(offset)) => {
            offset.len() == 6 && offset.starts_with(['+', '-']) && offset.as_bytes()[3] == b':'
        }
        _ => false,
    }
}

/// `[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?`: read as base 60 by other parsers, so printed quoted.
pub(super) fn is_base60(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return false;
    }
    let mut parts = whole.split(':');
    let Some(first) = parts.next() else { return false };
    if !first.starts_with(|c: char| c.is_ascii_digit())
        || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        return false;
    }
    let mut count = 0;
    for part in parts {
        count += 1;
        match part.as_bytes() {
            [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'] => {}
            _ => return false,
        }
    }
    count > 0
}
