//! Files that are read again while the server runs: certificates, authorities, keys, the encryption configuration. Each is looked
//! at about once a minute and taken over when its content has changed and holds; else the one before stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use generic_server::encryption::Encryption;
use generic_server::registry::Directory;
use generic_server::registry::store::Written;
use machinery::GroupResource;
use parking_lot::Mutex;
use ring::digest;
use serde_json::Value;

/// How often files are looked at, as upstream.
const EVERY: Duration = Duration::from_secs(60);

type Apply = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Files that belong together, and what is done when one of them changes.
struct Watched {
    name: &'static str,
    files: Vec<PathBuf>,
    /// The hash of what is in use.
    seen: Mutex<Option<[u8; 32]>>,
    apply: Apply,
}

/// All files that are read again.
#[derive(Default)]
pub(crate) struct Reload {
    watched: Vec<Watched>,
    encryption: Option<Arc<Encryption>>,
    /// What extension servers read of this server's trust is kept in step with the files.
    facts: Option<(Arc<Directory>, FactsText)>,
}

/// The text of a fact that extension servers read, as it is now.
pub(crate) type FactsText = Box<dyn Fn() -> Result<Vec<(&'static str, String)>, String> + Send + Sync>;

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
    pub(crate) fn watch(
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
    pub(crate) fn encryption(&mut self, encryption: Option<Arc<Encryption>>) {
        self.encryption = encryption;
    }

    /// Keeps the facts for extension servers in step.
    pub(crate) fn facts(&mut self, directory: Arc<Directory>, text: FactsText) {
        self.facts = Some((directory, text));
    }

    /// Looks at all files once. Names what was taken over; what does not hold is told in the log.
    pub(crate) async fn look(&self) -> Vec<&'static str> {
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
                    tracing::info!(files = one.name, "files were read anew");
                    taken.push(one.name);
                }
                Err(error) => tracing::error!(files = one.name, %error, "changed files cannot be used"),
            }
        }
        if !taken.is_empty()
            && let Some((directory, text)) = &self.facts
            && let Err(error) = write_facts(directory, text).await
        {
            tracing::error!(%error, "the facts for extension servers cannot be written");
        }
        if let Some(encryption) = &self.encryption
            && encryption.is_automatic()
            && encryption.look().await == Ok(true)
        {
            taken.push("encryption configuration");
        }
        taken
    }

    /// Looks again and again, until dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.look().await;
        }
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

async fn write_facts(directory: &Directory, text: &FactsText) -> Result<(), String> {
    let Some(maps) = directory.get(&GroupResource::new("", "configmaps")) else {
        return Ok(());
    };
    let found = maps
        .store
        .find("kube-system", "extension-apiserver-authentication")
        .await;
    let Some(entry) = found.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let mut object = entry.value();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    for (key, text) in text()? {
        object["data"][key] = Value::from(text);
    }
    match maps.store.replace(&entry, &object, None).await {
        Ok(Written::Stored(_)) => Ok(()),
        Ok(Written::Lost(_)) => Err("somebody else was writing them".into()),
        Err(error) => Err(error.to_string()),
    }
}
