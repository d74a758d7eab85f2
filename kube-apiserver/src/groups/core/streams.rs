//! The streams of pods, services and nodes: `log`, `exec`, `attach`, `portforward`, `proxy`.

use std::borrow::Cow;

use bytes::Bytes;
use generic_server::request::full;
use generic_server::request_info::query_value;
use generic_server::resource::{Connect, ConnectCall};
use generic_server::{ApiError, Request, Response};
use machinery::{FieldPath, GroupKind, GroupVersionKind, meta};
use serde_json::Value;

use crate::client::Client;
use crate::errors::Errors;
use crate::json::Json;

/// The value of a query parameter, decoded as Go does.
fn query<'r>(request: &'r Request, key: &str) -> Option<Cow<'r, str>> {
    query_value(request.uri().query().unwrap_or_default(), key)
}

/// A stream to the node that runs a pod, or to a node or service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// `pods/log`.
    Log,
    /// `pods/exec` and `pods/attach`.
    Run(&'static str),
    /// `pods/portforward`.
    Forward,
    /// `pods/proxy`, `services/proxy`, `nodes/proxy`.
    Proxy(&'static str),
}

/// Answers what can be answered without a node, and refuses the rest: this server has no proxy to nodes.
#[derive(Debug)]
pub(crate) struct NodeStream {
    pub(crate) client: Client,
    pub(crate) stream: Stream,
}

#[async_trait::async_trait]
impl Connect for NodeStream {
    fn verbs(&self) -> &'static [&'static str] {
        match self.stream {
            Stream::Log => &["get"],
            Stream::Run(_) | Stream::Forward => &["create", "get"],
            Stream::Proxy(_) => &["create", "delete", "get", "patch", "update"],
        }
    }

    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(
            "",
            "v1",
            match self.stream {
                Stream::Log => "Pod",
                Stream::Run(kind) | Stream::Proxy(kind) => kind,
                Stream::Forward => "PodPortForwardOptions",
            },
        )
    }

    fn is_read(&self) -> bool {
        self.stream == Stream::Log
    }

    async fn connect(&self, call: ConnectCall<'_>, request: Request) -> Result<Response, ApiError> {
        let name = call
            .name
            .split(':')
            .find(|part| !part.is_empty())
            .unwrap_or(call.name);
        let gvr = call.gvr;
        let name = if matches!(self.stream, Stream::Proxy(_)) {
            name
        } else {
            call.name
        };
        let object = self
            .client
            .find((&gvr.group, &gvr.resource), call.namespace, name)
            .await?
            .ok_or_else(|| ApiError::not_found(&gvr.group_resource(), name))?;
        if self.stream == Stream::Log {
            log_options(&request, call.name)?;
        }
        if matches!(self.stream, Stream::Log | Stream::Run(_)) {
            container(&request, &object)?;
        }
        let node = object.text("spec.nodeName");
        match self.stream {
            Stream::Log if node.is_empty() => {
                let mut response = Response::new(full(Bytes::new()));
                *response.status_mut() = http::StatusCode::NO_CONTENT;
                Ok(response)
            }
            Stream::Run(_) | Stream::Forward if node.is_empty() => Err(ApiError::bad_request(format!(
                "pod {} does not have a host assigned",
                call.name
            ))),
            Stream::Proxy("PodProxyOptions") if object.list("status.podIPs").is_empty() => {
                Err(ApiError::bad_request("address not allowed"))
            }
            Stream::Proxy("ServiceProxyOptions") => Err(ApiError::unavailable(format!(
                "no endpoints available for service \"{}\"",
                call.name
            ))),
            _ => Err(ApiError::unavailable(
                "no way to the node: this server has no proxy to nodes yet",
            )),
        }
    }
}

/// The container that a log or command is for; it must be named when there are several.
fn container(request: &Request, pod: &Value) -> Result<(), ApiError> {
    let name = meta::name(pod);
    let names = |list: &str| -> Vec<&str> {
        let containers = pod.dig("spec").list(list);
        containers.iter().map(|c| c.text("name")).collect()
    };
    let regular = names("containers");
    let others = || {
        ["initContainers", "ephemeralContainers"]
            .into_iter()
            .flat_map(names)
    };
    match query(request, "container").filter(|c| !c.is_empty()) {
        None if regular.len() == 1 => Ok(()),
        None => {
            let chosen = meta::annotations(pod)
                .and_then(|a| a.get("kubectl.kubernetes.io/default-container"))
                .and_then(Value::as_str)
                .is_some_and(|c| regular.contains(&c));
            if chosen {
                return Ok(());
            }
            let mut text = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                regular.join(" ")
            );
            let init = names("initContainers");
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(ApiError::bad_request(text))
        }
        Some(asked) if regular.contains(&&*asked) || others().any(|other| other == asked) => Ok(()),
        Some(asked) => Err(ApiError::bad_request(format!(
            "container {asked} is not valid for pod {name}"
        ))),
    }
}

fn log_options(request: &Request, name: &str) -> Result<(), ApiError> {
    let number = |key: &str| query(request, key).and_then(|text| text.parse::<i64>().ok());
    let errors = Errors::collect(|errors| {
        errors.non_negative(&FieldPath::new("tailLines"), number("tailLines"));
        if let Some(limit) = number("limitBytes").filter(|n| *n < 1) {
            errors.invalid(&FieldPath::new("limitBytes"), limit, "must be greater than 0");
        }
        if let Some(seconds) = number("sinceSeconds").filter(|n| *n < 1) {
            errors.invalid(&FieldPath::new("sinceSeconds"), seconds, "must be greater than 0");
        }
        if query(request, "sinceSeconds").is_some() && query(request, "sinceTime").is_some() {
            errors.forbidden(
                &FieldPath::new(""),
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            );
        }
    });
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(
            &GroupKind::new("", "PodLogOptions"),
            name,
            &errors,
        )),
    }
}
