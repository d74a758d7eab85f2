//! The CustomResourceDefinition kind: its validation, its names, and its status.

pub(crate) mod approval;
pub(crate) mod internal;
pub(crate) mod naming;
pub(crate) mod priority;
pub(crate) mod status;
pub(crate) mod stored;
pub(crate) mod strategy;
pub(crate) mod validation;
