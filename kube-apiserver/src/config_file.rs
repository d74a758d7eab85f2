//! Configuration files in the form of API objects: one document of YAML or JSON, read strictly.

use std::path::Path;

use machinery::codec::{strict_message, yaml};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The content of a file. The error names it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("\"{}\": {error}", path.display()))
}

/// The document of a file.
pub(crate) fn document(data: &[u8]) -> Result<Value, String> {
    let decoded = yaml::decode(data).map_err(|error| error.to_string())?;
    match decoded.strict.is_empty() {
        true => Ok(decoded.value),
        false => Err(strict_message(&decoded.strict)),
    }
}

/// An object of a kind, in one of its versions.
pub(crate) fn of_kind<T: DeserializeOwned>(
    mut value: Value,
    versions: &[&str],
    kind: &str,
) -> Result<T, String> {
    if !value.is_object() && !value.is_null() {
        return Err("the document is no object".to_string());
    }
    let mut take = |key: &str| {
        let member = value.as_object_mut().and_then(|object| object.remove(key));
        member
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let (version, found) = (take("apiVersion"), take("kind"));
    for (text, name) in [(&found, "Kind"), (&version, "apiVersion")] {
        if text.is_empty() {
            return Err(format!("Object '{name}' is missing"));
        }
    }
    if found != kind || !versions.contains(&version.as_str()) {
        return Err(format!(
            "no kind \"{found}\" is registered for version \"{version}\""
        ));
    }
    typed(value)
}

/// A value without a kind.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("strict decoding error: {error}"))
}
