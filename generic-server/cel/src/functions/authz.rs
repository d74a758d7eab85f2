//! The steps of an authorization check, as functions.

use std::sync::Arc;

use super::{Function, Ret, no_overload};
use crate::{
    authz::{AuthzCheck, AuthzResource, AuthzTarget, AuthzVal, Decision, Step},
    error::EvalError,
    opaque::formats,
    value::Val,
};

fn at<'a>(authz: &AuthzVal<'a>, step: Step) -> Val<'a> {
    Val::Authz(Arc::new(AuthzVal {
        step,
        ..authz.clone()
    }))
}

fn check<'a>(authz: &AuthzVal<'a>, target: AuthzTarget, verb: &str) -> Ret<'a> {
    let check = AuthzCheck {
        verb: verb.to_string(),
        service_account: authz.service_account.clone(),
        target,
    };
    Ok(at(authz, Step::Decision(authz.host.check(&check)?)))
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
        (Step::Path(path), "check") => return check(authz, AuthzTarget::Path(path.clone()), text),
        (Step::Resource(resource), "check") => {
            return check(authz, AuthzTarget::Resource(resource.clone()), text);
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
    Ok(at(authz, next))
}

fn service_account<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::Authz(authz), Val::String(namespace), Val::String(name)] = args else {
        return no_overload("serviceAccount", args);
    };
    if !formats::is_subdomain(name) {
        return Err(EvalError::fixed("Invalid service account name"));
    }
    if !formats::is_label(namespace) {
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
