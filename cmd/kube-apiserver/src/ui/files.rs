//! The files of the page, which are in the binary.

use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use generic_server::metrics::content_hash;

/// A file, with the forms that are made of it at its first request.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) media: &'static str,
    pub(super) content: &'static [u8],
    forms: OnceLock<Forms>,
}

#[derive(Debug)]
pub(super) struct Forms {
    /// A hash of the content, for entity tags.
    pub(super) hash: String,
    pub(super) gzip: Option<Bytes>,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($name:literal, $media:expr) => {
        File {
            name: $name,
            media: $media,
            content: include_bytes!(concat!("assets/", $name)),
            forms: OnceLock::new(),
        }
    };
}

static FILES: [File; 26] = [
    file!("index.html", HTML),
    file!("style.css", CSS),
    file!("icon.svg", SVG),
    file!("app.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("access.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("metrics.js", SCRIPT),
    file!("keys.js", SCRIPT),
    file!("yaml.js", SCRIPT),
    file!("diff.js", SCRIPT),
    file!("overview.js", SCRIPT),
    file!("apis.js", SCRIPT),
    file!("requests.js", SCRIPT),
    file!("admission.js", SCRIPT),
    file!("storage.js", SCRIPT),
    file!("status.js", SCRIPT),
    file!("certificates.js", SCRIPT),
    file!("events.js", SCRIPT),
    file!("explorer.js", SCRIPT),
    file!("object.js", SCRIPT),
    file!("editor.js", SCRIPT),
    file!("guard.js", SCRIPT),
    file!("secret.js", SCRIPT),
    file!("namespace.js", SCRIPT),
];

impl File {
    /// The file of this name; the empty name is the page itself.
    pub(super) fn find(name: &str) -> Option<&'static File> {
        let name = if name.is_empty() { "index.html" } else { name };
        FILES.iter().find(|file| file.name == name)
    }

    #[cfg(test)]
    pub(super) fn all() -> &'static [File] {
        &FILES
    }

    /// The forms, made once.
    pub(super) fn forms(&self) -> &Forms {
        self.forms.get_or_init(|| {
            let hash = content_hash(self.content);
            Forms {
                // Enough to tell versions apart.
                hash: hash.trim_start_matches("sha256:").chars().take(32).collect(),
                gzip: compressed(self.content),
            }
        })
    }
}

/// `None` where it is no shorter.
fn compressed(content: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).ok()?;
    let bytes = encoder.finish().ok()?;
    (bytes.len() < content.len()).then(|| bytes.into())
}
