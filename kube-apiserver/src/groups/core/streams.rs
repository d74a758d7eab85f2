//! The streams of pods, services and nodes: `log`, `exec`, `attach`, `portforward`, `proxy`. Mirrors `pkg/registry/core/pod/rest`.

mod command;
mod forward;
mod log;
mod passing;
mod pod;
mod proxy;
mod query;

use std::sync::Arc;

use generic_server::authz::{Attributes, Authorizer};
use generic_server::resource::{Connect, ConnectCall};
use generic_server::streaming::Peer;
use generic_server::{ApiError, Authorized, Request, RequestInfo, Response};
use machinery::{GroupResource, GroupVersionKind};
use serde_json::Value;

use crate::client::Client;
use crate::json::Json;
use crate::nodes::Nodes;

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

/// Answers requests for one kind of stream.
#[derive(Debug)]
pub(crate) struct NodeStream {
    pub(crate) client: Client,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) stream: Stream,
}

/// Where a request goes.
#[derive(Debug)]
struct Target {
    peer: Peer,
    /// Path and query, encoded.
    location: String,
}

impl Target {
    /// The whole URL, as errors name it.
    fn url(&self) -> String {
        format!(
            "{}://{}{}",
            self.peer.scheme(),
            self.peer.authority(),
            self.location
        )
    }
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

    fn passes_all_methods(&self) -> bool {
        matches!(self.stream, Stream::Proxy(_))
    }

    fn options(&self, info: &RequestInfo, query: &str) -> Result<Value, ApiError> {
        let mut options = match self.stream {
            Stream::Log => return Ok(Value::Null),
            Stream::Run(kind) => command::options(kind, query),
            Stream::Forward => forward::options(query)?,
            Stream::Proxy(_) => proxy::options(info),
        };
        let kind = self.kind();
        options.put("kind", &*kind.kind);
        options.put("apiVersion", &*kind.version);
        Ok(options)
    }

    async fn connect(&self, call: ConnectCall<'_>, request: Request) -> Result<Response, ApiError> {
        match self.stream {
            Stream::Log => self.log(&call, request).await,
            Stream::Run(kind) => self.run(&call, kind, request).await,
            Stream::Forward => self.forward(&call, request).await,
            Stream::Proxy(kind) => self.proxy(&call, kind, request).await,
        }
    }
}

impl NodeStream {
    /// A command by GET is no read: the user has to be allowed to create it.
    async fn may_create(&self, authorized: &Authorized) -> Result<(), ApiError> {
        let info = authorized.info();
        if info.verb == "create" {
            return Ok(());
        }
        let attributes = Attributes {
            verb: "create",
            ..Attributes::of(authorized.user(), info)
        };
        let decision = self.authorizer.authorize(&attributes).await;
        decision.permits().map_err(|reason| {
            let resource = GroupResource::new(&info.group, &info.resource);
            ApiError::forbidden(&resource, &info.name, reason)
        })
    }
}
