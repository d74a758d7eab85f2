//! The texts of scalars: numbers, bytes, timestamps and durations.

pub(crate) mod codec;
pub(crate) mod time;
