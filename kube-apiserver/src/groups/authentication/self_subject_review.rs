//! SelfSubjectReview: who the server takes the client for.

use generic_server::resource::VirtualResource;
use generic_server::{ApiError, Authorized, User};
use machinery::meta;
use machinery::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::json::Json;

/// Answers with the user of the request.
#[derive(Debug)]
pub(crate) struct SelfSubjectReview;

#[async_trait::async_trait]
impl VirtualResource for SelfSubjectReview {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(
        &self,
        authorized: &Authorized,
        _namespace: &str,
        mut object: Value,
        _dry_run: bool,
    ) -> Result<Value, ApiError> {
        object.ensure("metadata");
        meta::set(&mut object, "creationTimestamp", Timestamp::now().to_rfc3339());
        object.put("status", json!({"userInfo": user_info(authorized.user())}));
        Ok(object)
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
