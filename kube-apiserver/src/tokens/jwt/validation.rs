//! What an `AuthenticationConfiguration` may say, in upstream's words, and its expressions compiled.
//!
//! Mirrors upstream's `apis/apiserver/validation`.

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::client::trust::{TrustedPeers, settings};
use machinery::names::domain_prefixed_path;
use machinery::{FieldError, FieldPath, go, limits};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, ExtraMapping, Issuer, JwtConfig,
    PrefixedClaim, UserValidationRule,
};
use super::expressions::{Expression, ExtraExpression, Mapper, Rule, Subject};
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
            "" => {}
            // Upstream refuses it at the start, too, where no egress selector is configured.
            "controlplane" | "cluster" => {
                let detail = "egress selectors do not exist in this server: remove the field";
                self.invalid(&at, selector, detail);
            }
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

    fn claim_rules(&mut self, rules: &[ClaimValidationRule], path: &FieldPath<'_>) -> Vec<Rule> {
        let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
        let mut compiled = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let path = path.index(index);
            match (rule.claim.is_empty(), rule.expression.is_empty()) {
                (false, false) => {
                    self.invalid(&path, &rule.claim, "claim and expression can't both be set");
                }
                (true, true) => self.required(&path, "claim or expression is required"),
                (false, true) => {
                    if !rule.message.is_empty() {
                        let detail = "may not be specified when claim is set";
                        self.invalid(&path.child("message"), &rule.message, detail);
                    }
                    if !claims.insert(&rule.claim) {
                        self.duplicate(&path.child("claim"), &rule.claim);
                    }
                }
                (true, false) => {
                    if !rule.required_value.is_empty() {
                        let detail = "may not be specified when expression is set";
                        self.invalid(&path.child("requiredValue"), &rule.required_value, detail);
                    }
                    let at = path.child("expression");
                    if !expressions.insert(&rule.expression) {
                        self.duplicate(&at, &rule.expression);
                        continue;
                    }
                    let rule = self
                        .compile(Subject::Claims, true, &rule.expression, &at)
                        .map(|expression| Rule {
                            expression,
                            message: rule.message.clone(),
                        });
                    compiled.extend(rule);
                }
            }
        }
        compiled
    }

    fn user_rules(&mut self, rules: &[UserValidationRule], path: &FieldPath<'_>) -> Vec<Rule> {
        let mut expressions = HashSet::new();
        let mut compiled = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let path = path.index(index);
            let at = path.child("expression");
            if rule.expression.is_empty() {
                self.required(&at, "");
            } else if !expressions.insert(&rule.expression) {
                self.duplicate(&at, &rule.expression);
            } else if let Some(expression) = self.compile(Subject::User, true, &rule.expression, &at) {
                compiled.push(Rule {
                    expression,
                    message: rule.message.clone(),
                });
            }
        }
        compiled
    }

    fn mappings(&mut self, mapper: &mut Mapper, mappings: &ClaimMappings, path: &FieldPath<'_>) {
        mapper.username = self.prefixed(&mappings.username, &path.child("username"), true);
        mapper.groups = self.prefixed(&mappings.groups, &path.child("groups"), false);
        let at = path.child("uid");
        match (mappings.uid_claim.is_empty(), &*mappings.uid_expression) {
            (_, "") => {}
            (false, _) => self.invalid(&at, "", "claim and expression can't both be set"),
            (true, source) => {
                mapper.uid = self.compile(Subject::Claims, false, source, &at.child("expression"));
            }
        }
        mapper.extra = self.extra(&mappings.extra, &path.child("extra"));
        let uses =
            |expression: &Expression, claim: &str| expression.program().selects(Subject::CLAIMS, claim);
        let email = mapper.username.iter().any(|one| uses(one, "email"));
        let rules = mapper.claim_rules.iter().map(|rule| &rule.expression);
        let extra = mapper.extra.iter().map(|extra| &extra.expression);
        let mut all = mapper.username.iter().chain(rules).chain(extra);
        if email && !all.any(|one| uses(one, "email_verified")) {
            let at = path.child("username");
            self.invalid(
                &at.child("expression"),
                &mappings.username.expression,
                "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or \
                 claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
            );
        }
    }

    fn extra(&mut self, extra: &[ExtraMapping], path: &FieldPath<'_>) -> Vec<ExtraExpression> {
        let mut seen = HashSet::new();
        let mut compiled = Vec::new();
        for (index, mapping) in extra.iter().enumerate() {
            let path = path.index(index);
            let (at, key) = (path.child("key"), &*mapping.key);
            self.errors.extend(domain_prefixed_path(&at, key));
            if key != key.to_lowercase() {
                self.invalid(&at, key, "must be lowercase");
            }
            if is_reserved(key) {
                let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                self.invalid(&at, key, detail);
            }
            if !seen.insert(key) {
                self.duplicate(&at, key);
                continue;
            }
            let at = path.child("valueExpression");
            if mapping.expression.is_empty() {
                self.required(&at, "");
                continue;
            }
            let expression = self.compile(Subject::Claims, false, &mapping.expression, &at);
            compiled.extend(expression.map(|expression| ExtraExpression {
                key: key.to_owned(),
                expression,
            }));
        }
        compiled
    }

    fn prefixed(
        &mut self,
        mapping: &PrefixedClaim,
        path: &FieldPath<'_>,
        required: bool,
    ) -> Option<Expression> {
        match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
            (false, false) => self.invalid(path, "", "claim and expression can't both be set"),
            (true, true) if required => self.required(path, "claim or expression is required"),
            (true, true) => {}
            (true, false) => {
                if let Some(prefix) = &mapping.prefix {
                    let detail = "may not be specified when expression is set";
                    self.invalid(&path.child("prefix"), prefix, detail);
                }
                let at = path.child("expression");
                return self.compile(Subject::Claims, false, &mapping.expression, &at);
            }
            (false, true) if mapping.prefix.is_none() => self.required(
                &path.child("prefix"),
                "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
            ),
            (false, true) => {}
        }
        None
    }

    /// `None` beside an error. `condition`: it has to give a bool.
    fn compile(
        &mut self,
        subject: Subject,
        condition: bool,
        source: &str,
        path: &FieldPath<'_>,
    ) -> Option<Expression> {
        match Expression::compile(subject, condition, source) {
            Ok(expression) => Some(expression),
            Err(why) => {
                self.invalid(path, source, why);
                None
            }
        }
    }
}

/// Whether the domain of a key is one that Kubernetes keeps for itself.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].into_iter().any(|reserved| {
        domain
            .strip_suffix(reserved)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests;
