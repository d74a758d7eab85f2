//! `string.format(list)` and Go's number forms.

use go_text::{general, quote};

use super::{Ret, no_overload};
use crate::{
    error::EvalError,
    value::{List, Map, Val},
};

/// The argument type that a clause of a literal format string requires, checked before evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hex(bool),
    Octal,
}

/// A piece of a format string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    Text(&'t str),
    Clause(Clause),
}

const MAX_PRECISION: usize = 100;

/// Takes a format string apart; the error has cel-go's words.
pub(crate) fn pieces(text: &str) -> Vec<Result<Piece<'_>, String>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        if at > 0 {
            out.push(Ok(Piece::Text(&rest[..at])));
        }
        rest = &rest[at + 1..];
        if rest.starts_with('%') {
            out.push(Ok(Piece::Text("%")));
            rest = &rest[1..];
            continue;
        }
        match clause(rest) {
            Ok((clause, len)) => {
                out.push(Ok(Piece::Clause(clause)));
                rest = &rest[len..];
            }
            Err(message) => {
                out.push(Err(message));
                return out;
            }
        }
    }
    if !rest.is_empty() {
        out.push(Ok(Piece::Text(rest)));
    }
    out
}

fn clause(text: &str) -> Result<(Clause, usize), String> {
    if text.is_empty() {
        return Err("unexpected end of string".to_string());
    }
    let wrapped = |message: &str| format!("could not parse formatting clause: {message}");
    let (mut at, mut precision) = (0, None);
    if let Some(tail) = text.strip_prefix('.') {
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        at = 1 + digits;
        if at >= text.len() {
            return Err(wrapped(
                "error while parsing precision: could not find end of precision specifier",
            ));
        }
        let parsed: usize = tail[..digits].parse().map_err(|_| {
            wrapped("error while parsing precision: error while converting precision to integer")
        })?;
        precision = Some(parsed.min(MAX_PRECISION));
    }
    let letter = text[at..].chars().next().unwrap_or(' ');
    let clause = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex(false),
        'X' => Clause::Hex(true),
        'o' => Clause::Octal,
        other => return Err(wrapped(&format!("unrecognized formatting clause \"{other}\""))),
    };
    Ok((clause, at + letter.len_utf8()))
}

impl Clause {
    /// The error of the clause for a value of a type that it cannot print.
    pub(crate) fn refusal(self, type_name: &str) -> String {
        let what = match self {
            Clause::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps"
            }
            Clause::Decimal => "decimal clause can only be used on integers",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
            Clause::Scientific(_) => "scientific clause can only be used on doubles",
            Clause::Binary => "only integers and bools can be formatted as binary",
            Clause::Hex(_) => "only integers, byte buffers, and strings can be formatted as hex",
            Clause::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {what}, was given {type_name}")
    }
}

/// `format.format(args)`.
pub(crate) fn format<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::String(text), Val::List(list)] = args else {
        return no_overload("format", args);
    };
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces(text) {
        let clause = match piece {
            Ok(Piece::Text(text)) => {
                out.push_str(text);
                continue;
            }
            Ok(Piece::Clause(clause)) => Ok(clause),
            Err(message) => Err(message),
        };
        if next >= list.len() {
            return Err(EvalError::new(format!("index {next} out of range")));
        }
        let clause = clause.map_err(EvalError::new)?;
        let val = list.at(next)?;
        let piece = apply(clause, &val).map_err(|()| EvalError::new(clause.refusal(val.type_of().name())))?;
        out.push_str(&piece);
        next += 1;
    }
    Ok(Val::string(out))
}

fn apply(clause: Clause, val: &Val<'_>) -> Result<String, ()> {
    match (clause, val) {
        (Clause::String, val) => string(val).ok_or(()),
        (Clause::Decimal, Val::Int(value)) => Ok(value.to_string()),
        (Clause::Decimal, Val::Uint(value)) => Ok(value.to_string()),
        (Clause::Fixed(precision), val) => Ok(grouped(&fixed(double(val)?, precision.unwrap_or(6)))),
        (Clause::Scientific(precision), val) => Ok(scientific(double(val)?, precision.unwrap_or(6))),
        (Clause::Binary, Val::Int(value)) => Ok(signed(*value, |value| format!("{value:b}"))),
        (Clause::Binary, Val::Uint(value)) => Ok(format!("{value:b}")),
        (Clause::Binary, Val::Bool(value)) => Ok(u8::from(*value).to_string()),
        (Clause::Octal, Val::Int(value)) => Ok(signed(*value, |value| format!("{value:o}"))),
        (Clause::Octal, Val::Uint(value)) => Ok(format!("{value:o}")),
        (Clause::Hex(upper), val) => hex(val, upper).ok_or(()),
        _ => Err(()),
    }
}

fn double(val: &Val<'_>) -> Result<f64, ()> {
    match val {
        Val::Double(value) => Ok(*value),
        Val::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(()),
        },
        _ => Err(()),
    }
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn hex(val: &Val<'_>, upper: bool) -> Option<String> {
    let bytes = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let text = match val {
        Val::String(text) => bytes(text.as_bytes()),
        Val::Bytes(data) => bytes(data),
        Val::Int(value) => signed(*value, |value| format!("{value:x}")),
        Val::Uint(value) => format!("{value:x}"),
        _ => return None,
    };
    Some(if upper { text.to_uppercase() } else { text })
}

fn fixed(value: f64, precision: usize) -> String {
    if value.is_nan() {
        "NaN".to_string()
    } else if value.is_infinite() {
        if value > 0.0 { "∞" } else { "-∞" }.to_string()
    } else {
        format!("{value:.precision$}")
    }
}

/// Thousands separated by commas, as the en_US locale writes them.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_string();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// `1.23×10⁰⁴`, as the en_US locale writes it.
fn scientific(value: f64, precision: usize) -> String {
    if !value.is_finite() {
        return fixed(value, precision);
    }
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised: String = format!("{exponent:0>2}")
        .bytes()
        .map(|digit| {
            ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit.wrapping_sub(b'0') % 10)]
        })
        .collect();
    format!("{digits}×10{sign}{raised}")
}

/// The `%s` form.
fn string(val: &Val<'_>) -> Option<String> {
    match val {
        Val::Null => Some("null".to_string()),
        Val::List(list) => list_text(list),
        Val::Map(map) => map_text(map),
        val => val.text(),
    }
}

/// The form inside a list or map: a CEL literal.
fn literal(val: &Val<'_>) -> Option<String> {
    Some(match val {
        Val::String(text) => quote(text),
        Val::Bytes(_) => format!("b{}", quote(&val.text()?)),
        Val::Timestamp(_) => format!("timestamp({})", quote(&val.text()?)),
        Val::Duration(_) => format!("duration({})", quote(&val.text()?)),
        Val::Type(ty) => format!("type({})", ty.name()),
        Val::Double(value) if !value.is_finite() => quote(&general(*value)),
        Val::Double(value) => format!("{value:.6}"),
        val => string(val)?,
    })
}

fn list_text(list: &List<'_>) -> Option<String> {
    let items: Option<Vec<String>> = list.iter().map(|item| literal(&item.ok()?)).collect();
    Some(format!("[{}]", items?.join(", ")))
}

fn map_text(map: &Map<'_>) -> Option<String> {
    let mut pairs = Vec::new();
    for (key, value) in map.entries() {
        if !matches!(key, Val::String(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_)) {
            return None;
        }
        pairs.push(format!("{}:{}", literal(&key)?, literal(&value.ok()?)?));
    }
    pairs.sort();
    Some(format!("{{{}}}", pairs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_go_prints_them() {
        assert_eq!(general(1.0), "1");
        assert_eq!(general(0.00001), "1e-05");
        assert_eq!(general(-12300.0), "-12300");
        assert_eq!(general(1234567.0), "1.234567e+06");
        assert_eq!(grouped("-1234567.50"), "-1,234,567.50");
    }
}
