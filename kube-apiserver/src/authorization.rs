//! Authorizers that know kinds. RBAC, which knows none, is in the generic server.

pub mod node;
