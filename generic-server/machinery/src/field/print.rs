//! Values as Go prints them in the texts of errors.

use std::fmt;

use serde_json::Value;

use super::{Quoted, quote};

/// A value as Go's `%v` prints it.
pub(crate) struct GoPrint<'a>(pub(crate) &'a Value);

impl fmt::Display for GoPrint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Array(list) => {
                f.write_str("[")?;
                separated(f, " ", list, |f, item| GoPrint(item).fmt(f))?;
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("map[")?;
                separated(f, " ", map, |f, (key, value)| {
                    write!(f, "{key}:{}", GoPrint(value))
                })?;
                f.write_str("]")
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}

/// A value as Go's `%#v` prints it.
pub(crate) struct GoSyntax<'a>(pub(crate) &'a Value);

impl fmt::Display for GoSyntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::String(text) => quote(f, text),
            Value::Array(list) => {
                f.write_str("[]interface {}{")?;
                separated(f, ", ", list, |f, item| GoSyntax(item).fmt(f))?;
                f.write_str("}")
            }
            Value::Object(map) => {
                f.write_str("map[string]interface {}{")?;
                separated(f, ", ", map, |f, (key, value)| {
                    write!(f, "{}:{}", Quoted(key), GoSyntax(value))
                })?;
                f.write_str("}")
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
