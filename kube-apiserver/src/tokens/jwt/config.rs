//! The file of `--authentication-config`: `AuthenticationConfiguration`. What its values may be is checked in [`super::validation`].

mod reader;

/// How users are authenticated by tokens of other issuers, and whether requests without credentials are let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AuthenticationConfiguration {
    pub(crate) jwt: Vec<JwtConfig>,
    pub(crate) anonymous: Option<AnonymousConfig>,
}

/// Anonymous requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnonymousConfig {
    pub(crate) enabled: bool,
    /// The paths of its conditions; empty for all paths.
    pub(crate) paths: Vec<String>,
}

/// One authenticator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JwtConfig {
    pub(crate) issuer: Issuer,
    pub(crate) claim_validation_rules: Vec<ClaimValidationRule>,
    pub(crate) claim_mappings: ClaimMappings,
    pub(crate) user_validation_rules: Vec<UserValidationRule>,
}

/// Who issues the tokens, and whom they are meant for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) discovery_url: String,
    pub(crate) certificate_authority: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) audience_match_policy: String,
    pub(crate) egress_selector_type: String,
}

/// A claim that has to have a value, or an expression that has to be true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClaimValidationRule {
    pub(crate) claim: String,
    pub(crate) required_value: String,
    pub(crate) expression: String,
    pub(crate) message: String,
}

/// How the claims make a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClaimMappings {
    pub(crate) username: PrefixedClaim,
    pub(crate) groups: PrefixedClaim,
    pub(crate) uid_claim: String,
    pub(crate) uid_expression: String,
    pub(crate) extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PrefixedClaim {
    pub(crate) claim: String,
    pub(crate) prefix: Option<String>,
    pub(crate) expression: String,
}

/// An extra attribute of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExtraMapping {
    pub(crate) key: String,
    pub(crate) expression: String,
}

/// An expression that has to be true of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserValidationRule {
    pub(crate) expression: String,
    pub(crate) message: String,
}
