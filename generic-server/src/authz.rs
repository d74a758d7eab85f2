//! Authorization: authorizers say allow, deny or no opinion about attributes.

use crate::request::{RequestInfo, User};

mod forbidden;
pub mod union;

pub use forbidden::forbidden;
pub(crate) use forbidden::sanitize;
pub use union::{AlwaysAllow, AlwaysDeny, Privileged, Union};

/// The attributes of a request. Borrowed: nothing is copied to decide.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// The user.
    pub user: &'a User,
    /// The verb.
    pub verb: &'a str,
    /// Whether it is about a resource; else `path` counts.
    pub is_resource: bool,
    /// The API group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name, or empty.
    pub name: &'a str,
    /// The path of a request that is not about a resource.
    pub path: &'a str,
    /// The field selector that a list, watch or deletecollection is narrowed by, as the client wrote it; empty for none.
    pub field_selector: &'a str,
    /// The label selector of the same.
    pub label_selector: &'a str,
}

impl<'a> Attributes<'a> {
    /// Of a request.
    pub fn of(user: &'a User, info: &'a RequestInfo) -> Self {
        Attributes {
            user,
            verb: &info.verb,
            is_resource: info.is_resource,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
            field_selector: &info.field_selector,
            label_selector: &info.label_selector,
        }
    }
}

/// An authorizer's answer; the text is the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow(String),
    /// No, and no other authorizer is asked.
    Deny(String),
    /// Another authorizer may decide.
    NoOpinion(String),
    /// The authorizer could not decide.
    Failed(Failure),
}

/// An authorizer that could not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub error: String,
    /// The reasons of the authorizers that could.
    pub reason: String,
    /// No other authorizer is asked, as a failure policy has it.
    pub denies: bool,
}

impl Decision {
    /// Whether the request is allowed.
    ///
    /// # Errors
    /// Why it is not.
    pub fn permits(self) -> Result<(), String> {
        match self {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(reason),
            Decision::Failed(failure) => Err(failure.error),
        }
    }
}

/// A rule that holds for a user, for SelfSubjectRulesReview.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedRules {
    /// Resource rules as `authorization.k8s.io/v1` has them.
    pub resource_rules: Vec<serde_json::Value>,
    /// Non-resource rules.
    pub non_resource_rules: Vec<serde_json::Value>,
    /// Whether more rules may hold.
    pub incomplete: bool,
    /// Why they are incomplete.
    pub evaluation_error: String,
}

/// Decides. Reads only snapshots in memory, except for webhooks.
#[async_trait::async_trait]
pub trait Authorizer: Send + Sync + std::fmt::Debug {
    /// Decides about one request.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// A request is served that a decision has allowed, for this reason. Reviews are decided about, too, and nothing is served then.
    fn used(&self, _attributes: &Attributes<'_>, _reason: &str) {}

    /// The rules that hold for a user in a namespace.
    async fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules;
}
