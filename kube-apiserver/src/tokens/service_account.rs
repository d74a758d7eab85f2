//! Service account tokens: made and checked here, bound to objects that must still be there.
//!
//! Mirrors upstream's `pkg/serviceaccount`. The requester of a token (TokenRequest) and the objects it may be bound to are the
//! service account resource's business.

mod external;
mod issuer;
mod keys;
mod metrics;

use std::sync::Arc;

use arc_swap::ArcSwap;
use generic_server::authn::{Refusal, TokenAuthenticator, TokenVerdict, split_service_account};
use generic_server::request::{CredentialNotes, User};
use machinery::go::quote;
use machinery::meta;
use machinery::time::{GoDuration, Timestamp};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::jws::{Jws, unverified_claims};
use super::secret::{data, same};
use super::{LAST_USED, TokenObjectKind, TokenObjects, day_of};

pub use external::ExternalSigner;
pub use issuer::{NewToken, ObjectRef, TokenClaims, TokenIssuer};
pub use keys::{KeyError, PublicKeys, SigningKey};
pub use metrics::TokenMetrics;

/// Clocks may differ by this much.
const LEEWAY: i64 = 60;
/// The issuer of tokens kept in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const DAY: GoDuration = GoDuration(24 * 3600 * 1_000_000_000);
/// The warning of tokens in secrets that nobody asked for.
const GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.";

/// The user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Checks tokens.
#[derive(Debug)]
pub struct ServiceAccounts {
    issuers: Vec<String>,
    keys: Arc<ArcSwap<PublicKeys>>,
    audiences: Vec<String>,
    objects: Arc<dyn TokenObjects>,
    /// Who signs, where that is another program: its keys count alone.
    external: Option<Arc<ExternalSigner>>,
    metrics: Arc<TokenMetrics>,
}

impl ServiceAccounts {
    /// For tokens of these issuers, by default good for these audiences (`--api-audiences`, else the first issuer). The
    /// keys may be replaced while serving.
    pub fn new(
        issuers: Vec<String>,
        keys: Arc<ArcSwap<PublicKeys>>,
        audiences: Vec<String>,
        objects: Arc<dyn TokenObjects>,
    ) -> Self {
        ServiceAccounts {
            issuers,
            keys,
            audiences,
            objects,
            external: None,
            metrics: Arc::default(),
        }
    }

    /// With the keys of a program that signs, instead of others.
    #[must_use]
    pub fn with_external(mut self, external: Option<Arc<ExternalSigner>>) -> Self {
        self.external = external;
        self
    }

    /// How its tokens are used.
    pub fn metrics(&self) -> Arc<TokenMetrics> {
        self.metrics.clone()
    }

    async fn check(
        &self,
        token: &str,
        payload: Value,
        asked: &[String],
        notes: &mut CredentialNotes,
    ) -> Result<(User, Vec<String>), String> {
        let jws = Jws::parse(token).map_err(|_| "malformed token")?;
        let keys = match &self.external {
            Some(external) => external.keys_for(&jws.key_id).await,
            None => self.keys.load_full(),
        };
        let claims = keys.verify(&jws)?.then_some(payload).ok_or("invalid signature")?;
        let own: Vec<String> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_string)
                .collect(),
            _ => Vec::new(),
        };
        // Tokens without audiences are old and meant for the server alone.
        let own = if own.is_empty() {
            TokenMetrics::count(&self.metrics.legacy);
            notes.annotate("legacy-token", meta::dig_str(&claims, &["sub"]));
            self.audiences.clone()
        } else {
            own
        };
        let asked = if asked.is_empty() { &self.audiences } else { asked };
        let hold: Vec<String> = own.iter().filter(|a| asked.contains(a)).cloned().collect();
        if hold.is_empty() && !self.audiences.is_empty() {
            let list = |all: &[String]| all.iter().map(|a| quote(a)).collect::<Vec<_>>().join(" ");
            let (own, asked) = (list(&own), list(asked));
            return Err(format!(
                "token audiences [{own}] is invalid for the target audiences [{asked}]"
            ));
        }
        let user = if claims.get("iss").and_then(Value::as_str) == Some(LEGACY_ISSUER) {
            self.legacy(token, &claims, notes).await?
        } else {
            self.bound(&claims, notes).await?
        };
        Ok((user, hold))
    }

    async fn bound(&self, claims: &Value, notes: &mut CredentialNotes) -> Result<User, String> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        check_times(claims, now)?;
        let kubernetes = claims.get("kubernetes.io").unwrap_or(&Value::Null);
        let namespace = meta::dig_str(kubernetes, &["namespace"]);
        let reference = |key: &str| {
            let found = kubernetes.get(key).filter(|v| v.is_object())?;
            Some((meta::dig_str(found, &["name"]), meta::dig_str(found, &["uid"])))
        };
        let (account, account_uid) = reference("serviceaccount").unwrap_or_default();

        let found = self
            .objects
            .get(TokenObjectKind::ServiceAccount, namespace, account)
            .await?;
        let found = found.ok_or_else(|| format!("serviceaccounts {} not found", quote(account)))?;
        let uid = meta::uid(&found);
        if uid != account_uid {
            return Err(format!(
                "service account UID ({uid}) does not match claim ({account_uid})"
            ));
        }
        if deleted_before(&found, now) {
            return Err(format!("service account {namespace}/{account} has been deleted"));
        }

        let mut user = account_user(namespace, account, account_uid);
        let mut extra = |key: &str, value: &str| {
            user.extra.insert(
                format!("authentication.kubernetes.io/{key}"),
                vec![value.to_string()],
            );
        };
        if let Some((name, uid)) = reference("secret") {
            self.still_there(TokenObjectKind::Secret, namespace, name, uid, now)
                .await?;
        }
        let pod = reference("pod");
        if let Some((name, uid)) = pod {
            self.still_there(TokenObjectKind::Pod, namespace, name, uid, now)
                .await?;
            if !name.is_empty() && !uid.is_empty() {
                extra("pod-name", name);
                extra("pod-uid", uid);
            }
        }
        if let Some((name, uid)) = reference("node") {
            // With a pod, the node is what the pod ran on when the token was made: reported, not checked.
            if pod.is_none() {
                self.still_there(TokenObjectKind::Node, "", name, uid, now)
                    .await?;
            }
            if !name.is_empty() {
                extra("node-name", name);
                if !uid.is_empty() {
                    extra("node-uid", uid);
                }
            }
        }
        let id = meta::dig_str(claims, &["jti"]);
        if !id.is_empty() {
            extra("credential-id", &format!("JTI={id}"));
        }
        let warn_after = kubernetes.get("warnafter").and_then(Value::as_i64);
        let warn_after = warn_after.filter(|at| *at != 0);
        if warn_after.is_some_and(|at| now <= at) {
            TokenMetrics::count(&self.metrics.valid);
        }
        if let Some(late) = warn_after.filter(|at| now > *at).map(|at| now - at) {
            TokenMetrics::count(&self.metrics.stale);
            let subject = meta::dig_str(claims, &["sub"]);
            let text = format!("subject: {subject}, seconds after warning threshold: {late}");
            notes.annotate("stale-token", text);
        }
        Ok(user)
    }

    async fn still_there(
        &self,
        kind: TokenObjectKind,
        namespace: &str,
        name: &str,
        claimed: &str,
        now: i64,
    ) -> Result<(), String> {
        const GONE: &str = "service account token has been invalidated";
        let (title, what) = match kind {
            TokenObjectKind::Secret => ("secret UID", "service account secret ref claim"),
            TokenObjectKind::Pod => ("pod UID", "service account pod ref claim"),
            TokenObjectKind::Node => ("node UID", "service account node ref claim"),
            TokenObjectKind::ServiceAccount => ("service account UID", "claim"),
        };
        let found = self
            .objects
            .get(kind, namespace, name)
            .await
            .ok()
            .flatten()
            .ok_or(GONE)?;
        let uid = meta::uid(&found);
        if uid != claimed {
            return Err(format!("{title} ({uid}) does not match {what} ({claimed})"));
        }
        if deleted_before(&found, now) {
            Err(GONE.into())
        } else {
            Ok(())
        }
    }

    async fn legacy(&self, token: &str, claims: &Value, notes: &mut CredentialNotes) -> Result<User, String> {
        const GONE: &str = "Token has been invalidated";
        let claim = |name: &str| {
            let key = format!("kubernetes.io/serviceaccount/{name}");
            claims.get(&key).and_then(Value::as_str).unwrap_or_default()
        };
        let subject = meta::dig_str(claims, &["sub"]);
        let (namespace, secret) = (claim("namespace"), claim("secret.name"));
        let (account, uid) = (claim("service-account.name"), claim("service-account.uid"));
        for (value, name) in [
            (subject, "sub"),
            (namespace, "namespace"),
            (secret, "secretName"),
            (account, "serviceAccountName"),
            (uid, "serviceAccountUID"),
        ] {
            if value.is_empty() {
                return Err(format!("{name} claim is missing"));
            }
        }
        if split_service_account(subject) != Some((namespace, account)) {
            return Err("sub claim is invalid".into());
        }
        let held = self
            .objects
            .get(TokenObjectKind::Secret, namespace, secret)
            .await
            .ok()
            .flatten()
            .ok_or(GONE)?;
        if meta::deletion_timestamp(&held).is_some() {
            return Err(GONE.into());
        }
        if !same(&data(&held, "token").unwrap_or_default(), token.as_bytes()) {
            return Err("Token does not match server's copy".into());
        }
        let found = self
            .objects
            .get(TokenObjectKind::ServiceAccount, namespace, account)
            .await?;
        let found = found.ok_or_else(|| format!("serviceaccounts {} not found", quote(account)))?;
        if meta::deletion_timestamp(&found).is_some() {
            return Err(format!("ServiceAccount {namespace}/{account} has been deleted"));
        }
        if meta::uid(&found) != uid {
            let now = meta::uid(&found);
            return Err(format!("ServiceAccount UID ({now}) does not match claim ({uid})"));
        }
        self.track(namespace, secret, &held).await;
        let invalid = meta::labels(&held).and_then(|l| l.get("kubernetes.io/legacy-token-invalid-since"));
        if invalid
            .and_then(Value::as_str)
            .is_some_and(|since| !since.is_empty())
        {
            TokenMetrics::count(&self.metrics.invalid);
            notes.annotate("legacy-token-invalidated", format!("{secret}/{namespace}"));
            return Err(format!(
                "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"
            ));
        }
        let named = found.get("secrets").and_then(Value::as_array);
        let generated =
            named.is_some_and(|all| all.iter().any(|one| meta::dig_str(one, &["name"]) == secret));
        TokenMetrics::count(match generated {
            true => &self.metrics.generated,
            false => &self.metrics.manual,
        });
        match generated {
            true => {
                notes.annotate("legacy-token-autogenerated-secret", secret);
                notes.warnings.push(GENERATED.into());
            }
            false => notes.annotate("legacy-token-manual-secret", secret),
        }
        Ok(account_user(namespace, account, uid))
    }

    /// Has the day of a token's use written down, once a day.
    async fn track(&self, namespace: &str, secret: &str, held: &Value) {
        let now = Timestamp::now();
        let (today, tomorrow) = (day_of(now), day_of(now.plus(DAY)));
        let known = meta::labels(held).and_then(|labels| labels.get(LAST_USED)?.as_str());
        // Another server's clock may be ahead.
        if known != Some(&*today) && known != Some(&*tomorrow) {
            self.objects.used(namespace, secret, &today).await;
        }
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for ServiceAccounts {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        // The issuer decides which authenticator verifies the token; nothing else of the payload is used before the
        // signature is verified.
        let Some(payload) = unverified_claims(token) else {
            return TokenVerdict::NotMine;
        };
        let issuer = payload.get("iss").and_then(Value::as_str).unwrap_or_default();
        let own = self.issuers.iter().any(|known| known == issuer) || issuer == LEGACY_ISSUER;
        if !own {
            return TokenVerdict::NotMine;
        }
        let mut notes = CredentialNotes::default();
        let checked = self.check(token, payload, audiences, &mut notes).await;
        let notes = (!notes.is_empty()).then(|| Arc::new(notes));
        match checked {
            Ok((user, audiences)) => TokenVerdict::User(User { notes, ..user }, audiences),
            Err(why) => TokenVerdict::Failed(Refusal { why, notes }),
        }
    }
}

fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    User {
        name: user_name(namespace, name),
        uid: uid.into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        ..User::default()
    }
}

fn check_times(claims: &Value, now: i64) -> Result<(), &'static str> {
    let time = |key: &str| {
        let value = claims.get(key)?;
        // Dates may have fractions.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "seconds since the epoch, saturating"
        )]
        value.as_i64().or_else(|| value.as_f64().map(|f| f as i64))
    };
    if time("nbf").is_some_and(|at| now + LEEWAY < at) {
        return Err("service account token is not valid yet");
    }
    if time("exp").is_some_and(|at| now - LEEWAY > at) {
        return Err("service account token has expired");
    }
    if time("iat").is_some_and(|at| now + LEEWAY < at) {
        return Err("service account token is issued in the future");
    }
    Ok(())
}

/// Whether an object is being deleted, and was so already a minute ago: an object whose deletion has just begun may
/// still use its token.
fn deleted_before(object: &Value, now: i64) -> bool {
    meta::deletion_timestamp(object).is_some_and(|at| {
        OffsetDateTime::parse(at, &Rfc3339).map_or(true, |at| at.unix_timestamp() < now - LEEWAY)
    })
}

#[cfg(test)]
mod tests;
