//! What the answer of a webhook says that it is.

use serde_json::Value;

/// Whether an answer may be this kind: as in upstream's decoder, what it does not say of its kind is taken as asked for.
///
/// # Errors
/// It says that it is another kind, or is no object.
pub fn is_of_kind(answer: &Value, version: &str, kind: &str) -> Result<(), String> {
    let says = |key: &str, expected: &str| match answer.get(key) {
        None | Some(Value::Null) => true,
        Some(said) => said
            .as_str()
            .is_some_and(|said| said.is_empty() || said == expected),
    };
    if answer.is_object() && says("apiVersion", version) && says("kind", kind) {
        return Ok(());
    }
    let said = |key: &str| {
        let text = answer.get(key).and_then(Value::as_str).unwrap_or_default();
        machinery::go::quote(text)
    };
    let (said_version, said_kind) = (said("apiVersion"), said("kind"));
    Err(format!(
        "the webhook answered {said_version} {said_kind} rather than a {kind} of {version}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A denial that says nothing of its kind is a denial all the same.
    #[test]
    fn what_is_not_said_is_as_asked() {
        #[track_caller]
        fn check(answer: Value, expected: bool) {
            assert_eq!(
                is_of_kind(&answer, "g/v1", "Review").is_ok(),
                expected,
                "{answer}"
            );
        }
        check(json!({"apiVersion": "g/v1", "kind": "Review"}), true);
        check(json!({"apiVersion": "g/v1"}), true);
        check(json!({"kind": "Review", "apiVersion": ""}), true);
        check(json!({"kind": null}), true);
        check(json!({}), true);
        check(json!({"apiVersion": "g/v2", "kind": "Review"}), false);
        check(json!({"kind": "Status"}), false);
        check(json!({"kind": 1}), false);
        check(json!([]), false);
        check(Value::Null, false);
    }
}
