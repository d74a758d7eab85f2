//! Upgrades: a client's connection that leaves HTTP, and one to a node that does.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Extensions, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::limits;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::headers::asks_upgrade;
use super::peer::{Driver, Held, Peer, owned, settings};
use crate::client::{Fault, Io, fault_of};
use crate::request::{Body, Response, empty};
use crate::spawn::Tasks;

/// How long a client may take to read the 101.
const SWITCH: Duration = Duration::from_secs(30);

/// What lasts as long as a connection that has switched: the body of its 101, with all that is bound to it. The audit's last event and
/// the count of long-running requests come with the end of the stream that way, not with its head.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Body>>);

impl Kept {
    /// For a request that asks for another protocol; its [`ClientSide`] finds it there.
    pub(crate) fn for_upgrade(head: &mut Parts) -> Option<Arc<Self>> {
        let kept = asks_upgrade(&head.headers).then(Arc::<Self>::default)?;
        head.extensions.insert(kept.clone());
        Some(kept)
    }

    /// Takes the body of an answer that switches.
    pub(crate) fn keep(&self, response: Response) -> Response {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        response.map(|body| {
            *self.0.lock() = Some(body);
            empty()
        })
    }
}

/// The client's connection, once it has the answer 101.
#[derive(Debug)]
pub struct ClientSide {
    switched: Option<OnUpgrade>,
    kept: Option<Arc<Kept>>,
}

impl ClientSide {
    /// Of a request that the chain passed on.
    pub fn of(extensions: &Extensions) -> Self {
        ClientSide {
            switched: extensions.get().cloned(),
            kept: extensions.get().cloned(),
        }
    }

    /// Waits until the answer is written; `None` when the client is gone or did not speak HTTP/1.1.
    pub async fn ready(self) -> Option<Io> {
        let upgraded = timeout(SWITCH, self.switched?).await.ok()?.ok()?;
        let kept = self.kept.map(|kept| kept as Arc<dyn Debug + Send + Sync>);
        Some(Box::new(Held::new(TokioIo::new(upgraded), kept)))
    }
}

/// A node's answer to a request for an upgrade.
pub enum Switched {
    /// It switched: the head of its 101, and the connection.
    Yes(http::HeaderMap, Io),
    /// It did not.
    No(http::Response<Body>),
}

impl Debug for Switched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Switched::Yes(headers, _) => f.debug_tuple("Yes").field(headers).finish_non_exhaustive(),
            Switched::No(answer) => f.debug_tuple("No").field(&answer.status()).finish(),
        }
    }
}

/// Why a node did not answer a request for an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Switch {
    /// There is no connection to it.
    #[error("{0}")]
    Dial(Fault),
    /// The connection broke, or there was no answer in time.
    #[error("{0}")]
    Answer(Fault),
}

/// Sends a request for an upgrade, whose URI is path and query, on a connection of its own.
///
/// # Errors
/// Why there is no answer.
pub async fn switch(tasks: &Tasks, peer: &Peer, request: http::Request<Body>) -> Result<Switched, Switch> {
    let io = peer.connect().await.map_err(Switch::Dial)?;
    switch_on(tasks, io, request).await
}

/// The same on a connection that is there.
async fn switch_on(tasks: &Tasks, io: Io, request: http::Request<Body>) -> Result<Switched, Switch> {
    let fault = |error: hyper::Error| Switch::Answer(Fault(fault_of(&error)));
    let answer = async {
        let (mut sender, connection) = settings().handshake(TokioIo::new(io)).await.map_err(fault)?;
        let driver = Driver::new(tasks.spawn("node upgrade", async move {
            // Its failure reaches the request that waits on it.
            let _ = connection.with_upgrades().await;
        }));
        let mut response = sender.send_request(request).await.map_err(fault)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Switched::No(owned(response, driver)));
        }
        let upgraded = hyper::upgrade::on(&mut response).await.map_err(fault)?;
        let headers = std::mem::take(response.headers_mut());
        Ok(Switched::Yes(headers, Box::new(TokioIo::new(upgraded))))
    };
    let late = || Switch::Answer(Fault("net/http: timeout awaiting response headers".into()));
    timeout(limits::STREAM_WAIT, answer).await.map_err(|_| late())?
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What becomes of a request that a node answers after this time.
    async fn switched_after(wait: Duration) -> Result<Switched, Switch> {
        let (mut node, ours) = tokio::io::duplex(4096);
        let request = http::Request::get("/exec")
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .body(empty())
            .expect("a request");
        let tasks = Tasks::new();
        let answering = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                node.read_buf(&mut head).await.expect("read");
            }
            tokio::time::sleep(wait).await;
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
            // The other end may have given up.
            let _ = node.write_all(answer).await;
        };
        tokio::join!(switch_on(&tasks, Box::new(ours), request), answering).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_has_its_time_to_answer() {
        let short = Duration::from_millis(1);
        let in_time = switched_after(limits::STREAM_WAIT - short).await;
        assert!(matches!(in_time, Ok(Switched::Yes(..))), "{in_time:?}");
        let late = switched_after(limits::STREAM_WAIT + short).await;
        let why = late.err().map(|why| why.to_string());
        assert_eq!(
            why.as_deref(),
            Some("net/http: timeout awaiting response headers")
        );
    }
}
