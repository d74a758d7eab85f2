//! The authorities, certificates and keys that the server has of its own: opened at start, renewed and rotated while it runs. Code
//! that uses them follows their files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use generic_server::pki::{Pki, ServingNames};
use generic_server::registry::StorageFactory;

use crate::config::Config;
use crate::{StartError, replicas};

/// How often it is looked whether something is to be renewed, or another replica has rotated something.
const INTERVAL: Duration = Duration::from_secs(600);
/// Without these nothing is renewed while the server runs: their signatures would no longer verify.
const KEPT: [&str; 5] = [
    "ca.crt",
    "ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
];

/// Where they are stored, and whether other replicas share them.
#[derive(Debug)]
pub(super) struct OwnPki {
    directory: PathBuf,
    names: ServingNames,
    /// `None` for a server of its own.
    shared: Option<Shared>,
}

/// Where replicas agree on the authorities and keys.
#[derive(Debug)]
struct Shared {
    stores: StorageFactory,
    /// For the log.
    place: String,
    prefix: String,
}

impl OwnPki {
    /// `None` without a data directory: then they are in memory.
    pub(super) fn new(config: &Config, names: ServingNames, storage: &StorageFactory) -> Option<Self> {
        let agrees = replicas::agrees(config);
        Some(OwnPki {
            directory: config.data_dir.as_ref()?.join("pki"),
            names,
            shared: agrees.then(|| Shared {
                stores: storage.clone(),
                place: config.summary().store,
                prefix: config.storage.prefix.clone(),
            }),
        })
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is any of what is not created twice.
    pub(super) fn exists(&self) -> bool {
        KEPT.iter().any(|name| self.directory.join(name).exists())
    }

    /// Opens them, creates missing ones and renews those that are about to expire.
    ///
    /// # Errors
    /// When files or the store cannot be read or written, or hold something else.
    pub(super) async fn open(&self) -> Result<Pki, StartError> {
        if let Some(shared) = &self.shared {
            let Shared {
                stores,
                place,
                prefix,
            } = shared;
            replicas::agree(stores, place, prefix, &self.directory).await?;
        }
        Ok(Pki::open(&self.directory, &self.names)?)
    }

    /// Renews them until dropped, and the administrator's kubeconfig with them: the file and the URL in it.
    pub(super) async fn keep(self, kubeconfig: Option<(PathBuf, String)>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Err(error) = self.renew(kubeconfig.as_ref()).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the server's own certificates cannot be renewed now"
                );
            }
        }
    }

    async fn renew(&self, kubeconfig: Option<&(PathBuf, String)>) -> Result<(), StartError> {
        if let Some(gone) = KEPT.iter().find(|name| !self.directory.join(name).exists()) {
            return Err(StartError::Option(format!(
                "{} is gone",
                self.directory.join(gone).display()
            )));
        }
        let pki = self.open().await?;
        if let Some((file, url)) = kubeconfig {
            pki.write_kubeconfig(file, url)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_authority_is_not_replaced_behind_its_users() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = OwnPki {
            directory: dir.path().join("pki"),
            names: ServingNames::default(),
            shared: None,
        };
        let first = own.open().await.expect("made");
        let kubeconfig = (
            dir.path().join("admin.kubeconfig"),
            "https://127.0.0.1:1".to_string(),
        );
        // A leaf is issued again, and the kubeconfig follows it.
        std::fs::remove_file(own.directory.join("admin.crt")).expect("it was there");
        own.renew(Some(&kubeconfig)).await.expect("renewed");
        let renewed = own.open().await.expect("opened");
        assert_ne!(renewed.admin.certificate, first.admin.certificate);
        let written = std::fs::read_to_string(&kubeconfig.0).expect("written");
        assert_eq!(written, renewed.kubeconfig(&kubeconfig.1));

        std::fs::remove_file(own.directory.join("ca.key")).expect("it was there");
        let refused = own.renew(None).await.expect_err("a key is gone").to_string();
        assert!(refused.contains("ca.key is gone"), "{refused}");
        assert!(!own.directory.join("ca.key").exists());
    }
}
