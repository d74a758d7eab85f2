//! gRPC with hand-declared messages: for etcd, for key management plugins, and for the program that signs tokens.

mod codec;
mod socket;

pub(crate) use codec::ProstCodec;
pub(crate) use socket::is_away;
pub use socket::{SocketClient, code_name, text};
