//! `STORE`, beside the directory of an engine: that there has been a store, of which engine, and how far it was.
//!
//! `FORMAT` and `REVISION` go with the engine's directory when it is removed or emptied while the rest of the data directory stays. A
//! server that then began an empty cluster would reuse revisions that its watchers have seen. The file is kept where the directory
//! bears the name of its engine, as in a data directory: `DATA/STORE` beside `DATA/redb/`.
//!
//! It is a line, `engine redb revision 12`, in two copies ([`copies`]), written when the store is opened and closed.

use std::path::{Path, PathBuf};

use super::{NEW, copies, remove, with_suffix, write_durably};
use crate::EngineKind;

const NAME: &str = "STORE";

/// What is known of a store from outside of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// There has been none.
    Nothing,
    /// There has been one; the file is damaged.
    Something,
    /// There has been one of this engine, and it was at least here.
    Store { engine: EngineKind, revision: u64 },
}

/// The file, where there is to be one.
pub(super) fn place(dir: &Path, engine: EngineKind) -> Option<PathBuf> {
    let named = dir.file_name().is_some_and(|name| name == engine.name());
    named.then(|| dir.with_file_name(NAME))
}

impl Known {
    pub(super) fn read(dir: &Path, engine: EngineKind) -> Known {
        let Some(path) = place(dir, engine) else {
            return Known::Nothing;
        };
        match std::fs::read(&path) {
            Ok(bytes) => Known::parse(&bytes).unwrap_or(Known::Something),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Known::Nothing,
            Err(_) => Known::Something,
        }
    }

    fn parse(bytes: &[u8]) -> Option<Known> {
        copies::lines(bytes).find_map(|line| {
            let (engine, revision) = line.strip_prefix("engine ")?.split_once(" revision ")?;
            Some(Known::Store {
                engine: engine.parse().ok()?,
                revision: revision.parse().ok()?,
            })
        })
    }

    /// How far the store was, of whichever engine.
    pub(super) fn revision(self) -> Option<u64> {
        match self {
            Known::Store { revision, .. } => Some(revision),
            Known::Nothing | Known::Something => None,
        }
    }
}

/// Notes how far the store is. Where that fails the note before stays, which is as true and says less.
pub(super) fn note(dir: &Path, engine: EngineKind, revision: u64) {
    let Some(path) = place(dir, engine) else {
        return;
    };
    let copy = copies::copy(&format!("engine {} revision {revision}", engine.name()));
    let both = copy.repeat(2);
    // One that is damaged in one copy is written again.
    if std::fs::read(&path).is_ok_and(|there| there == both.as_bytes()) {
        return;
    }
    if let Err(error) = write_durably(&path, &both) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the store's revision cannot be noted beside it"
        );
        // A leftover is overwritten by the next note.
        let _ = remove(&with_suffix(&path, NEW));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_copy_leaves_the_other() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("sled");
        assert_eq!(Known::read(&dir, EngineKind::Sled), Known::Nothing);
        note(&dir, EngineKind::Sled, 12);
        let known = Known::Store {
            engine: EngineKind::Sled,
            revision: 12,
        };
        assert_eq!(Known::read(&dir, EngineKind::Sled), known);
        assert_eq!(
            Known::read(&parent.path().join("redb"), EngineKind::Redb),
            known,
            "the same for each engine"
        );
        let file = parent.path().join(NAME);
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&file, &damaged).unwrap();
            assert_eq!(Known::read(&dir, EngineKind::Sled), known, "byte {at}");
        }
        // It is put right by the next note, of the same revision, too.
        note(&dir, EngineKind::Sled, 12);
        assert_eq!(std::fs::read(&file).unwrap(), whole);
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(Known::read(&dir, EngineKind::Sled), Known::Something);
    }

    #[test]
    fn a_line_of_an_earlier_version_is_read() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("redb");
        let line = "engine redb revision 12";
        let sum = crc32fast::hash(line.as_bytes());
        std::fs::write(parent.path().join(NAME), format!("{line} sum {sum:08x}\n")).unwrap();
        let known = Known::Store {
            engine: EngineKind::Redb,
            revision: 12,
        };
        assert_eq!(Known::read(&dir, EngineKind::Redb), known);
    }

    #[test]
    fn a_directory_of_another_name_has_no_file_beside() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        note(&dir, EngineKind::Redb, 1);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        assert_eq!(Known::read(&dir, EngineKind::Redb), Known::Nothing);
    }
}
