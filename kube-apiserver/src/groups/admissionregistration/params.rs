//! Authorization of the parameters of policies and bindings: their writer has to be able to read them, since expressions can disclose them. Mirrors
//! `authz.go` of the policies' registries.

use std::fmt;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::authz::{Attributes, Authorizer, Decision};
use generic_server::registry::strategy::{WriteContext, WriteHooks};
use generic_server::request::User;
use machinery::{FieldError, FieldPath, GroupKind};
use serde_json::Value;

use crate::client::Client;
use crate::deps::Deps;
use crate::json::Json;

const GROUP: &str = "admissionregistration.k8s.io";

/// Asks whether the writer of a policy or of a binding may read its parameters.
#[derive(Debug)]
pub(super) struct Params {
    client: Client,
    authorizer: Arc<dyn Authorizer>,
    /// The policies that bindings of this kind name; none for the policies themselves.
    policies: Option<&'static str>,
}

/// What has to be readable.
struct Target {
    group: String,
    version: String,
    resource: String,
    /// Why it is all that there is.
    unknown: Option<String>,
}

impl Default for Target {
    fn default() -> Self {
        Target {
            group: "*".to_owned(),
            version: "*".to_owned(),
            resource: "*".to_owned(),
            unknown: None,
        }
    }
}

impl Params {
    /// Of a kind of policies.
    pub(super) fn of_policies(deps: &Deps) -> Self {
        Params {
            client: Client::new(deps.directory.clone()),
            authorizer: deps.authorizer.clone(),
            policies: None,
        }
    }

    /// Of the bindings of a kind of policies, named by its resource.
    pub(super) fn of_bindings(deps: &Deps, policies: &'static str) -> Self {
        Params {
            policies: Some(policies),
            ..Params::of_policies(deps)
        }
    }

    /// The resource of a kind of parameters; all resources of what is not known.
    fn target(&self, kind: &Value) -> Target {
        let mut target = Target::default();
        let unknown = |what: &str| Some(format!("unable to {what} paramKind {}", Printed(kind)));
        let version = kind.text("apiVersion");
        let (group, version) = match version.split_once('/') {
            None => ("", version),
            Some((_, rest)) if rest.contains('/') => {
                target.unknown = unknown("parse");
                return target;
            }
            Some(both) => both,
        };
        target.group = group.to_owned();
        target.version = version.to_owned();
        match self
            .client
            .directory()
            .of_kind(&GroupKind::new(group, kind.text("kind")))
        {
            Some(found) => target.resource = found.resource.gvr.resource.to_string(),
            None => target.unknown = unknown("resolve"),
        }
        target
    }

    async fn is_allowed(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        match self.authorizer.authorize(attributes).await {
            Decision::Allow(reason) => {
                self.authorizer.used(attributes, &reason);
                Ok(true)
            }
            Decision::Deny(_) | Decision::NoOpinion(_) => Ok(false),
            Decision::Failed(failure) => Err(failure.error),
        }
    }

    async fn check_policy(&self, user: &User, policy: &Value, old: &Value) -> Result<(), String> {
        let kind = policy.dig("spec.paramKind");
        let before = old.dig("spec.paramKind");
        let stays = ["apiVersion", "kind"]
            .iter()
            .all(|key| kind.text(key) == before.text(key));
        if kind.is_null() || !before.is_null() && stays {
            return Ok(());
        }
        let target = self.target(kind);
        if self.is_allowed(&asks(user, "get", &target, "*", "*")).await? {
            return Ok(());
        }
        Err(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            Shown(user),
            kind.text("kind"),
            kind.text("apiVersion")
        ))
    }

    async fn check_binding(
        &self,
        user: &User,
        binding: &Value,
        policies: &'static str,
    ) -> Result<(), String> {
        let reference = binding.dig("spec.paramRef");
        if reference.is_null() {
            return Ok(());
        }
        let name = binding.text("spec.policyName");
        let target = match self.client.find((GROUP, policies), "", name).await {
            Ok(Some(policy)) if policy.has("spec.paramKind") => self.target(policy.dig("spec.paramKind")),
            Ok(Some(_)) => Target::default(),
            Ok(None) | Err(_) => Target {
                unknown: Some(format!("unable to get policy {name}")),
                ..Target::default()
            },
        };
        let verb = match reference.text("name") {
            "" => "list",
            _ => "get",
        };
        let (object, namespace) = (reference.text("name"), reference.text("namespace"));
        let asked = self
            .is_allowed(&asks(user, verb, &target, namespace, object))
            .await;
        if asked.map_err(|error| format!("failed to authorize request: {error}"))? {
            return Ok(());
        }
        let user = Shown(user);
        Err(match target.unknown {
            Some(why) => format!(
                "{why} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
            ),
            None => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        })
    }
}

fn asks<'a>(
    user: &'a User,
    verb: &'a str,
    target: &'a Target,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    Attributes {
        user,
        verb,
        is_resource: true,
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource: "",
        namespace,
        name,
        path: "",
        field_selector: "",
        label_selector: "",
    }
}

#[async_trait::async_trait]
impl WriteHooks for Params {
    async fn authorize(
        &self,
        ctx: &WriteContext<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Option<FieldError>, ApiError> {
        let user = ctx.authorized.user();
        if user.in_group("system:masters") {
            return Ok(None);
        }
        let old = old.unwrap_or(&Value::Null);
        let (checked, field) = match self.policies {
            None => (self.check_policy(user, object, old).await, "paramKind"),
            Some(policies) => (self.check_binding(user, object, policies).await, "paramRef"),
        };
        let refusal = |why: String| FieldError::forbidden(&FieldPath::new("spec").child(field), why);
        Ok(checked.err().map(refusal))
    }
}

/// A user as Go prints one.
struct Shown<'a>(&'a User);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let User {
            name,
            uid,
            groups,
            extra,
            ..
        } = self.0;
        write!(f, "&{{{name} {uid} [{}] map[", groups.join(" "))?;
        let mut extra: Vec<_> = extra.iter().collect();
        extra.sort();
        for (index, (key, values)) in extra.into_iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{key}:[{}]", values.join(" "))?;
        }
        write!(f, "]}}")
    }
}

/// The kind of parameters as Go prints one.
struct Printed<'a>(&'a Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "&{{{} {}}}", self.0.text("apiVersion"), self.0.text("kind"))
    }
}
