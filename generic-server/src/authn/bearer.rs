//! Bearer tokens: from the `Authorization` header, or from a WebSocket subprotocol for browsers. And the heart of TokenReview.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header;
use http::request::Parts;

use super::union::with_standard_group;
use super::{Authenticator, Refusal, TokenAuthenticator, TokenVerdict, Verdict};
use crate::request::User;

/// The WebSocket subprotocol that carries a bearer token for browsers.
pub(crate) const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

const INVALID: &str = "invalid bearer token";

/// Authenticates users by their bearer token.
#[derive(Debug)]
pub struct Bearer(pub Arc<dyn TokenAuthenticator>);

#[async_trait::async_trait]
impl Authenticator for Bearer {
    async fn authenticate(&self, head: &Parts) -> Verdict {
        let token = match from_header(head) {
            Some(token) => token.to_string(),
            None => match from_subprotocol(head) {
                Ok(Some(token)) => token,
                Ok(None) => return Verdict::NotRequested,
                Err(why) => return Verdict::Failed(why.into()),
            },
        };
        match self.0.authenticate_token(&token, &[]).await {
            TokenVerdict::User(user, _) => Verdict::User(user),
            TokenVerdict::NotMine => Verdict::Failed(INVALID.into()),
            TokenVerdict::Failed(refusal) => Verdict::Failed(refusal),
        }
    }
}

fn from_header(head: &Parts) -> Option<&str> {
    let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.splitn(3, ' ');
    let scheme = words.next()?;
    words
        .next()
        .filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn from_subprotocol(head: &Parts) -> Result<Option<String>, &'static str> {
    let says = |name, wanted: &str| {
        let values = head.headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
        values
            .flat_map(|v| v.split(','))
            .any(|v| v.trim().eq_ignore_ascii_case(wanted))
    };
    if !says(header::UPGRADE, "websocket") || !says(header::CONNECTION, "upgrade") {
        return Ok(None);
    }
    let mut token = None;
    let mut others = false;
    let values = head.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    for protocol in values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
    {
        let Some(encoded) = protocol.strip_prefix(WEBSOCKET_TOKEN) else {
            others = true;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        token = Some(String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token")?);
    }
    match token.filter(|token| !token.is_empty()) {
        // The server must have a protocol to answer with once the token's is taken out.
        Some(_) if !others => Err("missing additional subprotocol"),
        token => Ok(token),
    }
}

/// Judges a token for a TokenReview: the user with the standard group and the audiences that hold, or `status.error`.
///
/// # Errors
/// Upstream's text for an invalid token.
pub async fn review(
    tokens: &dyn TokenAuthenticator,
    token: &str,
    audiences: &[String],
) -> Result<(User, Vec<String>), Refusal> {
    match tokens.authenticate_token(token, audiences).await {
        TokenVerdict::User(user, audiences) => Ok((with_standard_group(user), audiences)),
        TokenVerdict::NotMine => Err(INVALID.into()),
        // Upstream first asks its loopback authenticator, which says this of every token.
        TokenVerdict::Failed(refusal) if refusal.why == INVALID => Err(refusal),
        TokenVerdict::Failed(Refusal { why, notes }) => Err(Refusal {
            why: format!("[{INVALID}, {why}]"),
            notes,
        }),
    }
}
