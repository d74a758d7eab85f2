//! Makes tokens.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::keys::{KeyError, SigningKey};
use super::{LEGACY_ISSUER, user_name};

/// An object by name and uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The claims of a new token.
#[derive(Debug, Clone)]
pub struct TokenClaims {
    /// The service account's namespace.
    pub namespace: String,
    /// The service account.
    pub service_account: ObjectRef,
    /// Its audiences.
    pub audiences: Vec<String>,
    /// How long, in seconds.
    pub expiration_seconds: i64,
    /// The pod it is bound to.
    pub pod: Option<ObjectRef>,
    /// The secret it is bound to.
    pub secret: Option<ObjectRef>,
    /// The node it is bound to, or that the pod runs on.
    pub node: Option<ObjectRef>,
    /// When its use begins to be reported, in seconds from now.
    pub warn_after: Option<i64>,
}

/// Makes tokens.
#[derive(Debug)]
pub struct TokenIssuer {
    issuer: String,
    key: SigningKey,
}

/// A new token. Prints nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The token.
    pub token: String,
    /// When it ends, in seconds since the epoch.
    pub expires: i64,
    /// Its id (`jti`).
    pub id: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl TokenIssuer {
    /// For an issuer (`--service-account-issuer`) and its key.
    pub fn new(issuer: &str, key: SigningKey) -> Self {
        TokenIssuer {
            issuer: issuer.into(),
            key,
        }
    }

    /// Makes a token, good from now on.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub fn issue(&self, claims: &TokenClaims) -> Result<NewToken, KeyError> {
        let unsigned = payload(&self.issuer, claims);
        let token = self.key.sign_jwt(&unsigned.payload)?;
        Ok(unsigned.signed(token))
    }

    /// The token that a `kubernetes.io/service-account-token` secret holds: it does not expire.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        account: &ObjectRef,
        secret: &str,
    ) -> Result<String, KeyError> {
        self.key.sign_jwt(&json!({
            "iss": LEGACY_ISSUER,
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account.name,
            "kubernetes.io/serviceaccount/service-account.uid": account.uid,
            "sub": user_name(namespace, &account.name),
        }))
    }
}

/// A token without its signature.
pub(super) struct Unsigned {
    pub(super) payload: Value,
    expires: i64,
    id: String,
}

impl Unsigned {
    /// With the token that its payload has become.
    pub(super) fn signed(self, token: String) -> NewToken {
        NewToken {
            token,
            expires: self.expires,
            id: self.id,
        }
    }
}

/// The payload of a token that is good from now on.
pub(super) fn payload(issuer: &str, claims: &TokenClaims) -> Unsigned {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    // The node of a pod may be gone: it has a name and no uid.
    let reference = |r: &ObjectRef| match r.uid.is_empty() {
        true => json!({"name": r.name}),
        false => json!({"name": r.name, "uid": r.uid}),
    };
    let mut kubernetes = Map::new();
    kubernetes.insert("namespace".into(), claims.namespace.as_str().into());
    kubernetes.insert("serviceaccount".into(), reference(&claims.service_account));
    for (key, bound) in [
        ("pod", &claims.pod),
        ("secret", &claims.secret),
        ("node", &claims.node),
    ] {
        if let Some(bound) = bound {
            kubernetes.insert(key.into(), reference(bound));
        }
    }
    if let Some(after) = claims.warn_after {
        kubernetes.insert("warnafter".into(), (now + after).into());
    }
    let id = uuid::Uuid::new_v4().to_string();
    let expires = now + claims.expiration_seconds;
    let payload = json!({
        "aud": claims.audiences,
        "exp": expires,
        "iat": now,
        "iss": issuer,
        "jti": id,
        "kubernetes.io": kubernetes,
        "nbf": now,
        "sub": user_name(&claims.namespace, &claims.service_account.name),
    });
    Unsigned { payload, expires, id }
}
