//! The files of a directory, in the order of their names, as documents.

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
/// One cannot be read, or they are too large.
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
        let data = std::fs::read(&path)
            .map_err(|error| format!("failed to read file \"{}\": {error}", path.display()))?;
        if data.is_empty() {
            continue;
        }
        content.extend_from_slice(&data);
        content.push(0);
        if content.len() > limits::MANIFEST_BYTES {
            return Err(format!(
                "the manifests in \"{shown}\" are larger than {} bytes",
                limits::MANIFEST_BYTES
            ));
        }
        documents.extend(split(&data).into_iter().map(|document| (path.clone(), document)));
    }
    let hash = match content.is_empty() {
        true => String::new(),
        false => content_hash(&content),
    };
    Ok(Files { documents, hash })
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
