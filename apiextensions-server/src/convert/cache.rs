//! Cache of a webhook's answers, so that it is called once for each write of an object.

use std::collections::HashMap;

use bytes::Bytes;

/// Bytes of answers kept at most, per CRD, in each of two generations.
const MAX_BYTES: usize = 16 << 20;
/// The approximate overhead of an answer, in bytes.
const OVERHEAD: usize = 200;

/// The uid and the resourceVersion of an object, and the version that it was converted to.
pub(super) type Key = (String, u64, String);

/// Two generations: when the newer one is full it becomes the older, and the entries of that are dropped.
#[derive(Debug, Default)]
pub(super) struct Kept {
    newer: HashMap<Key, Bytes>,
    older: HashMap<Key, Bytes>,
    /// Of the newer ones.
    bytes: usize,
}

impl Kept {
    pub(super) fn get(&self, key: &Key) -> Option<&Bytes> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    pub(super) fn keep(&mut self, key: Key, converted: Bytes) {
        let cost = converted.len() + OVERHEAD;
        if self.bytes + cost > MAX_BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += cost;
        self.newer.insert(key, converted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_of_one_write_and_version() {
        let mut kept = Kept::default();
        let key = |rv: u64, version: &str| ("u".to_string(), rv, version.to_string());
        kept.keep(key(1, "g/v2"), Bytes::from_static(b"{}"));
        assert!(kept.get(&key(1, "g/v2")).is_some());
        assert!(kept.get(&key(2, "g/v2")).is_none());
        assert!(kept.get(&key(1, "g/v3")).is_none());
        let large = Bytes::from(vec![b' '; MAX_BYTES / 4]);
        for rv in 2..12 {
            kept.keep(key(rv, "g/v2"), large.clone());
        }
        assert!(kept.get(&key(1, "g/v2")).is_none(), "old answers go");
        assert!(
            kept.newer.len() + kept.older.len() <= 8,
            "what is kept is bounded by its bytes"
        );
    }
}
