//! Streams to nodes: connections that pass from HTTP to WebSocket or SPDY, and what is carried over them.
//!
//! Nothing here knows pods or nodes: it gets a connection to a [`Peer`], joins it with a client's, and translates between the two
//! protocols where they differ. Mirrors `k8s.io/apimachinery/pkg/util/proxy` and `k8s.io/apiserver/pkg/util/proxy`. Invariants: a
//! reader hands bytes on before it takes more, so a slow end slows the other and no queue grows; either end going away ends both.

pub mod headers;
mod messages;
mod peer;
mod pipe;
mod remote_command;
pub mod spdy;
mod tunnel;
mod upgrade;
pub mod websocket;

pub use crate::client::{Connection, Io};
pub use messages::{Framing, messages};
pub use peer::{Peer, exchange};
pub use pipe::join;
pub use remote_command::{Channels, RemoteCommand};
pub use tunnel::tunnel;
pub(crate) use upgrade::Kept;
pub use upgrade::{ClientSide, Switch, Switched, switch};
