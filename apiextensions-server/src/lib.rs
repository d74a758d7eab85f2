//! Custom resources: the CustomResourceDefinition kind, and a server whose resources come and go with its objects.
//!
//! [`ApiExtensions`] answers for `apiextensions.k8s.io` and for every group that CRDs define. It is the last server in the
//! delegation chain and knows no built-in kind. Mirrors `k8s.io/apiextensions-apiserver`.

mod controllers;
mod convert;
mod crd;
mod custom;
mod definition;
mod deps;
mod discovery;
mod embedded;
mod fieldpath;
mod formats;
mod impact;
mod index;
mod list_types;
mod metrics;
mod openapi;
mod props;
mod read_back;
mod resource;
mod rules;
mod schema;
mod server;
mod siblings;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod versions;

pub use deps::{Deps, Limits, priority};
pub use metrics::CostMetrics;
pub use server::ApiExtensions;
pub use usage::RuleTimes;
