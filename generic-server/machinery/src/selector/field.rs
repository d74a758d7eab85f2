//! Field selectors: `metadata.name=a,status.phase!=Running`. Mirrors `k8s.io/apimachinery/pkg/fields`.
//!
//! Which fields a kind has is for the kind to say: it rewrites or refuses them in [`FieldSelector::transform`].

use std::fmt;

use super::label::is_bounded;

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The field's label, such as `metadata.name`.
    pub field: Box<str>,
    /// The value, unescaped.
    pub value: Box<str>,
    /// `!=` instead of `=`.
    pub negated: bool,
}

/// All of some requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Box<[FieldRequirement]>,
}

/// The text for a field that a kind does not select by.
pub fn unsupported_field(field: &str) -> String {
    format!("field label not supported: {field}")
}

impl FieldSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// `field=value`.
    pub fn equals(field: &str, value: &str) -> Self {
        let one = FieldRequirement {
            field: field.into(),
            value: value.into(),
            negated: false,
        };
        FieldSelector {
            requirements: [one].into(),
        }
    }

    /// Reads the `fieldSelector` of a query.
    ///
    /// # Errors
    /// Upstream's text, such as `invalid selector: 'a'; can't understand 'a'`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms {
            if term.is_empty() {
                continue;
            }
            let (at, operator) = term
                .char_indices()
                .find_map(|(at, _)| {
                    let rest = &term[at..];
                    let operator = ["!=", "==", "="].into_iter().find(|o| rest.starts_with(o))?;
                    Some((at, operator))
                })
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            let (field, value) = (&term[..at], unescape(&term[at + operator.len()..])?);
            // An operator alone says nothing.
            if !field.is_empty() || !value.is_empty() {
                requirements.push(FieldRequirement {
                    field: field.into(),
                    value: value.into(),
                    negated: operator == "!=",
                });
            }
            is_bounded("requirements", requirements.len())?;
        }
        Ok(FieldSelector {
            requirements: requirements.into(),
        })
    }

    /// Rewrites every field and value by the kind's rule. One that becomes empty in both is dropped.
    ///
    /// # Errors
    /// The first error of the rule, usually [`unsupported_field`].
    pub fn transform<E>(
        self,
        mut rule: impl FnMut(&str, &str) -> Result<(String, String), E>,
    ) -> Result<Self, E> {
        let mut requirements = Vec::with_capacity(self.requirements.len());
        for requirement in self.requirements {
            let (field, value) = rule(&requirement.field, &requirement.value)?;
            if field.is_empty() && value.is_empty() {
                continue;
            }
            requirements.push(FieldRequirement {
                field: field.into(),
                value: value.into(),
                ..requirement
            });
        }
        Ok(FieldSelector {
            requirements: requirements.into(),
        })
    }

    /// Whether the fields, looked up by label, meet every requirement. An absent field is the empty string.
    pub fn matches<'a>(&self, mut field: impl FnMut(&str) -> &'a str) -> bool {
        self.requirements
            .iter()
            .all(|r| (field(&r.field) == &*r.value) != r.negated)
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field must have to be selected.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        let found = self
            .requirements
            .iter()
            .find(|r| !r.negated && *r.field == *field)?;
        Some(&found.value)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, r) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if r.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", r.field, escape(&r.value))?;
        }
        Ok(())
    }
}

/// Escapes a value for a selector.
pub fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The terms between commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn parsed_text() {
        for (text, expected) in [
            ("", Ok("")),
            ("b=1,a!=2", Ok("a!=2,b=1")),
            ("a==b", Ok("a=b")),
            ("a=", Ok("a=")),
            (",,a=b,", Ok("a=b")),
            ("=,a=b,!=", Ok("a=b")),
            ("a=x\\,y\\=z\\\\", Ok("a=x\\,y\\=z\\\\")),
            ("a", Err("invalid selector: 'a'; can't understand 'a'")),
            ("a>b", Err("invalid selector: 'a>b'; can't understand 'a>b'")),
            (
                "a=b=c",
                Err("invalid field selector: unescaped character in value: 61"),
            ),
            (
                "a=\\x",
                Err("invalid field selector: invalid escape sequence: \\x"),
            ),
            ("a=\\", Err("invalid field selector: invalid escape sequence: \\")),
        ] {
            let got = FieldSelector::parse(text).map(|s| s.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn matching_and_rewriting() {
        let selector = FieldSelector::parse("metadata.name=a,spec.x!=b").unwrap();
        assert!(selector.matches(|f| if f == "metadata.name" { "a" } else { "" }));
        assert!(!selector.matches(|_| "b"));
        assert_eq!(selector.requires_exact_match("metadata.name"), Some("a"));
        assert_eq!(selector.requires_exact_match("spec.x"), None);
        let refused = selector.clone().transform(|f, v| match f {
            "metadata.name" => Ok((f.to_owned(), v.to_owned())),
            _ => Err(unsupported_field(f)),
        });
        assert_eq!(refused.unwrap_err(), "field label not supported: spec.x");
        let dropped = selector.transform(|_, _| Ok::<_, ()>((String::new(), String::new())));
        assert!(dropped.unwrap().is_empty());
    }

    #[test]
    fn requirements_are_bounded() {
        let parse = |count: usize| FieldSelector::parse(&vec!["a=b"; count].join(",")).map(drop);
        assert_eq!(parse(limits::SELECTOR_REQUIREMENTS), Ok(()));
        assert_eq!(
            parse(limits::SELECTOR_REQUIREMENTS + 1),
            Err("requirements: Too many: 10001: must have at most 10000 items".into())
        );
    }
}
