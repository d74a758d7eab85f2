//! Restricted JSON paths into a schema: `.spec.a['b.c']`, as `fieldPath` of rules and selectable fields are written.
//! Mirrors `ValidFieldPath` of `pkg/apiserver/schema/cel/validation.go`.

use serde_json::Value;

use crate::props::{Additional, Props};

/// A path that leads to a node of the schema.
#[derive(Debug, Clone)]
pub(crate) struct Resolved<'a> {
    /// Its segments; a map's key is marked by `false`.
    pub(crate) segments: Vec<(String, bool)>,
    /// Where it leads.
    pub(crate) schema: Props<'a>,
}

impl Resolved<'_> {
    /// The path as upstream's `field.Path` prints it.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        for (name, named) in &self.segments {
            match (named, out.is_empty()) {
                (true, true) => out.push_str(name),
                (true, false) => {
                    out.push('.');
                    out.push_str(name);
                }
                (false, _) => {
                    out.push('[');
                    out.push_str(name);
                    out.push(']');
                }
            }
        }
        out
    }
}

/// Splits into `.`, `[`, `]`, quoted strings and names.
fn tokens(path: &str) -> Vec<&str> {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let end = match bytes[start] {
            b'.' | b'[' | b']' => start + 1,
            b'\'' => (start + 1..bytes.len())
                .find(|&i| bytes[i] == b'\'' && bytes[i - 1] != b'\\')
                .map_or(bytes.len(), |i| i + 1),
            _ => (start..bytes.len())
                .find(|&i| matches!(bytes[i], b'.' | b'[' | b']'))
                .unwrap_or(bytes.len()),
        };
        out.push(&path[start..end]);
        start = end;
    }
    out
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some(c @ ('\\' | '\'' | '"')) => out.push(c),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            _ => return Err("invalid string literal: invalid syntax".into()),
        }
    }
    Ok(out)
}

fn step<'a>(schema: Props<'a>, name: &str) -> Result<(Props<'a>, bool), String> {
    const NOWHERE: &str = "does not refer to a valid field";
    if schema.schemas("properties").next().is_some() {
        let property = schema.property(name).ok_or(NOWHERE)?;
        return Ok((property, true));
    }
    match schema.additional() {
        Some(Additional::Schema(values)) => Ok((values, false)),
        // Nothing is known of the values: a path may lead to one, but not into it.
        Some(Additional::Bool(_)) => Ok((Props::new(&Value::Null), false)),
        None => Err(NOWHERE.into()),
    }
}

/// Follows a path from a node; the error is what follows `is an invalid path: `.
pub(crate) fn resolve<'a>(
    path: &str,
    schema: Props<'a>,
    allow_brackets: bool,
) -> Result<Resolved<'a>, String> {
    const END: &str = "unexpected end of JSON path";
    let mut at = schema;
    let mut segments = Vec::new();
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" if !allow_brackets => return Err("array notation is not allowed".into()),
            "[" => {
                let quoted = tokens.next().ok_or(END)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|q| q.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                unescape(inner)?
            }
            "." => tokens.next().ok_or(END)?.to_string(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let (next, named) = step(at, &name)?;
        at = next;
        segments.push((name, named));
        if token == "[" {
            match tokens.next() {
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}")),
                None => return Err(END.into()),
            }
        }
    }
    Ok(Resolved { segments, schema: at })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;
    use crate::props::Props;

    #[test]
    fn paths_lead_into_the_schema() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "l": {"type": "array", "items": {"type": "string"}},
            "any": {"type": "object", "additionalProperties": true},
        }});
        let check = |path: &str, brackets: bool, expected: Result<&str, &str>| {
            let got = resolve(path, Props::new(&schema), brackets).map(|r| r.render());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{path}");
        };
        check(".a['b.c']", true, Ok("a.b.c"));
        check(".m.x", true, Ok("m[x]"));
        check(".m['x']", true, Ok("m[x]"));
        check(".any.x", true, Ok("any[x]"));
        check(".any.x.y", true, Err("does not refer to a valid field"));
        check(".a['b.c']", false, Err("array notation is not allowed"));
        check("a", true, Err("expected [ or . but got: a"));
        check(".z", true, Err("does not refer to a valid field"));
        check(".l[0]", true, Err("expected single quoted string but got 0"));
        check(".", true, Err("unexpected end of JSON path"));
        check(".a['b.c'", true, Err("unexpected end of JSON path"));
        check("\u{e9}", true, Err("expected [ or . but got: \u{e9}"));
    }
}
