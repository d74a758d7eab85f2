//! Bounds of connections, and how many the process has descriptors for.

use std::time::Duration;

use machinery::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The bounds of one server's connections. [`machinery::limits`] says what each counts and what happens past it.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once whose first request is awaited; never more than half of all.
    pub handshakes: usize,
    /// Requests that one HTTP/2 connection may have under way.
    pub streams: u32,
    /// How long the head of a request may take.
    pub head: Duration,
    /// How long a connection may be without requests.
    pub idle: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections: limits::CONNECTIONS,
            handshakes: limits::HANDSHAKES,
            streams: limits::STREAMS,
            head: Duration::from_secs(limits::HEAD_SECONDS),
            idle: Duration::from_secs(limits::IDLE_SECONDS),
        }
    }
}

impl ConnectionLimits {
    /// The same, with no more connections than the process has descriptors for. Raises the soft limit of those to the hard one.
    #[must_use]
    pub fn within_descriptors(self) -> Self {
        let all = connections_of(raise_descriptor_limit());
        ConnectionLimits {
            connections: self.connections.min(all - streams_of(all)),
            ..self
        }
    }
}

/// How many connections to nodes there may be, beside those of clients.
pub fn stream_connections() -> usize {
    streams_of(connections_of(raise_descriptor_limit()))
}

/// How many of the connections that descriptors allow are for streams to nodes: a quarter, or fewer.
fn streams_of(all: usize) -> usize {
    (all / 4).min(limits::NODE_CONNECTIONS)
}

/// How many connections a limit of descriptors allows: all but the reserved ones, and half of very few.
fn connections_of(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else {
        return usize::MAX;
    };
    let left = descriptors
        .saturating_sub(limits::RESERVED_DESCRIPTORS)
        .max(descriptors / 2);
    usize::try_from(left.max(1)).unwrap_or(usize::MAX)
}

/// Raises the soft limit of descriptors to the hard one, as Go does at start. Gives the limit that holds then; `None` is no limit.
fn raise_descriptor_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of file descriptors");
            current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_everything_else() {
        let check =
            |descriptors, expected| assert_eq!(connections_of(descriptors), expected, "{descriptors:?}");
        check(None, usize::MAX);
        check(Some(1_048_576), 1_047_808);
        check(Some(2048), 1280);
        check(Some(1024), 512);
        check(Some(512), 256);
        check(Some(300), 150);
        check(Some(1), 1);
        check(Some(0), 1);
        let reserved = limits::RESERVED_DESCRIPTORS;
        check(
            Some(2 * reserved + 1),
            usize::try_from(reserved + 1).expect("a number"),
        );
    }

    #[test]
    fn a_quarter_of_the_connections_may_lead_to_nodes() {
        assert_eq!(streams_of(1_000), 250);
        assert_eq!(streams_of(4 * limits::NODE_CONNECTIONS), limits::NODE_CONNECTIONS);
        assert_eq!(
            streams_of(4 * limits::NODE_CONNECTIONS + 4),
            limits::NODE_CONNECTIONS
        );
    }
}
