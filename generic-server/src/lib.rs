//! The library that every API server of this project is built on: listening, the handler chain, authentication and
//! authorization, routing, the verbs, admission, the registry with its cached object store, discovery and OpenAPI.
//!
//! It knows no kinds but those that configure dynamic admission, and namespaces: a server brings [`resource::ServedResource`]s,
//! each a schema, a [`registry::strategy::Strategy`] and an [`registry::ObjectStore`], and gets every verb, discovery and
//! documentation from it. `docs/architecture.md` has the map.
#![warn(missing_docs)]

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod chain;
pub mod client;
pub mod cpu;
pub mod crypto;
mod decoding;
pub mod delegate;
pub mod delegated;
pub mod directory;
pub mod discovery;
pub mod dynamic_admission;
pub mod encryption;
pub mod endpoint;
pub mod endpoint_slices;
pub mod filters;
pub mod flagz;
pub mod flowcontrol;
mod group;
pub mod handlers;
pub mod health;
pub mod identity;
pub mod lifecycle;
pub mod metrics;
pub mod negotiate;
pub mod openapi;
pub mod paths;
pub mod pki;
pub mod registry;
pub mod reload;
pub mod request;
pub mod request_info;
pub mod resource;
pub mod respond;
pub mod serve;
pub mod server;
pub mod spawn;
pub mod startup;
pub mod statusz;
pub mod streaming;
pub mod version;
pub mod webhook;
pub mod write;
mod zero_values;
mod zpages;

pub use machinery::ApiError;
pub use request::{Authorized, Body, Request, RequestContext, RequestInfo, Response, User};
