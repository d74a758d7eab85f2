//! `serviceaccounts/token`: issues a token that holds for a while, and no longer than the object that it is bound to.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::resource::{Answer, CreateCall, NamedCreate};
use machinery::go;
use machinery::time::Timestamp;
use machinery::{FieldError, FieldPath, GroupResource, GroupVersion, GroupVersionKind, meta};
use serde_json::{Value, json};

use crate::client::Client;
use crate::deps::{POD_TOKEN_SECONDS, TokenClaims, TokenIssuer};
use crate::errors::Errors;
use crate::groups::core::pod_spec;
use crate::json::Json;

/// How long a token holds that is asked for without a time.
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;

/// The subresource.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) client: Client,
    pub(crate) issuer: Arc<dyn TokenIssuer>,
}

#[async_trait::async_trait]
impl NamedCreate for Token {
    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest")
    }

    fn keeps_uid(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object
            .ensure("spec")
            .fill("expirationSeconds", DEFAULT_EXPIRATION_SECONDS);
    }

    /// Checks a request as upstream does, in its order, and issues what it asks for.
    async fn create(&self, call: &CreateCall<'_>, mut request: Value) -> Result<Answer, ApiError> {
        let kind = self.kind().group_kind();
        let errors = Errors::collect(|errors| {
            for (key, own) in [("name", call.name), ("namespace", call.namespace)] {
                let given = request.dig("metadata").text(key);
                if !given.is_empty() && given != own {
                    let path = FieldPath::new("metadata");
                    let text = format!("must match the service account {key} if specified");
                    errors.invalid(&path.child(key), given, text);
                }
            }
        });
        // One of them at a time, as upstream does.
        if let Some(first) = errors.get(..1) {
            return Err(ApiError::invalid(&kind, call.name, first));
        }
        let account = self.account(call, &request).await?;
        let uid = meta::uid(&account);
        if request.list("spec.audiences").is_empty() {
            let audiences = self.issuer.default_audiences();
            request.ensure("spec").put("audiences", audiences);
        }
        for (key, value) in [("name", call.name), ("namespace", call.namespace), ("uid", uid)] {
            meta::set(&mut request, key, value);
        }
        let now = Timestamp::now().to_rfc3339();
        meta::set(&mut request, "creationTimestamp", now.as_str());
        request.put("status", json!({"token": "", "expirationTimestamp": null}));
        let errors = validate(&request);
        if !errors.is_empty() {
            return Err(ApiError::invalid(&kind, "", &errors));
        }
        let admitted = call.validate(&request).await?;
        let reference = request.dig("spec.boundObjectRef");
        let bound = match reference.is_null() {
            true => None,
            false => Some(self.bound(call.namespace, call.name, reference).await?),
        };
        let (bound, node) = bound.map_or((None, None), |bound| (Some(bound.object), bound.node));
        let lifetimes = self.issuer.lifetimes();
        let asked = request.int("spec.expirationSeconds").unwrap_or_default();
        let seconds = lifetimes.most_seconds.map_or(asked, |most| asked.min(most));
        if seconds < asked {
            let text = format!("requested expiration of {asked} seconds shortened to {seconds} seconds");
            call.authorized.context().warn(text);
            request.ensure("spec").put("expirationSeconds", seconds);
        }
        let of_pod = bound.as_ref().is_some_and(|(kind, ..)| kind == "Pod");
        let extends = lifetimes.extends && of_pod && seconds == POD_TOKEN_SECONDS && {
            let own = self.issuer.default_audiences();
            request
                .strings("spec.audiences")
                .all(|audience| own.iter().any(|own| own == audience))
        };
        let claims = TokenClaims {
            namespace: call.namespace.into(),
            name: call.name.into(),
            uid: uid.into(),
            audiences: request.strings("spec.audiences").map(str::to_string).collect(),
            expiration_seconds: if extends {
                lifetimes.extended_seconds()
            } else {
                seconds
            },
            bound,
            node,
            warn_after: extends.then_some(seconds),
        };
        if !call.dry_run {
            let token = self.issuer.issue(&claims).await?;
            let context = call.authorized.context();
            context.annotate(|| {
                let id = format!("JTI={}", token.id);
                ("authentication.kubernetes.io/issued-credential-id", id)
            });
            let status = json!({"token": token.token, "expirationTimestamp": token.expiration});
            request.put("status", status);
        }
        // Upstream's type says null where nothing is bound to.
        request.ensure("spec").fill("boundObjectRef", Value::Null);
        Ok(admitted.created(request))
    }
}

fn validate(request: &Value) -> Vec<FieldError> {
    let seconds = request.int("spec.expirationSeconds").unwrap_or_default();
    let path = FieldPath::new("spec.expirationSeconds");
    Errors::collect(|errors| pod_spec::expiration(errors, &path, Some(seconds)))
}

/// The object that a token is bound to: the token ends with it.
#[derive(Debug)]
struct Bound {
    /// Kind, name and uid.
    object: (String, String, String),
    /// Name and uid of the node of a pod; without a uid when there is no such node.
    node: Option<(String, String)>,
}

impl Token {
    /// The service account; 404 without one, 409 when the request is about another of the same name.
    async fn account(&self, call: &CreateCall<'_>, request: &Value) -> Result<Value, ApiError> {
        let at = ("", "serviceaccounts");
        let account = self.client.find(at, call.namespace, call.name).await?;
        let missing = || ApiError::not_found(&GroupResource::new("", "serviceaccounts"), call.name);
        let account = account.ok_or_else(missing)?;
        let (asked, uid) = (meta::uid(request), meta::uid(&account));
        if !asked.is_empty() && asked != uid {
            let why = format!(
                "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
            );
            let requests = GroupResource::new("authentication.k8s.io", "TokenRequest");
            return Err(ApiError::conflict(&requests, call.name, why));
        }
        Ok(account)
    }

    /// The object that a token is to be bound to: a pod that runs as the account, a secret of the namespace, or a node.
    async fn bound(&self, namespace: &str, account: &str, reference: &Value) -> Result<Bound, ApiError> {
        let (version, kind, name) = (
            reference.text("apiVersion"),
            reference.text("kind"),
            reference.text("name"),
        );
        // The version counts for nothing, and what is no version is of the core group.
        let parsed = GroupVersion::parse(version).unwrap_or_else(|| GroupVersion::new("", ""));
        let (resource, scope) = match (&*parsed.group, kind) {
            ("", "Pod") => ("pods", namespace),
            ("", "Secret") => ("secrets", namespace),
            ("", "Node") => ("nodes", ""),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {}",
                    GroupVersionKind::new(&parsed.group, &parsed.version, kind)
                )));
            }
        };
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let found = self.client.find(("", resource), scope, name).await?;
        let found = found.ok_or_else(|| ApiError::not_found(&GroupResource::new("", resource), name))?;
        if kind == "Pod" && found.text("spec.serviceAccountName") != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                go::quote(account)
            )));
        }
        let mut node = None;
        let node_name = found.text("spec.nodeName");
        if kind == "Pod" && !node_name.is_empty() {
            let object = self.client.find(("", "nodes"), "", node_name).await?;
            let uid = object.map(|node| meta::uid(&node).to_string());
            node = Some((node_name.to_string(), uid.unwrap_or_default()));
        }
        let (asked, own) = (reference.text("uid"), meta::uid(&found));
        if !asked.is_empty() && asked != own {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&GroupResource::new("", kind), name, why));
        }
        Ok(Bound {
            object: (kind.into(), name.into(), own.into()),
            node,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_for_ten_minutes_at_least() {
        #[track_caller]
        fn check(seconds: i64, expected: &[&str]) {
            let request = json!({"spec": {"expirationSeconds": seconds}});
            let texts: Vec<String> = validate(&request).iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected);
        }
        check(600, &[]);
        check(
            599,
            &["spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"],
        );
        check(1 << 32, &[]);
        check(
            (1 << 32) + 1,
            &[
                "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ],
        );
    }
}
