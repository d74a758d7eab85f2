//! Label and field selectors: parsed once per request, then matched against borrowed labels and fields.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::{LabelSelector, LabelSource};
