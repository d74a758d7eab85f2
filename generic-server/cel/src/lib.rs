//! CEL as Kubernetes 1.36 speaks it: parser, type checker, cost estimator and cost-limited evaluator.
//!
//! Used for `x-kubernetes-validations`, admission policies and match conditions. It does no IO, knows no API machinery, and holds
//! no state: callers describe their data with [`DeclType`], compile once with an [`Env`], share the [`Program`] and evaluate it
//! over borrowed `serde_json` data. Invariants:
//! - Error texts, types, costs and limits are those of cel-go v0.26 in the configuration of
//!   `apiserver/pkg/cel/environment/base.go`.
//! - No input makes it panic, recurse without bound or work much longer than its price: depth, tree size, pattern size and cost
//!   are limited.

mod ast;
mod authz;
mod checker;
#[cfg(test)]
mod conformance;
mod cost;
mod decls;
mod env;
mod error;
mod eval;
mod functions;
mod lexer;
mod opaque;
mod parser;
mod plan;
mod price;
mod scalar;
mod types;
mod validate;
mod value;

pub use authz::{Authorizer, AuthzCheck, AuthzResource, AuthzTarget, AuthzVal, Decision};
pub use cost::CostEstimate;
pub use decls::Library;
pub use env::{
    Bindings, Env, EnvBuilder, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, Program, RULE_ESTIMATE_LIMIT,
    RUNTIME_BUDGET, SCHEMA_ESTIMATE_LIMIT,
};
pub use error::{CompileErrors, EvalError};
pub use opaque::{Opaque, Semver};
pub use parser::is_identifier;
pub use price::AUTHZ_CHECK;
pub use types::{
    DeclKind, DeclType, Field, FieldDecl, ListType, MAX_REQUEST_BYTES, ObjectType, Type, escape_field,
};
pub use value::{Entries, Key, LazyObject, List, Map, Str, Val};
