//! ServiceAccount.

pub(crate) mod token;

use serde_json::{Value, json};

use crate::json::Json;
use crate::rules::Rules;

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    prepare_create: |_, object| names_only(object),
    prepare_update: |_, object, _| names_only(object),
    warnings: |object, old| {
        let annotated = |object: &Value| {
            object
                .object_at("metadata.annotations")
                .is_some_and(|annotations| annotations.contains_key(MOUNTABLE))
        };
        match annotated(object) && !annotated(old) {
            true => vec![format!(
                "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )],
            false => Vec::new(),
        }
    },
    ..Rules::PLAIN
};

/// Secrets are referred to by name alone.
fn names_only(object: &mut Value) {
    for secret in object.list_mut("secrets") {
        *secret = match secret.text("name") {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::groups::check::kind;

    #[test]
    fn secrets_are_referred_to_by_name() {
        let accounts = kind("serviceaccounts");
        accounts.defaults(
            &json!({"secrets": [{"name": "s", "namespace": "other", "uid": "u"}]}),
            &json!({"secrets": [{"name": "s"}]}),
        );
        accounts.warnings(
            &json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}}),
            &["metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"],
        );
    }
}
