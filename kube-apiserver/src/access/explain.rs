//! `/debug/authorization/explain`: which authorizer, binding and rule decide about a request, and what a refused one lacks.
//!
//! The answer names roles and bindings without asking whether the client may read them: whoever may get this path may know them. No first
//! role of a cluster but `cluster-admin` gives it.

use std::borrow::Cow;
use std::sync::Arc;

use generic_server::authn::union::with_standard_group;
use generic_server::authz::{Attributes, Decision};
use generic_server::endpoint::Endpoint;
use generic_server::request::{Authorized, Request, Response};
use generic_server::request_info::query_pairs;
use generic_server::{ApiError, User, respond};
use http::Method;
use serde_json::{Value, json};

use crate::authorization::chain::AuthorizerChain;
use crate::rbac::Rbac;

/// Where it is.
pub(super) const PATH: &str = "/debug/authorization/explain";

/// The endpoint.
#[derive(Debug)]
pub(super) struct Explain(pub(super) Arc<AuthorizerChain>);

/// The question, as its query has it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Question<'q> {
    user: Option<Cow<'q, str>>,
    groups: Vec<String>,
    verb: Cow<'q, str>,
    api_group: Cow<'q, str>,
    resource: Cow<'q, str>,
    subresource: Cow<'q, str>,
    namespace: Cow<'q, str>,
    name: Cow<'q, str>,
    path: Cow<'q, str>,
}

impl<'q> Question<'q> {
    /// Reads a query. The last value of a key counts, but for groups.
    ///
    /// # Errors
    /// An unknown key, or a question that is about nothing or about two things.
    fn read(query: &'q str) -> Result<Self, ApiError> {
        let mut question = Question::default();
        for (key, value) in query_pairs(query) {
            let at = match &*key {
                "user" => {
                    question.user = Some(value);
                    continue;
                }
                "group" => {
                    question.groups.push(value.into_owned());
                    continue;
                }
                "verb" => &mut question.verb,
                "apiGroup" => &mut question.api_group,
                "resource" => &mut question.resource,
                "subresource" => &mut question.subresource,
                "namespace" => &mut question.namespace,
                "name" => &mut question.name,
                "path" => &mut question.path,
                other => {
                    let known = "user, group, verb, apiGroup, resource, subresource, namespace, name and path are known";
                    return Err(ApiError::bad_request(format!(
                        "{} is no part of a question: {known}",
                        machinery::go::quote(other)
                    )));
                }
            };
            *at = value;
        }
        if question.verb.is_empty() || question.resource.is_empty() == question.path.is_empty() {
            return Err(ApiError::bad_request(
                "a question has a verb, and either a resource or a path",
            ));
        }
        Ok(question)
    }

    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        Attributes {
            user,
            verb: &self.verb,
            is_resource: self.path.is_empty(),
            group: &self.api_group,
            version: "*",
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: &self.path,
            field_selector: "",
            label_selector: "",
        }
    }
}

impl Explain {
    async fn answer(&self, asker: &User, query: &str) -> Result<Value, ApiError> {
        let question = Question::read(query)?;
        let named;
        let user = match &question.user {
            None if question.groups.is_empty() => asker,
            name => {
                named = with_standard_group(User {
                    name: name.clone().unwrap_or_default().into_owned(),
                    groups: question.groups.clone(),
                    ..User::default()
                });
                &named
            }
        };
        let attributes = question.attributes(user);
        let (decision, authorizer) = self.0.decide(&attributes).await;
        let (allowed, reason, error) = match decision {
            Decision::Allow(reason) => (true, reason, String::new()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason, String::new()),
            Decision::Failed(failure) => (false, failure.reason, failure.error),
        };
        let mut answer = json!({
            "user": {"username": user.name, "groups": user.groups},
            "allowed": allowed,
            "authorizer": authorizer,
            "reason": reason,
        });
        if !error.is_empty() {
            answer["error"] = error.into();
        }
        if let Some(rbac) = self.0.rbac() {
            answer["rbac"] = Rbac::index(&rbac).explain(&attributes);
        }
        Ok(answer)
    }
}

#[async_trait::async_trait]
impl Endpoint for Explain {
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response {
        if request.method() != Method::GET {
            return respond::error(&ApiError::method_not_allowed());
        }
        let query = request.uri().query().unwrap_or_default();
        respond::plain(self.answer(authorized.user(), query).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_strictly() {
        let question = Question::read("user=jane&group=a&group=b&verb=get&resource=pods&namespace=n%20s");
        let question = question.unwrap();
        assert_eq!(question.user.as_deref(), Some("jane"));
        assert_eq!(question.groups, ["a", "b"]);
        assert_eq!(question.namespace, "n s");
        #[track_caller]
        fn refused(query: &str, expected: &str) {
            let error = Question::read(query).unwrap_err();
            assert!(error.message().contains(expected), "{}", error.message());
        }
        const NOTHING: &str = "a question has a verb, and either a resource or a path";
        refused("", NOTHING);
        refused("resource=pods", NOTHING);
        refused("verb=get", NOTHING);
        refused("verb=get&resource=pods&path=/x", NOTHING);
        refused(
            "verb=get&resource=pods&nmespace=x",
            "\"nmespace\" is no part of a question",
        );
    }
}
