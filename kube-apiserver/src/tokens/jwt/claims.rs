//! The claims of a verified token, and the user that they make.
//!
//! Mirrors upstream's `plugin/pkg/authenticator/token/oidc`, with its texts for the log.

use generic_server::User;
use machinery::go::quote;
use serde_json::{Map, Value};

use super::config::JwtConfig;
use super::expressions::{Mapper, check_rules, user_value};
use super::json::{mismatch, text, text_or_texts};

fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<&'c Value, String> {
    claims.get(name).ok_or_else(|| "claim not present".to_owned())
}

/// Claims become users by this configuration and its expressions.
#[derive(Debug)]
pub(super) struct Mapping {
    config: JwtConfig,
    mapper: Mapper,
}

impl Mapping {
    pub(super) fn new(config: JwtConfig, mapper: Mapper) -> Self {
        Mapping { config, mapper }
    }

    pub(super) fn config(&self) -> &JwtConfig {
        &self.config
    }

    /// The user of verified claims.
    ///
    /// # Errors
    /// Why they make none, for the log.
    pub(super) fn user(&self, claims: Map<String, Value>) -> Result<User, String> {
        // Expressions take the claims as one value.
        let whole = Value::Object(claims);
        let Value::Object(claims) = &whole else {
            return Err("oidc: parse claims: they are no object".into());
        };
        let user = User {
            name: self.username(claims, &whole)?,
            groups: self.groups(claims, &whole)?,
            uid: self.uid(claims, &whole)?,
            extra: self.extra(claims, &whole)?.into_iter().collect(),
            notes: None,
        };
        self.required(claims)?;
        check_rules(&self.mapper.claim_rules, &whole)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        if !self.mapper.user_rules.is_empty() {
            check_rules(&self.mapper.user_rules, &user_value(&user))
                .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
        }
        Ok(user)
    }

    fn username(&self, claims: &Map<String, Value>, whole: &Value) -> Result<String, String> {
        if let Some(expression) = &self.mapper.username {
            let name = expression.text(whole);
            let name = name
                .and_then(|name| name.ok_or_else(|| "username claim expression must return a string".into()));
            return match name {
                Ok(name) if name.is_empty() => {
                    Err("oidc: empty username via CEL expression is not allowed".into())
                }
                Ok(name) => Ok(name),
                Err(why) => Err(format!("oidc: error evaluating username claim expression: {why}")),
            };
        }
        let mapping = &self.config.claim_mappings.username;
        let name = claim(claims, &mapping.claim).and_then(text);
        let name =
            name.map_err(|why| format!("oidc: parse username claims {}: {why}", quote(&mapping.claim)))?;
        if mapping.claim == "email"
            && let Some(verified) = claims.get("email_verified")
        {
            match verified {
                Value::Bool(true) => {}
                Value::Bool(false) | Value::Null => return Err("oidc: email not verified".into()),
                other => {
                    let why = mismatch(other, "bool");
                    return Err(format!("oidc: parse 'email_verified' claim: {why}"));
                }
            }
        }
        Ok(format!("{}{name}", mapping.prefix.as_deref().unwrap_or_default()))
    }

    fn groups(&self, claims: &Map<String, Value>, whole: &Value) -> Result<Vec<String>, String> {
        let mapping = &self.config.claim_mappings.groups;
        if !mapping.claim.is_empty()
            && let Some(value) = claims.get(&mapping.claim)
        {
            let groups = text_or_texts(value)
                .map_err(|why| format!("oidc: parse groups claim {}: {why}", quote(&mapping.claim)))?;
            let prefix = mapping.prefix.as_deref().unwrap_or_default();
            return Ok(groups.iter().map(|group| format!("{prefix}{group}")).collect());
        }
        match &self.mapper.groups {
            None => Ok(Vec::new()),
            Some(expression) => expression
                .texts(whole)
                .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
        }
    }

    fn uid(&self, claims: &Map<String, Value>, whole: &Value) -> Result<String, String> {
        let name = &self.config.claim_mappings.uid_claim;
        if !name.is_empty() {
            let uid = claim(claims, name).and_then(text);
            return uid.map_err(|why| format!("oidc: parse uid claim {}: {why}", quote(name)));
        }
        let Some(expression) = &self.mapper.uid else {
            return Ok(String::new());
        };
        let uid = expression.text(whole);
        uid.and_then(|uid| uid.ok_or_else(|| "uid claim expression must return a string".into()))
            .map_err(|why| format!("oidc: error evaluating uid claim expression: {why}"))
    }

    fn extra(
        &self,
        claims: &Map<String, Value>,
        whole: &Value,
    ) -> Result<Vec<(String, Vec<String>)>, String> {
        let mut extra = Vec::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str)
            && !id.is_empty()
        {
            let key = "authentication.kubernetes.io/credential-id";
            extra.push((key.to_owned(), vec![format!("JTI={id}")]));
        }
        for one in &self.mapper.extra {
            let values = one
                .expression
                .texts(whole)
                .map_err(|why| format!("oidc: error evaluating extra claim expression: {why}"))?;
            if !values.is_empty() {
                extra.push((one.key.clone(), values));
            }
        }
        Ok(extra)
    }

    /// The claims that rules require to have a certain value.
    fn required(&self, claims: &Map<String, Value>) -> Result<(), String> {
        for rule in &self.config.claim_validation_rules {
            let (name, wanted) = (&rule.claim, &rule.required_value);
            if name.is_empty() {
                continue;
            }
            let Some(value) = claims.get(name) else {
                return Err(format!("oidc: required claim {name} not present in ID token"));
            };
            let found = text(value).map_err(|why| format!("oidc: parse claim {name}: {why}"))?;
            if found != *wanted {
                return Err(format!(
                    "oidc: required claim {name} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
