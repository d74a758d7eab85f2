//! What a TokenReview says. An answer whose fields have other types than theirs says nothing, so that nobody is taken for the user who is left when such
//! fields are passed over.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::request::User;
use crate::zero_values::{filled, object, or_default, texts};

/// The status of a TokenReview. As in Go, null is the empty value of each type.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) authenticated: bool,
    #[serde(deserialize_with = "object")]
    pub(super) user: ReviewUser,
    #[serde(deserialize_with = "texts")]
    pub(super) audiences: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) error: String,
}

/// The user in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewUser {
    #[serde(deserialize_with = "or_default")]
    username: String,
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "texts")]
    groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    extra: BTreeMap<String, Option<Vec<Option<String>>>>,
}

impl ReviewStatus {
    /// The status of an answer; the empty one where it has none.
    ///
    /// # Errors
    /// A field that has another type than its own.
    pub(super) fn of(answer: &Value) -> Result<Self, String> {
        let status = answer.get("status").unwrap_or(&Value::Null);
        object(status).map_err(|error| format!("the status of the TokenReview cannot be read: {error}"))
    }
}

impl From<ReviewUser> for User {
    fn from(user: ReviewUser) -> Self {
        let extra = user.extra.into_iter();
        User {
            name: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: extra
                .map(|(key, values)| (key, filled(values.unwrap_or_default())))
                .collect(),
            notes: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_read_whole_or_not_at_all() {
        let user = |user: Value| ReviewStatus::of(&json!({"status": {"authenticated": true, "user": user}}));
        let read = user(
            json!({"username": "u", "uid": null, "groups": ["g", null], "extra": {"k": ["v"], "n": null}}),
        );
        let expected = User {
            name: "u".into(),
            groups: vec!["g".into(), String::new()],
            extra: [
                ("k".to_string(), vec!["v".to_string()]),
                ("n".to_string(), Vec::new()),
            ]
            .into(),
            ..User::default()
        };
        assert_eq!(User::from(read.expect("a user").user), expected);
        for bad in [
            json!({"username": 3}),
            json!({"username": ["u"]}),
            json!({"uid": {}}),
            json!({"groups": "g"}),
            json!({"groups": [1]}),
            json!({"extra": []}),
            json!({"extra": {"k": "v"}}),
            json!({"extra": {"k": [1]}}),
            json!("u"),
            json!([]),
        ] {
            assert!(user(bad.clone()).is_err(), "{bad}");
        }
        for bad in [
            json!({"authenticated": "true"}),
            json!({"audiences": "a"}),
            json!({"error": 1}),
            json!(1),
            json!([true]),
        ] {
            assert!(ReviewStatus::of(&json!({"status": bad})).is_err(), "{bad}");
        }
        assert!(!ReviewStatus::of(&json!({})).expect("nothing").authenticated);
    }
}
