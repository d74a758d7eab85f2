//! Values at paths of keys, of the type that is asked for. The errors are those of upstream's `unstructured.NestedInt64`,
//! `NestedString` and `SetNestedField`.

use serde_json::{Map, Value};

use crate::go;

/// The whole number at a path.
///
/// # Errors
/// When something else is there, or on the way.
pub fn nested_integer(object: &Value, path: &[String]) -> Result<Option<i64>, String> {
    let found = nested(object, path, "int64", Value::is_i64)?;
    Ok(found.and_then(Value::as_i64))
}

/// The text at a path.
///
/// # Errors
/// As [`nested_integer`].
pub fn nested_text<'a>(object: &'a Value, path: &[String]) -> Result<Option<&'a str>, String> {
    let found = nested(object, path, "string", Value::is_string)?;
    Ok(found.and_then(Value::as_str))
}

/// Sets the value at a path; objects on the way are made.
///
/// # Errors
/// When something that is no object is on the way.
pub fn set_nested(object: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, parents)) = path.split_last() else {
        return Ok(());
    };
    let mut at = object;
    for (depth, key) in parents.iter().enumerate() {
        let Some(map) = at.as_object_mut() else {
            return Err(not_a_map(&path[..depth]));
        };
        at = map
            .entry(key.as_str())
            .or_insert_with(|| Value::Object(Map::new()));
    }
    match at.as_object_mut() {
        Some(map) => {
            map.insert(last.clone(), value);
            Ok(())
        }
        None => Err(not_a_map(parents)),
    }
}

/// A path as upstream prints it: `.spec.replicas`.
pub fn dotted(path: &[String]) -> String {
    format!(".{}", path.join("."))
}

fn not_a_map(path: &[String]) -> String {
    let at = dotted(path);
    format!("value cannot be set because {at} is not a map[string]interface{{}}")
}

fn nested<'a>(
    object: &'a Value,
    path: &[String],
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let fault = |depth: usize, value: &Value, wanted: &str| {
        let (shown, ty) = (go::Print(value), go::type_name(value));
        let at = dotted(&path[..depth]);
        Err(format!(
            "{at} accessor error: {shown} is of the type {ty}, expected {wanted}"
        ))
    };
    let mut at = object;
    for (i, key) in path.iter().enumerate() {
        match at {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(key) {
                Some(value) => at = value,
                None => return Ok(None),
            },
            other => return fault(i + 1, other, "map[string]interface{}"),
        }
    }
    if fits(at) {
        Ok(Some(at))
    } else {
        fault(path.len(), at, wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_of_another_type_is_an_error() {
        let object = json!({"spec": {"n": 3, "t": "x", "o": {"a": 1}, "f": 1.5}});
        assert_eq!(nested_integer(&object, &path(&["spec", "n"])), Ok(Some(3)));
        assert_eq!(nested_integer(&object, &path(&["spec", "none", "n"])), Ok(None));
        assert_eq!(nested_text(&object, &path(&["spec", "t"])), Ok(Some("x")));
        let fails = |keys: &[&str]| nested_integer(&object, &path(keys)).expect_err("another type");
        assert_eq!(
            fails(&["spec", "o"]),
            ".spec.o accessor error: map[a:1] is of the type map[string]interface {}, expected int64"
        );
        assert_eq!(
            fails(&["spec", "f"]),
            ".spec.f accessor error: 1.5 is of the type float64, expected int64"
        );
        assert_eq!(
            fails(&["spec", "t", "n"]),
            ".spec.t.n accessor error: x is of the type string, expected map[string]interface{}"
        );
    }

    #[test]
    fn objects_on_the_way_are_made() {
        let mut object = json!({"spec": {"t": "x"}});
        assert_eq!(
            set_nested(&mut object, &path(&["spec", "a", "n"]), json!(1)),
            Ok(())
        );
        assert_eq!(object, json!({"spec": {"t": "x", "a": {"n": 1}}}));
        assert_eq!(
            set_nested(&mut object, &path(&["spec", "t", "n"]), json!(1)),
            Err("value cannot be set because .spec.t is not a map[string]interface{}".into())
        );
    }
}
