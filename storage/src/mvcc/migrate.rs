//! Brings an ordered map that an older program wrote to the newest version.

use std::path::Path;

use super::kv::{Kv, Write};
use super::record::{self, Header};
use crate::StorageError;
use crate::directory::DirectoryStep;
use crate::format::{self, Noted};

/// Leads from one version of the ordered map to the next. It applies what batches it needs, each of a bounded size, and gives
/// its last one, with which the new version is noted. A crash makes it begin again on what it has done so far.
pub(super) type MapStep = fn(&dyn Kv) -> Result<Vec<Write>, StorageError>;

/// The steps a program knows; [`format`](crate::format) describes how they are numbered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formats {
    pub directory: &'static [DirectoryStep],
    pub map: &'static [MapStep],
}

/// This program's: the directory and the map are each at their second version.
pub(super) const FORMATS: Formats = Formats {
    directory: &[second_copy],
    map: &[checksums],
};

/// To version 2: `FORMAT` has a checksum and a copy. Both come with the version, which is noted in them.
fn second_copy(_: &Path) -> Result<(), StorageError> {
    Ok(())
}

/// Headers that are rewritten in one batch.
const HEADERS_PER_BATCH: usize = 2048;

/// To version 2: headers carry their place and, like settings, a checksum in each of two copies. A header that version 1 could not
/// read either is left as it is, and reported when the store is opened.
fn checksums(kv: &dyn Kv) -> Result<Vec<Write>, StorageError> {
    let (mut from, to) = record::header_range(0, None);
    loop {
        let mut batch = Vec::new();
        let mut seen = 0;
        let mut next = None;
        kv.reader()?.scan(&from, &to, &mut |key, stored| {
            seen += 1;
            if seen > HEADERS_PER_BATCH {
                next = Some(key.to_vec());
                return Ok(false);
            }
            // The step may begin again on what it has done.
            let done = Header::decode(stored).is_some();
            if let Some(at) = record::parse_header_key(key).filter(|_| !done)
                && let Some(header) = Header::decode_fields(stored)
            {
                batch.push(Write::Put(key.to_vec(), header.encode(at)));
            }
            Ok(true)
        })?;
        if !batch.is_empty() {
            kv.apply(&batch)?;
        }
        match next {
            Some(key) => from = key,
            None => break,
        }
    }
    let reader = kv.reader()?;
    let mut last = Vec::new();
    if let Some(len) = record::read_u32(&*reader, record::META_CHUNK)? {
        last.push(record::put_u32(record::META_CHUNK, len));
    }
    for setting in [record::META_OLDEST, record::META_REVISION] {
        if let Some(revision) = record::read_u64(&*reader, setting)? {
            last.push(record::put_u64(setting, revision));
        }
    }
    Ok(last)
}

/// Takes the steps that are still to be taken. A map without a version is left as it is.
pub(super) fn migrate(kv: &dyn Kv, steps: &[MapStep]) -> Result<(), StorageError> {
    let noted = {
        let reader = kv.reader()?;
        let Some(version) = record::read_u32(&*reader, record::META_FORMAT)? else {
            return Ok(());
        };
        let becoming = record::read_u32(&*reader, record::META_BECOMING)?;
        Noted { version, becoming }
    };
    for (to, step) in format::pending(noted, steps)? {
        tracing::info!(engine = kv.name(), to, "migrating the store");
        kv.apply(&[record::put_u32(record::META_BECOMING, to)])?;
        let mut last = step(kv)?;
        last.push(record::put_u32(record::META_FORMAT, to));
        last.push(Write::Delete(record::META_BECOMING.to_vec()));
        kv.apply(&last)?;
    }
    Ok(())
}
