//! Answers of other servers as Go reads them: null is the zero value of a type, and a value of another type is an error.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A value; the default for null.
///
/// # Errors
/// It has another type.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// An object; the default for null. serde would read the fields of a list by their order, too.
///
/// # Errors
/// It is none, or one of its fields has another type.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(T::default()),
        value @ Value::Object(_) => T::deserialize(value).map_err(D::Error::custom),
        _ => Err(D::Error::custom("an object is expected")),
    }
}

/// A list of texts; the empty one for null, with empty ones for nulls in it.
///
/// # Errors
/// It, or one of its items, has another type.
pub(crate) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    or_default(from).map(filled)
}

/// A list with empty texts for nulls.
pub(crate) fn filled(list: Vec<Option<String>>) -> Vec<String> {
    list.into_iter().map(Option::unwrap_or_default).collect()
}
