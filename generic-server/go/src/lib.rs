//! Values, types and lists of errors as Go's `fmt`, `strconv` and upstream's `errors.Aggregate` print them, for clients that
//! compare texts.
#![warn(missing_docs)]

pub mod url;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Write};

use serde_json::Value;

/// The name that Go's decoder has for the type of a JSON value.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Quotes as Go's `%q`/`strconv.Quote`.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    // Writing to a string does not fail.
    let _ = write_quoted(&mut out, s);
    out
}

/// A string that displays quoted as Go does.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, self.0)
    }
}

fn write_quoted(out: &mut impl Write, s: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in s.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\t' => out.write_str("\\t")?,
            '\r' => out.write_str("\\r")?,
            '\x07' => out.write_str("\\a")?,
            '\x08' => out.write_str("\\b")?,
            '\x0b' => out.write_str("\\v")?,
            '\x0c' => out.write_str("\\f")?,
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                write!(out, "\\x{:02x}", c as u32)?;
            }
            c if !printable(c) => match c as u32 {
                code @ 0..=0xffff => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

/// Whether Go's `unicode.IsPrint` takes a character: no controls, no marks of format, no white space but the plain one.
/// Characters that Unicode has not assigned are taken for printable here.
pub fn printable(c: char) -> bool {
    let format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0001}'..='\u{e007f}' | '\u{f0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || format)
}

/// A value as Go's `%v` prints it.
#[derive(Debug, Clone, Copy)]
pub struct Print<'a>(pub &'a Value);

impl fmt::Display for Print<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Array(list) => {
                f.write_str("[")?;
                separated(f, " ", list, |f, item| Print(item).fmt(f))?;
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("map[")?;
                separated(f, " ", map, |f, (key, value)| write!(f, "{key}:{}", Print(value)))?;
                f.write_str("]")
            }
            Value::Number(number) if number.is_f64() => {
                f.write_str(&general(number.as_f64().unwrap_or_default()))
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}

/// A value as Go's `%#v` prints it.
#[derive(Debug, Clone, Copy)]
pub struct Syntax<'a>(pub &'a Value);

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::String(text) => write_quoted(f, text),
            Value::Array(list) => {
                f.write_str("[]interface {}{")?;
                separated(f, ", ", list, |f, item| Syntax(item).fmt(f))?;
                f.write_str("}")
            }
            Value::Object(map) => {
                f.write_str("map[string]interface {}{")?;
                separated(f, ", ", map, |f, (key, value)| {
                    write!(f, "{}:{}", Quoted(key), Syntax(value))
                })?;
                f.write_str("}")
            }
            Value::Number(number) if number.is_f64() => {
                f.write_str(&general(number.as_f64().unwrap_or_default()))
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    separator: &str,
    items: impl IntoIterator<Item = T>,
    mut print: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        print(f, item)?;
    }
    Ok(())
}

/// A double as Go's `%g` and `%v` with the fewest digits: an exponent below 1e-4 and from 1e6 on.
pub fn general(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Go's name for the type of a decoded JSON value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Several errors as one, as upstream's `errors.Aggregate` prints them: `[a, b]`, equal ones once, and a single one as it is.
///
/// ```
/// use go_text::{aggregate, aggregate_first};
/// assert_eq!(aggregate(&["a", "b"]), "[a, b]");
/// assert_eq!(aggregate(&["a"]), "a");
/// assert_eq!(aggregate(&["a", "b", "a"]), "[a, b]");
/// assert_eq!(aggregate(&["a", "a"]), "a");
/// assert_eq!(aggregate::<&str>(&[]), "");
/// assert_eq!(aggregate_first(&["a", "b"], 3), "[a, b, and 3 more]");
/// ```
pub fn aggregate<T: AsRef<str>>(errors: &[T]) -> Cow<'_, str> {
    aggregate_first(errors, 0)
}

/// The same of the first of many errors; `more` is how many were left out: `[a, b, and 3 more]`.
pub fn aggregate_first<T: AsRef<str>>(errors: &[T], more: usize) -> Cow<'_, str> {
    match (errors, more) {
        ([], 0) => Cow::Borrowed(""),
        ([one], 0) => Cow::Borrowed(one.as_ref()),
        (many, more) => {
            let mut seen = HashSet::with_capacity(many.len());
            let mut out = String::from("[");
            for error in many.iter().map(AsRef::as_ref) {
                if seen.insert(error) {
                    out.push_str(if seen.len() > 1 { ", " } else { "" });
                    out.push_str(error);
                }
            }
            if let ([first, ..], 1, 0) = (many, seen.len(), more) {
                return Cow::Borrowed(first.as_ref());
            }
            if more > 0 {
                // Writing to a string does not fail.
                let _ = write!(out, ", and {more} more");
            }
            out.push(']');
            Cow::Owned(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(quote(text), expected);
        }
        check("", r#""""#);
        check("a\"b\\c\n\u{1}é\u{85}", r#""a\"b\\c\n\x01é\u0085""#);
        check("\u{7f}\u{200b}\u{a0}\u{f0000}", r#""\x7f\u200b\u00a0\U000f0000""#);
    }

    #[test]
    fn values_are_printed() {
        #[track_caller]
        fn check(value: &Value, print: &str, syntax: &str, kind: &str) {
            assert_eq!(Print(value).to_string(), print);
            assert_eq!(Syntax(value).to_string(), syntax);
            assert_eq!(type_name(value), kind);
        }
        check(&Value::Null, "<nil>", "interface {}(nil)", "<nil>");
        check(&1.into(), "1", "1", "int64");
        check(&"a".into(), "a", "\"a\"", "string");
        check(
            &serde_json::json!({"a": [1, "b"], "c": null}),
            "map[a:[1 b] c:<nil>]",
            "map[string]interface {}{\"a\":[]interface {}{1, \"b\"}, \"c\":interface {}(nil)}",
            "map[string]interface {}",
        );
    }

    #[test]
    fn doubles_have_the_fewest_digits() {
        let texts = [1.5, 100_000.0, 1_234_567.0, 1e6, 1e21, 1e-5, f64::NEG_INFINITY].map(general);
        assert_eq!(
            texts,
            ["1.5", "100000", "1.234567e+06", "1e+06", "1e+21", "1e-05", "-Inf"]
        );
    }
}
