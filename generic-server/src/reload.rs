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
/// Bytes of one followed file. Upstream has no bound. Past it: an error in the log, and the content before stays.
const FILE_BYTES: u64 = 64 << 20;

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
        let readable = files.iter().all(|file| refusal(file).is_none());
        let seen = Mutex::new(readable.then(|| hash(&files)).flatten());
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
            if let Some(error) = one.files.iter().find_map(|file| refusal(file)) {
                tracing::error!(files = one.name, %error, "changed files cannot be used");
                continue;
            }
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
            if let Some(error) = refusal(file.path()) {
                tracing::error!(files = file.name(), %error, "changed files cannot be used");
            } else if file.look().await {
                taken.push(file.name());
            }
        }
        taken
    }

    /// Looks again and again, until dropped. Ends at once where there is no file. A disk that does not answer holds up a thread of
    /// its own and no request.
    pub async fn follow(self: Arc<Self>) {
        if self.watched.is_empty() && self.encryption.is_none() && self.followed.is_empty() {
            return;
        }
        let runtime = tokio::runtime::Handle::current();
        let (mut seen, mut looked) = (self.stamps(), Instant::now());
        loop {
            tokio::time::sleep(STAT_INTERVAL).await;
            let (reload, runtime, before) = (self.clone(), runtime.clone(), seen.clone());
            let due = looked.elapsed() >= LOOK_INTERVAL;
            let look = move || {
                let now = reload.stamps();
                let look = due || now != before;
                if look {
                    runtime.block_on(reload.look());
                }
                (now, look)
            };
            match tokio::task::spawn_blocking(look).await {
                Ok((now, look)) => {
                    seen = now;
                    if look {
                        looked = Instant::now();
                    }
                }
                Err(error) if error.is_panic() => tracing::error!(%error, "files could not be looked at"),
                Err(_) => return,
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

/// Why a file is not read: a pipe or a device, whose reading may never end, or one that is too large.
fn refusal(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let path = path.display();
    if metadata.is_dir() {
        None
    } else if !metadata.is_file() {
        Some(format!("{path} is no regular file"))
    } else if metadata.len() > FILE_BYTES {
        Some(format!("{path} has more than {FILE_BYTES} bytes"))
    } else {
        None
    }
}

fn hash(files: &[PathBuf]) -> Option<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    for file in files {
        let content = std::fs::read(file).ok()?;
        context.update(&(content.len() as u64).to_be_bytes());
        context.update(&content);
    }
    context.finish().as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicUsize, Ordering};

    fn watch(file: &Path) -> (Reload, Arc<AtomicUsize>) {
        let (mut reload, taken) = (Reload::default(), Arc::new(AtomicUsize::new(0)));
        let counted = taken.clone();
        reload.watch("tested", [file.to_owned()], move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        (reload, taken)
    }

    #[tokio::test]
    async fn a_file_is_taken_over_once_for_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let (reload, taken) = watch(&file);
        assert!(reload.look().await.is_empty());
        std::fs::write(&file, "two").unwrap();
        assert_eq!(reload.look().await, ["tested"]);
        std::fs::remove_file(&file).unwrap();
        assert!(reload.look().await.is_empty());
        std::fs::write(&file, "two").unwrap();
        assert!(reload.look().await.is_empty());
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }

    /// A pipe that nobody writes to would be read for ever.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_pipe_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert!(refusal(&pipe).unwrap().ends_with("is no regular file"));
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let (reload, taken) = watch(&file);
        std::fs::rename(&pipe, &file).unwrap();
        assert!(reload.look().await.is_empty());
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_file_past_the_bound_leaves_the_content_before() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let (reload, taken) = watch(&file);
        let sparse = std::fs::File::create(&file).unwrap();
        sparse.set_len(FILE_BYTES).unwrap();
        assert_eq!(reload.look().await, ["tested"]);
        sparse.set_len(FILE_BYTES + 1).unwrap();
        assert!(reload.look().await.is_empty());
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}
