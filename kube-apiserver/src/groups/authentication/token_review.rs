//! TokenReview: the user of a token, for webhooks and aggregated servers that delegate authentication to this one.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::authn::{TokenAuthenticator, bearer};
use generic_server::resource::{Answer, CreateCall, VirtualResource};
use serde_json::{Value, json};

use super::user_info;
use crate::deps::TokenIssuer;
use crate::json::Json;

/// Asks the server's own token authenticator.
#[derive(Debug)]
pub(crate) struct TokenReview {
    pub(crate) tokens: Arc<dyn TokenAuthenticator>,
    pub(crate) issuer: Arc<dyn TokenIssuer>,
}

#[async_trait::async_trait]
impl VirtualResource for TokenReview {
    fn verbs(&self) -> &'static [&'static str] {
        &["create"]
    }

    async fn create(&self, call: &CreateCall<'_>, mut object: Value) -> Result<Answer, ApiError> {
        let token = object.text("spec.token").to_string();
        if token.is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let admitted = call.validate(&object).await?;
        let audiences: Vec<String> = object.strings("spec.audiences").map(str::to_string).collect();
        let wanted = match audiences.is_empty() {
            true => self.issuer.default_audiences(),
            false => audiences,
        };
        let (notes, status) = match bearer::review(&*self.tokens, &token, &wanted).await {
            Ok((mut user, audiences)) => (
                user.notes.take(),
                json!({"authenticated": true, "user": user_info(&user), "audiences": audiences}),
            ),
            Err(refusal) => (refusal.notes, json!({"error": refusal.why})),
        };
        // As of the request itself: the reviewer learns of tokens that should not be used any more.
        if let Some(notes) = notes {
            call.authorized.context().note(&notes);
        }
        // What was posted as status stays where nothing is found out.
        let known = object.ensure("status");
        known.take_key("authenticated");
        known.ensure("user");
        for (key, value) in status.as_object().into_iter().flatten() {
            known.put(key, value.clone());
        }
        Ok(admitted.created(object))
    }
}
