//! The flags about how long tokens of service accounts hold, and about bootstrap tokens.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{AUTHENTICATION, duration};

/// Tokens that this server issues or keeps.
#[derive(Debug, Clone, Args)]
pub struct OwnTokenFlags {
    /// Accepts bootstrap tokens: secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUTHENTICATION, value_name = "BOOL", hide_possible_values = true)]
    pub enable_bootstrap_token_auth: bool,
    /// The longest that a service-account token may be asked for, 1h at least; 0s is no bound.
    #[arg(long, default_value = "0s", value_parser = duration, help_heading = AUTHENTICATION, value_name = "DURATION")]
    pub service_account_max_token_expiration: Duration,
    /// Tokens that pods are given by default hold for a year, for clients that do not read them again.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUTHENTICATION, value_name = "BOOL", hide_possible_values = true)]
    pub service_account_extend_token_expiration: bool,
    /// The URL that /.well-known/openid-configuration gives for the keys; by default that of the issuer.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
}
