//! Label selectors: `a=b,c in (d,e),!f`, and the `LabelSelector` of objects. Mirrors `k8s.io/apimachinery/pkg/labels`.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde_json::{Map, Value};

use crate::field::are_enough;
use crate::names::object_meta::{validate_label_name, validate_labels};
use crate::names::{label_key, label_value};
use crate::{FieldError, FieldPath, limits};

/// Where a selector looks labels up.
pub trait LabelSource {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl LabelSource for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl LabelSource for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// Pairs sorted by key.
impl<K: AsRef<str>, V: AsRef<str>> LabelSource for [(K, V)] {
    fn label(&self, key: &str) -> Option<&str> {
        let index = self.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        Some(self[index].1.as_ref())
    }
}

impl<L: LabelSource + ?Sized> LabelSource for &L {
    fn label(&self, key: &str) -> Option<&str> {
        (**self).label(key)
    }
}

impl<L: LabelSource> LabelSource for Option<L> {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_ref()?.label(key)
    }
}

/// How a requirement relates a label to its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key in (a,b)`.
    In,
    /// `key notin (a,b)`.
    NotIn,
    /// `key=a`.
    Equals,
    /// `key==a`.
    DoubleEquals,
    /// `key!=a`.
    NotEquals,
    /// `key>1`.
    GreaterThan,
    /// `key<1`.
    LessThan,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
}

/// Refuses more requirements or values than one selector may have.
pub(super) fn is_bounded(what: &str, count: usize) -> Result<(), String> {
    if count <= limits::SELECTOR_REQUIREMENTS {
        return Ok(());
    }
    Err(format!(
        "{what}: Too many: {count}: must have at most {} items",
        limits::SELECTOR_REQUIREMENTS
    ))
}

const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Values that are searched one by one.
const SEARCHED_VALUES: usize = 16;

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Box<str>]>,
    /// The values again in order, where there are so many that every object would feel a search of all.
    sorted: Box<[Box<str>]>,
    /// The value of `>` and `<`.
    number: i64,
}

impl Requirement {
    /// A checked requirement.
    ///
    /// # Errors
    /// Every field error, joined as upstream's aggregate; more values than [`limits::SELECTOR_REQUIREMENTS`].
    pub fn new(key: &str, operator: Operator, values: Vec<Box<str>>) -> Result<Self, String> {
        is_bounded("values", values.len())?;
        let mut errors = Vec::new();
        let path = FieldPath::new("values");
        let shown = || Value::from(values.iter().map(|v| Value::from(&**v)).collect::<Vec<_>>());
        errors.extend(key_error(key, &FieldPath::new("key")));
        let mut number = 0;
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let text = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(FieldError::invalid(&path, &shown(), text));
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                let text = "exact-match compatibility requires one single value";
                errors.push(FieldError::invalid(&path, &shown(), text));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let text = "values set must be empty for exists and does not exist";
                errors.push(FieldError::invalid(&path, &shown(), text));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    let text = "for 'Gt', 'Lt' operators, exactly one value is required";
                    errors.push(FieldError::invalid(&path, &shown(), text));
                }
                for (index, value) in values.iter().enumerate() {
                    match value.parse() {
                        Ok(value) => number = value,
                        Err(_) => errors.push(FieldError::invalid_str(
                            &path.index(index),
                            value,
                            "for 'Gt', 'Lt' operators, the value must be an integer",
                        )),
                    }
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            if are_enough(&errors) {
                break;
            }
            let texts = label_value(value);
            if !texts.is_empty() {
                errors.push(FieldError::invalid_str(
                    &path.index(index).key(key),
                    value,
                    texts.join("; "),
                ));
            }
        }
        if errors.is_empty() {
            let mut sorted: Box<[Box<str>]> = Box::default();
            if values.len() > SEARCHED_VALUES {
                sorted = values.clone().into();
                sorted.sort_unstable();
            }
            return Ok(Requirement {
                key: key.into(),
                operator,
                values: values.into(),
                sorted,
                number,
            });
        }
        let mut known = HashSet::new();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| known.insert(text.clone()));
        Err(crate::go::aggregate(&texts).into_owned())
    }

    /// The label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The relation.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, as given.
    pub fn values(&self) -> &[Box<str>] {
        &self.values
    }

    /// Whether labels meet the requirement.
    pub fn matches<L: LabelSource + ?Sized>(&self, labels: &L) -> bool {
        let found = labels.label(&self.key);
        let listed = |value: &str| match &*self.sorted {
            [] => self.values.iter().any(|v| **v == *value),
            sorted => sorted.binary_search_by(|v| (**v).cmp(value)).is_ok(),
        };
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => found.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !found.is_some_and(listed),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => self.compare(found).is_some_and(|o| o.is_gt()),
            Operator::LessThan => self.compare(found).is_some_and(|o| o.is_lt()),
        }
    }

    fn compare(&self, found: Option<&str>) -> Option<std::cmp::Ordering> {
        Some(found?.parse::<i64>().ok()?.cmp(&self.number))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(|v| &**v).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

/// All of some requirements; or, when built from a null selector, nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Box<[Requirement]>,
    nothing: bool,
}

impl LabelSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects no object.
    pub fn nothing() -> Self {
        LabelSelector {
            requirements: Box::default(),
            nothing: true,
        }
    }

    /// Of requirements, sorted by key.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector {
            requirements: requirements.into(),
            nothing: false,
        }
    }

    /// Reads the `labelSelector` of a query.
    ///
    /// # Errors
    /// Upstream's text, such as `found '=', expected: identifier` within `unable to parse requirement: `.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::new(text).parse().map(Self::new)
    }

    /// Reads a `LabelSelector` of an object; null selects nothing, an empty one everything.
    ///
    /// # Errors
    /// `"X" is not a valid label selector operator`, or the field errors of a requirement.
    pub fn from_value(selector: &Value) -> Result<Self, String> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.into()])?);
            is_bounded("matchLabels", requirements.len())?;
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let shown = crate::go::quote(other);
                    return Err(format!("{shown} is not a valid label selector operator"));
                }
            };
            let values = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let values = values.filter_map(Value::as_str).map(Into::into).collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
            is_bounded("matchExpressions", requirements.len())?;
        }
        Ok(Self::new(requirements))
    }

    /// Selects objects that have all these labels (`spec.selector` of a ReplicationController); values are not checked.
    pub fn from_set(labels: &Map<String, Value>) -> Self {
        let requirement = |(key, value): (&String, &Value)| Requirement {
            key: key.as_str().into(),
            operator: Operator::Equals,
            values: [value.as_str().unwrap_or_default().into()].into(),
            sorted: Box::default(),
            number: 0,
        };
        Self::new(labels.iter().map(requirement).collect())
    }

    /// Whether labels meet every requirement.
    pub fn matches<L: LabelSource + ?Sized>(&self, labels: &L) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether no object can be selected.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The single value that a label must have to be selected.
    pub fn requires_exact_match(&self, label: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| *r.key == *label)?;
        match (requirement.operator, &*requirement.values) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn key_error(key: &str, path: &FieldPath<'_>) -> Option<FieldError> {
    let texts = label_key(key);
    (!texts.is_empty()).then(|| FieldError::invalid_str(path, key, texts.join("; ")))
}

/// The invalid values and operators that [`validate_label_selector`] accepts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SelectorChecks {
    /// Values that are no label values (kept on update for old objects).
    pub allow_invalid_values: bool,
    /// Unknown operators (in access reviews).
    pub allow_unknown_operator: bool,
}

/// Checks a `LabelSelector` of an object, with an error per field.
pub fn validate_label_selector(
    selector: &Value,
    checks: SelectorChecks,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        errors.extend(validate_labels(labels, &path.child("matchLabels")));
    }
    let list = path.child("matchExpressions");
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        if are_enough(&errors) {
            return errors;
        }
        let path = list.index(index);
        let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array);
        let values = values.map(Vec::as_slice).unwrap_or_default();
        let values_path = path.child("values");
        match text("operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ if checks.allow_unknown_operator => {}
            other => errors.push(FieldError::invalid_str(
                &path.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        errors.extend(validate_label_name(text("key"), &path.child("key")));
        if !checks.allow_invalid_values {
            for (index, value) in values.iter().enumerate() {
                if are_enough(&errors) {
                    break;
                }
                let value = value.as_str().unwrap_or_default();
                for message in label_value(value) {
                    errors.push(FieldError::invalid_str(&values_path.index(index), value, message));
                }
            }
        }
    }
    errors
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Open,
    Close,
    Comma,
    Not,
    Operator(Operator),
    Identifier,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_symbol(b: u8) -> bool {
    b"=!(),><".contains(&b)
}

/// Splits the text into tokens. A NUL ends it, as it does upstream.
fn tokens(text: &str) -> Vec<(Token, &str)> {
    let text = &text[..text.find('\0').unwrap_or(text.len())];
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        while at < bytes.len() && is_space(bytes[at]) {
            at += 1;
        }
        let rest = &text[at..];
        let (token, length) = match bytes.get(at) {
            None => {
                out.push((Token::End, ""));
                return out;
            }
            Some(b'(') => (Token::Open, 1),
            Some(b')') => (Token::Close, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'>') => (Token::Operator(Operator::GreaterThan), 1),
            Some(b'<') => (Token::Operator(Operator::LessThan), 1),
            Some(b'=') if rest.starts_with("==") => (Token::Operator(Operator::DoubleEquals), 2),
            Some(b'=') => (Token::Operator(Operator::Equals), 1),
            Some(b'!') if rest.starts_with("!=") => (Token::Operator(Operator::NotEquals), 2),
            Some(b'!') => (Token::Not, 1),
            Some(_) => {
                let length = rest
                    .bytes()
                    .position(|b| is_symbol(b) || is_space(b))
                    .unwrap_or(rest.len());
                let token = match &rest[..length] {
                    "in" => Token::Operator(Operator::In),
                    "notin" => Token::Operator(Operator::NotIn),
                    _ => Token::Identifier,
                };
                (token, length)
            }
        };
        out.push((token, &rest[..length]));
        at += length;
    }
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser {
            tokens: tokens(text),
            at: 0,
        }
    }

    /// The next token; the words `in` and `notin` are operators only where one is expected.
    fn peek(&self) -> (Token, &'a str) {
        match self.tokens.get(self.at).copied().unwrap_or((Token::End, "")) {
            (Token::Operator(Operator::In | Operator::NotIn), text) => (Token::Identifier, text),
            other => other,
        }
    }

    fn next(&mut self) -> (Token, &'a str) {
        let next = self.peek();
        self.at += 1;
        next
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {
                    let one = self
                        .requirement()
                        .map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(one);
                    is_bounded("requirements", requirements.len())?;
                    match self.next() {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => match self.peek() {
                            (Token::Identifier | Token::Not, _) => {}
                            (_, text) => {
                                return Err(format!("found '{text}', expected: identifier after ','"));
                            }
                        },
                        (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut next = self.next();
        let negated = next.0 == Token::Not;
        if negated {
            next = self.next();
        }
        let (Token::Identifier, key) = next else {
            return Err(format!("found '{}', expected: identifier", next.1));
        };
        if let Some(error) = key_error(key, &FieldPath::ROOT) {
            return Err(error.to_string());
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let (token, text) = self.tokens.get(self.at).copied().unwrap_or((Token::End, ""));
        self.at += 1;
        let Token::Operator(operator) = token else {
            return Err(format!("found '{text}', expected: {BINARY_OPERATORS}"));
        };
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        values.sort_unstable();
        values.dedup();
        Requirement::new(key, operator, values.into_iter().map(Into::into).collect())
    }

    fn values(&mut self) -> Result<Vec<&'a str>, String> {
        match self.next() {
            (Token::Open, _) => {}
            (_, text) => return Err(format!("found '{text}' expected: '('")),
        }
        match self.peek() {
            (Token::Close, _) => {
                self.at += 1;
                Ok(vec![""])
            }
            (Token::Identifier | Token::Comma, _) => {
                let values = self.identifiers()?;
                // The list ends before its parenthesis.
                self.at += 1;
                Ok(values)
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<&'a str>, String> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek() {
                        (Token::Close, _) => {
                            values.push("");
                            return Ok(values);
                        }
                        (Token::Comma, _) => values.push(""),
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok("");
        }
        match self.next() {
            (Token::Identifier, text) => Ok(text),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parsed_text() {
        for (text, expected) in [
            ("", ""),
            ("a", "a"),
            ("!a", "!a"),
            ("! a", "!a"),
            ("a=b", "a=b"),
            ("b==c , a != d", "a!=d,b==c"),
            ("x in (c,b,b)", "x in (b,c)"),
            ("x notin ()", "x notin ()"),
            ("x in (,)", "x in ()"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("in in (in)", "in in (in)"),
            ("a=,b", "a=,b"),
            ("a>1,a<3", "a>1,a<3"),
            ("a=in", "a=in"),
            ("x.io/y=z\n", "x.io/y=z"),
        ] {
            assert_eq!(
                LabelSelector::parse(text).unwrap().to_string(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn errors() {
        for (text, expected) in [
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a in (=",
                "unable to parse requirement: found '=', expected: ',', ')' or identifier",
            ),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a==b=c", "found '=', expected: ',' or 'end of string'"),
            (
                "a===b",
                "unable to parse requirement: found '=', expected: identifier",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                "-a",
                "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (
                "a=-x",
                "unable to parse requirement: values[0][a]: Invalid value: \"-x\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn matching() {
        let labels = json!({"a": "b", "n": "5", "e": ""});
        let labels = labels.as_object().unwrap();
        for (text, expected) in [
            ("", true),
            ("a=b", true),
            ("a!=b", false),
            ("z!=b", true),
            ("a in (b,c),e", true),
            ("a notin (b)", false),
            ("!z,e=", true),
            ("n>4", true),
            ("n<5", false),
            ("a>4", false),
            ("z>4", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(labels), expected, "{text}");
            assert_eq!(selector.matches(&Some(labels)), expected, "{text}");
        }
        assert!(!LabelSelector::nothing().matches(labels));
        assert!(
            LabelSelector::parse("!a")
                .unwrap()
                .matches(&None::<&Map<String, Value>>)
        );
        let pairs: &[(&str, &str)] = &[("a", "b"), ("c", "d")];
        assert!(LabelSelector::parse("c=d").unwrap().matches(pairs));
        assert_eq!(
            LabelSelector::parse("c=d").unwrap().requires_exact_match("c"),
            Some("d")
        );
    }

    #[test]
    fn of_objects() {
        let selector = |value| LabelSelector::from_value(&value);
        assert!(selector(json!(null)).unwrap().is_nothing());
        assert!(selector(json!({})).unwrap().is_empty());
        let both = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["x", "d"]}]});
        assert_eq!(selector(both).unwrap().to_string(), "a=b,c notin (d,x)");
        assert_eq!(
            selector(json!({"matchExpressions": [{"key": "a", "operator": "Foo"}]})).unwrap_err(),
            "\"Foo\" is not a valid label selector operator"
        );
        assert_eq!(
            selector(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).unwrap_err(),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        );
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "", "operator": "x", "values": ["-"]}]});
        let errors = validate_label_selector(&bad, SelectorChecks::default(), &FieldPath::new("spec"));
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.matchExpressions[0].values",
                "spec.matchExpressions[1].operator",
                "spec.matchExpressions[1].key",
                "spec.matchExpressions[1].key",
                "spec.matchExpressions[1].values[0]",
            ]
        );
    }

    #[test]
    fn requirements_and_values_are_bounded() {
        let most = limits::SELECTOR_REQUIREMENTS;
        let repeated = |text: &str, count: usize| vec![text; count].join(",");
        let distinct = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let objects = |count: usize| {
            let expression = json!({"key": "a", "operator": "Exists"});
            LabelSelector::from_value(&json!({ "matchExpressions": vec![expression; count] })).map(drop)
        };
        let parse = |text: &str| LabelSelector::parse(text).map(drop);
        assert_eq!(parse(&repeated("a", most)), Ok(()));
        assert_eq!(
            parse(&repeated("a", most + 1)),
            Err("requirements: Too many: 10001: must have at most 10000 items".into())
        );
        assert_eq!(parse(&format!("a in ({})", distinct(most))), Ok(()));
        assert_eq!(
            parse(&format!("a in ({})", distinct(most + 1))),
            Err("unable to parse requirement: values: Too many: 10001: must have at most 10000 items".into())
        );
        assert_eq!(objects(most), Ok(()));
        assert!(objects(most + 1).is_err());
    }

    #[test]
    fn many_values_match_as_few_do() {
        let values: Vec<String> = (0..2 * SEARCHED_VALUES).rev().map(|n| n.to_string()).collect();
        let selector = LabelSelector::from_value(
            &json!({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]}),
        )
        .unwrap();
        for (value, expected) in [("0", true), ("31", true), ("32", false), ("", false)] {
            assert_eq!(selector.matches(&[("a", value)][..]), expected, "{value}");
        }
        assert_eq!(&*selector.requirements()[0].values()[0], "31", "as given");
    }
}
