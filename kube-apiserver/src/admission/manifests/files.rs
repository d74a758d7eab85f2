//! The files of a directory, in the order of their names, as documents.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use generic_server::metrics::content_hash;
use machinery::limits;

/// The documents of a directory.
pub(super) struct Files {
    /// Each with the file that it is of.
    pub(super) documents: Vec<(PathBuf, Vec<u8>)>,
    /// Of all content; empty without any.
    pub(super) hash: String,
}

/// Reads the YAML and JSON files of a directory.
///
/// # Errors
/// One cannot be read or is no file, or they are too large.
pub(super) fn read(directory: &Path) -> Result<Files, String> {
    let shown = directory.display();
    let failed = |error: std::io::Error| format!("failed to read manifest directory \"{shown}\": {error}");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let wanted = ["yaml", "yml", "json"].iter().any(|wanted| extension == *wanted);
        if wanted && !entry.file_type().map_err(failed)?.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    let (mut documents, mut content) = (Vec::new(), Vec::new());
    for path in paths {
        let room = limits::MANIFEST_BYTES.saturating_sub(content.len());
        let data = contents(&path, room)
            .map_err(|error| format!("failed to read file \"{}\": {error}", path.display()))?;
        let Some(data) = data else {
            return Err(format!(
                "the manifests in \"{shown}\" are larger than {} bytes",
                limits::MANIFEST_BYTES
            ));
        };
        if data.is_empty() {
            continue;
        }
        content.extend_from_slice(&data);
        content.push(0);
        documents.extend(split(&data).into_iter().map(|document| (path.clone(), document)));
    }
    let hash = match content.is_empty() {
        true => String::new(),
        false => content_hash(&content),
    };
    Ok(Files { documents, hash })
}

/// A file's content, read no further than it may be long; `None` when it is longer. What a link leads to has to be a file: a device may have no end,
/// and a pipe waits for its other end.
fn contents(path: &Path, room: usize) -> std::io::Result<Option<Vec<u8>>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut data = Vec::new();
    let most = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut data)?;
    Ok((data.len() <= room).then_some(data))
}

/// The documents between lines of three dashes, without empty ones.
fn split(data: &[u8]) -> Vec<Vec<u8>> {
    let mut documents = vec![Vec::new()];
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let ends = line
            .strip_prefix(b"---")
            .is_some_and(|rest| rest.trim_ascii().is_empty());
        match documents.last_mut() {
            Some(document) if !ends => document.extend_from_slice(line),
            _ => documents.push(Vec::new()),
        }
    }
    documents.retain(|document| !document.trim_ascii().is_empty());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let refused = || read(directory.path()).map(drop).unwrap_err();
        let path = directory.path().join("a.yaml");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let text = refused();
        assert!(text.contains("a.yaml\": it is not a regular file"), "{text}");
        std::fs::remove_file(&path).unwrap();
        let half = u64::try_from(limits::MANIFEST_BYTES / 2).unwrap();
        for name in ["b.yaml", "c.yaml"] {
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_len(half + 1).unwrap();
        }
        let text = refused();
        assert!(text.contains("are larger than 16777216 bytes"), "{text}");
    }
}
