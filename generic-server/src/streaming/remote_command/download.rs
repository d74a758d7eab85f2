//! From the node to the client: output, and the end of the command.

use machinery::{ApiError, limits};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::super::spdy::Frame;
use super::{Ended, FromNode, STDERR, STDOUT, Stdin, Streams, TIMED_OUT, ToClient, ToNode, Version, status};

/// What is still awaited of the node.
#[derive(Debug)]
struct Awaited {
    /// Streams that are not accepted yet.
    replies: Vec<u32>,
    /// Streams that are not at their end.
    ends: Vec<u32>,
}

impl Awaited {
    fn new(streams: Streams, version: Version) -> Self {
        // The first version says nothing at the end of a command that went well.
        let error = if version == Version(1) { 0 } else { streams.error };
        let ends = [error, streams.stdout, streams.stderr];
        Awaited {
            replies: streams.all().map(|(stream, _)| stream).collect(),
            ends: ends.into_iter().filter(|stream| *stream != 0).collect(),
        }
    }
}

fn broken(why: &str) -> Ended {
    Ended::Status(status::of_error(&ApiError::internal(why)))
}

/// Carries what the node sends, until the command is over. `ready` is set once the node has all streams, which has to be by `accepted_by`.
pub(super) async fn run(
    streams: Streams,
    version: Version,
    frames: &mut FromNode,
    client: &ToClient,
    node: &ToNode,
    stdin: &Stdin,
    (ready, accepted_by): (watch::Sender<bool>, Instant),
) -> Ended {
    let mut awaited = Awaited::new(streams, version);
    let mut message = Vec::new();
    loop {
        let next = match awaited.replies.is_empty() {
            true => frames.next().await,
            false => match timeout_at(accepted_by, frames.next()).await {
                Ok(next) => next,
                Err(_) => return broken(TIMED_OUT),
            },
        };
        let ended = match next {
            Ok(Some(Frame::Data { stream, bytes, last })) => {
                let channel = match stream {
                    stream if stream == streams.stdout => Some(STDOUT),
                    stream if stream == streams.stderr => Some(STDERR),
                    _ => None,
                };
                if let Some(channel) = channel.filter(|_| !bytes.is_empty()) {
                    if client.message(&[&[channel], &bytes]).await.is_err() {
                        return Ended::Cut;
                    }
                } else if stream == streams.error {
                    let room = limits::COMMAND_STATUS_BYTES.saturating_sub(message.len());
                    message.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
                    // The first version's only message is of a failure.
                    if version == Version(1) && last && !message.is_empty() {
                        break;
                    }
                }
                last.then_some(stream)
            }
            Ok(Some(Frame::Reply { stream, last })) => {
                awaited.replies.retain(|reply| *reply != stream);
                if awaited.replies.is_empty() {
                    ready.send_replace(true);
                }
                last.then_some(stream)
            }
            Ok(Some(Frame::Headers { stream, last })) => last.then_some(stream),
            Ok(Some(Frame::Reset(stream))) => {
                if awaited.replies.contains(&stream) {
                    return broken("Stream reset");
                }
                Some(stream)
            }
            Ok(Some(Frame::Ping(id))) => {
                // An odd one is the answer to one of this end.
                if id % 2 == 0 {
                    node.pong(id);
                }
                None
            }
            // Nodes open none.
            Ok(Some(Frame::Open { .. })) => return broken("the node opened a stream"),
            Ok(Some(Frame::GoAway | Frame::Ignored)) => None,
            // Upstream takes it for the end of a command that went well.
            Ok(None) => return broken("error reading from error stream: unexpected EOF"),
            Err(error) => return broken(&format!("error reading from error stream: {error}")),
        };
        let Some(stream) = ended else { continue };
        if stream == streams.stdin {
            stdin.refused.notify_one();
        }
        awaited.ends.retain(|end| *end != stream);
        if awaited.ends.is_empty() {
            break;
        }
    }
    Ended::Status(status::of_message(&message, version))
}
