//! The `authorizer` of expressions: what they ask about one write, on behalf of its user.
//!
//! Evaluation waits for nothing, and an authorizer may be a webhook. A check whose answer is not at hand therefore fails, is kept here
//! while it goes on, and [`super::expression::Expression::eval`] evaluates again when it is answered. Each check is asked once for a
//! write, as upstream's caching authorizer has it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use kube_cel::{AuthzCheck, AuthzResource, AuthzTarget, EvalError};
use machinery::{GroupVersionResource, limits};
use parking_lot::Mutex;

use super::matching;
use crate::admission::Attributes;
use crate::authz::{self, Authorizer, Decision};
use crate::request::User;

/// Answers what expressions ask of the authorizer about one write.
pub(super) struct RequestAuthorizer<'a> {
    authorizer: &'a Arc<dyn Authorizer>,
    user: &'a User,
    gvr: &'a GroupVersionResource,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    checks: Mutex<Checks>,
}

#[derive(Default)]
struct Checks {
    answered: HashMap<AuthzCheck, kube_cel::Decision>,
    /// Those that are waited for.
    asked: Vec<(AuthzCheck, BoxFuture<'static, kube_cel::Decision>)>,
}

impl fmt::Debug for RequestAuthorizer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestAuthorizer")
            .field("authorizer", &self.authorizer)
            .field("user", &self.user.name)
            .finish_non_exhaustive()
    }
}

impl<'a> RequestAuthorizer<'a> {
    /// For the user of a write.
    pub(super) fn of(attributes: &Attributes<'a>, authorizer: &'a Arc<dyn Authorizer>) -> Self {
        RequestAuthorizer {
            authorizer,
            user: attributes.authorized.user(),
            gvr: attributes.gvr,
            subresource: attributes.subresource,
            namespace: matching::namespace_of(attributes),
            name: attributes.name,
            checks: Mutex::default(),
        }
    }

    /// `authorizer.requestResource`.
    pub(super) fn request_resource(&self) -> AuthzResource {
        AuthzResource {
            group: self.gvr.group.to_string(),
            resource: self.gvr.resource.to_string(),
            subresource: self.subresource.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
            ..AuthzResource::default()
        }
    }

    /// Whether an evaluation came upon checks whose answers are waited for.
    pub(super) fn is_asked(&self) -> bool {
        !self.checks.lock().asked.is_empty()
    }

    /// Waits for the answers to all checks that evaluations came upon.
    pub(super) async fn wait(&self) {
        let asked = std::mem::take(&mut self.checks.lock().asked);
        let answers = asked
            .into_iter()
            .map(|(check, answer)| answer.map(|answer| (check, answer)));
        let answers = join_all(answers).await;
        self.checks.lock().answered.extend(answers);
    }
}

impl kube_cel::Authorizer for RequestAuthorizer<'_> {
    fn check(&self, check: &AuthzCheck) -> Result<kube_cel::Decision, EvalError> {
        let mut checks = self.checks.lock();
        if let Some(answer) = checks.answered.get(check) {
            return Ok(answer.clone());
        }
        let waits = || EvalError::new("the answer of the authorizer is waited for");
        if checks.asked.iter().any(|(asked, _)| asked == check) {
            return Err(waits());
        }
        if checks.answered.len() + checks.asked.len() >= limits::CHECKS_PER_WRITE {
            return Err(EvalError::new(format!(
                "expressions ask for more than {} authorization checks about one request",
                limits::CHECKS_PER_WRITE
            )));
        }
        let mut answer = ask(self.authorizer.clone(), self.user.clone(), check.clone()).boxed();
        // An authorizer in the process answers at once; another goes on from here.
        match (&mut answer).now_or_never() {
            Some(answer) => {
                checks.answered.insert(check.clone(), answer.clone());
                Ok(answer)
            }
            None => {
                checks.asked.push((check.clone(), answer));
                Err(waits())
            }
        }
    }
}

/// Asks the authorizer.
async fn ask(authorizer: Arc<dyn Authorizer>, user: User, check: AuthzCheck) -> kube_cel::Decision {
    let account = check.service_account.as_ref().map(|(namespace, name)| User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
        ..User::default()
    });
    let mut attributes = authz::Attributes {
        user: account.as_ref().unwrap_or(&user),
        verb: &check.verb,
        is_resource: false,
        group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: "",
        field_selector: "",
        label_selector: "",
    };
    match &check.target {
        AuthzTarget::Path(path) => attributes.path = path,
        AuthzTarget::Resource(resource) => {
            attributes.is_resource = true;
            attributes.group = &resource.group;
            attributes.version = "*";
            attributes.resource = &resource.resource;
            attributes.subresource = &resource.subresource;
            attributes.namespace = &resource.namespace;
            attributes.name = &resource.name;
            attributes.field_selector = &resource.field_selector;
            attributes.label_selector = &resource.label_selector;
        }
    }
    let (allowed, reason, error) = match authorizer.authorize(&attributes).await {
        Decision::Allow(reason) => (true, reason, None),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason, None),
        Decision::Failed(failure) => (false, failure.reason, Some(failure.error)),
    };
    kube_cel::Decision {
        allowed,
        reason,
        error,
    }
}

#[cfg(test)]
mod tests;
