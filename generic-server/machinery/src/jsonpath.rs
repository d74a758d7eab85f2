//! JSONPath as `client-go` understands it, for the printer columns of custom resources: compiled once, evaluated per object.
//!
//! Missing members give no result rather than an error. Templates (`range`, text around actions) are not for columns and
//! are refused at evaluation, as upstream's columns then show nothing. [`dotted`] is the simpler path of the scale
//! subresource and of selectable fields.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use crate::limits;

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// A member: `.name`, `['name']`.
    Field(String),
    /// `[start:end:step]`, also `[i]` and `[*]`.
    Slice(Slice),
    /// `.*`.
    Wildcard,
    /// `..`.
    Recursive,
    /// `[a,b]`.
    Union(Vec<Vec<Step>>),
    /// `[?(@.a == "b")]`.
    Filter {
        left: Vec<Step>,
        operator: Operator,
        right: Vec<Step>,
    },
    /// A literal.
    Literal(Value),
    /// A word such as `range`.
    Word(String),
}

#[derive(Debug, Clone, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    /// The end follows from the start: a single index.
    single: bool,
    step: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operator {
    Exists,
    /// The orders that pass.
    Compare(&'static [Ordering]),
    Unknown(String),
}

/// `.spec.replicas` as names.
pub fn dotted(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

fn is_terminator(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

impl JsonPath {
    /// Compiles what stands between the braces of a template: `.spec.x`, `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// Upstream's text.
    pub fn parse(path: &str) -> Result<Self, String> {
        Ok(JsonPath { steps: parse(path)? })
    }

    /// All values that the path leads to.
    ///
    /// # Errors
    /// When a step does not fit a value, such as an index out of bounds.
    pub fn find<'a>(&self, object: &'a Value) -> Result<Vec<Cow<'a, Value>>, String> {
        walk(vec![Cow::Borrowed(object)], &self.steps)
    }

    /// The first value that the path leads to; none also when a step does not fit.
    pub fn first<'a>(&self, object: &'a Value) -> Option<Cow<'a, Value>> {
        self.find(object).ok()?.into_iter().next()
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    steps: Vec<Step>,
}

fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut parser = Parser {
        text,
        at: 0,
        steps: Vec::new(),
    };
    parser.run()?;
    Ok(parser.steps)
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn run(&mut self) -> Result<(), String> {
        loop {
            let rest = self.rest();
            if rest.starts_with("[?(") {
                self.filter()?;
                continue;
            }
            if rest.starts_with("..") {
                if self.steps.last() == Some(&Step::Recursive) {
                    return Err("invalid multiple recursive descent".into());
                }
                self.at += 2;
                self.steps.push(Step::Recursive);
                if self.rest().starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                    self.field();
                }
                continue;
            }
            match rest.chars().next() {
                // The rest after a closing brace is text, which columns ignore.
                None | Some('}') => return Ok(()),
                Some('\r' | '\n') => return Err("unclosed action".into()),
                Some(' ' | '@' | '$') => self.at += 1,
                Some('[') => self.array()?,
                Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
                Some('.') => {
                    self.at += 1;
                    self.field();
                }
                Some(c) if c == '+' || c == '-' || c.is_ascii_digit() => self.number()?,
                Some(c) if c == '_' || c.is_alphanumeric() => {
                    let word = self.until(is_terminator);
                    self.steps.push(match word {
                        "true" => Step::Literal(true.into()),
                        "false" => Step::Literal(false.into()),
                        word => Step::Word(word.into()),
                    });
                }
                Some(c) => {
                    return Err(format!(
                        "unrecognized character in action: U+{:04X} '{c}'",
                        u32::from(c)
                    ));
                }
            }
        }
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(end).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn field(&mut self) {
        let rest = self.rest();
        let (mut name, mut length, mut escaped) = (String::new(), rest.len(), false);
        for (index, c) in rest.char_indices() {
            match c {
                _ if escaped => {
                    name.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                c if is_terminator(c) => {
                    length = index;
                    break;
                }
                c => name.push(c),
            }
        }
        self.at += length;
        self.steps.push(if name == "*" {
            Step::Wildcard
        } else {
            Step::Field(name)
        });
    }

    fn number(&mut self) -> Result<(), String> {
        let rest = self.rest();
        let signed = usize::from(rest.starts_with(['+', '-']));
        let length = rest[signed..].find(|c: char| c != '.' && !c.is_ascii_digit());
        let length = length.map_or(rest.len(), |length| signed + length);
        self.at += length;
        let text = &rest[..length];
        let literal = match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(integer), _) => integer.into(),
            (_, Ok(float)) => float.into(),
            _ => return Err(format!("cannot parse number {text}")),
        };
        self.steps.push(Step::Literal(literal));
        Ok(())
    }

    /// The end of a quoted text that begins here: after the closing quote.
    fn quoted(&mut self, quote: char) -> Result<(), String> {
        let rest = self.rest();
        let mut escaped = false;
        let mut text = String::new();
        for (index, c) in rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                c if escaped => {
                    escaped = false;
                    text.push(match c {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        c => c,
                    });
                }
                '\\' => escaped = true,
                c if c == quote => {
                    self.at += index + c.len_utf8();
                    self.steps.push(Step::Literal(text.into()));
                    return Ok(());
                }
                c => text.push(c),
            }
        }
        Err("unterminated quoted string".into())
    }

    fn array(&mut self) -> Result<(), String> {
        let rest = self.rest();
        let end = rest.find(['\n', ']']).filter(|end| rest[*end..].starts_with(']'));
        let end = end.ok_or("unterminated array")?;
        self.at += end + 1;
        let text = &rest[1..end];
        if text.contains(',') {
            let parts = text
                .split(',')
                .map(|part| parse(&format!("[{}]", part.trim_matches(' '))));
            self.steps.push(Step::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text
            .strip_prefix('\'')
            .and_then(|t| t.strip_suffix('\''))
            .filter(|k| !k.contains('\''));
        if let Some(key) = key {
            self.steps.extend(parse(&format!(".{key}"))?);
            return Ok(());
        }
        self.steps
            .push(Step::Slice(slice(if text == "*" { ":" } else { text })?));
        Ok(())
    }

    fn filter(&mut self) -> Result<(), String> {
        self.at += 3;
        let rest = self.rest();
        let (mut quote, mut closed, mut last) = (None, false, '\0');
        let mut end = None;
        for (index, c) in rest.char_indices() {
            match c {
                '\n' => break,
                '"' | '\'' => match quote {
                    None => quote = Some(c),
                    Some(open) if open == c && last != '\\' => closed = true,
                    Some(_) => {}
                },
                ')' if quote.is_some() == closed => {
                    end = Some(index);
                    break;
                }
                _ => {}
            }
            last = c;
        }
        let end = end.ok_or("unterminated filter")?;
        if !rest[end + 1..].starts_with(']') {
            return Err("unclosed array expect ]".into());
        }
        self.at += end + 2;
        let text = &rest[..end];
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let begin = text.find(is_operator).unwrap_or(0);
        let length = text[begin..]
            .find(|c| !is_operator(c))
            .unwrap_or(text.len() - begin);
        let (mut operator, mut right) = (&text[begin..begin + length], &text[begin + length..]);
        if right.is_empty() && operator.len() > 1 {
            // Upstream's expression wants something to the right, even if it takes the operator's last sign for it.
            (operator, right) = operator.split_at(operator.len() - 1);
        }
        self.steps.push(if begin == 0 || right.is_empty() {
            Step::Filter {
                left: parse(text)?,
                operator: Operator::Exists,
                right: Vec::new(),
            }
        } else {
            let operator = match operator {
                "==" => Operator::Compare(&[Ordering::Equal]),
                "!=" => Operator::Compare(&[Ordering::Less, Ordering::Greater]),
                "<" => Operator::Compare(&[Ordering::Less]),
                "<=" => Operator::Compare(&[Ordering::Less, Ordering::Equal]),
                ">" => Operator::Compare(&[Ordering::Greater]),
                ">=" => Operator::Compare(&[Ordering::Greater, Ordering::Equal]),
                other => Operator::Unknown(other.into()),
            };
            Step::Filter {
                left: parse(&text[..begin])?,
                operator,
                right: parse(right)?,
            }
        });
        Ok(())
    }
}

fn slice(text: &str) -> Result<Slice, String> {
    let invalid = || format!("invalid array index {text}");
    let mut parts = text.splitn(3, ':');
    let mut number = || -> Result<Option<Option<i64>>, String> {
        let Some(part) = parts.next() else { return Ok(None) };
        let digits = part.strip_prefix('-').unwrap_or(part);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        if part.is_empty() {
            return Ok(Some(None));
        }
        part.parse()
            .map(|n| Some(Some(n)))
            .map_err(|_| format!("array index {part} is not a number"))
    };
    let (start, end, step) = (number()?.flatten(), number()?, number()?.flatten());
    Ok(match end {
        None => {
            let start = start.unwrap_or_default();
            Slice {
                start: Some(start),
                end: Some(start.saturating_add(1)),
                single: true,
                step: None,
            }
        }
        Some(end) => Slice {
            start,
            end,
            single: false,
            step,
        },
    })
}

type Item<'a> = Cow<'a, Value>;
type Found<'a> = Vec<Item<'a>>;

fn walk<'a>(input: Found<'a>, steps: &[Step]) -> Result<Found<'a>, String> {
    steps.iter().try_fold(input, |found, step| {
        let found = one(found, step)?;
        is_bounded(&found)?;
        Ok(found)
    })
}

/// The values directly inside a value.
fn inside<'a>(value: &Item<'a>) -> Found<'a> {
    match value {
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        _ => Vec::new(),
    }
}

/// Refuses a path that leads to more values than are worth having: `..` gives every value below each it is given, so that a few
/// of them in a row give more than there are.
fn is_bounded(found: &Found<'_>) -> Result<(), String> {
    if found.len() <= limits::JSON_PATH_VALUES {
        return Ok(());
    }
    Err(format!(
        "path leads to more than {} values",
        limits::JSON_PATH_VALUES
    ))
}

fn recursive<'a>(value: Item<'a>, out: &mut Found<'a>) -> Result<(), String> {
    is_bounded(out)?;
    let text = matches!(&*value, Value::String(text) if !text.is_empty());
    let inner = inside(&value);
    if text || !inner.is_empty() {
        out.push(value);
    }
    inner.into_iter().try_for_each(|value| recursive(value, out))
}

fn one<'a>(input: Found<'a>, step: &Step) -> Result<Found<'a>, String> {
    Ok(match step {
        Step::Field(name) => {
            let get = |value: Cow<'a, Value>| match value {
                Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
                Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
            };
            input.into_iter().filter_map(get).collect()
        }
        Step::Literal(value @ Value::String(_)) => vec![Cow::Owned(value.clone())],
        Step::Literal(value) => input.iter().map(|_| Cow::Owned(value.clone())).collect(),
        Step::Word(word) => return Err(format!("unrecognized identifier {word}")),
        Step::Wildcard => input.iter().flat_map(inside).collect(),
        Step::Recursive => {
            let mut out = Vec::new();
            input
                .into_iter()
                .try_for_each(|value| recursive(value, &mut out))?;
            out
        }
        Step::Union(parts) => {
            let mut out = Vec::new();
            for part in parts {
                out.extend(walk(input.clone(), part)?);
                is_bounded(&out)?;
            }
            out
        }
        Step::Slice(slice) => {
            let mut out = Vec::new();
            for value in &input {
                match &**value {
                    Value::Null => {}
                    Value::Array(list) => {
                        let items = inside(value);
                        let Some(range) = bounds(slice, list.len())? else {
                            return Ok(out);
                        };
                        let step = usize::try_from(slice.step.unwrap_or(1)).unwrap_or(0);
                        if step == 0 {
                            return Err("step must be > 0".into());
                        }
                        out.extend(items.into_iter().take(range.end).skip(range.start).step_by(step));
                    }
                    _ => return Err("value is not array or slice".into()),
                }
            }
            out
        }
        Step::Filter {
            left,
            operator,
            right,
        } => {
            let mut out = Vec::new();
            for value in &input {
                if !value.is_array() {
                    return Err("value is not array or slice and cannot be filtered".into());
                }
                for item in inside(value) {
                    if passes(item.clone(), left, operator, right)? {
                        out.push(item);
                    }
                }
            }
            out
        }
    })
}

/// The indices that a slice takes of a list; `None` when it takes none.
fn bounds(slice: &Slice, length: usize) -> Result<Option<std::ops::Range<usize>>, String> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let mut start = slice.start.unwrap_or(0);
    let mut end = slice.end.unwrap_or(length);
    if start < 0 {
        start += length;
    }
    if end < 0 || (end == 0 && slice.single) {
        end += length;
    }
    if start == end {
        return Ok(None);
    }
    if start >= length || start < 0 {
        return Err(format!(
            "array index out of bounds: index {start}, length {length}"
        ));
    }
    if end > length || end < 0 {
        return Err(format!(
            "array index out of bounds: index {}, length {length}",
            end - 1
        ));
    }
    if start > end {
        return Err(format!(
            "starting index {start} is greater than ending index {end}"
        ));
    }
    let index = |n: i64| usize::try_from(n).unwrap_or(0);
    Ok(Some(index(start)..index(end)))
}

fn passes(item: Item<'_>, left: &[Step], operator: &Operator, right: &[Step]) -> Result<bool, String> {
    let lefts = walk(vec![item.clone()], left);
    if *operator == Operator::Exists {
        return Ok(lefts.is_ok_and(|found| !found.is_empty()));
    }
    let single = |found: Found<'_>| match found.len() {
        0 => Ok(None),
        1 => Ok(found.into_iter().next().map(Cow::into_owned)),
        _ => Err("can only compare one element at a time".to_owned()),
    };
    let Some(left) = single(lefts?)? else {
        return Ok(false);
    };
    let Some(right) = single(walk(vec![item], right)?)? else {
        return Ok(false);
    };
    let order = match (&left, &right) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {
            let (x, y) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.as_i64()
                .zip(b.as_i64())
                .map_or_else(|| x.total_cmp(&y), |(a, b)| a.cmp(&b))
        }
        _ => return Err("incompatible types for comparison".into()),
    };
    match operator {
        Operator::Compare(orders) => Ok(orders.contains(&order)),
        Operator::Unknown(text) => Err(format!("unrecognized filter operator {text}")),
        Operator::Exists => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Value) {
        let object = json!({
            "spec": {"a": 1, "b.c": "dot", "l": [10, 20, 30], "n": null},
            "status": {"conditions": [{"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "False", "n": 2}]},
        });
        let found = JsonPath::parse(path).unwrap().find(&object);
        let found = found.map(|list| Value::Array(list.into_iter().map(Cow::into_owned).collect()));
        assert_eq!(found.unwrap_or_else(Value::String), expected, "{path}");
    }

    #[test]
    fn paths() {
        check(".spec.a", json!([1]));
        check("$.spec.a", json!([1]));
        check(".spec.b\\.c", json!(["dot"]));
        check(".spec['b\\.c']", json!(["dot"]));
        check(".spec.none.deeper", json!([]));
        check(".spec.none[0]", json!([]));
        check(".spec.l[0]", json!([10]));
        check(".spec.l[-1]", json!([30]));
        check(".spec.l[*]", json!([10, 20, 30]));
        check(".spec.l[0:2]", json!([10, 20]));
        check(".spec.l[::2]", json!([10, 30]));
        check(".spec.l[0,2]", json!([10, 30]));
        check(".spec.l[1:1]", json!([]));
        check(
            ".spec.l[7]",
            json!("array index out of bounds: index 7, length 3"),
        );
        check(".spec.a[0]", json!("value is not array or slice"));
        check(".spec.n", json!([null]));
        check(".spec.n[0]", json!([]));
        check(".status.conditions[?(@.type==\"Ready\")].status", json!(["True"]));
        check(".status.conditions[?(@.type=='None')].status", json!([]));
        check(".status.conditions[?(@.n>1)].type", json!(["Other"]));
        check(".status.conditions[?(@.type)].type", json!(["Ready", "Other"]));
        check(".status.conditions[?(@.none)].type", json!([]));
        check(".status.conditions[*].type", json!(["Ready", "Other"]));
        check("..type", json!(["Ready", "Other"]));
        check("spec.a", json!("unrecognized identifier spec"));
    }

    #[test]
    fn malformed() {
        for (path, expected) in [
            (".a[", "unterminated array"),
            (".a[x]", "invalid array index x"),
            (".a[?(@.b]", "unterminated filter"),
            (".a[?(@.b)", "unclosed array expect ]"),
            ("\"b", "unterminated quoted string"),
            ("....a", "invalid multiple recursive descent"),
            ("#", "unrecognized character in action: U+0023 '#'"),
            (".a\n", "unclosed action"),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap_err(), expected, "{path}");
        }
        assert_eq!(dotted(".spec.size"), ["spec", "size"]);
    }

    #[test]
    fn values_are_bounded() {
        let list = |count: usize| json!({ "l": vec![1; count] });
        let found = |path: &str, object: &Value| {
            JsonPath::parse(path)
                .unwrap()
                .find(object)
                .map(|found| found.len())
        };
        let most = limits::JSON_PATH_VALUES;
        assert_eq!(found(".l[*]", &list(most)), Ok(most));
        assert!(found(".l[*]", &list(most + 1)).is_err());
        // Every `..` visits again all that is below each value before it.
        let deep = (0..200).fold(json!([]), |inner, _| json!([inner, []]));
        assert!(found("..[*]", &deep).is_ok());
        assert!(found("..[*]..[*]..[*]", &deep).is_err());
    }
}
