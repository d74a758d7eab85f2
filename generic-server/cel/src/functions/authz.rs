//! The `authorizer` of admission expressions. The host answers; this module only collects what is asked.

use std::{fmt, sync::Arc};

use super::{Function, Ret, no_overload};
use crate::{error::EvalError, types::Type, value::Val};

/// Answers authorization checks. Evaluation is synchronous: hosts whose authorizer is not must answer from what they asked
/// before, or block.
pub trait Authorizer: fmt::Debug + Sync {
    /// Decides one check.
    fn check(&self, check: &AuthzCheck) -> Decision;
}

/// What an expression wants to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthzCheck {
    pub verb: String,
    /// Namespace and name of the service account asked about, instead of the request's user.
    pub service_account: Option<(String, String)>,
    pub target: AuthzTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    host: &'a dyn Authorizer,
    service_account: Option<(String, String)>,
    step: Step,
}

#[derive(Debug, Clone)]
enum Step {
    Authorizer,
    Path(String),
    Group(String),
    Resource(AuthzResource),
    Decision(Decision),
}

impl<'a> Val<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(host: &'a dyn Authorizer) -> Val<'a> {
        Val::Authz(Arc::new(AuthzVal {
            host,
            service_account: None,
            step: Step::Authorizer,
        }))
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_check(host: &'a dyn Authorizer, resource: AuthzResource) -> Val<'a> {
        Val::Authz(Arc::new(AuthzVal {
            host,
            service_account: None,
            step: Step::Resource(resource),
        }))
    }
}

impl<'a> AuthzVal<'a> {
    pub(crate) fn type_of(&self) -> Type {
        match self.step {
            Step::Authorizer => Type::AUTHORIZER,
            Step::Path(_) => Type::PATH_CHECK,
            Step::Group(_) => Type::GROUP_CHECK,
            Step::Resource(_) => Type::RESOURCE_CHECK,
            Step::Decision(_) => Type::DECISION,
        }
    }

    fn at(&self, step: Step) -> Val<'a> {
        Val::Authz(Arc::new(AuthzVal { step, ..self.clone() }))
    }

    fn check(&self, target: AuthzTarget, verb: &str) -> Val<'a> {
        let check = AuthzCheck {
            verb: verb.to_string(),
            service_account: self.service_account.clone(),
            target,
        };
        self.at(Step::Decision(self.host.check(&check)))
    }
}

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "path" => |args| step("path", args),
        "group" => |args| step("group", args),
        "serviceAccount" => service_account,
        "resource" => |args| step("resource", args),
        "subresource" => |args| step("subresource", args),
        "namespace" => |args| step("namespace", args),
        "name" => |args| step("name", args),
        "fieldSelector" => |args| step("fieldSelector", args),
        "labelSelector" => |args| step("labelSelector", args),
        "check" => |args| step("check", args),
        "errored" => |args| decision("errored", args, |decision| Val::Bool(decision.error.is_some())),
        "error" => |args| {
            decision("error", args, |decision| {
                Val::string(decision.error.clone().unwrap_or_default())
            })
        },
        "allowed" => |args| decision("allowed", args, |decision| Val::Bool(decision.allowed)),
        "reason" => |args| decision("reason", args, |decision| Val::string(decision.reason.clone())),
        _ => return None,
    })
}

fn step<'a>(name: &str, args: &[Val<'a>]) -> Ret<'a> {
    let [Val::Authz(authz), Val::String(text)] = args else {
        return no_overload(name, args);
    };
    let blank = text.trim().is_empty();
    let word = text.to_string();
    let next = match (&authz.step, name) {
        (Step::Authorizer, "path") if blank => return Err(EvalError::fixed("path must not be empty")),
        (Step::Authorizer, "path") => Step::Path(word),
        (Step::Authorizer, "group") => Step::Group(word),
        (Step::Group(_), "resource") if blank => return Err(EvalError::fixed("resource must not be empty")),
        (Step::Group(group), "resource") => Step::Resource(AuthzResource {
            group: group.clone(),
            resource: word,
            ..AuthzResource::default()
        }),
        (Step::Path(path), "check") => return Ok(authz.check(AuthzTarget::Path(path.clone()), text)),
        (Step::Resource(resource), "check") => {
            return Ok(authz.check(AuthzTarget::Resource(resource.clone()), text));
        }
        (Step::Resource(resource), _) => {
            let mut resource = resource.clone();
            match name {
                "subresource" => resource.subresource = word,
                "namespace" => resource.namespace = word,
                "name" => resource.name = word,
                "fieldSelector" => resource.field_selector = word,
                "labelSelector" => resource.label_selector = word,
                _ => return no_overload(name, args),
            }
            Step::Resource(resource)
        }
        _ => return no_overload(name, args),
    };
    Ok(authz.at(next))
}

fn service_account<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::Authz(authz), Val::String(namespace), Val::String(name)] = args else {
        return no_overload("serviceAccount", args);
    };
    if !super::formats::is_subdomain(name) {
        return Err(EvalError::fixed("Invalid service account name"));
    }
    if !super::formats::is_label(namespace) {
        return Err(EvalError::fixed("Invalid service account namespace"));
    }
    let service_account = Some((namespace.to_string(), name.to_string()));
    Ok(Val::Authz(Arc::new(AuthzVal {
        host: authz.host,
        service_account,
        step: Step::Authorizer,
    })))
}

fn decision<'a>(name: &str, args: &[Val<'a>], of: fn(&Decision) -> Val<'static>) -> Ret<'a> {
    match args {
        [Val::Authz(authz)] if let Step::Decision(decision) = &authz.step => Ok(of(decision)),
        _ => no_overload(name, args),
    }
}
