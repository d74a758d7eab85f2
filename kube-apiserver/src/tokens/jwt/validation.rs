//! What an `AuthenticationConfiguration` may say, in upstream's words, and its expressions compiled.
//!
//! Mirrors upstream's `apis/apiserver/validation`.

mod mappings;

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::client::trust::{TrustedPeers, settings};
use machinery::{FieldError, FieldPath, go, limits};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use super::config::{AuthenticationConfiguration, Issuer, JwtConfig};
use super::expressions::Mapper;
use super::url;

const MATCH_ANY: &str = "MatchAny";

/// Checks a configuration whole. Gives the compiled expressions of each authenticator.
///
/// # Errors
/// All faults, as upstream prints them.
pub(super) fn validate(
    config: &AuthenticationConfiguration,
    disallowed_issuers: &[String],
) -> Result<Vec<Mapper>, String> {
    let mut check = Check {
        errors: Vec::new(),
        disallowed_issuers,
    };
    let mappers = check.configuration(config);
    if check.errors.is_empty() {
        return Ok(mappers);
    }
    let texts: Vec<String> = check.errors.iter().map(ToString::to_string).collect();
    Err(go::aggregate(&texts).into_owned())
}

/// Collects what is wrong.
struct Check<'c> {
    errors: Vec<FieldError>,
    disallowed_issuers: &'c [String],
}

impl Check<'_> {
    fn invalid(&mut self, path: &FieldPath<'_>, value: &str, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid_str(path, value, detail));
    }

    fn required(&mut self, path: &FieldPath<'_>, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn duplicate(&mut self, path: &FieldPath<'_>, value: &str) {
        self.errors.push(FieldError::duplicate(path, &value.into()));
    }

    fn configuration(&mut self, config: &AuthenticationConfiguration) -> Vec<Mapper> {
        let root = FieldPath::new("jwt");
        if config.jwt.len() > limits::JWT_AUTHENTICATORS {
            let many = FieldError::too_many(&root, config.jwt.len(), limits::JWT_AUTHENTICATORS);
            self.errors.push(many);
            return Vec::new();
        }
        let (mut issuers, mut discovery_urls) = (HashSet::new(), HashSet::new());
        let mut mappers = Vec::new();
        for (index, jwt) in config.jwt.iter().enumerate() {
            let path = root.index(index);
            mappers.push(self.authenticator(jwt, &path));
            let issuer = path.child("issuer");
            if !issuers.insert(&jwt.issuer.url) {
                self.duplicate(&issuer.child("url"), &jwt.issuer.url);
            }
            let discovery_url = &jwt.issuer.discovery_url;
            if !discovery_url.is_empty() && !discovery_urls.insert(discovery_url) {
                self.duplicate(&issuer.child("discoveryURL"), discovery_url);
            }
        }
        if let Some(anonymous) = &config.anonymous
            && !anonymous.enabled
            && !anonymous.paths.is_empty()
        {
            let conditions: Vec<_> = anonymous.paths.iter().map(|path| json!({"path": path})).collect();
            let path = FieldPath::new("anonymous");
            self.errors.push(FieldError::invalid(
                &path.child("conditions"),
                &conditions.into(),
                "enabled should be set to true when conditions are defined",
            ));
        }
        mappers
    }

    fn authenticator(&mut self, jwt: &JwtConfig, path: &FieldPath<'_>) -> Mapper {
        self.issuer(&jwt.issuer, &path.child("issuer"));
        let rules = path.child("claimValidationRules");
        let mut mapper = Mapper {
            claim_rules: self.claim_rules(&jwt.claim_validation_rules, &rules),
            ..Mapper::default()
        };
        self.mappings(&mut mapper, &jwt.claim_mappings, &path.child("claimMappings"));
        let rules = path.child("userValidationRules");
        mapper.user_rules = self.user_rules(&jwt.user_validation_rules, &rules);
        mapper
    }

    fn issuer(&mut self, issuer: &Issuer, path: &FieldPath<'_>) {
        let at = path.child("url");
        if issuer.url.is_empty() {
            self.required(&at, "");
        } else {
            if self.disallowed_issuers.contains(&issuer.url) {
                let mut disallowed = self.disallowed_issuers.to_vec();
                disallowed.sort_unstable();
                let detail = format!(
                    "URL must not overlap with disallowed issuers: [{}]",
                    disallowed.join(" ")
                );
                self.invalid(&at, &issuer.url, detail);
            }
            self.url(&issuer.url, &at);
        }
        let at = path.child("discoveryURL");
        if !issuer.discovery_url.is_empty() {
            let plain = |url: &str| url.trim_end_matches('/').to_owned();
            if !issuer.url.is_empty() && plain(&issuer.url) == plain(&issuer.discovery_url) {
                let detail = "discoveryURL must be different from URL";
                self.invalid(&at, &issuer.discovery_url, detail);
            }
            self.url(&issuer.discovery_url, &at);
        }
        self.audiences(issuer, path);
        self.certificate_authority(&issuer.certificate_authority, &path.child("certificateAuthority"));
        let (selector, at) = (&*issuer.egress_selector_type, path.child("egressSelectorType"));
        match selector {
            "" | "controlplane" | "cluster" => {}
            _ => self.invalid(
                &at,
                selector,
                "egress selector must be either controlplane or cluster",
            ),
        }
    }

    fn url(&mut self, text: &str, path: &FieldPath<'_>) {
        let parts = match url::Parts::parse(text) {
            Ok(parts) => parts,
            Err(why) => return self.invalid(path, text, why),
        };
        if parts.scheme != "https" {
            self.invalid(path, text, "URL scheme must be https");
        }
        if parts.user {
            self.invalid(path, text, "URL must not contain a username or password");
        }
        if parts.query {
            self.invalid(path, text, "URL must not contain a query");
        }
        if parts.fragment {
            self.invalid(path, text, "URL must not contain a fragment");
        }
    }

    fn audiences(&mut self, issuer: &Issuer, path: &FieldPath<'_>) {
        let at = path.child("audiences");
        if issuer.audiences.is_empty() {
            return self.required(&at, format!("at least one {at} is required"));
        }
        let mut seen = HashSet::new();
        for (index, audience) in issuer.audiences.iter().enumerate() {
            let at = at.index(index);
            if audience.is_empty() {
                self.required(&at, "");
            }
            if !seen.insert(audience) {
                self.duplicate(&at, audience);
            }
        }
        let (policy, at) = (&*issuer.audience_match_policy, path.child("audienceMatchPolicy"));
        match issuer.audiences.len() {
            1 if policy.is_empty() || policy == MATCH_ANY => {}
            1 => self.invalid(
                &at,
                policy,
                "audienceMatchPolicy must be empty or MatchAny for single audience",
            ),
            _ if policy == MATCH_ANY => {}
            _ => self.invalid(
                &at,
                policy,
                "audienceMatchPolicy must be MatchAny for multiple audiences",
            ),
        }
    }

    fn certificate_authority(&mut self, pem: &str, path: &FieldPath<'_>) {
        if pem.is_empty() {
            return;
        }
        let any = CertificateDer::pem_slice_iter(pem.as_bytes()).any(|one| one.is_ok());
        let why = match any {
            false => Some("data does not contain any valid RSA or ECDSA certificates".to_owned()),
            true => settings(TrustedPeers::Bundle(&BASE64_STANDARD.encode(pem))).err(),
        };
        if let Some(why) = why {
            self.invalid(path, "<omitted>", why);
        }
    }
}

#[cfg(test)]
mod tests;
