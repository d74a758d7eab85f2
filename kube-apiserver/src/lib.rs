//! The built-in kinds: every group, version, resource and subresource of Kubernetes that is not a custom resource
//! definition or an API registration, with their defaults, validation, views and what runs beside them.
//!
//! A kind is a file in `groups/<group>/`: `Rules` where data says it all, a `Strategy` of its own where not. The
//! library knows no HTTP: `generic-server` serves what [`groups`] describes.

mod access;
mod admission;
pub mod authorization;
mod blocking;
mod bootstrap;
mod client;
mod config_file;
mod controllers;
mod deps;
mod egress;
mod errors;
mod groups;
mod json;
mod kind;
mod net;
mod nodes;
mod quantity;
pub mod rbac;
mod replicas;
mod resources;
mod rules;
mod served;
mod table;
pub mod tokens;
mod tolerations;
mod unique;

pub use access::{Access, AccessError, AccessOptions, TokenOptions, TokenWebhookOptions, follow_rbac};
pub use admission::{AdmissionOptions, PluginConfigs, PluginSelection, TolerationSeconds, admission_chain};
pub use authorization::options::{
    AuthorizationMode, AuthorizationOptions, AuthorizationSource, AuthorizationWebhookOptions,
};
pub use bootstrap::{
    ClusterAuthorities, Facts, Masters, bootstrap, bootstrap_fork, bootstrap_later, keep_endpoints,
    keep_flow_control,
};
pub use controllers::{
    CONTROLLERS, Controller, controllers, keep_identity, keep_service_cidr, keep_token_tracking, keep_trust,
};
pub use deps::{Deps, IssuedToken, KindFeatures, TokenClaims, TokenIssuer, TokenLifetimes};
pub use egress::read_egress;
pub use groups::core::service_alloc::keep_node_ports;
pub use groups::{groups, has_version, priority};
pub use net::{Cidr, special_ip};
pub use nodes::{KubeletOptions, Nodes};
pub use served::ServedApis;
pub use tokens::jwt::{JwtSource, OidcOptions};
