//! The `--oidc-*` flags, which say the same as a configuration with one authenticator.

use std::path::PathBuf;

use machinery::go::quote;

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, Issuer, JwtConfig, PrefixedClaim,
};
use super::keys::ALGORITHMS;

/// An OpenID Connect issuer and how its tokens make users.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    /// The issuer.
    pub issuer_url: String,
    /// The audience of its tokens.
    pub client_id: String,
    /// The authorities of its certificate; those of the host when unset.
    pub ca_file: Option<PathBuf>,
    /// The claim with the user name.
    pub username_claim: String,
    /// The prefix of user names: the issuer's for claims other than `email` when empty, none for `-`.
    pub username_prefix: String,
    /// The claim with the groups.
    pub groups_claim: String,
    /// The prefix of groups.
    pub groups_prefix: String,
    /// Claims and the values that they must have.
    pub required_claims: Vec<(String, String)>,
    /// The names of the signature algorithms.
    pub signing_algs: Vec<String>,
}

impl OidcOptions {
    /// The configuration with this one authenticator. Reads the file with the authorities.
    ///
    /// # Errors
    /// The file cannot be read, or an algorithm is unknown.
    pub(super) fn configuration(&self) -> Result<AuthenticationConfiguration, String> {
        if let Some(unknown) = self
            .signing_algs
            .iter()
            .find(|name| !ALGORITHMS.contains(&name.as_str()))
        {
            return Err(format!("oidc: unsupported signing alg: {}", quote(unknown)));
        }
        let certificate_authority = match &self.ca_file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| format!("--oidc-ca-file: cannot read {}: {error}", file.display()))?,
        };
        let prefix = match (&*self.username_prefix, &*self.username_claim) {
            ("", "email") | ("-", _) => String::new(),
            ("", _) => format!("{}#", self.issuer_url),
            (prefix, _) => prefix.to_owned(),
        };
        let prefixed = |claim: &str, prefix: String| PrefixedClaim {
            claim: claim.to_owned(),
            prefix: Some(prefix),
            expression: String::new(),
        };
        let groups = match &*self.groups_claim {
            "" => PrefixedClaim::default(),
            claim => prefixed(claim, self.groups_prefix.clone()),
        };
        // Of several values of one claim the last counts.
        let mut required: Vec<ClaimValidationRule> = Vec::new();
        for (claim, value) in &self.required_claims {
            required.retain(|rule| rule.claim != *claim);
            required.push(ClaimValidationRule {
                claim: claim.clone(),
                required_value: value.clone(),
                ..ClaimValidationRule::default()
            });
        }
        let jwt = JwtConfig {
            issuer: Issuer {
                url: self.issuer_url.clone(),
                audiences: vec![self.client_id.clone()],
                certificate_authority,
                ..Issuer::default()
            },
            claim_validation_rules: required,
            claim_mappings: ClaimMappings {
                username: prefixed(&self.username_claim, prefix),
                groups,
                ..ClaimMappings::default()
            },
            user_validation_rules: Vec::new(),
        };
        Ok(AuthenticationConfiguration {
            jwt: vec![jwt],
            anonymous: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> OidcOptions {
        OidcOptions {
            issuer_url: "https://i".into(),
            client_id: "c".into(),
            ca_file: None,
            username_claim: "sub".into(),
            username_prefix: String::new(),
            groups_claim: String::new(),
            groups_prefix: String::new(),
            required_claims: Vec::new(),
            signing_algs: vec!["RS256".into()],
        }
    }

    #[test]
    fn user_names_have_the_issuers_prefix() {
        #[track_caller]
        fn check(claim: &str, prefix: &str, expected: &str) {
            let options = OidcOptions {
                username_claim: claim.into(),
                username_prefix: prefix.into(),
                ..options()
            };
            let config = options.configuration().expect("it is sound");
            let username = &config.jwt[0].claim_mappings.username;
            assert_eq!(username.prefix.as_deref(), Some(expected), "{claim} {prefix}");
        }
        check("sub", "", "https://i#");
        check("email", "", "");
        check("sub", "-", "");
        check("email", "-", "");
        check("sub", "oidc:", "oidc:");
        check("email", "oidc:", "oidc:");
    }

    #[test]
    fn flags_become_a_configuration() {
        let mut options = options();
        options.groups_claim = "roles".into();
        options.groups_prefix = "g:".into();
        let pair = |claim: &str, value: &str| (claim.to_owned(), value.to_owned());
        options.required_claims = vec![pair("a", "1"), pair("b", "2"), pair("a", "3")];
        let config = options.configuration().expect("it is sound");
        let jwt = &config.jwt[0];
        assert_eq!(jwt.issuer.audiences, ["c"]);
        assert_eq!(jwt.claim_mappings.groups.prefix.as_deref(), Some("g:"));
        let rules: Vec<(&str, &str)> = jwt
            .claim_validation_rules
            .iter()
            .map(|rule| (&*rule.claim, &*rule.required_value))
            .collect();
        assert_eq!(rules, [("b", "2"), ("a", "3")]);
        options.signing_algs = vec!["RS256".into(), "HS256".into()];
        assert_eq!(
            options.configuration(),
            Err("oidc: unsupported signing alg: \"HS256\"".into())
        );
    }
}
