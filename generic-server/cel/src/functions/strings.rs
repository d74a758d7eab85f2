//! String functions: cel-go's standard ones and its string extension, version 2. Positions count characters.

use super::{Function, Ret, convert::str_of, format, no_overload};
use crate::{error::EvalError, value::Val};

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "contains" => |args| test("contains", args, |text, other| text.contains(other)),
        "startsWith" => |args| test("startsWith", args, |text, other| text.starts_with(other)),
        "endsWith" => |args| test("endsWith", args, |text, other| text.ends_with(other)),
        // The evaluator compiles patterns and matches by itself.
        "matches" | "find" | "findAll" => |args| no_overload("matches", args),
        "charAt" => char_at,
        "indexOf" => |args| index_of("indexOf", args),
        "lastIndexOf" => |args| index_of("lastIndexOf", args),
        "lowerAscii" => |args| change("lowerAscii", args, |text| text.to_ascii_lowercase()),
        "upperAscii" => |args| change("upperAscii", args, |text| text.to_ascii_uppercase()),
        "trim" => |args| change("trim", args, |text| text.trim().to_string()),
        "strings.quote" => |args| change("strings.quote", args, quote),
        "jsonpatch.escapeKey" => |args| {
            change("jsonpatch.escapeKey", args, |text| {
                text.replace('~', "~0").replace('/', "~1")
            })
        },
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => format::format,
        _ => return None,
    })
}

fn test<'a>(name: &str, args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> Ret<'a> {
    match args {
        [Val::String(text), Val::String(other)] => Ok(Val::Bool(holds(text, other))),
        _ => no_overload(name, args),
    }
}

fn change<'a>(name: &str, args: &[Val<'a>], changed: fn(&str) -> String) -> Ret<'a> {
    match args {
        [Val::String(text)] => Ok(Val::string(changed(text))),
        _ => no_overload(name, args),
    }
}

fn out_of_range<'a>(index: i64) -> Ret<'a> {
    Err(EvalError::new(format!("index out of range: {index}")))
}

fn char_at<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::String(text), Val::Int(index)] = args else {
        return no_overload("charAt", args);
    };
    let Ok(at) = usize::try_from(*index) else {
        return out_of_range(*index);
    };
    match text.chars().nth(at) {
        Some(c) => Ok(Val::string(c.to_string())),
        None if at == text.chars().count() => Ok(Val::string("")),
        None => out_of_range(*index),
    }
}

/// The position of a substring, or of an element where the receiver is a list.
fn index_of<'a>(name: &str, args: &[Val<'a>]) -> Ret<'a> {
    let last = name == "lastIndexOf";
    match args {
        [Val::List(_), _] => super::lists::index_of(args, last),
        [Val::String(text), Val::String(part)] => {
            let size = text.chars().count() as i64;
            let from = match (last, part.is_empty()) {
                (true, true) => return Ok(Val::Int(size)),
                (true, false) => size - 1,
                (false, _) => 0,
            };
            if last && text.len() < part.len() {
                return Ok(Val::Int(-1));
            }
            find(text, part, from, last)
        }
        [Val::String(text), Val::String(part), Val::Int(from)] => find(text, part, *from, last),
        _ => no_overload(name, args),
    }
}

fn find<'a>(text: &str, part: &str, from: i64, last: bool) -> Ret<'a> {
    if part.is_empty() {
        return Ok(Val::Int(from));
    }
    let Ok(offset) = usize::try_from(from) else {
        return out_of_range(from);
    };
    let Some((byte, _)) = text.char_indices().nth(offset) else {
        return Ok(Val::Int(-1));
    };
    let found = if last {
        // The match may start at the offset, so it may end one substring later.
        let end = (byte + part.len()).min(text.len());
        let end = (end..=text.len())
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(text.len());
        text[..end].rfind(part)
    } else {
        text[byte..].find(part).map(|at| at + byte)
    };
    let position = |at: usize| text[..at].chars().count() as i64;
    Ok(Val::Int(
        found
            .map(position)
            .filter(|at| !last || *at <= from)
            .unwrap_or(-1),
    ))
}

fn replace<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let (text, old, new, count) = match args {
        [Val::String(text), Val::String(old), Val::String(new)] => (text, old, new, -1),
        [
            Val::String(text),
            Val::String(old),
            Val::String(new),
            Val::Int(count),
        ] => (text, old, new, *count),
        _ => return no_overload("replace", args),
    };
    Ok(Val::string(match usize::try_from(count) {
        Ok(count) => text.replacen(&**old, new, count),
        Err(_) => text.replace(&**old, new),
    }))
}

fn split<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let (text, separator, limit) = match args {
        [Val::String(text), Val::String(separator)] => (text, separator, -1),
        [Val::String(text), Val::String(separator), Val::Int(limit)] => (text, separator, *limit),
        _ => return no_overload("split", args),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Val::list(Vec::new()));
    }
    if separator.is_empty() {
        return Ok(Val::list(split_chars(text, limit)));
    }
    Ok(Val::list(
        text.splitn(limit, &**separator).map(Val::string).collect(),
    ))
}

fn split_chars<'a>(text: &str, limit: usize) -> Vec<Val<'a>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if out.len() + 1 == limit {
            out.push(Val::string(rest));
            break;
        }
        let (first, tail) = rest.split_at(c.len_utf8());
        out.push(Val::string(first));
        rest = tail;
    }
    out
}

fn substring<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let (text, start, end) = match args {
        [Val::String(text), Val::Int(start)] => (text, *start, None),
        [Val::String(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        _ => return no_overload("substring", args),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::new(message));
    }
    let place = |index: i64| {
        let index = usize::try_from(index).ok()?;
        let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        places.nth(index)
    };
    let Some(from) = place(start) else {
        return out_of_range(start);
    };
    let to = match end {
        None => text.len(),
        Some(end) => match place(end) {
            Some(to) => to,
            None => return out_of_range(end),
        },
    };
    Ok(Val::string(&text[from..to]))
}

fn join<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, &**separator),
        _ => return no_overload("join", args),
    };
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        let item = item?;
        if index > 0 {
            out.push_str(separator);
        }
        match str_of(&item) {
            Some(text) => out.push_str(text),
            None => return Err(EvalError::new(format!("join: invalid input: {item}"))),
        }
    }
    Ok(Val::string(out))
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
