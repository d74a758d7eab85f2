//! The flags about tokens of other issuers and about requests without credentials. Each is `None` or empty when it is not given, since
//! some of them exclude each other.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use generic_server::delegated::ReviewVersion;

use super::AUTHENTICATION;

/// The form of TokenReviews that a webhook takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenReviewVersion {
    /// `authentication.k8s.io/v1`.
    #[value(name = "v1")]
    V1,
    /// `authentication.k8s.io/v1beta1`.
    #[value(name = "v1beta1")]
    V1beta1,
}

impl From<TokenReviewVersion> for ReviewVersion {
    fn from(version: TokenReviewVersion) -> Self {
        match version {
            TokenReviewVersion::V1 => ReviewVersion::V1,
            TokenReviewVersion::V1beta1 => ReviewVersion::V1beta1,
        }
    }
}

/// Tokens of other issuers, and requests without credentials.
#[derive(Debug, Clone, Default, Args)]
pub struct AuthenticationFlags {
    /// An AuthenticationConfiguration (apiserver.config.k8s.io/v1): JWT authenticators and anonymous requests.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Requests without credentials are system:anonymous rather than refused; true by default.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUTHENTICATION, value_name = "BOOL", hide_possible_values = true)]
    pub anonymous_auth: Option<bool>,
    /// The issuer of OpenID Connect tokens: an https URL.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// The client that the tokens are for: their audience.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "STRING")]
    pub oidc_client_id: Option<String>,
    /// CAs of the issuer's certificate; by default those of the host.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// The claim with the user name; sub by default.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "STRING")]
    pub oidc_username_claim: Option<String>,
    /// The prefix of user names; by default the issuer's URL and #, but for email. - is none.
    #[arg(long, allow_hyphen_values = true, help_heading = AUTHENTICATION, value_name = "STRING")]
    pub oidc_username_prefix: Option<String>,
    /// The claim with the groups: a string or a list of strings.
    #[arg(long, help_heading = AUTHENTICATION, value_name = "STRING")]
    pub oidc_groups_claim: Option<String>,
    /// The prefix of groups.
    #[arg(long, allow_hyphen_values = true, help_heading = AUTHENTICATION, value_name = "STRING")]
    pub oidc_groups_prefix: Option<String>,
    /// A claim that has to have a value, claim=value. Repeated for several.
    #[arg(long, value_parser = pair, help_heading = AUTHENTICATION, value_name = "PAIR")]
    pub oidc_required_claim: Vec<(String, String)>,
    /// Signature algorithms that are allowed; RS256 by default.
    #[arg(long, value_delimiter = ',', help_heading = AUTHENTICATION, value_name = "LIST")]
    pub oidc_signing_algs: Vec<String>,
}

impl AuthenticationFlags {
    /// Whether any of the `--oidc-*` flags is given.
    pub(crate) fn has_oidc(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.into_iter().any(Option::is_some)
            || self.oidc_ca_file.is_some()
            || !self.oidc_required_claim.is_empty()
            || !self.oidc_signing_algs.is_empty()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("malformed pair, expect string=string")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
