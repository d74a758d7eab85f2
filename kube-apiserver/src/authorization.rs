//! Authorizers that know kinds or files, and the chain of all of them. RBAC is in [`crate::rbac`].

mod abac;
pub(crate) mod chain;
mod conditions;
mod config;
pub mod node;
pub(crate) mod options;
pub mod parsers;
