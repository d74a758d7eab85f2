//! `FORMAT` and its copy: that there is a store, of which engine and of which version of the directory's layout.
//!
//! Each file is one line with a checksum, `format 2 engine redb sum 1a2b3c4d`; amid a step it is `format 2 becoming 3 engine redb sum
//! 1a2b3c4d`. A damaged or missing one is written again from the other. Version 1 had one file, without the checksum.

use std::path::Path;

use super::{failed, write_durably};
use crate::StorageError;
use crate::format::Noted;

/// In the order in which they are written: after a crash between the two the first is the newer one.
const NAMES: [&str; 2] = ["FORMAT", "FORMAT.copy"];

/// The content of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub noted: Noted,
    /// The engine's name, which a newer program may have chosen.
    pub engine: String,
}

/// One of the files.
#[derive(Debug, PartialEq, Eq)]
enum Copy {
    Missing,
    Damaged,
    /// Of version 1.
    Plain(Note),
    Sound(Note),
}

impl Note {
    fn line(&self) -> String {
        let becoming = self.noted.becoming;
        let becoming = becoming.map_or(String::new(), |to| format!(" becoming {to}"));
        let line = format!("format {}{becoming} engine {}", self.noted.version, self.engine);
        let sum = crc32fast::hash(line.as_bytes());
        format!("{line} sum {sum:08x}\n")
    }

    /// Reads a line without its checksum.
    fn parse(line: &str) -> Option<Note> {
        let (versions, engine) = line.strip_prefix("format ")?.split_once(" engine ")?;
        let (version, becoming) = match versions.split_once(" becoming ") {
            Some((version, to)) => (version, Some(to.parse().ok()?)),
            None => (versions, None),
        };
        let noted = Noted {
            version: version.parse().ok()?,
            becoming,
        };
        Some(Note {
            noted,
            engine: engine.to_owned(),
        })
    }

    /// The note in a directory; `None` where there has been no store. Fails with `Corrupt` when no copy is sound.
    pub(super) fn read(dir: &Path) -> Result<Option<Note>, StorageError> {
        let [first, second] = NAMES.map(|name| Copy::read(&dir.join(name)));
        let path = dir.join(NAMES[0]);
        let why = match (first, second) {
            (Copy::Sound(note), _) | (_, Copy::Sound(note)) | (Copy::Plain(note), Copy::Missing) => {
                return Ok(Some(note));
            }
            (Copy::Missing, Copy::Missing) => return Ok(None),
            (_, Copy::Missing) => format!("`{}` is not a format file", path.display()),
            _ => format!("`{}` and its copy `{}` are damaged", path.display(), NAMES[1]),
        };
        Err(StorageError::Corrupt(why))
    }

    /// Whether a directory has, or had, a store of this.
    pub(super) fn exists(dir: &Path) -> bool {
        NAMES.iter().any(|name| dir.join(name).exists())
    }

    /// Writes both copies.
    pub(super) fn write(&self, dir: &Path) -> Result<(), StorageError> {
        NAMES
            .iter()
            .try_for_each(|name| write_durably(&dir.join(name), &self.line()))
    }

    /// Writes the copy that does not say this again, from version 2 on. A store is as good without.
    pub(super) fn repair(&self, dir: &Path) {
        if self.noted.version < 2 {
            return;
        }
        for path in NAMES.map(|name| dir.join(name)) {
            let found = Copy::read(&path);
            if matches!(&found, Copy::Sound(note) if note == self) {
                continue;
            }
            tracing::warn!(path = %path.display(), ?found, "a copy of the store's format is not as the other one and is written again");
            if let Err(error) = write_durably(&path, &self.line()) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(path = %path.display(), error, "a copy of the store's format cannot be written");
            }
        }
    }
}

impl Copy {
    fn read(path: &Path) -> Copy {
        match std::fs::read(path) {
            Ok(bytes) => Copy::parse(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Copy::Missing,
            Err(error) => {
                let error = failed("cannot read", path, error);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a copy of the store's format"
                );
                Copy::Damaged
            }
        }
    }

    fn parse(bytes: &[u8]) -> Copy {
        let parsed = || {
            let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
            let Some((line, sum)) = line.split_once(" sum ") else {
                let note = Note::parse(line).filter(|note| note.noted.version == 1)?;
                return Some(Copy::Plain(note));
            };
            let sound = sum == format!("{:08x}", crc32fast::hash(line.as_bytes()));
            Some(Copy::Sound(Note::parse(line).filter(|_| sound)?))
        };
        parsed().unwrap_or(Copy::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(version: u32, becoming: Option<u32>) -> Note {
        Note {
            noted: Noted { version, becoming },
            engine: "redb".into(),
        }
    }

    #[test]
    fn lines() {
        #[track_caller]
        fn check(text: &str, expected: &Copy) {
            assert_eq!(Copy::parse(text.as_bytes()), *expected, "{text}");
        }
        for sound in [note(2, None), note(2, Some(3)), note(u32::MAX, None)] {
            check(&sound.line(), &Copy::Sound(sound));
        }
        check("format 1 engine redb\n", &Copy::Plain(note(1, None)));
        check(
            "format 1 becoming 2 engine redb\n",
            &Copy::Plain(note(1, Some(2))),
        );
        for damaged in [
            "",
            "nonsense",
            "format 1 engine redb",
            "format 2 engine redb\n",
            "format engine redb\n",
            "format 1 becoming engine redb\n",
            "format 2 engine redb sum 00000000\n",
            "format 2 engine redb sum \n",
        ] {
            check(damaged, &Copy::Damaged);
        }
    }

    #[test]
    fn no_flipped_bit_is_another_line() {
        let line = note(2, Some(3)).line();
        for at in 0..line.len() * 8 {
            let mut bytes = line.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            assert_eq!(Copy::parse(&bytes), Copy::Damaged, "bit {at}");
        }
    }

    #[test]
    fn one_copy_is_enough() {
        #[track_caller]
        fn check(files: [Option<&str>; 2], expected: Option<&Note>) {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in NAMES.iter().zip(files) {
                if let Some(text) = text {
                    std::fs::write(dir.path().join(name), text).unwrap();
                }
            }
            assert_eq!(Note::exists(dir.path()), files != [None, None]);
            let read = Note::read(dir.path());
            let Some(expected) = expected else {
                assert!(matches!(read, Err(StorageError::Corrupt(_))), "{read:?}");
                return;
            };
            assert_eq!(read.unwrap().unwrap(), *expected);
            expected.repair(dir.path());
            let sound = NAMES.map(|name| Copy::read(&dir.path().join(name)));
            assert!(
                sound
                    .iter()
                    .all(|copy| matches!(copy, Copy::Sound(note) if note == expected)),
                "{sound:?}"
            );
        }
        let (current, older) = (note(3, None), note(2, Some(3)));
        let (text, before) = (&*current.line(), &*older.line());
        check([Some(text), Some(text)], Some(&current));
        for damaged in [None, Some(""), Some("format 3"), Some("format 1 engine sled\n")] {
            check([Some(text), damaged], Some(&current));
            check([damaged, Some(text)], Some(&current));
        }
        // A crash between the two.
        check([Some(text), Some(before)], Some(&current));
        check([Some("x"), Some("y")], None);
        check([Some("x"), None], None);
        check([Some("format 1 engine redb\n"), Some("y")], None);
        assert_eq!(Note::read(tempfile::tempdir().unwrap().path()).unwrap(), None);
    }
}
