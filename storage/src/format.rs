//! Versions of the formats on disk: newer ones are refused, older ones migrated, one step after the other.
//!
//! There are two, of the directory's layout (its file `FORMAT`) and of the ordered map within (`m/format`). Each begins at 1, and
//! the newest that a program knows is one more than it has steps. Before a step begins, it is noted which version it leads to;
//! the new version is noted with its end. So a step that was cut short begins again, and a program that does not know the
//! new version refuses the store from the step's first write on.

use crate::StorageError;

/// The version noted in a store, and the one that a step which has not ended leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    pub version: u32,
    pub becoming: Option<u32>,
}

/// The newest version of a program with these steps.
pub(crate) fn newest<S>(steps: &[S]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(1)
}

/// The steps that are still to be taken, each with the version it leads to. Fails with `NewerFormat` when the store has been, or
/// is becoming, newer than the last of them leads to.
pub(crate) fn pending<S>(noted: Noted, steps: &[S]) -> Result<impl Iterator<Item = (u32, &S)>, StorageError> {
    let supported = newest(steps);
    let found = noted.version.max(noted.becoming.unwrap_or(0));
    if found > supported {
        return Err(StorageError::NewerFormat { found, supported });
    }
    let done = noted
        .version
        .checked_sub(1)
        .ok_or_else(|| StorageError::Corrupt("there is no format version 0".into()))?;
    Ok((2..).zip(steps).skip(done as usize))
}
