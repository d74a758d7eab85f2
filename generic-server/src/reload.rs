//! Files that are read again while the server runs: certificates, authorities, keys, the encryption configuration. Each is looked
//! at when it was written to, and once a minute in any case, and taken over when its content has changed and holds; else the one before stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use ring::digest;

use crate::encryption::Encryption;

/// How often the content of files is looked at, as upstream.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How often it is asked whether files were written to. Upstream has the system tell it.
const STAT_INTERVAL: Duration = Duration::from_secs(1);

/// Takes over what files say, or says why it cannot.
type Apply = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Files that belong together, and what is done when one of them changes.
struct Watched {
    name: &'static str,
    files: Vec<PathBuf>,
    /// The hash of what is in use.
    seen: Mutex<Option<[u8; 32]>>,
    apply: Apply,
}

/// A file whose new content takes time to come into use.
#[async_trait::async_trait]
pub trait Follow: Send + Sync {
    /// What the log calls the file.
    fn name(&self) -> &'static str;

    /// The file, or a directory of files.
    fn path(&self) -> &Path;

    /// Looks at the file once. True when it had changed and counts from now on; faults go to the log, and the previous content stays.
    async fn look(&self) -> bool;
}

/// All files that are read again.
#[derive(Default)]
pub struct Reload {
    watched: Vec<Watched>,
    encryption: Option<Arc<Encryption>>,
    followed: Vec<Arc<dyn Follow>>,
    /// The other state that follows the files.
    afterwards: Vec<Apply>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.watched.iter().map(|one| one.name).collect();
        f.debug_struct("Reload")
            .field("watched", &names)
            .finish_non_exhaustive()
    }
}

impl Reload {
    /// Follows files that have just been read. `apply` reads them again and takes them over, or says why it cannot.
    pub fn watch(
        &mut self,
        name: &'static str,
        files: impl IntoIterator<Item = PathBuf>,
        apply: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let files: Vec<PathBuf> = files.into_iter().collect();
        if files.is_empty() {
            return;
        }
        let seen = Mutex::new(hash(&files));
        self.watched.push(Watched {
            name,
            files,
            seen,
            apply: Box::new(apply),
        });
    }

    /// Follows the encryption configuration, too.
    pub fn encryption(&mut self, encryption: Option<Arc<Encryption>>) {
        self.encryption = encryption;
    }

    /// Follows a file that takes care of itself.
    pub fn follow_file(&mut self, file: Arc<dyn Follow>) {
        self.followed.push(file);
    }

    /// Calls this, too, whenever files were taken over.
    pub fn afterwards(&mut self, apply: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.afterwards.push(Box::new(apply));
    }

    /// Looks at all files once. Names the files that were reloaded; faults go to the log.
    pub async fn look(&self) -> Vec<&'static str> {
        let mut taken = Vec::new();
        for one in &self.watched {
            let now = hash(&one.files);
            // A file that is away for a moment is being replaced.
            if now.is_none() || now == *one.seen.lock() {
                continue;
            }
            match (one.apply)() {
                Ok(()) => {
                    *one.seen.lock() = now;
                    tracing::info!(target: "operator", files = one.name, "files were reloaded");
                    taken.push(one.name);
                }
                Err(error) => tracing::error!(files = one.name, %error, "changed files cannot be used"),
            }
        }
        if !taken.is_empty() {
            for error in self.afterwards.iter().filter_map(|apply| apply().err()) {
                tracing::error!(%error, "changed files cannot be applied");
            }
        }
        if let Some(encryption) = &self.encryption
            && encryption.is_automatic()
            && encryption.poll_once().await == Ok(true)
        {
            taken.push("encryption configuration");
        }
        for file in &self.followed {
            if !is_endless(file.path()) && file.look().await {
                taken.push(file.name());
            }
        }
        taken
    }

    /// Looks again and again, until dropped. Ends at once where there is no file.
    pub async fn follow(self: Arc<Self>) {
        if self.watched.is_empty() && self.encryption.is_none() && self.followed.is_empty() {
            return;
        }
        let (mut seen, mut looked) = (self.stamps(), Instant::now());
        loop {
            tokio::time::sleep(STAT_INTERVAL).await;
            let now = self.stamps();
            if now != seen || looked.elapsed() >= LOOK_INTERVAL {
                (seen, looked) = (now, Instant::now());
                self.look().await;
            }
        }
    }

    /// What changes when one of the files is written to or replaced.
    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let watched = self.watched.iter().flat_map(|one| &one.files);
        let followed = self.followed.iter().map(|file| file.path());
        watched
            .map(PathBuf::as_path)
            .chain(followed)
            .map(|path| {
                let metadata = std::fs::metadata(path).ok()?;
                Some((metadata.modified().ok()?, metadata.len()))
            })
            .collect()
    }
}

/// Whether a path leads to a pipe or a device, whose reading may never end.
fn is_endless(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn hash(files: &[PathBuf]) -> Option<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    for file in files {
        if is_endless(file) {
            return None;
        }
        let content = std::fs::read(file).ok()?;
        context.update(&(content.len() as u64).to_be_bytes());
        context.update(&content);
    }
    context.finish().as_ref().try_into().ok()
}
