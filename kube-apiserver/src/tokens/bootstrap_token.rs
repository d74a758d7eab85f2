//! Bootstrap tokens: `ID.SECRET`, kept in `kube-system/bootstrap-token-ID` secrets, for nodes that join.

use std::collections::BTreeSet;
use std::sync::Arc;

use generic_server::User;
use generic_server::authn::{TokenAuthenticator, TokenVerdict, server_audiences};
use machinery::meta;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::secret::{data, same};
use super::{TokenObjectKind, TokenObjects};

/// Authenticates users by bootstrap tokens.
#[derive(Debug)]
pub struct BootstrapToken {
    objects: Arc<dyn TokenObjects>,
    audiences: Vec<String>,
}

impl BootstrapToken {
    /// With the secrets from `objects`; the tokens are good for these audiences.
    pub fn new(objects: Arc<dyn TokenObjects>, audiences: Vec<String>) -> Self {
        BootstrapToken { objects, audiences }
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for BootstrapToken {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let Some((id, secret)) = parse(token) else {
            return TokenVerdict::NotMine;
        };
        let Some(audiences) = server_audiences(&self.audiences, audiences) else {
            return TokenVerdict::NotMine;
        };
        let name = format!("bootstrap-token-{id}");
        match self
            .objects
            .get(TokenObjectKind::Secret, "kube-system", &name)
            .await
        {
            Err(why) => TokenVerdict::Failed(why.into()),
            Ok(None) => TokenVerdict::NotMine,
            Ok(Some(object)) => match judge(&object, id, secret) {
                Ok(user) => TokenVerdict::User(user, audiences),
                Err(why) => {
                    tracing::debug!(secret.name = name, "the bootstrap secret of a token {why}");
                    TokenVerdict::NotMine
                }
            },
        }
    }
}

fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn judge(object: &Value, id: &str, secret: &str) -> Result<User, &'static str> {
    let text = |key: &str| {
        data(object, key)
            .and_then(|b| String::from_utf8(b).ok())
            .unwrap_or_default()
    };
    if meta::deletion_timestamp(object).is_some() {
        return Err("is deleted and awaiting removal");
    }
    if meta::dig_str(object, &["type"]) != "bootstrap.kubernetes.io/token" {
        return Err("has an invalid type");
    }
    if !same(text("token-secret").as_bytes(), secret.as_bytes()) {
        return Err("has an invalid value for key token-secret");
    }
    if text("token-id") != id {
        return Err("has an invalid value for key token-id");
    }
    let expiration = text("expiration");
    if !expiration.is_empty()
        && !OffsetDateTime::parse(&expiration, &Rfc3339).is_ok_and(|at| at > OffsetDateTime::now_utc())
    {
        return Err("has expired");
    }
    if text("usage-bootstrap-authentication") != "true" {
        return Err("is not marked usage-bootstrap-authentication=true");
    }
    let mut groups = BTreeSet::from(["system:bootstrappers".to_string()]);
    let extra = text("auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let name = group.strip_prefix("system:bootstrappers:").unwrap_or_default();
        let fine = (1..=256).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b':' || b == b'-')
            && !name.ends_with([':', '-']);
        if !fine {
            return Err("has an invalid value for key auth-extra-groups");
        }
        groups.insert(group.to_string());
    }
    Ok(User {
        name: format!("system:bootstrap:{id}"),
        groups: groups.into_iter().collect(),
        ..User::default()
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = serde_json::Map::new();
        let standard = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in standard.iter().chain(changes) {
            data.insert((*key).into(), BASE64_STANDARD.encode(value).into());
        }
        json!({"type": "bootstrap.kubernetes.io/token", "data": data})
    }

    #[test]
    fn secrets_are_judged() {
        let check = |changes: &[(&str, &str)], expected: Option<&str>| {
            let found = judge(&secret(changes), "abcdef", "0123456789abcdef");
            assert_eq!(
                found.ok().map(|user| user.groups.join(" ")).as_deref(),
                expected,
                "{changes:?}"
            );
        };
        check(&[], Some("system:bootstrappers"));
        check(
            &[("auth-extra-groups", "system:bootstrappers:a:b")],
            Some("system:bootstrappers system:bootstrappers:a:b"),
        );
        check(&[("auth-extra-groups", "system:masters")], None);
        check(&[("token-secret", "0123456789abcdeX")], None);
        check(&[("token-id", "abcdeg")], None);
        check(&[("expiration", "2001-01-01T00:00:00Z")], None);
        check(
            &[("expiration", "2901-01-01T00:00:00Z")],
            Some("system:bootstrappers"),
        );
        check(&[("expiration", "soon")], None);
        check(&[("usage-bootstrap-authentication", "no")], None);
    }

    #[test]
    fn forms() {
        assert!(parse("abcdef.0123456789abcdef").is_some());
        for bad in [
            "abcdef",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcde",
            "ABCDEF.0123456789abcdef",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
