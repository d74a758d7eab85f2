//! Webhooks and policies from files (`staticManifestsDir`): they count from the first request on, and nobody can change them through the API.
//!
//! Each plugin has a directory of its own. It is read at the start, which fails with it, and looked at again once a minute: a set that holds
//! takes the place of the one before as a whole, any other leaves it in use. Mirrors upstream's `admission/plugin/manifest` and the
//! loaders beside its plugins.

mod files;
mod kinds;
mod metrics;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use generic_server::reload::Follow;
use parking_lot::Mutex;
use serde_json::Value;

pub(super) use kinds::Plugin;
pub(super) use metrics::ManifestReloads;

/// What the names of objects of files end in, and those of no others.
pub(super) const SUFFIX: &str = ".static.k8s.io";

/// The objects of a directory, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Set {
    /// Configurations of webhooks, or policies.
    pub(super) objects: Vec<Value>,
    /// The bindings of policies.
    pub(super) bindings: Vec<Value>,
}

type Consumer = Box<dyn Fn(Set) + Send + Sync>;

/// The directory of a plugin.
pub(super) struct Manifests {
    plugin: Plugin,
    directory: PathBuf,
    /// The set in use with the hash of its files.
    current: Mutex<(String, Set)>,
    /// The plugin, once it is there.
    consumer: OnceLock<Consumer>,
    reloads: Arc<ManifestReloads>,
}

impl std::fmt::Debug for Manifests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifests")
            .field("plugin", &self.plugin)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Manifests {
    /// Reads a directory for the first time.
    ///
    /// # Errors
    /// Why its files cannot be used.
    pub(super) async fn open(
        plugin: Plugin,
        directory: PathBuf,
        reloads: Arc<ManifestReloads>,
    ) -> Result<Self, String> {
        let files = files::read(&directory)?;
        let set = kinds::accept(plugin, &files.documents).await?;
        reloads.succeeded(plugin, &files.hash);
        tracing::info!(
            plugin = plugin.name(),
            objects = set.objects.len(),
            "manifests of admission were read"
        );
        Ok(Manifests {
            plugin,
            directory,
            current: Mutex::new((files.hash, set)),
            consumer: OnceLock::new(),
            reloads,
        })
    }

    pub(super) fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// Gives the set in use to the plugin, and each that takes its place.
    pub(super) fn connect(&self, consumer: impl Fn(Set) + Send + Sync + 'static) {
        let current = self.current.lock();
        let consumer = self.consumer.get_or_init(|| Box::new(consumer));
        consumer(current.1.clone());
    }

    /// Reads the files again. True: they have changed, and count from now on.
    async fn reload(&self) -> Result<bool, String> {
        let files = files::read(&self.directory)?;
        if files.hash == self.current.lock().0 {
            return Ok(false);
        }
        let set = kinds::accept(self.plugin, &files.documents).await?;
        let mut current = self.current.lock();
        if let Some(consumer) = self.consumer.get() {
            consumer(set.clone());
        }
        self.reloads.succeeded(self.plugin, &files.hash);
        *current = (files.hash, set);
        Ok(true)
    }
}

#[async_trait::async_trait]
impl Follow for Manifests {
    fn name(&self) -> &'static str {
        "manifests of admission"
    }

    fn path(&self) -> &Path {
        &self.directory
    }

    async fn look(&self) -> bool {
        match self.reload().await {
            Ok(changed) => changed,
            Err(error) => {
                let (plugin, directory) = (self.plugin.name(), self.directory.display());
                tracing::error!(plugin, %directory, %error, "changed manifests cannot be used: those before stay");
                self.reloads.failed(self.plugin);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
