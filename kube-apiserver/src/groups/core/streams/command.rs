//! `pods/exec` and `pods/attach`: SPDY and older WebSockets are passed on, `v5.channel.k8s.io` is translated, unless the kubelet takes it.

use generic_server::request_info::encode_query;
use generic_server::resource::ConnectCall;
use generic_server::spawn::Tasks;
use generic_server::streaming::{Channels, ClientSide, Io, RemoteCommand, Switched, spdy, switch, websocket};
use generic_server::{ApiError, Body, Request, Response};
use http::{HeaderName, HeaderValue, Method, header};
use machinery::go;
use serde_json::{Value, json};

use super::{NodeStream, Target, passing, pod, query};
use crate::json::Json;
use crate::nodes::Nodes;

/// The protocols of streams that a client offers and a server chooses.
pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Bytes of a node's refusal that are shown.
const SHOWN: usize = 10 * 1024;

/// PodExecOptions or PodAttachOptions, but for their kind.
pub(super) fn options(kind: &str, query: &str) -> Value {
    let mut options = json!({});
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query::flag(query, name) {
            options.put(name, true);
        }
    }
    if let Some(container) = query::value(query, "container").filter(|name| !name.is_empty()) {
        options.put("container", container.into_owned());
    }
    if kind == "PodExecOptions" {
        let command = query::list(query, "command");
        options.put(
            "command",
            if command.is_empty() {
                Value::Null
            } else {
                command.into()
            },
        );
    }
    options
}

impl NodeStream {
    /// Runs a command, or attaches to one that runs.
    pub(super) async fn run(
        &self,
        call: &ConnectCall<'_>,
        kind: &str,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        self.may_create(call.authorized).await?;
        let exec = kind == "PodExecOptions";
        let pod = self.pod(call, call.name).await?;
        let container = pod::container(&pod, call.options.text("container"))?;
        let kubelet = self
            .nodes
            .kubelet(&self.client, call.authorized.user(), pod::node(&pod)?, true)
            .await?;
        let channels = Channels {
            stdin: call.options.flag("stdin"),
            stdout: call.options.flag("stdout"),
            stderr: call.options.flag("stderr"),
            tty: call.options.flag("tty"),
        };
        let command: Vec<String> = call.options.strings("command").map(str::to_string).collect();
        let path = if exec { "exec" } else { "attach" };
        let target = Target {
            peer: kubelet.peer,
            location: format!(
                "/{path}/{}/{}/{container}{}",
                call.namespace,
                call.name,
                parameters(channels, &command)
            ),
        };
        self.nodes.counts().came(path, kubelet.takes_websockets);
        let tasks = self.nodes.tasks();
        if RemoteCommand::protocol(request.headers()).is_some() && !kubelet.takes_websockets {
            return Ok(translate(&self.nodes, target, channels, &mut request));
        }
        let passed_on = passing::upgrade(&request, &target)?;
        passing::pass(tasks, &target, passed_on, &mut request).await
    }
}

/// The query for a kubelet, sorted.
fn parameters(channels: Channels, command: &[String]) -> String {
    let mut pairs: Vec<String> = command
        .iter()
        .map(|word| format!("command={}", escape(word)))
        .collect();
    let flags = [
        ("input", channels.stdin),
        ("output", channels.stdout),
        ("error", channels.stderr),
        ("tty", channels.tty),
    ];
    pairs.extend(
        flags
            .into_iter()
            .filter(|(_, set)| *set)
            .map(|(name, _)| format!("{name}=1")),
    );
    let query = encode_query(&pairs.join("&"));
    if query.is_empty() {
        query
    } else {
        format!("?{query}")
    }
}

/// A value as it is in a query.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Answers a client that speaks WebSocket, and runs its command over SPDY. What goes wrong from now on is said on its error channel.
fn translate(nodes: &Nodes, target: Target, channels: Channels, request: &mut Request) -> Response {
    let (tasks, counts) = (nodes.tasks(), nodes.counts().clone());
    let protocol = RemoteCommand::protocol(request.headers());
    let answer = match websocket::accept(request.headers(), protocol) {
        Ok(answer) => answer,
        Err(refused) => {
            counts.translated(400);
            return refused;
        }
    };
    let client = ClientSide::of(request.extensions());
    let connections = tasks.clone();
    tasks.spawn("translated command", async move {
        let Some(client) = client.ready().await else {
            return;
        };
        let node = connect(&connections, &target);
        if let Some(code) = (RemoteCommand { channels }).run(client, node).await {
            counts.translated(code);
        }
    });
    answer
}

/// A connection to the node that speaks SPDY, and the protocol of streams that the node chose.
async fn connect(tasks: &Tasks, target: &Target) -> Result<(Io, String), ApiError> {
    let mut request = passing::own(Method::POST, target)?;
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    for name in RemoteCommand::node_protocols() {
        headers.append(STREAM_PROTOCOL, HeaderValue::from_static(name));
    }
    let failed = |why: &dyn std::fmt::Display| {
        ApiError::internal(format!(
            "error sending request: Post {}: {why}",
            go::quote(&target.url())
        ))
    };
    let (headers, io) = match switch(tasks, &target.peer, request).await {
        Ok(Switched::Yes(headers, io)) => (headers, io),
        Ok(Switched::No(answer)) if answer.status().is_redirection() => {
            return Err(failed(&"redirect not allowed"));
        }
        Ok(Switched::No(answer)) => {
            let why = refusal(answer).await;
            return Err(ApiError::internal(format!("unable to upgrade connection: {why}")));
        }
        Err(why) => return Err(failed(&why)),
    };
    let text = |name: HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if !text(header::UPGRADE).eq_ignore_ascii_case(spdy::PROTOCOL) {
        return Err(ApiError::internal(
            "unable to upgrade connection: empty server response",
        ));
    }
    let protocol = text(STREAM_PROTOCOL).trim().to_string();
    Ok((io, protocol))
}

/// What a node says of its refusal: a Status's message, or the text.
async fn refusal(answer: http::Response<Body>) -> String {
    let body = super::log::read_start(answer.into_body()).await;
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    let field = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let known = [field("message"), field("error"), &text];
    let said = known.into_iter().map(str::trim).find(|text| !text.is_empty());
    said.unwrap_or("empty server response")
        .chars()
        .take(SHOWN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_passed_on_word_by_word() {
        let all = Channels {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: true,
        };
        let none = Channels {
            stdin: false,
            stdout: false,
            stderr: false,
            tty: false,
        };
        let check = |channels: Channels, command: &[&str], expected: &str| {
            let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
            assert_eq!(parameters(channels, &command), expected);
        };
        check(none, &[], "");
        check(all, &[], "?error=1&input=1&output=1&tty=1");
        check(
            none,
            &["sh", "-c", "a b;c&d=é%2F+"],
            "?command=sh&command=-c&command=a+b%3Bc%26d%3D%C3%A9%252F%2B",
        );
    }
}
