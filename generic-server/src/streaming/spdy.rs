//! SPDY/3.1 as kubelets and their clients speak it: frames, header blocks, and a reader and a writer of a connection.
//!
//! Mirrors what moby/spdystream does of the protocol: WINDOW_UPDATE and SETTINGS are read and have no effect, because the peers send none
//! and wait for none; data is held back by TCP. Streams are opened by the client alone.

mod block;
mod dictionary;
mod frame;
mod io;

pub use block::{Deflater, Headers, Inflater};
pub use frame::{Decoder, Frame};
pub use io::{Reader, Writer};

/// The name of the protocol in `Upgrade` headers.
pub const PROTOCOL: &str = "SPDY/3.1";

/// A peer that does not keep to the protocol; its connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("spdy: {0}")]
pub struct Violation(pub &'static str);
