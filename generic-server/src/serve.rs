//! Listening and serving connections: TCP, TLS, HTTP/1.1 and HTTP/2 on one port, and connections in memory.
//!
//! It knows nothing of Kubernetes: each request goes to a [`Handler`] (the handler chain) with the connection's facts
//! ([`ConnectionInfo`]) in its extensions. Connections are tasks owned by the [`Server`]; [`Server::drain`] ends them.

mod clock;
mod connection;
mod head;
mod io;
mod limits;
mod listener;
mod registry;
mod tls;
mod unread;

pub use crate::metrics::ConnectionMetrics;
pub use crate::request::ConnectionInfo;
pub use connection::{Handler, Server};
pub use limits::{ConnectionLimits, stream_connections};
pub use listener::{Listener, bind, bind_shared};
pub use rustls::sign::CertifiedKey;
pub use tls::{
    SniCertificate, Tls, TlsError, TlsOptions, TlsVersion, certificate_names, certified_key,
    read_certificates, speaks_cipher_suite, speaks_curve,
};

#[cfg(test)]
mod tests;
