//! The aggregator: the outermost server. APIServices say which group versions are served here and which by remote servers;
//! it proxies to those, and publishes discovery and OpenAPI of all of them as one.
//!
//! It never imports the other servers: they are its next [`generic_server::delegate::Delegate`] and its local
//! [`generic_server::discovery::DiscoverySource`]s.

pub mod apiservice;
mod autoregister;
mod available;
mod backend;
mod content;
mod local;
mod metrics;
mod proxy;
mod published;
mod remote;
mod remote_discovery;
mod resolve;
mod routes;
mod server;
mod transport;

pub use local::{LocalVersion, Priorities};
pub use server::{Aggregator, Deps};
pub use transport::ProxyKey;
