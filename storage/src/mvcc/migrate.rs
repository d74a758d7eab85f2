//! Brings an ordered map that an older program wrote to the newest version.

use super::kv::{Kv, Write};
use super::record;
use crate::StorageError;
use crate::directory::DirectoryStep;
use crate::format::{self, Noted};

/// Leads from one version of the ordered map to the next. It applies what batches it needs, each of a bounded size, and gives
/// its last one, with which the new version is noted. A crash makes it begin again on what it has done so far.
pub(super) type MapStep = fn(&dyn Kv) -> Result<Vec<Write>, StorageError>;

/// The steps a program knows; [`format`](crate::format) tells how they count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formats {
    pub directory: &'static [DirectoryStep],
    pub map: &'static [MapStep],
}

/// This program's: both versions are the first.
pub(super) const FORMATS: Formats = Formats {
    directory: &[],
    map: &[],
};

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
