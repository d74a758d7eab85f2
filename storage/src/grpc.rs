//! gRPC with hand-declared messages: for etcd, for key management plugins, for the program that signs tokens, and for proxies.

mod codec;
mod socket;
mod stream;

pub(crate) use codec::ProstCodec;
pub(crate) use socket::is_away;
pub use socket::{SocketClient, code_name, text};
pub use stream::{Answers, RequestSender, SocketStream};
