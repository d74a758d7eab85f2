//! The IO-free vocabulary of Kubernetes: names, objects, errors, selectors, schemas and passes over objects by schema.
//!
//! Nothing here opens a socket, reads a file or knows which kinds exist. Objects are [`serde_json::Value`]s; a kind's
//! shape is a [`schema::Schema`], and every pass over objects (strict decoding, pruning, defaulting, validation, patches,
//! server-side apply, transcoding) is written once against it.
#![warn(missing_docs)]

pub mod accessor;
pub mod apply;
pub mod codec;
pub mod custom;
pub mod field;
pub mod gvk;
pub mod jsonpath;
pub mod limits;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
mod steps;
pub mod table;
pub mod time;

pub use field::{FieldError, FieldErrorKind, FieldPath};
pub use go_text as go;
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use serde_json::{Map, Value};
pub use status::{ApiError, Cause, Reason};
