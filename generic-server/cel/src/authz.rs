//! The `authorizer` of admission expressions: its checks, and the host that answers them.

use std::fmt;

use crate::{error::EvalError, types::Type};

/// Answers authorization checks. Evaluation is synchronous: a host whose authorizer is not fails a check that it has no answer to,
/// asks, and has the expression evaluated again.
pub trait Authorizer: fmt::Debug + Sync {
    /// Decides one check.
    fn check(&self, check: &AuthzCheck) -> Result<Decision, EvalError>;
}

/// An authorization check that an expression makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AuthzCheck {
    pub verb: String,
    /// Namespace and name of the service account asked about, instead of the request's user.
    pub service_account: Option<(String, String)>,
    pub target: AuthzTarget,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuthzTarget {
    /// A non-resource path.
    Path(String),
    Resource(AuthzResource),
}

impl Default for AuthzTarget {
    fn default() -> AuthzTarget {
        AuthzTarget::Resource(AuthzResource::default())
    }
}

/// A resource asked about; empty strings where nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AuthzResource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// The answer to a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// The authorizer and the steps towards a check.
#[derive(Debug, Clone)]
pub struct AuthzVal<'a> {
    pub(crate) host: &'a dyn Authorizer,
    pub(crate) service_account: Option<(String, String)>,
    pub(crate) step: Step,
}

/// How far a check has been put together.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Authorizer,
    Path(String),
    Group(String),
    Resource(AuthzResource),
    Decision(Decision),
}

impl<'a> AuthzVal<'a> {
    pub(crate) fn new(host: &'a dyn Authorizer, step: Step) -> Self {
        AuthzVal {
            host,
            service_account: None,
            step,
        }
    }

    pub(crate) fn type_of(&self) -> Type {
        match self.step {
            Step::Authorizer => Type::AUTHORIZER,
            Step::Path(_) => Type::PATH_CHECK,
            Step::Group(_) => Type::GROUP_CHECK,
            Step::Resource(_) => Type::RESOURCE_CHECK,
            Step::Decision(_) => Type::DECISION,
        }
    }
}
