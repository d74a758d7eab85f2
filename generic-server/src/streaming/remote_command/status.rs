//! The Status that ends a command, of what a node says of its end.

use machinery::{ApiError, go};
use serde_json::{Value, json};

use super::Version;

/// The Status of a command that did not begin or broke. As upstream's, it does not say its kind.
pub(super) fn of_error(error: &ApiError) -> Value {
    let mut status = error.to_value();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    status
}

/// The status code that counts for a Status.
pub(super) fn code(status: &Value) -> u16 {
    let code = status.get("code").and_then(Value::as_u64);
    code.and_then(|code| u16::try_from(code).ok()).unwrap_or(200)
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

fn failure(why: impl std::fmt::Display) -> Value {
    of_error(&ApiError::internal(why))
}

/// The Status of what came on a node's error stream.
pub(super) fn of_message(message: &[u8], version: Version) -> Value {
    if message.is_empty() {
        return success();
    }
    let text = String::from_utf8_lossy(message);
    if version < Version(4) {
        let error = if version == Version(1) { "Error" } else { "error" };
        return failure(format!("{error} executing remote command: {text}"));
    }
    let status: Value = match serde_json::from_slice(message) {
        Ok(status) => status,
        Err(error) => {
            return failure(format!(
                "error stream protocol error: {error} in {}",
                go::quote(&text)
            ));
        }
    };
    let field = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default();
    match field("status") {
        "Success" => success(),
        "Failure" if field("reason") == "NonZeroExitCode" => match exit_code(&status) {
            Ok(code) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!(
                    "command terminated with non-zero exit code: command terminated with exit code {code}"
                ),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Err(why) => failure(format!("error stream protocol error: {why}")),
        },
        "Failure" => failure(field("message")),
        _ => failure("error stream protocol error: unknown error"),
    }
}

fn exit_code(status: &Value) -> Result<u8, String> {
    let details = status.get("details").filter(|details| !details.is_null());
    let details = details.ok_or("details must be set")?;
    let causes = details.get("causes").and_then(Value::as_array);
    let field = |cause: &Value, name: &str| {
        cause
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let cause = causes
        .into_iter()
        .flatten()
        .find(|cause| field(cause, "reason") == "ExitCode")
        .ok_or("no ExitCode cause given")?;
    let text = field(cause, "message");
    text.parse()
        .map_err(|_| format!("invalid exit code value {}", go::quote(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_say_becomes_a_status() {
        let check = |version: u8, message: &str, expected: Value| {
            assert_eq!(
                of_message(message.as_bytes(), Version(version)),
                expected,
                "{message}"
            );
        };
        let internal = |why: &str| {
            json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("Internal error occurred: {why}"),
                "details": {"causes": [{"message": why}]},
            })
        };
        check(4, "", success());
        check(1, "", success());
        check(4, r#"{"metadata":{},"status":"Success"}"#, success());
        check(2, "exit 1", internal("error executing remote command: exit 1"));
        check(1, "exit 1", internal("Error executing remote command: exit 1"));
        check(
            5,
            r#"{"status":"Failure","message":"no such container"}"#,
            internal("no such container"),
        );
        check(
            4,
            r#"{"status":"?"}"#,
            internal("error stream protocol error: unknown error"),
        );
        let exit = |details: &str| format!(r#"{{"status":"Failure","reason":"NonZeroExitCode"{details}}}"#);
        check(
            4,
            &exit(""),
            internal("error stream protocol error: details must be set"),
        );
        check(
            4,
            &exit(r#","details":{}"#),
            internal("error stream protocol error: no ExitCode cause given"),
        );
        let code = |code: &str| {
            exit(&format!(
                r#","details":{{"causes":[{{"reason":"ExitCode","message":"{code}"}}]}}"#
            ))
        };
        check(
            4,
            &code("256"),
            internal("error stream protocol error: invalid exit code value \"256\""),
        );
        check(
            4,
            &code("3"),
            json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code: command terminated with exit code 3",
                "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
            }),
        );
    }
}
