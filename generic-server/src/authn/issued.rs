//! Tokens that the process itself has issued, for clients that it makes. They end with it.

use std::collections::HashMap;
use std::fmt;

use parking_lot::RwLock;
use uuid::Uuid;

use super::{TokenAuthenticator, TokenVerdict, server_audiences};
use crate::request::User;

/// Issues tokens and knows them again. There are as many as users were given one: whoever embeds the server decides that.
#[derive(Default)]
pub struct IssuedTokens {
    users: RwLock<HashMap<String, User>>,
}

impl fmt::Debug for IssuedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the tokens.
        f.debug_struct("IssuedTokens")
            .field("tokens", &self.users.read().len())
            .finish_non_exhaustive()
    }
}

impl IssuedTokens {
    /// The token of a user: the same for the same name, uid, groups and extra.
    pub fn token_for(&self, user: &User) -> String {
        let mut users = self.users.write();
        if let Some((token, _)) = users.iter().find(|(_, known)| *known == user) {
            return token.clone();
        }
        let token = format!("issued-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        users.insert(token.clone(), user.clone());
        token
    }

    /// The same tokens, to which others are added independently.
    #[must_use]
    pub fn copy(&self) -> Self {
        IssuedTokens {
            users: RwLock::new(self.users.read().clone()),
        }
    }

    /// Its authenticator, for these audiences.
    pub fn authenticator(self: &std::sync::Arc<Self>, audiences: Vec<String>) -> IssuedAuthenticator {
        IssuedAuthenticator {
            tokens: self.clone(),
            audiences,
        }
    }
}

/// Authenticates users by [`IssuedTokens`].
#[derive(Debug)]
pub struct IssuedAuthenticator {
    tokens: std::sync::Arc<IssuedTokens>,
    audiences: Vec<String>,
}

#[async_trait::async_trait]
impl TokenAuthenticator for IssuedAuthenticator {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let user = self.tokens.users.read().get(token).cloned();
        match (user, server_audiences(&self.audiences, audiences)) {
            (Some(user), Some(audiences)) => TokenVerdict::User(user, audiences),
            _ => TokenVerdict::NotMine,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn each_user_has_one_token() {
        let user = |name: &str| User {
            name: name.into(),
            ..User::default()
        };
        let tokens = Arc::new(IssuedTokens::default());
        let (alice, bob) = (tokens.token_for(&user("alice")), tokens.token_for(&user("bob")));
        assert_ne!(alice, bob);
        assert_eq!(alice, tokens.token_for(&user("alice")));
        assert!(!format!("{tokens:?}").contains(&alice));
        let authenticator = tokens.authenticator(vec!["api".into()]);
        let verdict = authenticator.authenticate_token(&bob, &[]).await;
        assert_eq!(verdict, TokenVerdict::User(user("bob"), vec!["api".into()]));
        for (token, audiences) in [("bob", &[][..]), (bob.as_str(), &["other".to_string()])] {
            let verdict = authenticator.authenticate_token(token, audiences).await;
            assert_eq!(verdict, TokenVerdict::NotMine);
        }
    }
}
