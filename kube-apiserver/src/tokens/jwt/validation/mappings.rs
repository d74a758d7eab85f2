//! The parts of an authenticator that have expressions: rules about claims and users, and how claims make a user.

use std::collections::HashSet;

use machinery::FieldPath;
use machinery::names::domain_prefixed_path;

use super::super::config::{
    ClaimMappings, ClaimValidationRule, ExtraMapping, PrefixedClaim, UserValidationRule,
};
use super::super::expressions::{Expression, ExtraExpression, Mapper, Rule, Subject};
use super::Check;

impl Check<'_> {
    pub(super) fn claim_rules(&mut self, rules: &[ClaimValidationRule], path: &FieldPath<'_>) -> Vec<Rule> {
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

    pub(super) fn user_rules(&mut self, rules: &[UserValidationRule], path: &FieldPath<'_>) -> Vec<Rule> {
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

    pub(super) fn mappings(&mut self, mapper: &mut Mapper, mappings: &ClaimMappings, path: &FieldPath<'_>) {
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
