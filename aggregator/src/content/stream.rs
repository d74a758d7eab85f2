//! Following a resource of a remote server: a list in pages, then a watch from there on, as one stream.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use generic_server::client::fault_of;
use generic_server::directory::RemoteLines;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use machinery::meta;
use serde_json::{Value, json};

use super::{MAX_OBJECT_BYTES, MAX_PAGE_BYTES, PAGE};
use crate::backend::Backend;
use crate::proxy;
use crate::remote_discovery::{self, BackendRequest};

/// Follows the collection at a path.
pub(super) fn follow(backend: Option<Arc<Backend>>, path: String, headers: HeaderMap) -> RemoteLines {
    let Some(backend) = backend else {
        return stream::iter([Err("its server is away".to_string())]).boxed();
    };
    let following = Following {
        backend,
        path,
        headers,
        ready: VecDeque::new(),
        stage: Stage::List(String::new()),
    };
    stream::unfold(following, |mut following| async move {
        Some((following.next().await?, following))
    })
    .boxed()
}

struct Following {
    backend: Arc<Backend>,
    path: String,
    headers: HeaderMap,
    ready: VecDeque<Value>,
    stage: Stage,
}

enum Stage {
    /// The page of this token is to be read.
    List(String),
    /// The watch is to be opened from this version on.
    Open(String),
    Watch(Box<Watch>),
    End,
}

/// An open watch.
struct Watch {
    body: Incoming,
    pending: BytesMut,
    /// Held as long as the connection is used.
    _place: crate::transport::StreamPermit,
}

impl Following {
    async fn next(&mut self) -> Option<Result<Value, String>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            let stage = std::mem::replace(&mut self.stage, Stage::End);
            let step = match stage {
                Stage::End => return None,
                Stage::List(token) => self.page(&token).await,
                Stage::Open(version) => self.open(&version).await,
                Stage::Watch(watch) => self.read(watch).await,
            };
            match step {
                Ok(stage) => self.stage = stage,
                Err(why) => return Some(Err(why)),
            }
        }
    }

    async fn page(&mut self, token: &str) -> Result<Stage, String> {
        let mut path = format!("{}?limit={PAGE}", self.path);
        if !token.is_empty() {
            path = format!("{path}&continue={}", proxy::segment(token));
        }
        let ask = BackendRequest {
            method: Method::GET,
            headers: &self.headers,
            body: Bytes::new(),
            most: Some(MAX_PAGE_BYTES),
        };
        let answer = remote_discovery::send_to_backend(&self.backend, &path, &ask)
            .await
            .map_err(|fault| fault.to_string())?;
        if !answer.status.is_success() {
            let code = answer.status.as_u16();
            return Err(format!("bad status from {}: {code}", answer.url));
        }
        let mut list: Value =
            serde_json::from_slice(&answer.body).map_err(|error| format!("{}: {error}", answer.url))?;
        if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
            let events = items
                .into_iter()
                .map(|item| json!({"type": "ADDED", "object": item}));
            self.ready.extend(events);
        }
        let of = |key: &str| meta::dig_str(&list, &["metadata", key]).to_string();
        Ok(match of("continue") {
            token if token.is_empty() => {
                self.ready.push_back(json!({"type": "BOOKMARK"}));
                Stage::Open(of("resourceVersion"))
            }
            token => Stage::List(token),
        })
    }

    async fn open(&mut self, version: &str) -> Result<Stage, String> {
        let version = proxy::segment(version);
        let path = format!("{}?watch=true&resourceVersion={version}", self.path);
        let (status, body, place) = remote_discovery::open(&self.backend, &path, &self.headers).await?;
        if !status.is_success() {
            return Err(format!("bad status from {path}: {}", status.as_u16()));
        }
        Ok(Stage::Watch(Box::new(Watch {
            body,
            pending: BytesMut::new(),
            _place: place,
        })))
    }

    async fn read(&mut self, mut watch: Box<Watch>) -> Result<Stage, String> {
        let Some(frame) = watch.body.frame().await else {
            return Ok(Stage::End);
        };
        let frame = frame.map_err(|error| fault_of(&error))?;
        if let Some(data) = frame.data_ref() {
            watch.pending.extend_from_slice(data);
        }
        while let Some(end) = watch.pending.iter().position(|b| *b == b'\n') {
            let line = watch.pending.split_to(end + 1);
            let event: Value =
                serde_json::from_slice(&line).map_err(|error| format!("{}: {error}", self.path))?;
            if meta::dig_str(&event, &["type"]) == "ERROR" {
                return Err(meta::dig_str(&event, &["object", "message"]).to_string());
            }
            self.ready.push_back(event);
        }
        if watch.pending.len() > MAX_OBJECT_BYTES {
            return Err(format!("an event is larger than {MAX_OBJECT_BYTES} bytes"));
        }
        Ok(Stage::Watch(watch))
    }
}
