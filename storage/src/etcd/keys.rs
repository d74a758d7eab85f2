//! Keys and pairs as etcd has them, and as this crate has them.

use bytes::Bytes;

use super::messages::{Pair, unsigned};
use crate::{KeyValue, Revision, StorageError};

/// Where a prefix's keys begin. The empty key stands for no key at all, so the first possible one is named.
pub(super) fn first(prefix: &str) -> Bytes {
    if prefix.is_empty() {
        Bytes::from_static(b"\0")
    } else {
        Bytes::copy_from_slice(prefix.as_bytes())
    }
}

/// The first key past a prefix's; `\0` is etcd's word for no end.
pub(super) fn end(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}

pub(super) fn pair(pair: Pair) -> Result<KeyValue, StorageError> {
    let key = std::str::from_utf8(&pair.key)
        .map_err(|_| StorageError::Corrupt(format!("the key {:?} is not text", pair.key)))?;
    Ok(KeyValue {
        damage: None,
        key: key.into(),
        value: pair.value,
        create_revision: Revision(unsigned(pair.create_revision)),
        mod_revision: Revision(unsigned(pair.mod_revision)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_become_ranges() {
        #[track_caller]
        fn check(prefix: &str, expected: &[u8]) {
            assert_eq!(&end(prefix)[..], expected);
        }
        check("/registry/", b"/registry0");
        check("a", b"b");
        check("", b"\0");
        check("\u{10ffff}", b"\xf4\x8f\xbf\xc0");
        assert_eq!(&first("")[..], b"\0");
    }
}
