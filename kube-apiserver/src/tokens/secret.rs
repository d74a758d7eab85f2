//! Secrets that tokens are in: their values, and comparing with them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// A value of a secret's `data`.
pub(super) fn data(secret: &Value, key: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD
        .decode(secret.get("data")?.get(key)?.as_str()?)
        .ok()
}

/// Compares in a time that does not tell where texts differ.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}
