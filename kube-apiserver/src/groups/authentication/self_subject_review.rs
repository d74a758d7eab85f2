//! SelfSubjectReview: the user that the server authenticated the client as.

use generic_server::resource::{Answer, CreateCall, VirtualResource};
use generic_server::{ApiError, User};
use machinery::time::Timestamp;
use serde_json::{Map, Value, json};

/// Answers with the user of the request.
#[derive(Debug)]
pub(crate) struct SelfSubjectReview;

#[async_trait::async_trait]
impl VirtualResource for SelfSubjectReview {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(&self, call: &CreateCall<'_>, review: Value) -> Result<Answer, ApiError> {
        let admitted = call.validate(&review).await?;
        // The answer is recreated: nothing of what was posted is in it.
        Ok(admitted.created(json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "metadata": {"creationTimestamp": Timestamp::now().to_rfc3339()},
            "status": {"userInfo": user_info(call.authorized.user())},
        })))
    }
}

/// A user as `authentication.k8s.io/v1, UserInfo`.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let mut put = |key: &str, value: Value, empty: bool| {
        if !empty {
            info.insert(key.into(), value);
        }
    };
    put("username", user.name.clone().into(), user.name.is_empty());
    put("uid", user.uid.clone().into(), user.uid.is_empty());
    put("groups", user.groups.clone().into(), user.groups.is_empty());
    put("extra", json!(user.extra), user.extra.is_empty());
    Value::Object(info)
}
