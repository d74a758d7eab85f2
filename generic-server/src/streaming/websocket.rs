//! WebSocket (RFC 6455): the handshake of a server, frames of both ends, and a reader and a writer of a connection.
//!
//! No extensions: none is offered back, so frames with reserved bits are refused.

mod frame;
mod handshake;
mod io;

pub use frame::{Decoder, End, Event, Violation};
pub use handshake::{accept, accept_key, is_asked, offered};
pub use io::{Reader, Writer};

/// The subprotocol of messages that are bytes.
pub const BYTES: &str = "binary.k8s.io";
/// The subprotocol of messages that are bytes in base64, as text.
pub const BASE64: &str = "base64.binary.k8s.io";

/// The status of a connection that did its work.
pub const NORMAL: u16 = 1000;
