//! CBOR in and out, as `k8s.io/apimachinery/pkg/runtime/serializer/cbor` has it: strings are written as byte strings, map
//! keys sorted by their encoding, the whole marked by the self-described tag. Text strings are read as well.
//!
//! Big numbers, undefined values, and maps with a key twice are refused.

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod walk;

pub use decode::{decode, decode_bytes_of};
pub use encode::{array_head, encode, encode_typed, map_head, write, write_key};
pub use walk::{first_unknown, interpret, item_length};

/// The first bytes of an encoded object: tag 55799.
pub const PREFIX: &[u8; 3] = &[0xd9, 0xd9, 0xf7];
