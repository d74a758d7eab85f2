//! The parsers of policies, of the configuration and of match conditions as functions of bytes alone, for fuzz targets.

use std::path::Path;

use generic_server::authz::Attributes;
use machinery::FieldPath;
use serde_json::Value;

use super::abac::PolicyList;
use super::conditions::Conditions;
use super::config;

/// Whether the policies of an ABAC file allow a request.
///
/// # Errors
/// A line is no policy.
pub fn abac_allows(text: &str, attributes: &Attributes<'_>) -> Result<bool, String> {
    let policies = PolicyList::parse(text, Path::new("policies"))?;
    Ok(policies.allows(attributes))
}

/// How many authorizers an `AuthorizationConfiguration` has. Files that it names have to be there and are not read.
///
/// # Errors
/// It has faults.
pub fn authorizers_of(data: &[u8]) -> Result<usize, String> {
    config::parse(data).map(|authorizers| authorizers.len())
}

/// Whether the match conditions of a webhook hold for the `spec` of a SubjectAccessReview.
///
/// # Errors
/// They do not compile, or cannot be evaluated.
pub fn conditions_match(sources: &[String], spec: Value) -> Result<bool, String> {
    let path = FieldPath::new("matchConditions");
    let conditions = Conditions::compile(sources, &path).map_err(|faults| {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        machinery::go::aggregate(&texts).into_owned()
    })?;
    conditions.match_request(spec)
}
