//! `pods/portforward`: SPDY and older WebSockets are passed on, SPDY through WebSocket is taken out of its tunnel, unless the kubelet does.

use generic_server::filters::text_error;
use generic_server::resource::ConnectCall;
use generic_server::streaming::{ClientSide, Switched, spdy, switch, tunnel, websocket};
use generic_server::{ApiError, Request, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::command::STREAM_PROTOCOL;
use super::{NodeStream, Target, passing, pod, query};
use crate::json::Json;

/// What subprotocols of tunnels begin and end with.
const PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";

/// PodPortForwardOptions, but for their kind. 400 for a port that is no number.
pub(super) fn options(query: &str) -> Result<Value, ApiError> {
    let ports = query::list(query, "ports")
        .into_iter()
        .map(|text| query::parse(&text, 32));
    let ports: Vec<i64> = ports.collect::<Result<_, _>>()?;
    let mut options = json!({});
    if !ports.is_empty() {
        options.put("ports", ports);
    }
    Ok(options)
}

impl NodeStream {
    /// Forwards ports of a pod.
    pub(super) async fn forward(
        &self,
        call: &ConnectCall<'_>,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        self.may_create(call.authorized).await?;
        let ports: Vec<String> = (call.options.list("ports").iter())
            .filter_map(Value::as_i64)
            .map(|port| port.to_string())
            .collect();
        let pod = self.pod(call, call.name).await?;
        let kubelet = self
            .nodes
            .kubelet(&self.client, call.authorized.user(), pod::node(&pod)?, true)
            .await?;
        let mark = if ports.is_empty() { "" } else { "?port=" };
        let target = Target {
            peer: kubelet.peer,
            location: format!(
                "/portForward/{}/{}{mark}{}",
                call.namespace,
                call.name,
                ports.join("%2C")
            ),
        };
        self.nodes.counts().came("portforward", kubelet.takes_websockets);
        let tunnelled = tunnelled(request.headers());
        if tunnelled.is_some() && !kubelet.takes_websockets {
            return self
                .tunnel(&target, tunnelled.unwrap_or_default(), &mut request)
                .await;
        }
        let passed_on = passing::upgrade(&request, &target)?;
        passing::pass(self.nodes.tasks(), &target, passed_on, &mut request).await
    }

    /// Answers a client that speaks SPDY through WebSocket, once the node speaks SPDY.
    async fn tunnel(
        &self,
        target: &Target,
        protocols: Vec<String>,
        request: &mut Request,
    ) -> Result<Response, ApiError> {
        let client = ClientSide::of(request.extensions());
        let mut passed_on = passing::upgrade(request, target)?;
        *passed_on.method_mut() = Method::POST;
        let headers = passed_on.headers_mut();
        for name in [
            header::SEC_WEBSOCKET_KEY,
            header::SEC_WEBSOCKET_VERSION,
            header::SEC_WEBSOCKET_PROTOCOL,
            header::SEC_WEBSOCKET_EXTENSIONS,
            STREAM_PROTOCOL,
        ] {
            headers.remove(name);
        }
        headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        for name in &protocols {
            headers.append(
                STREAM_PROTOCOL,
                HeaderValue::from_str(name).map_err(ApiError::internal)?,
            );
        }
        let (tasks, counts) = (self.nodes.tasks(), self.nodes.counts());
        let (headers, node) = match switch(tasks, &target.peer, passed_on).await {
            Ok(Switched::Yes(headers, node)) => (headers, node),
            Ok(Switched::No(answer)) => {
                counts.tunnelled(answer.status().as_u16());
                return passing::relay(answer);
            }
            Err(why) => return Err(passing::not_switched(&why)),
        };
        let text = |name| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::trim)
        };
        if !text(header::UPGRADE).is_some_and(|name| name.eq_ignore_ascii_case(spdy::PROTOCOL)) {
            counts.tunnelled(500);
            let why = "unable to upgrade: missing upgrade headers in response";
            return Ok(text_error(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        // The node's choice, if the client knows it.
        let chosen = text(STREAM_PROTOCOL).filter(|chosen| protocols.iter().any(|name| name == chosen));
        let chosen = chosen.map(|name| format!("{PREFIX}{name}"));
        let answer = match websocket::accept(request.headers(), chosen.as_deref()) {
            Ok(answer) => answer,
            Err(refused) => {
                counts.tunnelled(500);
                return Ok(refused);
            }
        };
        counts.tunnelled(101);
        tasks.spawn("tunnelled streams", async move {
            if let Some(client) = client.ready().await {
                tunnel(client, node).await;
            }
        });
        Ok(answer)
    }
}

/// The protocols that a client offers through a tunnel, without what says so; `None` when it asks for no tunnel.
fn tunnelled(headers: &HeaderMap) -> Option<Vec<String>> {
    let inner = |name: &str| {
        let rest = name.strip_prefix(PREFIX)?;
        rest.ends_with(SUFFIX).then(|| rest.to_string())
    };
    let protocols: Vec<String> = websocket::offered(headers).filter_map(inner).collect();
    (websocket::is_asked(headers) && !protocols.is_empty()).then_some(protocols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_are_known_by_their_subprotocols() {
        let check = |offered: &'static str, expected: Option<&[&str]>| {
            let headers = HeaderMap::from_iter([
                (header::CONNECTION, HeaderValue::from_static("Upgrade")),
                (header::UPGRADE, HeaderValue::from_static("websocket")),
                (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered)),
            ]);
            let expected = expected.map(|names| names.iter().map(|name| name.to_string()).collect());
            assert_eq!(tunnelled(&headers), expected, "{offered}");
        };
        check("SPDY/3.1+portforward.k8s.io", Some(&["portforward.k8s.io"]));
        check(
            "v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io",
            Some(&["portforward.k8s.io"]),
        );
        check("v4.channel.k8s.io", None);
        check("SPDY/3.1+portforward.example", None);
        assert_eq!(tunnelled(&HeaderMap::new()), None);
    }
}
