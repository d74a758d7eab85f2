//! Prints YAML as upstream's emitter does: block style, two spaces, lists flush with their key, lines of strings folded at
//! 80 columns, keys in natural order.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::scalar::{Meaning, is_base60, resolve};
use crate::limits;

const WIDTH: usize = 80;
const LONGEST_SIMPLE_KEY: usize = 128;

/// The document, ending in a line feed. One whose indentation would pass [`limits::YAML_INDENTATION_BYTES`] is printed in flow
/// style, as JSON.
pub fn to_string(value: &Value) -> String {
    if indentation(value, 0) > limits::YAML_INDENTATION_BYTES {
        return format!("{value}\n");
    }
    let mut emitter = Emitter {
        out: String::new(),
        column: 0,
    };
    match value {
        Value::Object(map) if !map.is_empty() => emitter.mapping(map, 0),
        Value::Array(items) if !items.is_empty() => emitter.sequence(items, 0),
        scalar => {
            emitter.scalar(scalar, 2, false);
            emitter.line(0);
        }
    }
    emitter.out
}

/// At most how many spaces stand before the lines of a value at `indent`.
fn indentation(value: &Value, indent: usize) -> usize {
    let inside = match value {
        Value::Array(items) => items.iter().map(|item| indentation(item, indent + 2)).sum(),
        Value::Object(map) => map.values().map(|member| indentation(member, indent + 2)).sum(),
        // Each break of a text begins a line.
        Value::String(text) => indent * text.bytes().filter(|byte| *byte == b'\n').count(),
        _ => 0,
    };
    indent + inside
}

struct Emitter {
    out: String,
    column: usize,
}

/// How a string is written.
#[derive(PartialEq, Clone, Copy)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

impl Emitter {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    /// Ends the line and indents the next.
    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    /// Entries at `indent`; the cursor stands at that column of an empty line, or behind a `- `.
    fn mapping(&mut self, map: &Map<String, Value>, indent: usize) {
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        sort(&mut entries, |a, b| natural(a.0, b.0));
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.pad(indent);
            }
            if key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) || key.len() > LONGEST_SIMPLE_KEY
            {
                self.put("? ");
                self.string(key, indent + 2, false);
                self.line(indent);
            } else {
                self.string(key, indent + 2, true);
            }
            self.put(":");
            self.entry(value, indent);
        }
    }

    /// Writes the value after `key:`.
    fn entry(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                self.line(indent + 2);
                self.mapping(map, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                self.line(indent);
                self.sequence(items, indent);
            }
            scalar => {
                self.put(" ");
                self.scalar(scalar, indent + 2, false);
                self.out.push('\n');
                self.column = 0;
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.pad(indent);
            }
            self.put("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.mapping(map, indent + 2),
                Value::Array(inner) if !inner.is_empty() => self.sequence(inner, indent + 2),
                scalar => {
                    self.scalar(scalar, indent + 2, false);
                    self.out.push('\n');
                    self.column = 0;
                }
            }
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize, key: bool) {
        match value {
            Value::String(text) => self.string(text, indent, key),
            Value::Null => self.put("null"),
            Value::Bool(value) => self.put(if *value { "true" } else { "false" }),
            Value::Number(number) => {
                let text = match number.as_f64() {
                    Some(float) if number.is_f64() => crate::go::general(float),
                    _ => number.to_string(),
                };
                self.put(&text);
            }
            Value::Array(_) => self.put("[]"),
            Value::Object(_) => self.put("{}"),
        }
    }

    fn string(&mut self, text: &str, indent: usize, key: bool) {
        match style(text, key) {
            Style::Plain => self.plain(text, indent, key),
            Style::Single => self.single(text, indent, key),
            Style::Double => self.double(text, indent, key),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn plain(&mut self, text: &str, indent: usize, key: bool) {
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' && !key && !spaces && self.column > WIDTH && chars.peek() != Some(&' ') {
                self.line(indent);
            } else {
                self.put_char(c);
            }
            spaces = c == ' ';
        }
    }

    fn single(&mut self, text: &str, indent: usize, key: bool) {
        self.put("'");
        let mut spaces = false;
        let mut breaks = false;
        let last = text.len().saturating_sub(1);
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == ' ' {
                let folds = !key && !spaces && self.column > WIDTH && at > 0 && at < last;
                if folds && chars.peek().is_none_or(|(_, next)| *next != ' ') {
                    self.line(indent);
                } else {
                    self.put_char(c);
                }
                spaces = true;
                continue;
            }
            if is_break(c) {
                if !breaks && c == '\n' {
                    self.out.push('\n');
                }
                self.out.push(c);
                self.column = 0;
                breaks = true;
                continue;
            }
            if breaks {
                self.pad(indent);
            }
            if c == '\'' {
                self.put("'");
            }
            self.put_char(c);
            spaces = false;
            breaks = false;
        }
        self.put("'");
    }

    fn double(&mut self, text: &str, indent: usize, key: bool) {
        self.put("\"");
        let mut spaces = false;
        let last = text.len().saturating_sub(1);
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if !is_printable(c) || is_break(c) || c == '\u{feff}' || c == '"' || c == '\\' {
                self.escape(c);
                spaces = false;
            } else if c == ' ' {
                if !key && !spaces && self.column > WIDTH && at > 0 && at < last {
                    self.line(indent);
                    if chars.peek().is_some_and(|(_, next)| *next == ' ') {
                        self.put("\\");
                    }
                } else {
                    self.put_char(c);
                }
                spaces = true;
            } else {
                self.put_char(c);
                spaces = false;
            }
        }
        self.put("\"");
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            other => {
                let mut text = String::new();
                let code = other as u32;
                let _ = match code {
                    0..=0xff => write!(text, "\\x{code:02X}"),
                    0x100..=0xffff => write!(text, "\\u{code:04X}"),
                    _ => write!(text, "\\U{code:08X}"),
                };
                self.put(&text);
                return;
            }
        };
        self.put_char('\\');
        self.put_char(short);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with(|c: char| c == ' ' || is_break(c)) {
            self.put("2");
        }
        let mut from_end = text.chars().rev();
        match (from_end.next(), from_end.next()) {
            (Some(last), _) if !is_break(last) => self.put("-"),
            (Some(_), None) => self.put("+"),
            (Some(_), Some(before)) if is_break(before) => self.put("+"),
            _ => {}
        }
        self.out.push('\n');
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.out.push(c);
                breaks = true;
            } else {
                if breaks {
                    self.pad(indent);
                }
                self.out.push(c);
                breaks = false;
            }
        }
        // The caller ends the line; a text that ends in a break has ended it already.
        if breaks && self.out.ends_with('\n') {
            self.out.pop();
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | '\x20'..='\x7e' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn style(text: &str, key: bool) -> Style {
    let multiline = text.contains(is_break);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if matches!(resolve(text), Meaning::Text) && text != "<<" && !is_base60(text) {
        Style::Plain
    } else {
        Style::Double
    };
    let facts = Facts::of(text);
    let mut style = if key && multiline { Style::Double } else { wanted };
    if style == Style::Plain && (!facts.plain || (text.is_empty() && key)) {
        style = Style::Single;
    }
    if style == Style::Single && !facts.single {
        style = Style::Double;
    }
    if style == Style::Literal && (!facts.block || key) {
        style = Style::Double;
    }
    style
}

/// Which styles can hold a string.
struct Facts {
    plain: bool,
    single: bool,
    block: bool,
}

impl Facts {
    fn of(text: &str) -> Facts {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut line_breaks) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut after_blank = true;
        let mut chars = text.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|next| *next == ' ' || *next == '\t');
            indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if first =>
                {
                    true
                }
                '?' | '-' if first => before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            special |= !is_printable(c);
            if c == ' ' {
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(c) {
                line_breaks = true;
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            after_blank = c == ' ' || c == '\t' || c == '\0' || is_break(c);
            first = false;
        }
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let edges = edge(text.chars().next()) || edge(text.chars().next_back());
        let unquotable = break_space || space_break || special;
        Facts {
            plain: !indicators && !line_breaks && !edges && !unquotable,
            single: !unquotable,
            block: !text.is_empty() && !text.ends_with(' ') && !space_break && !special,
        }
    }
}

/// Sorts by an order that may contradict itself, as [`natural`] does: `a` may come before `b`, `b` before `c`, and `c` before `a`.
/// The standard library panics when it sees that; this merges, and any outcome is as good as another.
fn sort<T: Copy>(items: &mut [T], order: impl Fn(&T, &T) -> Ordering) {
    let mut from = items.to_vec();
    let mut width = 1;
    while width < items.len() {
        for (from, to) in from.chunks(2 * width).zip(items.chunks_mut(2 * width)) {
            let (left, right) = from.split_at(width.min(from.len()));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            for slot in to {
                let right_first = match (left.peek(), right.peek()) {
                    (Some(l), Some(r)) => order(r, l).is_lt(),
                    (left, _) => left.is_none(),
                };
                let next = if right_first { right.next() } else { left.next() };
                *slot = *next.unwrap_or(slot);
            }
        }
        from.copy_from_slice(items);
        width *= 2;
    }
}

/// Upstream's order of keys: letters by code, digits by value, other characters before letters.
fn natural(a: &str, b: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    for index in 0..left.len().min(right.len()) {
        let (l, r) = (left[index], right[index]);
        if l == r {
            continue;
        }
        match (l.is_alphabetic(), r.is_alphabetic()) {
            (true, true) => return l.cmp(&r),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        let mut start = 0_u64;
        if l == '0' || r == '0' {
            let nonzero = left[..index]
                .iter()
                .rev()
                .take_while(|c| c.is_numeric())
                .any(|c| *c != '0');
            start = u64::from(nonzero);
        }
        let number = |chars: &[char]| {
            let digits: Vec<u64> = chars[index..]
                .iter()
                .map_while(|c| c.to_digit(10).map(u64::from))
                .collect();
            let value = digits
                .iter()
                .fold(start, |n, d| n.wrapping_mul(10).wrapping_add(*d));
            (value, digits.len())
        };
        let order = number(&left).cmp(&number(&right));
        return order.then(l.cmp(&r));
    }
    left.len().cmp(&right.len())
}
