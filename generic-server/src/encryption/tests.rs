//! A configuration over stores.
